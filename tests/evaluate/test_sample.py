"""Sampling, grading and going on after a stop, with an engine that answers from a script."""

import json

import numpy as np
import pytest

from brorl.errors import ConfigError, DataError, EngineError
from brorl.evaluate.jobs import jobs_of, verifier_text
from brorl.evaluate.results import ModelSource, Protocol
from brorl.evaluate.sample import SAMPLES, VERDICTS, evaluate
from brorl.evaluate.sample_file import Sample, SampleFile
from brorl.evaluate.suites import LoadedSuite, Part
from brorl.policy.load import tiny_policy
from brorl.policy.tiny import TinyShape
from brorl.rollout.engine import Completion, Stop
from brorl.rollout.scripted import ScriptedEngine
from brorl.seeds import derive_seed
from brorl.tasks.problem import Problem
from brorl.verify.pool import GraderPool

SHAPE = TinyShape("llama", 1, 16, 2, 2, 32, 64, True)
HEADER = {"protocol": {"temperature": 0.6}, "suites": {"own": {"prompt": "{prompt}"}}}


@pytest.fixture(scope="module")
def policy():
    return tiny_policy(SHAPE, seed=0, device="cpu", trained_length=1)


@pytest.fixture
def pool():
    with GraderPool(0, 5.0) as pool:
        yield pool


class Silent:
    def __init__(self):
        self.counts, self.notes = [], []

    def sampled(self, done, total):
        self.counts.append((done, total))

    def note(self, text):
        self.notes.append(text)


def suite(count, verifier="exact", name="own", gold=True):
    problems = tuple(
        Problem(f"p{i}", f"say {i}", str(i) if gold else None, task="t", row={"i": i})
        for i in range(count)
    )
    part = Part(verifier, {}, problems)
    return LoadedSuite(name, "own.jsonl", "00", "{prompt}", (part,), {p.id: "c" for p in problems})


def answer(policy, text, stop=Stop.EOS):
    ids = np.array(
        [*policy.tokenizer(text).input_ids, *([1] if stop is Stop.EOS else [])], np.int32
    )
    return Completion(ids, np.zeros(len(ids), np.float32), np.ones(len(ids), bool), stop, 0)


def right_for(policy, shares):
    """Sample i of problem p is right if i < shares[p]; the third sample is cut."""

    def script(request, i):
        number = int(request.problem_id[1:])
        text = str(number) if i < shares[number] else f"no {i}"
        return answer(policy, text, Stop.LENGTH if i == 2 else Stop.EOS)

    return script


def settings(**change):
    values = {
        "samples": 4,
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 0,
        "max_new_tokens": 8,
        "chat_template": None,
        "engine": "scripted",
        "seed": 0,
    }
    return Protocol(**(values | change))


def run(policy, engine, pool, folder, *, suites=None, at_once=8, watcher=None, **change):
    return evaluate(
        policy,
        engine,
        suites or [suite(5)],
        pool,
        model=ModelSource(source="m"),
        settings=settings(**change),
        versions={},
        folder=folder,
        at_once=at_once,
        watcher=watcher or Silent(),
    )


def test_counts_by_hand(policy, pool, tmp_path):
    """Problem i is right in shares[i] of 4 samples; sample 2 is cut; "no 1" has 4 + 1 tokens."""
    watcher = Silent()
    engine = ScriptedEngine(right_for(policy, [0, 1, 2, 3, 4]))
    got = run(policy, engine, pool, tmp_path, watcher=watcher)
    rows = got.suites["own"].problems
    assert [(p.id, p.n, p.c, p.truncated) for p in rows] == [(f"p{i}", 4, i, 1) for i in range(5)]
    assert rows[0].tokens == (5, 5, 4, 5)
    assert rows[1].answers == ((1, True), (1, False), (1, False), (1, False))
    assert rows[4].answers == ((4, True),)
    assert rows[2].texts.behaviours["boxed answer"] == 0
    assert got.suites["own"].verifier == "exact (brorl 0.1.0)"
    assert watcher.counts[0] == (0, 20)
    assert watcher.counts[-1] == (20, 20)
    verdicts = [json.loads(line) for line in (tmp_path / VERDICTS).read_text().splitlines()]
    assert len(verdicts) == 20
    assert verdicts[4] == {
        "suite": "own",
        "id": "p1",
        "sample": 0,
        "verdict": "correct",
        "score": 1.0,
        "extracted": "1",
        "reason": "exact: equal text",
    }


def test_streams_are_of_the_evaluation_and_the_problem(policy, pool, tmp_path):
    """Identity: a seed for each problem, from the evaluation's seed and its suite and id alone."""
    engine = ScriptedEngine(right_for(policy, [0] * 5))
    run(policy, engine, pool, tmp_path, seed=3)
    assert [r.seed for r in engine.calls] == [
        derive_seed(3, "eval", "own", f"p{i}") for i in range(5)
    ]


class Stopped(Exception):
    pass


def test_nothing_is_sampled_twice_after_a_stop(policy, pool, tmp_path):
    """Attack: the engine dies inside the third problem; the next call asks for the rest only, and
    both together give what one call gives."""
    script = right_for(policy, [0, 1, 2, 3, 4])

    def dies(request, i):
        if request.problem_id == "p2":
            raise Stopped
        return script(request, i)

    for name in "ab":
        (tmp_path / name).mkdir()
    with pytest.raises(Stopped):
        run(policy, ScriptedEngine(dies), pool, tmp_path / "a")
    watcher, engine = Silent(), ScriptedEngine(script)
    got = run(policy, engine, pool, tmp_path / "a", watcher=watcher)
    assert [r.problem_id for r in engine.calls] == ["p2", "p3", "p4"]
    assert watcher.counts[0] == (8, 20)
    assert watcher.notes == ["8 of 20 samples are there already"]
    assert got == run(policy, ScriptedEngine(script), pool, tmp_path / "b")


def test_a_finished_evaluation_samples_nothing_and_is_judged_again(policy, pool, tmp_path):
    script = right_for(policy, [0, 1, 2, 3, 4])
    first = run(policy, ScriptedEngine(script), pool, tmp_path)
    engine = ScriptedEngine(script)
    assert run(policy, engine, pool, tmp_path) == first
    assert engine.calls == []


def test_a_half_written_line_is_sampled_again(policy, pool, tmp_path):
    """Attack: killed while writing, at every byte of the last two lines."""
    script = right_for(policy, [1] * 5)
    want = run(policy, ScriptedEngine(script), pool, tmp_path)
    whole = (tmp_path / SAMPLES).read_bytes()
    begin = whole[:-1].rfind(b"\n", 0, whole[:-1].rfind(b"\n")) + 1
    for cut in range(begin, len(whole), 7):
        (tmp_path / SAMPLES).write_bytes(whole[:cut])
        engine = ScriptedEngine(script)
        assert run(policy, engine, pool, tmp_path) == want
        asked = [(r.problem_id, r.first, r.n) for r in engine.calls]
        assert asked in ([("p4", 2, 2)], [("p4", 3, 1)])
        assert (tmp_path / SAMPLES).read_bytes() == whole


def test_other_settings_are_never_mixed_in(policy, pool, tmp_path):
    """Attack: the same folder with another temperature, seed or prompt."""
    script = right_for(policy, [1] * 5)
    run(policy, ScriptedEngine(script), pool, tmp_path)
    before = (tmp_path / SAMPLES).read_bytes()
    with pytest.raises(DataError, match=r"protocol\.temperature 0\.6 instead of 1\.0; choose"):
        run(policy, ScriptedEngine(script), pool, tmp_path, temperature=1.0)
    with pytest.raises(DataError, match=r"protocol\.seed"):
        run(policy, ScriptedEngine(script), pool, tmp_path, seed=1)
    other = suite(5)._replace(prompt="Q {prompt}")
    with pytest.raises(DataError, match=r"suites\.own\.prompt"):
        run(policy, ScriptedEngine(script), pool, tmp_path, suites=[other])
    assert (tmp_path / SAMPLES).read_bytes() == before


def test_batches_do_not_change_the_result(policy, pool, tmp_path):
    """Identity: one problem at a time, all at once."""
    script = right_for(policy, [0, 1, 2, 3, 4])
    found = []
    for at_once in (1, 8, 1000):
        (tmp_path / str(at_once)).mkdir()
        found.append(
            run(policy, ScriptedEngine(script), pool, tmp_path / str(at_once), at_once=at_once)
        )
    assert found[0] == found[1] == found[2]


def test_unreadable_golds_and_lost_gradings_are_counted(policy, pool, tmp_path):
    """By hand: a math suite whose second gold is empty; and a problem that no sample of could be
    graded (an exact verifier without a gold is at fault itself)."""
    problems = suite(2, "math").parts[0].problems
    blank = Problem("p9", "say", " ", task="t")
    mixed = suite(2, "math")._replace(
        parts=(Part("math", {}, (*problems, blank)),), categories={"p0": "c", "p1": "c", "p9": "c"}
    )
    jobs, aside = jobs_of([mixed])
    assert [j.problem.id for j in jobs] == ["p0", "p1"]
    assert aside == {"own": 1}
    lost = suite(2)
    no_gold = Problem("p1", "say", None, task="t")
    lost = lost._replace(parts=(Part("exact", {}, (lost.parts[0].problems[0], no_gold)),))
    watcher = Silent()
    got = run(
        policy,
        ScriptedEngine(right_for(policy, [1, 1])),
        pool,
        tmp_path,
        suites=[lost],
        watcher=watcher,
    )
    assert [p.id for p in got.suites["own"].problems] == ["p0"]
    assert got.suites["own"].set_aside == 1
    assert "own: 1 problems left out, grading failed on our side" in watcher.notes


def test_nothing_to_score_is_an_error(policy, pool, tmp_path):
    empty = suite(1)._replace(parts=(Part("math", {}, (Problem("p0", "q", "", task="t"),)),))
    with pytest.raises(DataError, match=r"own\.jsonl: an empty suite, no gold of it can be read"):
        run(policy, ScriptedEngine(None), pool, tmp_path, suites=[empty])
    script = right_for(policy, [1])
    with pytest.raises(DataError, match="own: not one sample could be graded"):
        run(policy, ScriptedEngine(script), pool, tmp_path, suites=[suite(1, gold=False)])
    with pytest.raises(ConfigError, match="named twice: own, own"):
        jobs_of([suite(1), suite(1)])
    with pytest.raises(ConfigError, match="unknown verifier 'exakt'"):
        jobs_of([suite(1, "exakt")])


def test_the_same_id_in_two_suites_is_two_problems(policy, pool, tmp_path):
    script = right_for(policy, [0, 4])
    got = run(
        policy, ScriptedEngine(script), pool, tmp_path, suites=[suite(2), suite(2, name="other")]
    )
    assert [[p.c for p in s.problems] for s in got.suites.values()] == [[0, 4], [0, 4]]


def test_a_user_verifier_is_named_with_its_file(tmp_path):
    """Two files with the same name but other rules must not compare."""
    names = []
    for body in ("return True", "return False"):
        (tmp_path / "v.py").write_text(f"def judge(*, gold, answer, row):\n    {body}\n")
        names.append(verifier_text(Part(f"{tmp_path}/v.py:judge", {}, ())))
    assert names[0] != names[1]
    assert verifier_text(Part("math", {}, ())) == "math (math-verify 0.9.0)"
    gym = Part("reasoning_gym", {"name": "chain_sum", "score": "threshold"}, ())
    assert verifier_text(gym).startswith("reasoning_gym threshold (reasoning-gym ")


def test_gaps_of_a_sample_file(tmp_path):
    """By hand: samples 1, 2 and 5 of 7 are there."""
    sample = Sample("a\n\ud83d \x1e", 3, False)
    with SampleFile(tmp_path / "s", HEADER) as file:
        file.append("own", "p", 1, [sample] * 2)
        file.append("own", "p", 5, [sample])
        assert file.missing("own", "p", 7) == [(0, 1), (3, 2), (6, 1)]
        assert file.missing("own", "q", 2) == [(0, 2)]
    with SampleFile(tmp_path / "s", HEADER) as file:
        assert file.missing("own", "p", 7) == [(0, 1), (3, 2), (6, 1)]
        file.append("own", "p", 0, [Sample("b", 1, True)])
        assert file.read("own", "p", 3) == [Sample("b", 1, True), sample, sample]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["{"], "s:1: not JSON"),
        (["[]"], "not a file of samples"),
        (['{"format": "other"}'], "not a file of samples"),
        ([None, "{"], "s:2: not JSON"),
        ([None, "{}"], "s:2: not a sample"),
        (
            [
                None,
                '{"suite": "o", "id": "p", "sample": 0, "text": "", "tokens": "x", "truncated": 0}',
            ],
            "s:2: not a sample",
        ),
        (
            [
                None,
                *[
                    '{"suite": "o", "id": "p", "sample": 0, "text": "", "tokens": 1, "truncated": false}'
                ]
                * 2,
            ],
            "s:3: sample 0 of problem p is there twice",
        ),
    ],
)
def test_a_damaged_sample_file_is_named_by_line(tmp_path, lines, message):
    header = json.dumps({"format": "brorl-samples", "version": 1, **HEADER})
    (tmp_path / "s").write_text("".join(f"{line or header}\n" for line in lines))
    with pytest.raises(DataError) as caught:
        SampleFile(tmp_path / "s", HEADER)
    assert message in str(caught.value)


def test_an_engine_that_fails_leaves_a_file_that_goes_on(policy, pool, tmp_path):
    def broken(request, i):
        raise EngineError("lost")

    with pytest.raises(EngineError, match="lost"):
        run(policy, ScriptedEngine(broken), pool, tmp_path)
    got = run(policy, ScriptedEngine(right_for(policy, [1] * 5)), pool, tmp_path)
    assert [p.c for p in got.suites["own"].problems] == [1] * 5
