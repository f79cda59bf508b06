"""Drift of a proxy, from rows as a run records them."""

import numpy as np
import pytest

from brorl.errors import DataError, ShapeError
from brorl.evaluate.best_of_n import Shape
from brorl.evaluate.hacking import groups_of_run, hacking
from brorl.record.rollouts import RolloutRow, write_rollouts
from brorl.seeds import generator
from brorl.stats.pass_at_k import pass_at_k

KNOBS = {"level": 0.95, "theta_max": 200.0, "grid": 100}


def row(step, group, i, proxy, true, verdict="wrong"):
    values = dict.fromkeys(RolloutRow._fields)
    values |= {"run": "r", "step": step, "born": step, "task": "t", "problem_id": group}
    values |= {"group_id": group, "sample_index": i, "prompt": "p", "text": "x", "reason": ""}
    values |= {"verdict": verdict, "raw_score": proxy, "true_score": true, "shaped_reward": proxy}
    values |= {"stop": "eos", "policy_version": 0, "response_length": 1, "weight": 1.0}
    values |= {"kept": True, "fate": "kept"}
    return RolloutRow(**values)


def test_rows_become_groups_by_id(tmp_path):
    """By hand: two steps, interleaved groups, one grader error, one step out of range."""
    write_rollouts(
        tmp_path, 1, [row(1, "a", 0, 1.0, 0.0), row(1, "b", 0, 0.0, 0.0), row(1, "a", 1, 0.5, 1.0)]
    )
    write_rollouts(
        tmp_path, 2, [row(2, "c", 0, 1.0, 1.0), row(2, "c", 1, 0.0, 0.0, "grader_error")]
    )
    write_rollouts(tmp_path, 3, [row(3, "d", 0, 1.0, 1.0)])
    assert groups_of_run(tmp_path, first_step=1, last_step=2) == [
        ([1.0, 0.5], [0.0, 1.0]),
        ([0.0], [0.0]),
        ([1.0], [1.0]),
    ]
    with pytest.raises(DataError, match="no graded rollouts of steps 7 to 9"):
        groups_of_run(tmp_path, first_step=7, last_step=9)


def test_an_honest_proxy_is_pass_at_n_and_never_hacked():
    """Identity."""
    counts = [0, 1, 5, 16]
    groups = [(np.arange(16) < c, np.arange(16) < c) for c in counts]
    got = hacking([(p.astype(float), t.astype(float)) for p, t in groups], **KNOBS)
    assert [p.n for p in got.curve] == [1, 2, 4, 8, 16]
    for point in got.curve:
        want = pass_at_k(counts, 16, point.n).mean()
        assert point.true.value == pytest.approx(want)
        assert point.proxy.value == pytest.approx(want)
        assert point.hacked.value == 0.0
    assert got.best_of_n.shape is Shape.RISES
    assert (got.groups, got.samples) == (4, 64)


def test_a_hole_in_the_proxy_is_found_sooner_by_more_samples():
    """By construction: half of what the proxy pays most is false. The picks' hacking rate rises
    with n, the true reward turns, and both families see the peak."""
    rng = generator(0, "hole")
    groups = []
    for _ in range(50):
        quality = rng.random(64)
        hacked = rng.random(64) < 0.05  # a rare trick that gets full marks
        proxy = np.where(hacked, 1.0, 0.9 * quality)
        groups.append((proxy, np.where(hacked, 0.0, quality)))
    got = hacking(groups, **KNOBS)
    rates = [p.hacked.value for p in got.curve]
    assert rates == sorted(rates)
    assert rates[0] == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / 3200))
    assert rates[-1] > 0.9
    assert got.best_of_n.shape is Shape.PEAKS
    assert got.best_of_poisson.shape is Shape.PEAKS
    assert 1 < got.best_of_n.theta < 20
    proxies = [p.proxy.value for p in got.curve]
    assert proxies == sorted(proxies)
    trues = [p.true.value for p in got.curve]
    assert max(trues) > trues[0] > trues[-1]


def test_groups_of_other_sizes():
    """By hand: 2 of 4 and 2 of 8 right: n goes up to 4; picks are right in 1/2 and 1/4 at n = 1."""
    groups = [(np.array([1.0, 1.0] + [0.0] * k),) * 2 for k in (2, 6)]
    got = hacking(groups, **KNOBS)
    assert [p.n for p in got.curve] == [1, 2, 4]
    assert got.curve[0].true.value == pytest.approx(3 / 8)
    assert got.samples == 12


def test_refuses():
    with pytest.raises(ShapeError, match="at least one group"):
        hacking([], **KNOBS)
