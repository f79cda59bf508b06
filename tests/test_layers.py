"""Who may import whom (policy): the table of ARCHITECTURE.md against the sources, and no torch early."""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "brorl"
OPEN_TO_ALL = {"errors", "seeds"}
NO_TORCH = ("theory", "stats", "simulator", "verify", "tasks", "record", "report")
HEAVY = ("torch", "transformers", "tensorboard")


def table():
    """Package to the packages it may import, as ARCHITECTURE.md has it; None is everything."""
    rows = re.findall(
        r"^\| `(\w+)` \|.*\| ([^|]*) \|$", (ROOT / "ARCHITECTURE.md").read_text(), re.M
    )
    none = {"-": set(), "everything": None}
    return {name: none.get(cell, set(cell.split(", "))) for name, cell in rows}


def packages():
    return {p.parent.name for p in SOURCE.glob("*/__init__.py")} - {"recipes"}


def imported(node, module):
    """Names of brorl's own packages and of foreign ones that an import statement reads."""
    if isinstance(node, ast.Import):
        return [a.name for a in node.names]
    base = node.module or ""
    if node.level:
        parts = module.split(".")[: -node.level]
        base = ".".join([*parts, base] if base else parts)
    return [base, *(f"{base}.{a.name}" for a in node.names)]


def test_the_table_names_every_package_and_nothing_else():
    assert set(table()) == packages()
    for allowed in table().values():
        assert allowed is None or allowed <= packages()


def test_no_package_imports_what_the_table_does_not_grant():
    """Inside functions too: a late import is an import."""
    broken = []
    for name, allowed in table().items():
        for path in (SOURCE / name).rglob("*.py"):
            module = ".".join(["brorl", *path.relative_to(SOURCE).with_suffix("").parts])
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Import | ast.ImportFrom):
                    continue
                names = [n.split(".") for n in imported(node, module)]
                used = {n[1] for n in names if n[0] == "brorl" and len(n) > 1} & packages()
                bad = set() if allowed is None else used - allowed - {name}
                broken += [f"{path.relative_to(ROOT)}:{node.lineno} imports {b}" for b in bad]
    assert broken == []


def test_studies_stand_under_the_command_line_alone():
    """They use everything but `cli`; the test above holds that nothing but `cli` uses them."""
    for path in (SOURCE / "studies").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = imported(node, "brorl.studies.any")
                assert not [n for n in names if n.startswith("brorl.cli")], path


def test_the_table_has_no_circle():
    """A package stands above all that it imports."""
    left = {name: allowed for name, allowed in table().items() if allowed is not None}
    while left:
        bottom = [n for n, allowed in left.items() if not allowed & left.keys()]
        assert bottom, f"a circle among {sorted(left)}"
        for name in bottom:
            del left[name]


def test_light_packages_load_no_torch():
    """In one fresh process: every module of them, and the command line with all its verbs."""
    light = sorted(
        ".".join(["brorl", *p.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
        for name in NO_TORCH
        for p in (SOURCE / name).rglob("*.py")
        if p.name != "__main__.py"
    )
    modules = ["brorl.cli.main", *light]
    script = (
        "import importlib, sys\n"
        f"for m in {modules!r}:\n"
        "    importlib.import_module(m)\n"
        f"    found = [h for h in {HEAVY!r} if h in sys.modules]\n"
        "    assert not found, f'{m} loads {found}'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]


def test_settings_recipes_and_plans_load_no_torch():
    """So that `brorl plan` is instant, and a mistake in a recipe is told at once."""
    names = ["settings", "recipe", "plan", "plan_time", "advise", "contradictions", "yaml_values"]
    script = "import sys\n" + "".join(f"import brorl.train.{m}\n" for m in names)
    script += f"assert not [h for h in {HEAVY!r} if h in sys.modules], 'torch was loaded'\n"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]
