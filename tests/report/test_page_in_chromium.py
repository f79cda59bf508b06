"""The page in a real browser: no error, its controls work, hostile text does nothing."""

import pytest

from brorl.record.metrics import append_metrics
from brorl.record.rollouts import write_rollouts
from brorl.report.run import write_page, write_report

from .chromium import BINARY, Chromium
from .recorded import CONFIG, finished_run, group, metrics, new_run
from .test_page import HOSTILE, hostile_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BINARY is None, reason="needs chromium (Debian: apt-get install chromium)"),
]

PANEL = "[...document.querySelectorAll('.panel')].find(p => p.querySelector('h3').textContent === {title!r})"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with Chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(autouse=True)
def _no_complaint(chromium):
    """Policy: whatever a test does, the console stays empty."""
    chromium.complaints.clear()
    yield
    chromium.media()
    assert chromium.complaints == []


def panel(title, then):
    return f"(({PANEL.format(title=title)}){then})"


def test_draws_every_panel(chromium, tmp_path):
    """Oracle: the panels that Python chose. Each has its own figure with something drawn in it, and
    no coordinate that is not a number."""
    run = finished_run(tmp_path / "run")
    path = write_report(run)
    chromium.open(path)
    chosen = chromium.ask(
        "JSON.parse(document.getElementById('data').textContent).panels.map(p => p.title)"
    )
    drawn = chromium.ask("[...document.querySelectorAll('.panel h3')].map(h => h.textContent)")
    assert drawn[:-1] == chosen  # the last one is the chooser's
    marks = "[...document.querySelectorAll('.panel > svg')].map(s => s.querySelectorAll('.line, .area, .cell, circle').length)"
    assert min(chromium.ask(marks)) > 0
    assert chromium.ask("document.body.innerHTML.includes('NaN')") is False
    assert chromium.ask("document.querySelectorAll('#links a').length") >= 6


def test_curves_can_be_set_against_every_budget(chromium, tmp_path):
    """Three steps of 8 samples: the axis ends at 3 steps and at 24 samples."""
    chromium.open(write_report(finished_run(tmp_path / "run")))
    words = "document.querySelector('.panel svg .axis').textContent"
    last = panel("reward", ".querySelector('svg')")
    chromium.ask(f"{last}.focus()")
    chromium.press("End")
    assert chromium.ask(words) == "steps"
    assert chromium.ask(panel("reward", ".querySelector('.where').textContent")) == "step 3"
    labels = []
    for name in ("generated", "kept", "tokens", "update_tokens", "updates", "seconds", "step"):
        chromium.ask(
            f"(axis => {{ axis.value = {name!r}; axis.dispatchEvent(new Event('change')); }})(document.getElementById('axis'))"
        )
        chromium.settle()
        chromium.ask(f"{last}.focus()")
        chromium.press("End")
        labels.append(
            (
                chromium.ask(words),
                chromium.ask(panel("reward", ".querySelector('.where').textContent")),
            )
        )
    assert labels == [
        ("generated samples", "at 24"),
        ("kept samples", "at 12"),
        ("generated tokens", "at 96"),
        ("update tokens", "at 48"),
        ("optimizer updates", "at 6"),
        ("seconds, evaluation left out", "at 6 s"),
        ("steps", "step 3"),
    ]


def test_values_can_be_read_with_the_keyboard(chromium, tmp_path):
    """reward/mean is 0.1, 0.2, 0.3: the legend reads the last, then what the arrows point at."""
    chromium.open(write_report(finished_run(tmp_path / "run")))
    value = panel("reward", ".querySelector('.legend b').textContent")
    assert chromium.ask(value) == "0.3"
    chromium.ask(panel("reward", ".querySelector('svg').focus()"))
    chromium.press("Home")
    assert chromium.ask(value) == "0.1"
    chromium.press("ArrowRight")
    assert chromium.ask(value) == "0.2"
    chromium.press("Escape")
    assert chromium.ask(value) == "0.3"


def test_log_wide_and_legend_buttons(chromium, tmp_path):
    chromium.open(write_report(finished_run(tmp_path / "run")))
    ticks = panel("reward", ".querySelectorAll('.tick.y')")
    before = chromium.ask(f"[...{ticks}].map(t => t.textContent)")
    assert before[0] == "0.0"
    chromium.ask(panel("reward", ".querySelector('.tools button').click()"))
    after = chromium.ask(f"[...{ticks}].map(t => t.textContent)")
    assert float(after[0]) > 0
    assert after != before
    narrow = chromium.ask(panel("reward", ".clientWidth"))
    chromium.ask(panel("reward", ".querySelectorAll('.tools button')[1].click()"))
    chromium.settle()
    assert chromium.ask(panel("reward", ".clientWidth")) > 1.5 * narrow
    lines = panel("reward", ".querySelectorAll('.panel > svg path.line').length")
    assert chromium.ask(lines) == 2
    chromium.ask(panel("reward", ".querySelector('.legend button').click()"))
    assert chromium.ask(lines) == 1
    assert (
        chromium.ask(
            panel("reward", ".querySelector('.legend button').getAttribute('aria-pressed')")
        )
        == "false"
    )


def test_gaps_are_drawn_as_gaps(chromium, tmp_path):
    """Known at steps 1, 2 and 4, 5: two strokes and no line through step 3; a lone point is a dot;
    a stack with an unknown part has a hole as well."""
    run = new_run(tmp_path / "run", CONFIG | {"steps": 7})
    for step in range(1, 8):
        hole = {"reward/mean": None, "time/grade": None} if step in (3, 6) else {}
        append_metrics(run, metrics(step, **hole))
    chromium.open(write_report(run))
    assert (
        chromium.ask(panel("reward", ".querySelectorAll('.panel > svg path.line').length")) == 2 + 1
    )
    assert chromium.ask(panel("reward", ".querySelectorAll('.panel > svg circle').length")) == 1
    areas = "[...{}.querySelectorAll('.panel > svg path.area')].length"
    assert chromium.ask(areas.format(PANEL.format(title="seconds a step by phase"))) == 5 * 3


def test_hostile_text_is_shown_and_does_nothing(chromium, tmp_path):
    """Attack: the markup of a model's answer, prompt, gold, reason and problem id is read as words."""
    chromium.open(write_report(hostile_run(tmp_path / "run")))
    assert (
        chromium.ask("document.images.length + document.querySelectorAll('[onerror]').length") == 0
    )
    assert chromium.ask("document.scripts.length") == 2
    shown = chromium.ask("document.querySelector('#rollouts .group').textContent")
    assert shown.count(HOSTILE) >= 5
    assert HOSTILE in chromium.ask("document.querySelector('#settings').textContent")


def test_a_script_that_got_in_would_not_run(chromium, tmp_path):
    """Attack: markup put into the page past us. The policy refuses it, and says so."""
    path = write_report(finished_run(tmp_path / "run"))
    text = path.read_text().replace(
        "<main>", "<main><script>window.owned = 1</script><img src=x onerror='window.owned = 2'>"
    )
    bad = tmp_path / "bad.html"
    bad.write_text(text)
    chromium.open(bad)
    assert chromium.ask("window.owned === undefined") is True
    assert any("Content Security Policy" in c for c in chromium.complaints)
    chromium.complaints.clear()


def test_rollouts_can_be_searched_and_walked_through(chromium, tmp_path):
    run = new_run(tmp_path / "run")
    rows = (
        group("sure", ["abc"] * 4)
        + group("rare", ["cba"] + ["x"] * 15)
        + group("easy", ["cba"] * 4)
    )
    rows += group("unusual", ["needle", "cba", "cba", "x"])
    write_rollouts(run, 1, rows)
    append_metrics(run, metrics(1))
    chromium.open(write_report(run))
    names = "[...document.querySelectorAll('.item .name')].map(n => n.textContent)"
    shown = "document.querySelector('.group h3 bdi').textContent"
    assert chromium.ask(names) == ["rare", "sure", "unusual", "easy"]
    assert chromium.ask(shown) == "rare"
    chromium.ask("document.querySelector('.groups').focus()")
    chromium.press("ArrowDown", "ArrowDown")
    assert chromium.ask(shown) == "unusual"
    chromium.press("Home", "j")
    assert chromium.ask(shown) == "sure"
    search = "(s => {{ s.value = {!r}; s.dispatchEvent(new Event('input')); }})(document.querySelector('input[type=search]'))"
    chromium.ask(search.format("NEEDLE"))
    assert chromium.ask(names) == ["unusual"]
    assert chromium.ask(shown) == "unusual"
    chromium.ask(search.format("no such thing"))
    assert chromium.ask("document.querySelector('.group').textContent") == "No group fits."
    chromium.ask(search.format(""))
    kind = "(s => { s.value = 'all right'; s.dispatchEvent(new Event('change')); })(document.querySelector('.filters select'))"
    chromium.ask(kind)
    assert chromium.ask(names) == ["easy"]


def test_jumps_go_to_the_groups_of_a_kind_in_turn(chromium, tmp_path):
    """Two rare successes among five groups: the button goes to one, then the other, then the first
    again; a search leaves only the kinds that it found. A slash goes to the search."""
    run = new_run(tmp_path / "run")
    rare = ["cba"] + ["x"] * 15
    rows = group("rare one", rare) + group("sure", ["abc"] * 4) + group("rare two", ["cba", *rare])
    rows += group("easy", ["cba"] * 4) + group("divided", ["cba", "x"])
    write_rollouts(run, 1, rows)
    append_metrics(run, metrics(1))
    chromium.open(write_report(run))
    labels = "[...document.querySelectorAll('.jumps button')].map(b => b.textContent)"
    shown = "document.querySelector('.group h3 bdi').textContent"
    assert chromium.ask(labels) == [
        "rare success 2", "agreed on a wrong answer 1", "divided 1", "all right 1"
    ]  # fmt: skip
    seen = []
    for place in (2, 0, 0, 0):
        chromium.ask(f"document.querySelectorAll('.jumps button')[{place}].click()")
        seen.append(chromium.ask(shown))
    assert seen == ["divided", "rare one", "rare two", "rare one"]
    chromium.ask("document.querySelector('.groups').focus()")
    chromium.press("/")
    assert chromium.ask("document.activeElement.type") == "search"
    chromium.press("e", "a", "s", "y")
    assert chromium.ask(labels) == ["all right 1"]


def test_reward_against_true_score_has_a_point_a_step(chromium, tmp_path):
    """Reward 0.1, 0.2, 0.3 and true score half of it, then 0.4 with none: three points, each half as
    high above the base line as it is to the right, in the panel's own units; and the line of equals."""
    run = new_run(tmp_path / "run", CONFIG | {"steps": 4})
    for step in range(1, 5):
        append_metrics(
            run, metrics(step, **{"reward/true_mean": None if step == 4 else 0.05 * step})
        )
    chromium.open(write_report(run))
    found = panel("reward against true score", ".querySelectorAll('.panel > svg circle')")
    at = chromium.ask(f"[...{found}].map(c => [c.cx.baseVal.value, c.cy.baseVal.value])")
    equal = panel("reward against true score", ".querySelector('.panel > svg path.line')")
    (x0, y0), (x1, y1) = (
        tuple(map(float, p.split(",")))
        for p in chromium.ask(f"{equal}.getAttribute('d')").removeprefix("M").split("L")
    )
    assert len(at) == 3
    for step, (x, y) in enumerate(at, start=1):
        assert (x - x0) / (x1 - x0) == pytest.approx(0.1 * step, abs=0.002)
        assert (y - y0) / (y1 - y0) == pytest.approx(0.05 * step, abs=0.002)


@pytest.mark.parametrize("width", [320, 390, 800, 1300])
def test_nothing_is_wider_than_the_window(chromium, tmp_path, width):
    """Tables scroll within their box; in print, where nothing scrolls, they fit."""
    a, b = finished_run(tmp_path / "a" / ("long name " * 6).strip()), finished_run(tmp_path / "b")
    write_page([a, b], tmp_path / "both.html", refresh_s=None)
    chromium.size(width)
    try:
        chromium.open(tmp_path / "both.html")
        assert chromium.ask("document.documentElement.scrollWidth") <= width
        if width == 800:
            chromium.media(type="print")
            chromium.settle()
            wide = "[...document.querySelectorAll('.tablebox table')].map(t => t.offsetWidth)"
            assert max(chromium.ask(wide)) <= width
    finally:
        chromium.size(0, 0)


def test_light_dark_and_print(chromium, tmp_path):
    """Dark follows the system; print is black on white whatever the system says, with its panels
    and without its controls."""
    chromium.open(write_report(finished_run(tmp_path / "run")))
    paper = "getComputedStyle(document.body).backgroundColor"
    line = "getComputedStyle(document.querySelector('.panel svg path.line')).stroke"
    light = (chromium.ask(paper), chromium.ask(line))
    chromium.media(scheme="dark")
    dark = (chromium.ask(paper), chromium.ask(line))
    assert not set(light) & set(dark)
    chromium.media(scheme="dark", type="print")
    assert chromium.ask(paper) == "rgb(255, 255, 255)"
    assert chromium.ask(line) == light[1]
    assert chromium.ask("getComputedStyle(document.querySelector('nav')).display") == "none"


def test_two_runs_side_by_side(chromium, tmp_path):
    """A colour a run: a line of each in the shared panels, a figure of each where bands add up."""
    a, b = finished_run(tmp_path / "narrow"), finished_run(tmp_path / "wide", steps=4)
    write_page([a, b], tmp_path / "both.html", refresh_s=None)
    chromium.open(tmp_path / "both.html")
    titles = chromium.ask("[...document.querySelectorAll('.panel h3')].map(h => h.textContent)")
    assert "groups by outcome · narrow" in titles
    assert "groups by outcome · wide" in titles
    entropy = panel("entropy of the policy", ".querySelectorAll('.panel > svg path.line')")
    colours = chromium.ask(f"[...{entropy}].map(l => getComputedStyle(l).stroke)")
    assert len(set(colours)) == 2


def test_an_empty_run_has_a_page_too(chromium, tmp_path):
    chromium.open(write_report(new_run(tmp_path / "run")))
    assert "Nothing is recorded yet" in chromium.ask("document.body.textContent")


def test_a_run_of_one_step(chromium, tmp_path):
    run = new_run(tmp_path / "run")
    write_rollouts(run, 1, group("p", ["cba", "abc"]))
    append_metrics(run, metrics(1))
    chromium.open(write_report(run))
    assert chromium.ask(panel("reward", ".querySelectorAll('.panel > svg circle').length")) == 2
    assert chromium.ask("document.body.innerHTML.includes('NaN')") is False


def test_long_curves_are_smoothed_without_hiding_the_points(chromium, tmp_path):
    """120 points that alternate between 0 and 1, with a gap: faint lines over the whole height, and
    lines of means, of 7 points where there are neighbours, so that stay near 1/2; a button takes
    the means away."""
    run = new_run(tmp_path / "run", CONFIG | {"steps": 121})
    for step in range(1, 122):
        append_metrics(
            run, metrics(step, **{"policy/entropy": None if step == 61 else float(step % 2)})
        )
    chromium.open(write_report(run))
    entropy = panel("entropy of the policy", ".querySelectorAll('.panel > svg path.line')")
    faint, means, faint_after, means_after = chromium.ask(
        f"[...{entropy}].map(l => l.getBBox().height)"
    )
    assert faint == faint_after
    assert (
        chromium.ask(f"[...{entropy}].map(l => l.classList.contains('faint'))") == [True, False] * 2
    )
    middle = f"[...{entropy}].map(l => l.getAttribute('d').split('L').slice(5, -5).map(p => Number(p.split(',')[1])))"
    ys = chromium.ask(middle)[1]
    assert max(ys) - min(ys) == pytest.approx(faint / 7, abs=0.3)  # means of 3 or 4 ones of 7
    assert means == means_after
    chromium.ask(panel("entropy of the policy", ".querySelector('.tools button').click()"))
    assert chromium.ask(f"[...{entropy}].map(l => l.classList.contains('faint'))") == [False] * 2
