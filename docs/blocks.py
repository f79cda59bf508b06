"""What the scripts of this folder share: blocks between markers, rendered from result files.

    <!-- begin NAME --> ... <!-- end NAME -->

`python docs/render*.py` rewrite the blocks of their documents; `--check` only says which are out of
date, with status 1; `--measure`, where a script can measure, does that first.
"""

import argparse
import re
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"(<!-- begin (?P<name>[\w.-]+) -->\n).*?(<!-- end (?P=name) -->)", re.DOTALL)

Blocks = Mapping[str, Callable[[], str]]


def fill(page: str, blocks: Blocks) -> str:
    """The page with each of these blocks rendered anew; blocks of other scripts stay."""

    def one(match: re.Match[str]) -> str:
        make = blocks.get(match["name"])
        return match[0] if make is None else f"{match[1]}{make().rstrip()}\n{match[3]}"

    return BLOCK.sub(one, page)


def names(page: str) -> set[str]:
    """Blocks that a page holds."""
    return {match["name"] for match in BLOCK.finditer(page)}


def documents(blocks: Blocks) -> list[Path]:
    """Every Markdown file that holds one of these blocks."""
    files = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
    return [f for f in files if names(f.read_text()) & blocks.keys()]


def main(
    about: str | None,
    blocks: Callable[[], Blocks],
    measure: Callable[[], object] | None = None,
) -> int:
    """Measure if asked; rewrite, or check; 1 where a document was found out of date.

    Args:
        about: the script's docstring.
        blocks: what it renders; asked for after measuring.
        measure: writes the result files.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    if measure is not None:
        parser.add_argument("--measure", action="store_true", help="measure again first")
    asked = parser.parse_args()
    if measure is not None and asked.measure:
        measure()
    made, stale = blocks(), False
    for file in documents(made):
        before = file.read_text()
        after = fill(before, made)
        if before == after:
            continue
        stale = True
        print(f"{file.relative_to(ROOT)}: {'out of date' if asked.check else 'rendered'}")
        if not asked.check:
            file.write_text(after)
    return int(stale and asked.check)
