"""docs/scale-out.md says what the compiler does (policy)."""

from pathlib import Path

import blocks
import render_scale_out

from brorl.verl.table import TABLE

PAGE = Path(__file__).parents[2] / "docs" / "scale-out.md"


def test_the_page_is_current():
    text = PAGE.read_text()
    assert blocks.names(text) >= render_scale_out.BLOCKS.keys()
    assert blocks.fill(text, render_scale_out.BLOCKS) == text, "make docs"


def test_every_setting_is_on_the_page():
    text = PAGE.read_text()
    assert [name for name in TABLE if f"| `{name}` |" not in text] == []
