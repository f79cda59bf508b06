"""Benchmark files as problems: the traps of each file, the counts, and what a bad file gets."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from brorl.errors import ConfigError, DataError
from brorl.evaluate import suite_rows
from brorl.evaluate.suite_gym import LEFT_OUT, default_tasks, load_reasoning_gym
from brorl.evaluate.suites import BENCHMARKS, NAMES, load_benchmark, load_own
from brorl.verify.code_task import read_task

SHARED = os.environ.get("BRORL_SHARED")
needs_data = pytest.mark.skipif(
    SHARED is None, reason="the benchmark files are found by BRORL_SHARED, which is not set"
)
ROWS = {
    "aime24": 30,
    "aime25": 30,
    "amc": 83,
    "math500": 500,
    "minerva": 272,
    "olympiadbench": 675,
    "humaneval": 164,
    "mbpp": 500,
    "leetcode": 200,
    "codecontests": 165,
    "codeforces": 408,
    "ifeval": 541,
}


def load(name):
    return load_benchmark(name, folder=Path(SHARED) / "data", hub=False)


def problems(name):
    return load(name).parts[0].problems


@needs_data
@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_row_is_a_problem_with_an_id_of_its_own(name):
    """Golden counts, from the sources' own tables (MBPP: the 500 of its test part)."""
    suite = load(name)
    ids = [p.id for part in suite.parts for p in part.problems]
    assert len(ids) == len(set(ids)) == ROWS[name]
    assert len(suite.source_sha256) == 64
    assert suite.categories.keys() == set(ids)
    first = suite.parts[0].problems[0]
    assert first.prompt.endswith(suite.prompt.format(prompt=""))


@needs_data
@pytest.mark.parametrize("name", ["aime24", "aime25", "amc"])
def test_competition_golds_are_whole_numbers_without_padding(name):
    """AIME answers lie in 0 ... 999; a gold "025" or "27.0" would refuse a right 25 or 27."""
    golds = [p.gold for p in problems(name)]
    assert all(g == str(int(g)) for g in golds)
    if name != "amc":
        assert all(0 <= int(g) <= 999 for g in golds)


@needs_data
def test_golds_of_known_rows():
    """Read off the files by eye."""
    assert problems("aime25")[0].gold == "70"
    assert problems("amc")[0].gold == "142"
    assert problems("minerva")[0].gold == "1.6"
    assert problems("math500")[0].gold == r"\left( 3, \frac{\pi}{2} \right)"
    assert {"25", "73", "80"} <= {p.gold for p in problems("aime24")}


@needs_data
def test_olympiad_golds_have_no_wrapping_left():
    golds = [p.gold for p in problems("olympiadbench")]
    assert not [g for g in golds if g.startswith("$") or g.endswith(("$", "."))]
    assert all(golds)


@needs_data
def test_tasks_of_the_files_that_have_several():
    assert len({p.task for p in problems("math500")}) == 7
    assert len({p.task for p in problems("minerva")}) == 9
    assert Counter(p.task for p in problems("olympiadbench"))["Algebra"] == 264


RUN = """
import json, sys
for row in json.load(sys.stdin):
    space = {"__name__": "tests"}
    try:
        exec(row["program"], space)
        exec(row["setup"], space)
        assert row["entry_point"] in space, "entry point is not defined"
        for test in row["tests"]:
            exec(test, space)
    except Exception as error:
        print(row["id"], type(error).__name__, error)
"""


def failures(rows):
    done = subprocess.run(
        [sys.executable, "-I", "-W", "ignore", "-c", RUN],
        input=json.dumps(rows),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.splitlines()


@needs_data
@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.slow)])
def test_reference_programs_pass_the_tests_as_we_state_them(every):
    """Oracle: the files' own solutions, run in a process of their own; a wrong entry point, a
    forgotten set-up or tests that call nothing would show here."""
    rows = []
    for line in _lines("humaneval/HumanEval.jsonl.gz"):
        rows.append((suite_rows.humaneval(line, 0), line["prompt"] + line["canonical_solution"]))
    for line in _lines("mbpp/mbpp.jsonl"):
        if row := suite_rows.mbpp(line, 0):
            rows.append((row, line["code"]))
    assert len(rows) == 664
    jobs = [
        {**row.row, "id": row.id, "program": row.row.get("preamble", "") + "\n" + program}
        for row, program in rows[::every]
    ]
    assert failures(jobs) == []
    broken = [{**job, "program": f"def {job['entry_point']}(*a, **k): return 'no'"} for job in jobs]
    assert len(failures(broken)) == len(jobs)


def _lines(file):
    import gzip

    path = Path(SHARED) / "data" / file
    text = gzip.decompress(path.read_bytes()).decode() if file.endswith("gz") else path.read_text()
    return [json.loads(line) for line in text.splitlines() if line.strip()]


@needs_data
def test_programs_read_input_or_define_solution():
    kinds = {
        n: {p.row["kind"] for p in problems(n)} for n in ("leetcode", "codecontests", "codeforces")
    }
    assert kinds == {"leetcode": {"function"}, "codecontests": {"stdin"}, "codeforces": {"stdin"}}
    assert {p.row["entry_point"] for p in problems("leetcode")} == {"Solution"}
    tests = [read_task(p.row).declared for p in problems("codecontests")]
    assert (min(tests), max(tests)) == (1, 138)
    assert sum(len(p.row["tests"]) == 1 for p in problems("codeforces")) == 378


@needs_data
def test_instructions_keep_their_arguments():
    rows = [p.row for p in problems("ifeval")]
    assert len({kind for row in rows for kind in row["instruction_id_list"]}) == 25
    assert rows[0]["kwargs"] == [
        {},
        {"num_highlights": 3},
        {"relation": "at least", "num_words": 300},
    ]


def test_traps_by_hand():
    """One row a trap, without any file."""
    aime = {"id": 1, "problem": "p", "answer": "025"}
    assert suite_rows.aime24(aime, 0).gold == "25"
    assert suite_rows.amc({"problem": "p", "answer": 27.0}, 4)[:3] == ("4", "p", "27")
    two = {"idx": 3, "problem": "p", "solution": r"\boxed{1} so \boxed{\frac{1}{2}}", "type": "t"}
    assert suite_rows.minerva(two, 0).gold == r"\frac{1}{2}"
    odd = {"id": 1, "question": "q", "final_answer": ["$t(0,4]$."], "subfield": "A"}
    assert suite_rows.olympiadbench(odd, 0).gold == "t(0,4]"
    few_shot = {
        "task_id": 10,
        "text": "t",
        "test_list": ["assert f(1)"],
        "test_setup_code": "",
        "code": "def f(x): 1",
    }
    assert suite_rows.mbpp(few_shot, 0) is None
    shown = suite_rows.mbpp(
        {**few_shot, "task_id": 11, "test_list": ["assert set(f(1)) == {1}"]}, 0
    )
    assert shown.row["entry_point"] == "f"
    assert "assert set(f(1)) == {1}" in shown.question
    hub = {"key": 1, "prompt": "p", "instruction_id_list": ["a"], "kwargs": [{"x": None, "y": 2}]}
    assert suite_rows.ifeval(hub, 0).row["kwargs"] == [{"y": 2}]


def write(folder, file, rows):
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("aime25", [{"id": 1, "problem": "p"}], "no field 'expected_answer'; it has id, problem"),
        ("aime25", [{"id": 1, "problem": "p", "expected_answer": "x"}], "invalid literal"),
        ("aime25", [{"id": 1, "problem": None, "expected_answer": 1}], "need text, got None"),
        ("aime25", [{"id": 1, "problem": "p", "expected_answer": 1}] * 2, "id 1 appears twice"),
        (
            "minerva",
            [{"idx": 1, "problem": "p", "solution": r"\boxed{1", "type": "t"}],
            "no complete box",
        ),
        (
            "mbpp",
            [{"task_id": 11, "text": "t", "test_list": [], "test_setup_code": "", "code": ""}],
            "must be a list of tests, got []",
        ),
        (
            "mbpp",
            [
                {
                    "task_id": 1,
                    "text": "t",
                    "test_list": ["assert 1"],
                    "test_setup_code": "",
                    "code": "",
                }
            ],
            "an empty suite",
        ),
        (
            "ifeval",
            [{"key": 1, "prompt": "p", "instruction_id_list": ["a"], "kwargs": []}],
            "need one kwargs an instruction, got 0 and 1",
        ),
        ("math500", [], "no rows"),
    ],
)
def test_a_bad_row_is_named_with_its_place(tmp_path, name, rows, message):
    path = write(tmp_path, BENCHMARKS[name].file, rows)
    with pytest.raises(DataError) as caught:
        load_benchmark(name, folder=tmp_path, hub=False)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value) or BENCHMARKS[name].file in str(caught.value)


@pytest.mark.parametrize("tests", [[], {"inputs": [], "outputs": []}])
def test_code_without_tests_is_never_a_pass(tests):
    """Attack: a row whose test list is empty would be passed by any program."""
    with pytest.raises(ValueError, match="without tests"):
        suite_rows.contest({"problem": "p", "tests": tests}, 0)


def test_inputs_without_outputs_are_refused():
    with pytest.raises(DataError, match="as many inputs as outputs"):
        suite_rows.contest({"problem": "p", "tests": {"inputs": ["1"], "outputs": []}}, 0)


def test_an_absent_file_is_named_with_its_origin(tmp_path):
    with pytest.raises(DataError) as caught:
        load_benchmark("math500", folder=tmp_path, hub=False)
    assert str(tmp_path / "math500/test.jsonl") in str(caught.value)
    assert "hkust-nlp/simpleRL-reason" in str(caught.value)
    assert "HuggingFaceH4/MATH-500@test with --hub" in str(caught.value)
    with pytest.raises(DataError, match="agentica-project/rllm"):
        load_benchmark("codeforces", folder=tmp_path, hub=True)  # no hub copy is known


def test_an_unknown_suite_gets_the_nearest_names():
    with pytest.raises(ConfigError, match="unknown suite 'aime2024'; nearest: aime24"):
        load_benchmark("aime2024", folder=Path(), hub=False)
    assert set(NAMES) == {*ROWS, "reasoning_gym"}


def test_own_rows(tmp_path):
    """By hand: three rows, one repeats a question; ids are row numbers, the prompt is as given."""
    path = write(
        tmp_path,
        "mine.jsonl",
        [{"q": "1+1=", "a": 2}, {"q": "1+1= ", "a": 2}, {"q": "x", "a": "y"}],
    )
    suite = load_own(str(path), prompt="q", answer="a", verifier="exact")
    assert suite.name == "mine"
    assert [(p.id, p.prompt, p.gold) for p in suite.parts[0].problems] == [
        ("mine/eval/1", "1+1=", "2"),
        ("mine/eval/3", "x", "y"),
    ]
    assert suite.parts[0].verifier == "exact"
    assert "1 of 3 rows repeat a question" in suite.notes[0]
    with pytest.raises(DataError, match="no field 'question'"):
        load_own(str(path), prompt="question", answer="a", verifier="exact")
    with pytest.raises(ConfigError, match="unknown verifier 'exac'"):
        load_own(str(path), prompt="q", answer="a", verifier="exac")


def test_generated_tasks_repeat_and_know_their_category():
    """Identity: the same seed gives the same items; another seed shares none."""
    knobs = {"tasks": ["chain_sum", "spell_backward"], "per_task": 5, "score": "threshold"}
    one, two, other = (load_reasoning_gym(**knobs, seed=s) for s in (0, 0, 1))
    assert one.parts == two.parts
    prompts = [{p.prompt for part in s.parts for p in part.problems} for s in (one, other)]
    assert not prompts[0] & prompts[1]
    assert [p.verifier for p in one.parts] == ["reasoning_gym"] * 2
    assert [p.options["name"] for p in one.parts] == ["chain_sum", "spell_backward"]
    assert {one.categories[p.id] for p in one.parts[0].problems} == {"arithmetic"}
    assert {p.task for p in one.parts[1].problems} == {"spell_backward"}


def test_a_task_with_few_questions_gives_what_it_has():
    """tower_of_hanoi has fewer than 100 distinct questions."""
    suite = load_reasoning_gym(tasks=["tower_of_hanoi"], per_task=128, seed=0, score="threshold")
    assert len(suite.parts[0].problems) == 64
    assert suite.notes[0].startswith("tower_of_hanoi: 64 items")


def test_default_tasks_leave_out_what_is_held_out_or_broken():
    names = default_tasks()
    assert not set(LEFT_OUT) & set(names)
    assert len(names) == 105 - len(LEFT_OUT)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": []}, "at least one task"),
        ({"per_task": 0}, "got 1 and 0"),
        ({"tasks": ["chain_summ"]}, "nearest: chain_sum"),
        ({"tasks": ["chain_sum"] * 2}, "named twice"),
    ],
)
def test_generated_tasks_refuse(change, message):
    knobs = {"tasks": ["chain_sum"], "per_task": 5, "seed": 0, "score": "threshold"}
    with pytest.raises(ConfigError, match=message):
        load_reasoning_gym(**(knobs | change))
