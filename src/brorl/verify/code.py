"""The code verifier: takes a program out of a text and runs the tests of the task against it.

The tests, what they expect and what they conclude never enter the program's process; see
docs/sandbox.md for who can reach what.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from brorl.errors import DataError, VerifierError
from brorl.verify.code_runner import GRACE_S, START_S, runner
from brorl.verify.code_task import read_task
from brorl.verify.sandbox import Limits
from brorl.verify.verdict import Verdict, correct, timed_out, ungradable, wrong

MAX_CODE_CHARS = 400_000
# A fence is a line of its own, indented by three spaces at most (CommonMark 0.31, section 4.5):
# deeper ones belong to a docstring.
_FENCE = re.compile(r"^ {0,3}```([^`\n]*)$", re.MULTILINE)
_NO_TESTS = "a task needs at least one test, got none: there is nothing to judge by"
_PYTHON = {"", "python", "python3", "py", "py3"}


def extract_code(text: str, entry_point: str | None) -> str | None:
    """The program in a completion, None if there is none.

    After the last </think>: of the complete fenced blocks marked as Python or not marked at all,
    the last that defines the entry point, else the last. Without any fence, the whole text.
    Unfinished thinking, an unfinished block and blocks in other languages hold no program.
    """
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    elif "<think>" in text:
        return None
    fences = list(_FENCE.finditer(text))
    if not fences:
        return text if text.strip() else None
    blocks = []
    opened: re.Match[str] | None = None
    for fence in fences:
        if opened is None:
            opened = fence
        elif not fence[1].strip():
            if opened[1].strip().lower() in _PYTHON:
                blocks.append(text[opened.end() + 1 : fence.start()])
            opened = None
    if entry_point:
        defines = re.compile(
            rf"^(?:async +)?(?:def|class) +{re.escape(entry_point)}\b|^{re.escape(entry_point)} *=",
            re.MULTILINE,
        )
        blocks = [block for block in blocks if defines.search(block)] or blocks
    return next((block for block in reversed(blocks) if block.strip()), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeVerifier:
    """Judges programs by the tests of their row (`code_task.read_task`). Picklable.

    Attributes:
        partial: whether a program that passes some of the declared tests is paid their share.
            Otherwise the first test that fails ends the run.
        timeout_s: seconds of wall clock for each test, unless the task says otherwise.
        total_s: seconds of wall clock for all tests of one program.
        limits: of a box.
        unsafe_local: run programs without a sandbox.
    """

    partial: bool = False
    timeout_s: float = 6.0
    total_s: float = 30.0
    limits: Limits = field(default_factory=Limits)
    unsafe_local: bool = False
    needs_gold = False  # the tests are in the row

    @property
    def deadline_s(self) -> float:
        """Seconds that judging one program may take in all; a grader pool allows for it."""
        return self.total_s + 2 * START_S + 10 * GRACE_S

    def prepare(self) -> None:
        """Find a way of making boxes. Raises ConfigError, which says what to install."""
        runner(self.limits, unsafe_local=self.unsafe_local)

    def unreadable(self, gold: str | None, row: Mapping[str, Any]) -> str | None:
        """Why a row of data cannot be used, None if it can."""
        try:
            task = read_task(row)
        except DataError as error:
            return str(error)
        return None if task.declared else _NO_TESTS

    def extract(self, text: str, row: Mapping[str, Any]) -> str | None:
        """The program in a text: `extract_code`."""
        task = row.get("task", row)
        entry_point = task.get("entry_point") if isinstance(task, Mapping) else None
        return extract_code(text, entry_point if isinstance(entry_point, str) else None)

    def grade(self, extracted: str, *, gold: str | None, row: Mapping[str, Any]) -> Verdict:
        """Run the tests. `gold` has no part in it.

        Raises:
            VerifierError: the row holds no task or no tests, or the sandbox broke.
        """
        try:
            task = read_task(row)
        except DataError as error:
            raise VerifierError(str(error)) from error
        declared = task.declared
        if declared == 0:
            raise VerifierError(_NO_TESTS)
        if len(extracted) > MAX_CODE_CHARS:
            return ungradable(extracted, f"a program may have {MAX_CODE_CHARS} characters")
        outcome = runner(self.limits, unsafe_local=self.unsafe_local).run(
            extracted,
            task,
            test_s=min(task.timeout_s or self.timeout_s, self.total_s),
            total_s=self.total_s,
            stop_early=not self.partial,
        )
        passed = sum(outcome.passed)
        if outcome.end == "late":
            return timed_out(extracted, outcome.why)
        if outcome.end == "unreadable":
            return ungradable(extracted, f"does not compile: {outcome.why}")
        if passed == declared:
            return correct(extracted, f"passed all of {declared} tests")
        score = passed / declared if self.partial else 0.0
        return wrong(extracted, f"{outcome.why} (of {declared})", score)
