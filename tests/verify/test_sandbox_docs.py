"""Policy: every test that docs/sandbox.md names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_page_names_exists():
    named = re.findall(
        r"`(tests/\S+?\.py)(?:::(\w+))?`", (ROOT / "docs" / "sandbox.md").read_text()
    )
    assert len(named) > 15
    missing = [
        (file, name) for file, name in named if f"def {name}" not in (ROOT / file).read_text()
    ]
    assert missing == []
