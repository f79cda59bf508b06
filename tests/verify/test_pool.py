"""The pool under answers that hang, kill and eat; counts and order under ordinary ones."""

import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from brorl.errors import ConfigError, VerifierError
from brorl.verify.pool import GraderPool
from brorl.verify.verdict import Kind, correct, no_answer, wrong

from .pool_verifiers import (
    Acting,
    Last,
    Logged,
    Patient,
    SlowToPrepare,
    Unloadable,
    Unpicklable,
)


def judge(pool, texts, verifier=None, gold="42", row=None, problem_id="p"):
    verifier = Acting() if verifier is None else verifier
    return pool.gather(
        pool.submit_many(verifier, problem_id=problem_id, texts=texts, gold=gold, row=row or {})
    )


def children(pid="self"):
    """Processes below one: pids of all descendants that are not zombies."""
    found, todo = [], [str(os.getpid() if pid == "self" else pid)]
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            parents.setdefault(parent, []).append(stat.parent.name)
    while todo:
        below = parents.get(todo.pop(), [])
        found += below
        todo += below
    return {int(p) for p in found}


def is_gone(pid, within_s=5.0):
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(scope="module")
def pool():
    with GraderPool(workers=2, deadline_s=1.0) as p:
        yield p


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_verdicts_come_in_the_order_of_the_texts(workers):
    """Oracle: the verifier called on each text, one after the other, in this process."""
    rng = random.Random(0)
    texts = [f"it is {rng.randrange(50)}" if rng.random() < 0.9 else " " for _ in range(1000)]
    with GraderPool(workers=workers, deadline_s=5.0) as pool:
        got = judge(pool, texts, Last())
    last = Last()
    answers = [last.extract(t, {}) for t in texts]
    want = [
        no_answer("no answer found in the text") if a is None else last.grade(a, gold="42", row={})
        for a in answers
    ]
    assert got == want
    assert Kind.NO_ANSWER in {v.kind for v in got}


@pytest.mark.parametrize("workers", [0, 2])
def test_extracts_every_text_and_grades_each_distinct_answer_once(workers, tmp_path):
    """300 texts, 30 distinct answers, submitted in three waves and once more."""
    row = {"log": str(tmp_path / "log")}
    texts = [f"{i} so {i % 30}" for i in range(300)]
    with GraderPool(workers=workers, deadline_s=5.0) as pool:
        waves = [texts[:5], texts[5:100], texts[100:]]
        tickets = [
            t
            for wave in waves
            for t in pool.submit_many(Logged(), problem_id="p", texts=wave, gold="7", row=row)
        ]
        verdicts = pool.gather(tickets)
        judge(pool, texts[:40], Logged(), gold="7", row=row)
        stats = pool.stats()
    lines = Counter((tmp_path / "log").read_text().splitlines())
    assert lines.pop("extract") == 340
    assert lines == {f"grade {a}": 1 for a in range(30)}
    assert [v.score for v in verdicts] == [float(i % 30 == 7) for i in range(300)]
    assert (stats.texts, stats.distinct, stats.hits, stats.queued) == (340, 30, 310, 0)


def test_equal_answers_to_other_questions_are_other_gradings(pool):
    """Same answer, but another gold, row or problem: nothing is served from the first."""
    before = pool.stats().distinct
    assert judge(pool, ["42"], Last())[0] == correct("42", "equal")
    assert judge(pool, ["42"], Last(), gold="41")[0] == wrong("42", "not equal")
    judge(pool, ["42"], Last(), row={"unit": "m"})
    judge(pool, ["42"], Last(), problem_id="q")
    judge(pool, ["42"], Acting())
    assert pool.stats().distinct - before == 5


def test_a_bounded_cache_forgets_the_oldest(tmp_path):
    """Two entries of 400 + 1 bytes fit in 900: the third drops the first."""
    row = {"log": str(tmp_path / "log")}
    with GraderPool(workers=0, deadline_s=1.0, cache_bytes=900) as pool:
        for answer in "abcab":
            judge(pool, [answer], Logged(), row=row)
    graded = [line for line in (tmp_path / "log").read_text().split("\n") if "grade" in line]
    assert graded == ["grade a", "grade b", "grade c", "grade a", "grade b"]


@pytest.mark.parametrize("answer", ["spin", "bigint", "sleep", "stop"])
def test_a_hanging_answer_times_out_and_takes_no_other_with_it(pool, answer):
    """Attack: loops in Python, in C, asleep, and a process that is stopped."""
    before = pool.stats()
    texts = [*"abcdef", answer, *"ghijkl", "42"]
    verdicts = judge(pool, texts, row={"case": answer})
    assert [v.kind for v in verdicts] == [
        *[Kind.WRONG] * 6,
        Kind.TIMEOUT,
        *[Kind.WRONG] * 6,
        Kind.CORRECT,
    ]
    assert verdicts[6].extracted == answer
    assert verdicts[6].reason == "grade took longer than 1 s"
    after = pool.stats()
    # Tried once more where it used no processor, or next to none because the machine is busy.
    tries = (2,) if answer in ("sleep", "stop") else (1, 2)
    assert after.kills - before.kills in tries
    assert after.timeouts - before.timeouts == 1


def test_a_hanging_extraction_times_out(pool):
    verdicts = judge(pool, ["extract:spin", "42"])
    assert [v.kind for v in verdicts] == [Kind.TIMEOUT, Kind.CORRECT]
    assert (verdicts[0].extracted, verdicts[0].reason) == (None, "extract took longer than 1 s")


@pytest.mark.parametrize(("answer", "how"), [("die", "signal 9"), ("leave", "exit status 0")])
def test_a_worker_that_dies_is_replaced_and_only_its_item_is_blamed(pool, answer, how, tmp_path):
    row = {"log": str(tmp_path / "log")}
    before = pool.stats()
    verdicts = judge(pool, ["1", "2", answer, "3", "42"], row=row)
    assert [v.kind for v in verdicts] == [
        Kind.WRONG,
        Kind.WRONG,
        Kind.GRADER_ERROR,
        Kind.WRONG,
        Kind.CORRECT,
    ]
    assert verdicts[2].reason == f"the grader process died: {how}"
    assert not verdicts[2].counts
    after = pool.stats()
    assert (after.deaths - before.deaths, after.retries - before.retries) == (2, 1)
    assert (tmp_path / "log").read_text().count(f"grade {answer}\n") == 2


def test_workers_killed_from_outside_lose_no_verdict(tmp_path):
    """kill -9 on every worker, three times, while 400 gradings run: all come back right."""
    with GraderPool(workers=2, deadline_s=10.0, retries=3) as pool:
        tickets = pool.submit_many(
            Patient0(), problem_id="p", texts=[str(i) for i in range(400)], gold="42", row={}
        )
        for _ in range(3):
            time.sleep(0.4)
            for pid in children():
                os.kill(pid, signal.SIGKILL)
        verdicts = pool.gather(tickets)
        assert pool.stats().deaths >= 2
    assert [v.kind for v in verdicts] == [
        Kind.CORRECT if i == 42 else Kind.WRONG for i in range(400)
    ]


class Patient0(Last):
    """Some milliseconds each, so that a kill meets work in progress."""

    def grade(self, extracted, *, gold, row):
        time.sleep(0.005)
        return super().grade(extracted, gold=gold, row=row)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_verifier_is_named_and_is_no_wrong_answer(workers):
    with GraderPool(workers=workers, deadline_s=5.0) as pool:
        raised, number, extraction, fine = judge(
            pool, ["raise", "number", "extract:raise", "42"], row={"w": workers}
        )
        assert pool.stats().errors == 3
    name = "verify.pool_verifiers.Acting"
    assert raised.kind is number.kind is extraction.kind is Kind.GRADER_ERROR
    assert raised.reason == f"{name}.grade raised KeyError: 'no such unit'"
    assert number.reason == f"{name}.grade must return a Verdict, got float"
    assert extraction.reason == f"{name}.extract raised KeyError: 'no such unit'"
    assert fine.kind is Kind.CORRECT


def test_an_answer_that_eats_memory_cannot_be_read(tmp_path):
    """64 GB are asked for, 1 GB is allowed."""
    with GraderPool(workers=1, deadline_s=10.0, memory_bytes=1 << 30) as pool:
        eaten, fine = judge(pool, ["eat", "42"])
    assert (eaten.kind, eaten.extracted) == (Kind.UNGRADABLE, "eat")
    assert fine.kind is Kind.CORRECT


def test_verifiers_that_cannot_travel(pool):
    with pytest.raises(VerifierError, match=r"picklable .* Unpicklable on problem 'p'"):
        judge(pool, ["42"], Unpicklable())
    (verdict,) = judge(pool, ["42"], Unloadable())
    assert verdict.kind is Kind.GRADER_ERROR
    assert verdict.reason == "verifier cannot be loaded: RuntimeError: made elsewhere"


def test_preparing_is_outside_the_deadline_and_own_deadlines_hold():
    with GraderPool(workers=1, deadline_s=0.5) as pool:
        assert judge(pool, ["42"], SlowToPrepare())[0].kind is Kind.CORRECT
        assert judge(pool, ["42"], Patient())[0].kind is Kind.CORRECT
        assert pool.stats().kills == 0


def test_submitting_returns_while_grading_goes_on(pool):
    """What is submitted later is not held up by gathering, nor does submitting wait."""
    slow = pool.submit(Acting(), problem_id="p", text="spin", gold="42", row={"n": 1})
    assert slow.verdict is None
    start = time.monotonic()
    assert judge(pool, ["41"], row={"n": 2})[0].kind is Kind.WRONG
    assert slow.verdict is None or time.monotonic() - start > 1.0
    assert pool.gather([slow])[0].kind is Kind.TIMEOUT


def test_many_threads_may_submit(pool):
    results = {}

    def work(name):
        results[name] = judge(pool, [str(i) for i in range(60)], gold=name, row={"t": name})

    threads = [threading.Thread(target=work, args=(str(k),)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for name, verdicts in results.items():
        assert [i for i, v in enumerate(verdicts) if v.kind is Kind.CORRECT] == [int(name)]
    assert len(results) == 8


def test_workers_hold_no_torch_and_print_nothing_on_stdout(pool, capfd):
    assert judge(pool, ["torch"])[0].reason == "False"
    judge(pool, ["print"])
    assert capfd.readouterr().out == ""


def test_closing_ends_everything_that_was_started():
    """The worker at work, the idle one, and a grandchild that a verifier has left behind."""
    before = children()
    pool = GraderPool(workers=2, deadline_s=60.0)
    orphan = int(judge(pool, ["orphan"])[0].reason)
    waiting = pool.submit(Acting(), problem_id="p", text="spin", gold="42", row={})
    pids = (children() | {orphan}) - before
    assert len(pids) == 3
    pool.close()
    pool.close()
    assert all(is_gone(pid) for pid in pids)
    with pytest.raises(VerifierError, match="closed"):
        pool.gather([waiting])
    with pytest.raises(VerifierError, match="closed"):
        judge(pool, ["42"])


def test_workers_die_with_a_parent_that_is_killed(tmp_path):
    """The parent gets kill -9 while its workers are inside one long call."""
    script = """
        import sys, time
        from verify.pool_verifiers import Acting
        from brorl.verify.pool import GraderPool
        pool = GraderPool(workers=2, deadline_s=600)
        pool.submit_many(Acting(), problem_id="p", texts=["bigint", "spin"], gold="", row={})
        print("ready", flush=True)
        time.sleep(600)
    """
    path = os.pathsep.join(p for p in sys.path if p)
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
    ) as parent:
        parent.stdout.readline()
        end = time.monotonic() + 20
        while len(pids := children(parent.pid)) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(1.0)
        parent.kill()
    assert len(pids) == 2
    assert all(is_gone(pid) for pid in pids)


@pytest.mark.parametrize(("workers", "deadline", "retries"), [(-1, 1, 0), (1, 0, 0), (1, 1, -1)])
def test_impossible_settings_are_refused(workers, deadline, retries):
    with pytest.raises(ConfigError, match=f"got {workers}, {retries} and {deadline}"):
        GraderPool(workers=workers, deadline_s=deadline, retries=retries)


def resources():
    gc.collect()
    status = Path("/proc/self/status").read_text()
    rss = int(status.partition("VmRSS:")[2].split()[0]) * 1024
    return len(os.listdir("/proc/self/fd")), len(children()), threading.active_count(), rss


@pytest.mark.slow
def test_a_hundred_thousand_gradings_leak_nothing():
    """100,000 distinct gradings with 40 kills and 40 deaths among them.

    Descriptors, processes and threads must be back where they were after the first tenth; memory
    may have grown by the bounded cache of 4 MB and allocator slack, 40 MB together.
    """
    with GraderPool(workers=2, deadline_s=0.5, cache_bytes=4 << 20) as pool:

        def tenth(k):
            texts = [f"x {k}-{i}" for i in range(10_000)]
            bad = judge(pool, ["spin", "die", "raise"] * 4, row={"tenth": k})
            good = judge(pool, texts, gold=f"{k}-17")
            assert {v.kind for v in bad} == {Kind.TIMEOUT, Kind.GRADER_ERROR}
            assert [i for i, v in enumerate(good) if v.kind is Kind.CORRECT] == [17]

        tenth(0)
        before = resources()
        for k in range(1, 10):
            tenth(k)
        after = resources()
        stats = pool.stats()
    assert stats.texts == 10 * 10_012
    assert stats.distinct == 10 * 10_003
    assert stats.kills >= 10
    assert stats.deaths >= 20
    assert after[:3] == before[:3]
    assert after[3] - before[3] < 40 << 20
