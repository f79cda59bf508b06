"""Whole curves: the published figure, reproducibility, and a stop that leaves no thread behind."""

import threading

import numpy as np
import pytest

from brorl.errors import RunError
from brorl.simulator import curves as curves_module
from brorl.simulator.curves import simulate
from brorl.simulator.flat import make_settings

SMALL = {"vocab": 600, "correct": 60, "steps": 50, "n": (4, 64), "seeds": 2}


def run(workers=1, told=None, **flat):
    on_steps = told.append if told is not None else (lambda _: None)
    return simulate([make_settings(flat)], workers=workers, on_steps=on_steps)[0]


def test_the_published_figure():
    """Published curves (section 4.1, recomputed in numpy: 0.601 0.603 0.607 0.634 0.647 of correct
    mass and 11, 22, 32, 63, 100 % improved): one seed, within the spread of seeds seen."""
    found = run()
    ends = [curve.column("correct_mass")[-1] for curve in found]
    np.testing.assert_allclose(ends, [0.601, 0.603, 0.607, 0.634, 0.647], atol=1.5e-3)
    assert ends == sorted(ends)
    improved = [curve.column("improved_share")[-1] for curve in found]
    np.testing.assert_allclose(improved, [0.11, 0.22, 0.32, 0.63, 1.0], atol=0.012)
    widest = found[-1].column("worst_change")
    assert widest.min() > -3e-7
    assert widest[-1] > 0
    for curve in found:  # the parts add up to the change to first order, over a thousand steps
        parts = sum(
            curve.column(k).sum() for k in ("sampled_correct", "sampled_wrong", "unsampled")
        )
        total = curve.column("correct_mass")[-1] - curve.column("correct_mass")[0]
        assert curve.column("exact_change").sum() == pytest.approx(total, abs=1e-12)
        assert parts == pytest.approx(total, abs=3e-4)


def test_the_same_seed_gives_the_same_bytes_on_any_number_of_threads():
    first, again = run(workers=1, **SMALL), run(workers=3, **SMALL)
    for a, b in zip(first, again, strict=True):
        assert (a.n, a.replicate) == (b.n, b.replicate)
        assert a.values_TR.tobytes() == b.values_TR.tobytes()
    assert [(c.n, c.replicate) for c in first] == [(4, 0), (4, 1), (64, 0), (64, 1)]


def test_replicates_seeds_and_widths_have_streams_of_their_own():
    curves = run(**SMALL) + run(**SMALL, seed=1)
    assert len({curve.values_TR.tobytes() for curve in curves}) == 8


def test_more_replicates_leave_the_first_ones_alone():
    """Identity: streams are named, so asking for more changes nothing that was there."""
    few, many = run(**SMALL), run(**{**SMALL, "seeds": 3, "n": (4, 16, 64)})
    kept = {(c.n, c.replicate): c.values_TR.tobytes() for c in many}
    assert all(kept[c.n, c.replicate] == c.values_TR.tobytes() for c in few)


def test_every_step_is_reported_once():
    told = []
    run(told=told, **SMALL)
    assert sum(told) == 50 * 2 * 2


def test_a_failure_stops_all_curves_and_is_the_one_reported():
    """A curve that blows up at once ends the others, which would run for minutes, at once."""
    before = threading.active_count()
    blown = {"optimizer": "sgd", "lr": 1e308, "reward_correct": 100, "baseline": "none"}
    settings = [
        make_settings({**SMALL, "steps": 10**6}),
        make_settings({**SMALL, **blown, "loss": "log-likelihood", "n": (5,)}),
    ]
    with pytest.raises(RunError, match=r"N=5: .* no longer finite"):
        simulate(settings, workers=8, on_steps=lambda _: None)
    assert threading.active_count() == before


def test_an_interrupt_in_the_callback_ends_every_thread(monkeypatch):
    before = threading.active_count()

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(curves_module, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(workers=2, **{**SMALL, "steps": 10**6})
    assert threading.active_count() == before
