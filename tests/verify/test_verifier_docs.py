"""Policy: docs/verifiers.md is current, and what it names is there."""

import re
import runpy
from pathlib import Path

from brorl.tasks.build import VERIFIERS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "verifiers.md").read_text()


def test_every_test_that_the_page_names_exists():
    named = re.findall(r"`(tests/\S+?\.py)(?:::(\w+))?`", PAGE)
    assert len(named) > 20
    missing = [
        (file, name) for file, name in named if f"def {name}" not in (ROOT / file).read_text()
    ]
    assert missing == []


def test_the_table_of_faults_is_rendered_from_the_rules():
    script = runpy.run_path(str(ROOT / "docs" / "render_verifiers.py"))
    assert script["rendered"](PAGE) == PAGE
    assert PAGE.count("evaluates the answer as Python") == 9


def test_every_verifier_by_name_is_on_the_page():
    assert [name for name in [*VERIFIERS, "code"] if f"`{name}`" not in PAGE] == []
