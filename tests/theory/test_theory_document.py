"""docs/theory.md is current: its tables, its figures, its names, its commands, its claims."""

import importlib
import importlib.util
import re
import shlex
import threading
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from brorl.cli.theory import app
from brorl.simulator.curves import simulate_curve
from brorl.simulator.summary import summarise

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/theory.md").read_text()


@pytest.fixture(scope="module")
def render():
    spec = importlib.util.spec_from_file_location("render_theory", ROOT / "docs/render_theory.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_what_the_result_file_says(render):
    """Policy: `python docs/render_theory.py` would change nothing."""
    assert render.rendered(TEXT) == TEXT
    assert set(render.BLOCKS) == {m.group("name") for m in render.BLOCK.finditer(TEXT)}


def test_figures_were_drawn_from_the_result_file(render):
    """Policy: each figure of the document carries the digest of the file it was drawn from."""
    figures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", TEXT)
    assert len(figures) == 2
    for figure in figures:
        with Image.open(ROOT / "docs" / figure) as image:
            assert image.text["Description"] == render.digest()


def test_the_result_file_is_of_todays_settings(render):
    """Policy: the sweep's settings are still the ones `brorl simulate` would use."""
    cell = render.sweep_cells({"seeds": render.SEEDS}, render.AXES)[0]
    assert render._result()["settings"] == cell.settings.model_dump(mode="json")
    assert render.SEEDS >= 5


def test_todays_simulator_gives_the_numbers_of_the_result_file(render):
    """Golden: one replicate run again. A change here means: measure again, with a changelog line."""
    result = render._result()
    settings = render.make_settings({"seeds": render.SEEDS, "eps": 1e-20, "decay": 0})
    row = next(r for r in render._rows(result, "1e-20", "0") if r["n"] == 16)
    curve = simulate_curve(settings, 16, 2, on_steps=lambda _: None, stop=threading.Event())
    ends = summarise([curve])[0]
    for name, value in row["per_seed"][2].items():
        assert name == "replicate" or ends[name] == pytest.approx(value, rel=1e-7, abs=1e-12), name


def test_every_function_named_exists():
    names = re.findall(
        r"`(?:brorl\.theory\.)?((?:correct_mass|coverage|success|distribution)\.\w+)", TEXT
    )
    assert len(names) >= 9
    for name in names:
        module, attribute = name.split(".")
        assert hasattr(importlib.import_module(f"brorl.theory.{module}"), attribute), name


def test_commands_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^    \$ brorl theory (.+)$", TEXT, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert CliRunner().invoke(app, shlex.split(command), catch_exceptions=False).exit_code == 0


def test_what_the_words_claim(render):
    """The sentences that no block renders, against the result file."""
    result = render._result()
    change = {
        (row["cell"]["eps"], row["cell"]["decay"], row["n"]): row["exact_change"]
        for row in result["rows"]
    }
    widths = result["settings"]["widths"]
    for eps, decay, _ in change:  # the ordering in N survives in every cell
        along = [change[eps, decay, n] for n in widths]
        assert along == sorted(along)
    assert min(change, key=change.get) == ("1e-10", "0.01", 4)  # the deepest fall
    rows = {row["n"]: row for row in render._rows(result, "1e-8", "0.01")}
    decays = [row["decay"] for row in rows.values()]
    assert max(decays) - min(decays) < 0.02 * -min(decays)  # the same at every N
    for n in (4, 8, 16):  # the loss sits on the tokens that nobody drew
        assert rows[n]["never_drawn"] < 0.95 * rows[n]["exact_change"] < 0
        assert change["1e-20", "0.01", n] > 0  # with eps at 1e-20 and the decay kept it rises
    tiny = {row["n"]: row for row in render._rows(result, "1e-20", "0")}
    assert tiny[4]["never_drawn"] > 0  # a common shift favours the side drawn more of
    assert rows[512]["unsampled"] > 0 > rows[512]["never_drawn"]  # momentum of drawn tokens
    assert all(
        seed["correct_mass"] > result["rows"][0]["correct_mass_start"]
        for seed in rows[51_200]["per_seed"]
    )
    assert rows[51_200]["improved_share"] == 1.0
