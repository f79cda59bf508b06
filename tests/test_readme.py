"""The README's commands are run as they stand, in a folder of their own (policy, slow).

`make run` is run whole. Training commands get overrides behind them that make them small; the
commands themselves are not changed.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SMALL = {
    "quickstart": ["steps=2", "eval.samples=2", "eval.problems=16"],
    "grpo": ["steps=1", "eval.samples=2", "rollout.n=4", "prompts_per_step=4"],
    "prorl": ["steps=1", "eval.samples=2", "rollout.n=4", "prompts_per_step=2"],
    "brorl": ["steps=1", "eval.samples=2", "rollout.n=8", "prompts_per_step=2"],
    "adaptive": [
        "steps=1",
        "eval.samples=2",
        "rollout.waves=[4,8]",
        "rollout.keep_per_group=4",
        "prompts_per_step=2",
    ],
}
FITS_TINY = ["rollout.max_new_tokens=12", "eval.max_new_tokens=12", "model.dtype=float32"]


def commands():
    """Every `brorl ...` line in the README's code blocks, as the shell would split it."""
    inside, found = False, []
    for line in (ROOT / "README.md").read_text().splitlines():
        if line.startswith("```"):
            inside = not inside
        elif inside and line.startswith("brorl "):
            found.append(shlex.split(line, comments=True))
    return found


def run(words, cwd, env):
    done = subprocess.run(
        words, cwd=cwd, env=env, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.slow
def test_readme_commands(tmp_path):
    env = os.environ | {"BRORL_CACHE": str(tmp_path / "cache")}
    brorl = str(Path(sys.executable).with_name("brorl"))
    out = run([brorl, "train", "quickstart", "--json"], tmp_path, env)  # what `make run` runs
    result = json.loads(out)
    assert result["eval_after"]["low"] > result["eval_before"]["high"]
    assert (tmp_path / "runs/quickstart/report.html").is_file()

    folder = run([brorl, "warmstart", "quickstart"], tmp_path, env).strip().splitlines()[-1]
    shutil.copytree(folder, tmp_path / "my-model")
    shutil.copytree(tmp_path / "runs/quickstart", tmp_path / "runs/old")
    words = [
        "stone",
        "river",
        "cloud",
        "night",
        "paper",
        "green",
        "house",
        "light",
        "mouse",
        "table",
        "chair",
        "water",
        "bread",
    ]
    rows = [{"question": f"rev {w}=", "answer": w[::-1]} for w in words]
    rows = [r | {"prompt": r["question"]} for r in rows]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))

    lines = commands()
    assert len(lines) >= 8
    for _, verb, *rest in lines:
        extra = []
        if verb == "train":
            extra = SMALL[rest[0]] + (FITS_TINY if rest[0] != "quickstart" else [])
        run([brorl, verb, *rest, *extra], tmp_path, env)


def test_make_run_is_the_quickstart():
    """`make run` itself is what CI's clean clone runs by hand; here: that it runs this command."""
    text = (ROOT / "Makefile").read_text()
    assert re.search(r"^run: setup\n\t\$\(BIN\)/brorl train quickstart$", text, re.MULTILINE)
