"""Tables as data, and their three forms: terminal, Markdown and one self-contained HTML page."""

import io
from collections.abc import Sequence
from typing import NamedTuple

from brorl.stats.intervals import Interval


class Table(NamedTuple):
    """Cells are finished text; the first column is the row's name."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


class Page(NamedTuple):
    """What a report holds, in order: a heading, sentences, tables, figures (SVG text)."""

    title: str
    sentences: tuple[str, ...]
    tables: tuple[Table, ...]
    figures: tuple[str, ...]


def cell(interval: Interval | None, digits: int = 4, *, sign: bool = False) -> str:
    """`0.512 [0.431, 0.592]`, or a dash."""
    if interval is None:
        return "-"
    form = f"{'+' if sign else ''}.{digits}f"
    return f"{interval.value:{form}} [{interval.low:{form}}, {interval.high:{form}}]"


def number(value: float | None, digits: int = 4) -> str:
    """Fixed digits, or a dash."""
    return "-" if value is None else f"{value:.{digits}f}"


def p_value(p: float | None) -> str:
    """Three significant digits, or a dash."""
    return "-" if p is None else f"{p:.3g}"


def to_text(table: Table) -> str:
    """Aligned columns for a terminal, as wide as they need to be."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable(title=None, box=box.SIMPLE_HEAD, pad_edge=False)
    for i, column in enumerate(table.columns):
        grid.add_column(Text(column), justify="left" if i == 0 else "right", no_wrap=True)
    for row in table.rows:
        grid.add_row(*(Text(value) for value in row))
    out = io.StringIO()
    Console(file=out, width=10_000, color_system=None).print(grid)
    lines = [line.rstrip() for line in out.getvalue().splitlines() if line.strip()]
    return "\n".join(part for part in (table.title, *lines, table.note) if part)


def to_markdown(table: Table) -> str:
    """A Markdown table under its title."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(c.replace("|", "\\|").replace("\n", " ") for c in cells) + " |"

    rule = "|" + "|".join(["---", *["---:"] * (len(table.columns) - 1)]) + "|"
    body = [line(table.columns), rule, *(line(row) for row in table.rows)]
    head = [f"**{table.title}**", ""] if table.title else []
    return "\n".join([*head, *body, *(["", table.note] if table.note else [])])


def page_text(page: Page) -> str:
    """The page for a terminal; figures are left out."""
    return "\n\n".join([*page.sentences, *(to_text(t) for t in page.tables)])


def page_markdown(page: Page) -> str:
    """The page as Markdown; figures are left out."""
    parts = [f"# {page.title}", *page.sentences, *(to_markdown(t) for t in page.tables)]
    return "\n\n".join(parts) + "\n"


def page_html(page: Page) -> str:
    """The page as one file: no script, no request, figures inline."""
    from jinja2 import Environment

    template = Environment(autoescape=True, trim_blocks=True).from_string(_HTML)
    return template.render(page=page)


_HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{{ page.title }}</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1rem 0; overflow-x: auto; }
</style>
</head>
<body>
<h1>{{ page.title }}</h1>
{% for sentence in page.sentences %}
<p>{{ sentence }}</p>
{% endfor %}
{% for figure in page.figures %}
<figure>{{ figure | safe }}</figure>
{% endfor %}
{% for table in page.tables %}
<h2>{{ table.title }}</h2>
<table>
<thead><tr>{% for c in table.columns %}<th>{{ c }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in table.rows %}
<tr>{% for c in row %}<td>{{ c }}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
</table>
{% if table.note %}
<p>{{ table.note }}</p>
{% endif %}
{% endfor %}
</body>
</html>
"""
