"""docs/reports.md names tests that exist (policy): a renamed test takes its line along."""

import ast
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SHARED = os.environ.get("BRORL_SHARED")


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


@pytest.mark.parametrize("page", ["footguns.md", "resume.md"])
def test_files_that_other_pages_name_exist(page):
    text = (ROOT / "docs" / page).read_text()
    named = set(re.findall(r"`(tests/[\w/]+(?:\.py)?)`", text))
    modules = set(re.findall(r"`((?:train|tasks|evaluate|verify|algo)\.[\w.]+)`", text))
    assert named or modules
    assert [n for n in sorted(named) if not (ROOT / n).exists()] == []
    found = {".".join(p.with_suffix("").relative_to(ROOT / "src/brorl").parts)
             for p in (ROOT / "src/brorl").rglob("*.py")}  # fmt: skip
    lost = [
        m
        for m in sorted(modules)
        if m not in found and m.split(".")[0] + "." + m.split(".")[1] not in found
    ]
    assert lost == []


def test_every_thread_has_something_that_rules_it_out():
    rows = [
        r for r in (ROOT / "docs" / "reports.md").read_text().splitlines() if r.startswith("| [")
    ]
    assert len(rows) >= 50
    assert [r for r in rows if "::test_" not in r] == []


@pytest.mark.skipif(SHARED is None, reason="BRORL_SHARED is not set")
def test_every_public_thread_about_training_is_on_the_page():
    """Oracle: the collected reports, sections 1 to 6 (width to repeatability)."""
    collected = Path(SHARED, "reference", "reports.md").read_text()
    part = collected[collected.index("## 1.") : collected.index("## 7.")]
    threads = set(re.findall(r"https://[^\s|,]+", part))
    assert len(threads) > 70
    page = (ROOT / "docs" / "reports.md").read_text()
    assert [t for t in sorted(threads) if f"({t})" not in page] == []
