"""The grading desk: each answer keeps its own verdict and reward, whatever the order and source."""

import numpy as np
import pytest

from brorl.rollout.engine import Completion, Stop
from brorl.tasks.problem import Problem
from brorl.tasks.reward_sources import Extra, GroundTruth, LabelReward
from brorl.train.grading import GradingDesk
from brorl.train.groups import Group
from brorl.verify.exact import ExactMatch
from brorl.verify.pool import GraderPool
from brorl.verify.verdict import Kind, correct, grader_error, wrong


class Letters:
    """Decodes token i as the letter number i."""

    def decode_all(self, answers):
        return ["".join(chr(97 + t) for t in tokens) for tokens in answers]


class Broken:
    """A second grader that fails on our side for one answer."""

    def extract(self, text, row):
        return text

    def grade(self, extracted, *, gold, row):
        if extracted == "b":
            return grader_error("lost")
        return correct(extracted, "ok") if extracted == "c" else wrong(extracted, "no")


class BrokenSource:
    """Rewards by the broken grader."""

    name = "broken"

    def extra(self, problem):
        return Extra(Broken(), None)

    def score(self, problem, group_id, index, true, extra):
        return extra.score


def completion(*tokens):
    ids = np.array(tokens, dtype=np.int32)
    return Completion(
        ids, np.zeros(len(ids), np.float32), np.ones(len(ids), bool), Stop.EOS, policy_version=0
    )


def graded(reward, waves):
    group = Group("p#0", Problem("p", "?", "a"), (1,), seed=0, born=1)
    with GraderPool(0, 1.0) as pool:
        desk = GradingDesk(Letters(), pool, ExactMatch(), reward)
        for first, tokens in waves:
            desk.take(group, first, [completion(t) for t in tokens])
        desk.finish()
    return group.samples


def test_each_answer_keeps_its_own_verdict():
    """Hand-computed: gold "a"; parts handed over out of order come back in sample order."""
    samples = graded(GroundTruth(), [(2, [0, 1]), (0, [1, 0])])
    assert [s.index for s in samples] == [0, 1, 2, 3]
    assert [s.text for s in samples] == ["b", "a", "a", "b"]
    assert [s.raw for s in samples] == [0.0, 1.0, 1.0, 0.0]
    assert [s.verdict.kind for s in samples] == [
        Kind.WRONG,
        Kind.CORRECT,
        Kind.CORRECT,
        Kind.WRONG,
    ]


def test_the_reward_may_differ_from_the_truth_and_both_are_kept():
    """Label "b" pays wrong answers; the true score stays what it is."""
    labels = LabelReward({"p": "b"}, ExactMatch(), "incorrect")
    samples = graded(labels, [(0, [0, 1])])
    assert [s.raw for s in samples] == [0.0, 1.0]
    assert [s.verdict.score for s in samples] == [1.0, 0.0]


def test_a_failed_second_grading_takes_the_answer_out_of_its_group():
    samples = graded(BrokenSource(), [(0, [0, 1, 2])])
    assert [s.counts for s in samples] == [True, False, True]
    assert [s.raw for s in samples] == [0.0, 0.0, 1.0]
    assert [s.verdict.kind for s in samples] == [Kind.CORRECT, Kind.WRONG, Kind.WRONG]


def test_a_lost_verdict_is_never_made_up(monkeypatch):
    """As many verdicts as answers, or nothing: one too few would shift every reward after it."""
    monkeypatch.setattr(GraderPool, "gather", lambda self, tickets: [wrong("x", "y")])
    with pytest.raises(AssertionError, match="as many verdicts"):
        graded(GroundTruth(), [(0, [0, 1])])


class Queue:
    """A pool that judges nothing before it is asked: what is handed over stays in the queue."""

    def __init__(self):
        self.queued = 0

    def submit_many(self, verifier, *, texts, **rest):
        self.queued += len(texts)
        return list(texts)

    def gather(self, tickets):
        self.queued -= len(tickets)
        return [correct(t, "") for t in tickets]

    def stats(self):
        return self


def test_the_backlog_of_graders_by_hand():
    """Handed over: 3, then 2 more (5 wait); two are judged before sampling ends (3 wait)."""
    pool, group = Queue(), Group("p#0", Problem("p", "?", "a"), (1,), seed=0, born=1)
    desk = GradingDesk(Letters(), pool, ExactMatch(), GroundTruth())
    desk.take(group, 0, [completion(0)] * 3)
    desk.take(group, 3, [completion(1)] * 2)
    pool.queued -= 2
    desk.finish()
    assert desk.backlog == (5, 3)
    pool.queued = 0
    desk.take(group, 5, [completion(0)])  # a later wave of the same step waits less
    desk.finish()
    assert desk.backlog == (5, 3)
