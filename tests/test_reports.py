"""docs/reports.md names tests that exist (policy): a renamed test takes its line along."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def named():
    """(file, test) of every test that the page names."""
    text = (ROOT / "docs" / "reports.md").read_text()
    found = re.findall(r"`((?:T|tests)/[\w/]+\.py)::(\w+)`", text)
    return [
        (file.replace("T/", "tests/train/", 1) if file[0] == "T" else file, t) for file, t in found
    ]


def test_every_test_that_is_named_exists():
    functions = {}
    for file in {file for file, _ in named()}:
        tree = ast.parse((ROOT / file).read_text())
        functions[file] = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    missing = [f"{file}::{test}" for file, test in named() if test not in functions[file]]
    assert missing == []
    assert len(named()) > 80


def test_every_thread_has_something_that_rules_it_out():
    rows = [
        r for r in (ROOT / "docs" / "reports.md").read_text().splitlines() if r.startswith("| [")
    ]
    assert len(rows) >= 50
    assert [r for r in rows if "::test_" not in r] == []
