r"""From the rows of each benchmark file to problems. One function a file; none reads a disk.

Each knows the traps of its file: AIME golds are zero-padded text, AMC golds are floats, Minerva
has its gold in the last \boxed of the solution, OlympiadBench wraps golds in lists and in $.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from brorl.verify.code_rows import contest_task, humaneval_task, leetcode_task, mbpp_task
from brorl.verify.code_task import read_task
from brorl.verify.extract import find_boxes

Row = Mapping[str, Any]


class SuiteRow(NamedTuple):
    """One problem before its prompt format is applied."""

    id: str
    question: str
    gold: str | None
    row: Mapping[str, Any]  # what the verifier may need, plain types
    category: str
    task: str = ""  # where a file has several; else the suite's name


def aime24(row: Row, number: int) -> SuiteRow:
    """30 rows; the gold is text such as "025"."""
    return SuiteRow(f"{row['id']}", _text(row["problem"]), str(int(row["answer"])), row, "math")


def aime25(row: Row, number: int) -> SuiteRow:
    """30 rows."""
    gold = str(int(row["expected_answer"]))
    return SuiteRow(f"{row['id']}", _text(row["problem"]), gold, row, "math")


def amc(row: Row, number: int) -> SuiteRow:
    """83 rows of AMC 2022 and 2023; the gold is a float, and all are whole numbers."""
    value = float(row["answer"])
    if value != int(value):
        raise ValueError(f"need a whole number as answer, got {row['answer']!r}")
    return SuiteRow(f"{number}", _text(row["problem"]), str(int(value)), row, "math")


def math500(row: Row, number: int) -> SuiteRow:
    """500 rows; unique_id names the file of MATH; tasks are its seven subjects."""
    gold = _text(row["answer"])
    task = _text(row["subject"])
    return SuiteRow(_text(row["unique_id"]), _text(row["problem"]), gold, row, "math", task)


def minerva(row: Row, number: int) -> SuiteRow:
    """272 rows; the gold is the last box of the solution; tasks are the nine courses."""
    boxes = find_boxes(_text(row["solution"])).complete
    if not boxes:
        raise ValueError("the solution has no complete box, so there is no gold")
    task = _text(row["type"])
    gold = boxes[-1].content
    return SuiteRow(f"{row['idx']}", _text(row["problem"]), gold, row, "math", task)


def olympiadbench(row: Row, number: int) -> SuiteRow:
    """675 rows, text only, English; one gold each, which may list several values."""
    golds = row["final_answer"]
    if len(golds) != 1:
        raise ValueError(f"need one final_answer, got {len(golds)}")
    gold = _text(golds[0]).strip().strip("$").rstrip("$. ")
    task = _text(row["subfield"])
    return SuiteRow(f"{row['id']}", _text(row["question"]), gold, row, "math", task)


def humaneval(row: Row, number: int) -> SuiteRow:
    """164 rows; the tests are one function, check(candidate)."""
    question = f"Complete this function:\n\n```python\n{_text(row['prompt']).rstrip()}\n```"
    return SuiteRow(_text(row["task_id"]), question, None, _tested(humaneval_task(row)), "code")


def mbpp(row: Row, number: int) -> SuiteRow | None:
    """974 rows, of which task_id 11 to 510 are the test part: 500 problems.

    The asserts are shown, as usual for this set: without them the wanted names are unknown.
    """
    if not 11 <= int(row["task_id"]) <= 510:
        return None
    task = _tested(mbpp_task(row))
    shown = "\n".join(_text(test) for test in row["test_list"])
    question = f"{_text(row['text'])}\n\nYour code must pass these tests:\n\n{shown}"
    return SuiteRow(f"{row['task_id']}", question, None, task, "code")


def leetcode(row: Row, number: int) -> SuiteRow:
    """200 rows; the tests call a method of class Solution; the problem asks for a code block."""
    task = _tested(leetcode_task(row))
    return SuiteRow(f"{number}", _text(row["problem"]), None, task, "code")


def contest(row: Row, number: int) -> SuiteRow:
    """CodeContests (165 rows, 1 to 138 tests) and Codeforces (408 rows, mostly one sample test).

    Where the only test is the sample in the statement, printing the sample pays: read it so.
    """
    return SuiteRow(
        f"{number}", _text(row["problem"]).strip(), None, _tested(contest_task(row)), "code"
    )


def ifeval(row: Row, number: int) -> SuiteRow:
    """541 rows; keys without a value are left out of kwargs, as the original file has them."""
    kwargs = [{k: v for k, v in one.items() if v is not None} for one in row["kwargs"]]
    kinds = [_text(kind) for kind in row["instruction_id_list"]]
    if len(kwargs) != len(kinds):
        raise ValueError(f"need one kwargs an instruction, got {len(kwargs)} and {len(kinds)}")
    task = {"prompt": row["prompt"], "instruction_id_list": kinds, "kwargs": kwargs}
    return SuiteRow(f"{row['key']}", _text(row["prompt"]), None, task, "instructions")


def _tested(task: dict[str, Any]) -> dict[str, Any]:
    """The task, refused where it has no test: any program would pass it."""
    if not read_task(task).declared:
        raise ValueError("a code task without tests would pass anything")
    return task


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"need text, got {value!r:.60}")
    return value
