"""Tables of docs/performance.md and the page benchmarks/results.html, from benchmarks/results.json.

python docs/render_performance.py [--check]
"""

import argparse
import html
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks/results.json"
PAGE = ROOT / "docs/performance.md"
HTML = ROOT / "benchmarks/results.html"
BLOCK = re.compile(r"(<!-- begin bench-(?P<name>\w+) -->\n).*?(<!-- end bench-(?P=name) -->)", re.S)
STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;color:#222}"
    "td,th{padding:.2em .8em .2em 0;text-align:left;vertical-align:top}"
    ".bar{height:.8em;background:#4878a8;display:inline-block}.miss{background:#b5543c}"
    "small{color:#666}"
)


def results():
    """The sections measured so far."""
    return json.loads(RESULTS.read_text())["sections"] if RESULTS.exists() else {}


def number(x):
    """Three digits that count."""
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}"


def goal(figure):
    """The target and whether it is met, in words."""
    if figure["target"] is None:
        return "-"
    sign = "at most" if figure["at_most"] else "at least"
    return f"{sign} {figure['target']:.3g}: {'met' if figure['met'] else 'missed'}"


def beside(figure):
    """Absolute values of the two sides."""
    if "ours" not in figure:
        return ""
    scale, unit = (1e-6, "MB") if figure["unit"] == "bytes" else (1.0, figure["unit"])
    sides = (figure["ours"], figure["theirs"])
    return "; ".join(f"{s['side']} {number(s['median'] * scale)} {unit}" for s in sides)


def machine(section):
    """What a section ran on."""
    m = section["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in m["versions"].items() if v)
    return (
        f"{m['cpu']}, {m['cpus']} cores, {m['threads']} threads on every side, load "
        f"{m['load'][0]:g} when it ended; Python {m['python']}, {versions}."
    )


def table(name):
    """A section as a Markdown table."""
    section = results().get(name)
    if section is None:
        return "Not measured yet.\n"
    lines = ["| figure | ratio, median [least, most] | target | beside it |", "|---|---|---|---|"]
    lines += [
        f"| {f['name']} | {number(f['ratio'])} [{number(f['least'])}, {number(f['most'])}] | "
        f"{goal(f)} | {beside(f)} |"
        for f in section["figures"]
    ]
    return "\n".join([*lines, "", machine(section)]) + "\n"


def rendered(text):
    """The document with every block rendered anew."""
    return BLOCK.sub(lambda m: m.group(1) + table(m.group("name")) + m.group(3), text)


def page():
    """All sections with bars, as one HTML file without scripts."""
    parts = [f"<!doctype html><meta charset=utf-8><title>brorl: benchmarks</title><style>{STYLE}"]
    parts.append("</style><h1>Benchmarks</h1><p>Ratios of two sides measured alternately.</p>")
    for name, section in results().items():
        parts.append(f"<h2>{html.escape(name)}</h2><table>")
        widest = max(f["ratio"] for f in section["figures"]) or 1
        for f in section["figures"]:
            kind = "bar" if f["met"] is not False else "bar miss"
            width = f"{max(1, 14 * f['ratio'] / widest):.1f}em"
            value = f"{number(f['ratio'])} [{number(f['least'])}, {number(f['most'])}]"
            parts.append(
                f"<tr><td>{html.escape(f['name'])}<br><small>{html.escape(beside(f))}</small>"
                f"<td><span class='{kind}' style='width:{width}'></span> {value}"
                f"<td>{html.escape(goal(f))}"
            )
        parts.append(f"</table><p><small>{html.escape(machine(section))}</small>")
    return "\n".join(parts) + "\n"


def main(check=False):
    """Rewrite both pages, or say which is out of date; 1 where one is and check is set."""
    stale = []
    for path, text in ((PAGE, rendered(PAGE.read_text())), (HTML, page())):
        if not path.exists() or path.read_text() != text:
            stale.append(path)
            if not check:
                path.write_text(text)
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'out of date' if check else 'rendered'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    sys.exit(main(parser.parse_args().check))
