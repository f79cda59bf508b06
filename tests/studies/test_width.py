"""Study `width`: its rule on made-up results (hand-computed), and its arms."""

import pytest

from brorl.studies import width

from .toys import toy_results, toy_run

KNOBS = {"widths": (4, 16), "prompts": 4, "batch": 32}  # arms n4-p4, n4-p8, n16-p2, n16-p4


def judged(ends, rates):
    """From (final score, pass rate) of narrow and wide; both series alike."""
    (narrow, wide), (low, high) = ends, rates
    runs = [
        toy_run(arm, seed, [0.2, end + 0.01 * seed], metrics={"dynamic_sampling/pass_rate": rate})
        for seed in (0, 1, 2)
        for arm, end, rate in (
            ("n4-p4", narrow, low), ("n4-p8", narrow, low),
            ("n16-p2", wide, high), ("n16-p4", wide, high),
        )
    ]  # fmt: skip
    return width.judge(toy_results("width", runs, **KNOBS))


@pytest.mark.parametrize(
    ("ends", "rates", "holds"),
    [
        ((0.8, 0.5), (0.3, 0.6), True),  # wide ends below, pass rate up
        ((0.5, 0.8), (0.3, 0.6), False),  # wide ends above
        ((0.8, 0.5), (0.6, 0.3), False),  # pass rate falls
        ((0.5, 0.5), (0.3, 0.6), None),  # no difference to be seen
    ],
)
def test_the_rule(ends, rates, holds):
    found = judged(ends, rates)
    assert found.holds is holds
    if holds:
        assert "N = 16 minus N = 4 is -0.3" in found.because


def test_one_series_that_is_refuted_refutes():
    runs = [
        toy_run(arm, seed, [0.2, end], metrics={"dynamic_sampling/pass_rate": rate})
        for seed in (0, 1)
        for arm, end, rate in (
            ("n4-p4", 0.5, 0.1), ("n4-p8", 0.5, 0.1), ("n16-p2", 0.3, 0.2), ("n16-p4", 0.8, 0.2),
        )
    ]  # fmt: skip
    assert width.judge(toy_results("width", runs, **KNOBS)).holds is False


def test_the_series_meet_in_one_arm():
    names = [arm.name for arm in width.arms(width.WidthKnobs())]
    assert len(names) == len(set(names)) == 7
    assert "n64-p16" in names
    pairs = width.series(width.WidthKnobs())
    assert {n * p for n, p in pairs["N times prompts = 1024"]} == {1024}
    assert {p for _, p in pairs["16 prompts a step"]} == {16}


def test_table_and_charts_have_an_entry_for_every_arm():
    found = judged((0.8, 0.5), (0.3, 0.6))
    assert [row[0] for row in found.tables[0].rows] == [4, 4, 16, 16]
    assert [row[3] for row in found.tables[0].rows] == pytest.approx([0.3, 0.3, 0.6, 0.6])
    assert all(line.x == [4, 16] for chart in found.charts for line in chart.lines)
