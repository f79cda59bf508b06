"""Documents are current: rendered numbers, recipes named in the README, links that lead somewhere."""

import importlib.util
import re
from pathlib import Path

import blocks
import pytest

from brorl.train.recipe import shipped

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def render():
    spec = importlib.util.spec_from_file_location("render", ROOT / "docs/render.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rendered_blocks_are_current():
    """Policy: `make docs` would change nothing."""
    module = render()
    assert module.documents(), "the README has a rendered block"
    for page in module.documents():
        text = page.read_text()
        assert module.rendered(text) == text, f"{page.name} is out of date: make docs"


def test_blocks_by_hand(tmp_path, monkeypatch, capsys):
    """Ours is rendered, another script's stays; --check writes nothing and says which page."""
    page = "a <!-- begin x -->\nold\n<!-- end x --> <!-- begin y -->\nown\n<!-- end y -->\n"
    after = page.replace("old", "new")
    made = {"x": lambda: "new\n\n"}
    assert blocks.fill(page, made) == after
    assert blocks.fill(after, made) == after
    assert blocks.names(page) == {"x", "y"}
    monkeypatch.setattr(blocks, "ROOT", tmp_path)
    (tmp_path / "P.md").write_text(page)
    (tmp_path / "none.md").write_text("no block")
    monkeypatch.setattr("sys.argv", ["render", "--check"])
    assert blocks.main("", lambda: made) == 1
    assert ((tmp_path / "P.md").read_text(), capsys.readouterr().out) == (
        page,
        "P.md: out of date\n",
    )
    monkeypatch.setattr("sys.argv", ["render"])
    assert blocks.main("", lambda: made) == 0
    assert (tmp_path / "P.md").read_text() == after
    monkeypatch.setattr("sys.argv", ["render", "--check"])
    assert blocks.main("", lambda: made) == 0


def test_findings_of_the_studies_are_current():
    """Policy: `python docs/render_studies.py` would change no page."""
    import render_studies

    pages = blocks.documents(render_studies.BLOCKS)
    assert {"README.md", "studies.md"} <= {page.name for page in pages}
    for page in pages:
        text = page.read_text()
        assert blocks.fill(text, render_studies.BLOCKS) == text, f"{page.name}: make docs"


def test_adaptive_tables_are_current():
    """Policy: `python docs/render_adaptive.py` would change no page."""
    import render_adaptive

    pages = blocks.documents(render_adaptive.BLOCKS)
    assert {p.name for p in pages} == {"README.md", "adaptive.md"}
    for page in pages:
        text = page.read_text()
        assert blocks.fill(text, render_adaptive.BLOCKS) == text, f"{page.name}: make docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if not target.startswith(("http", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_readme_names_every_recipe():
    text = (ROOT / "README.md").read_text()
    assert [r for r in shipped() if f"`{r}`" not in text] == []
