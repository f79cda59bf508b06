"""The command as a whole (policy tests): verbs, help texts, one line for a mistake, no torch."""

import json
import os
import subprocess
import sys

import pytest
from typer.main import get_command

from brorl.cli.main import app
from brorl.errors import (
    ConfigError,
    DataError,
    EngineError,
    Interrupted,
    PolicyError,
    RunError,
    ShapeError,
    VerifierError,
)

CONTRACT = [
    "train",
    "resume",
    "compare",
    "simulate",
    "theory",
    "plan",
    "report",
    "rollouts",
    "verify",
    "warmstart",
    "doctor",
]


def leaves(command, path=()):
    """Every command that can be run, with its name."""
    for name, sub in getattr(command, "commands", {}).items():
        yield from leaves(sub, (*path, name))
    if not hasattr(command, "commands"):
        yield " ".join(path), command


ALL = dict(leaves(get_command(app)))


def test_has_the_verbs_of_the_contract():
    assert set(CONTRACT) <= {name.split()[0] for name in ALL}


@pytest.mark.parametrize("name", sorted(ALL))
def test_help_shows_an_example(name):
    command = ALL[name]
    text = f"{command.help or ''} {command.epilog or ''}"
    assert f"brorl {name}" in text, f"the help of {name} needs an example"


@pytest.mark.parametrize("name", sorted(set(ALL)))
def test_verbs_that_print_a_result_have_json(name):
    """`verify` prints JSON lines always and `report` only a path; others offer one object."""
    options = {o for p in ALL[name].params for o in p.opts}
    assert "--json" in options or name.split()[0] in ("verify", "report")


def run_cli(*words, code=None):
    program = code or "from brorl.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.argv = ['brorl', *{list(words)!r}]; {program}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_python_m_is_the_same_command():
    """Identity: a mistake gets the same line and status."""
    ran = subprocess.run(
        [sys.executable, "-m", "brorl", "train", "nope"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    same = run_cli("train", "nope")
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, same.stdout, same.stderr)


def test_help_imports_no_torch():
    """In a process of its own: what --help imports must not include torch or transformers."""
    code = """
import atexit
atexit.register(lambda: print('HEAVY', sorted({'torch', 'transformers'} & set(sys.modules))))
from brorl.cli.main import main
main()
"""
    done = run_cli("--help", code=f"exec({code!r})")
    assert done.returncode == 0
    assert "HEAVY []" in done.stdout


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError, 2),
        (DataError, 2),
        (ShapeError, 2),
        (PolicyError, 2),
        (EngineError, 3),
        (VerifierError, 3),
        (RunError, 3),
        (Interrupted, 130),
        (KeyboardInterrupt, 130),
    ],
)
def test_exit_status_and_one_line(error, status, monkeypatch, capsys):
    """Every error of the tree becomes its exit status and one line, whatever is in its text."""
    import brorl.cli.main as module

    def fail(words, standalone_mode):
        raise error("first line\nsecond line")

    monkeypatch.setattr(module, "app", fail)
    with pytest.raises(SystemExit) as stopped:
        module.main()
    assert stopped.value.code == status
    err = capsys.readouterr().err
    assert err.startswith("brorl: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(("number", "status"), [(13, 2), (2, 2), (28, 3), (5, 3)])
def test_what_the_system_refuses_is_one_line_whatever_the_verb(number, status, monkeypatch, capsys):
    """No rights and no such file are the user's mistake, a full or broken disk is not."""
    import brorl.cli.main as module

    def fail(words, standalone_mode):
        raise OSError(number, os.strerror(number), "/some/file")

    monkeypatch.setattr(module, "app", fail)
    with pytest.raises(SystemExit) as stopped:
        module.main()
    assert stopped.value.code == status
    assert capsys.readouterr().err == f"brorl: /some/file: {os.strerror(number)}\n"


def test_a_warning_is_one_line_and_comes_once():
    code = """
import warnings
import brorl.cli.main as module
def warn(words, standalone_mode):
    for _ in range(3):
        warnings.warn('two\\nlines', stacklevel=1)
        warnings.warn('another', stacklevel=1)
module.app = warn
module.main()
"""
    done = run_cli("x", code=f"exec({code!r})")
    assert done.stderr.splitlines() == ["brorl warning: two lines", "brorl warning: another"]


def test_sigterm_before_a_run_listens_is_status_130_and_one_line():
    """A scheduler that stops the command while it is still reading."""
    code = """
import os, signal
import brorl.cli.main as module
module.app = lambda words, standalone_mode: os.kill(os.getpid(), signal.SIGTERM)
module.main()
"""
    done = run_cli("train", code=f"exec({code!r})")
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "brorl: stopped at once; the last checkpoint is intact\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trainx"], "No such command 'trainx'"),
        (["train"], "Missing argument"),
        (["plan", "quickstart", "--nope"], "No such option: --nope"),
        (["plan", "quickstart", "--prompt-tokens", "0"], "greater than or equal to 1"),
    ],
)
def test_unknown_words_are_one_line(words, said, monkeypatch, capsys):
    import brorl.cli.main as module

    monkeypatch.setattr(sys, "argv", ["brorl", *words])
    with pytest.raises(SystemExit) as stopped:
        module.main()
    assert stopped.value.code == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.startswith("brorl: ")
    assert err.count("\n") == 1


def test_a_verb_that_says_no_exits_with_one(monkeypatch):
    """`doctor` with a problem: typer.Exit(1) must reach the shell."""
    import brorl.cli.main as module

    monkeypatch.setattr(
        "brorl.cli.doctor.examine", lambda: {"python": "3", "problems": ["x"], "hints": []}
    )
    monkeypatch.setattr(sys, "argv", ["brorl", "doctor"])
    with pytest.raises(SystemExit) as stopped:
        module.main()
    assert stopped.value.code == 1


def test_plan_prints_the_contract(capsys):
    """The keys of design's table, for every shipped recipe, without a model at hand."""
    from typer.testing import CliRunner

    from brorl.train.recipe import shipped

    want = {
        "rollout_n",
        "prompts_per_step",
        "samples_per_step",
        "updates_per_step",
        "lr",
        "lr_derivation",
        "memory_bytes",
        "disk_bytes_per_step",
        "grader_calls",
    }
    for recipe in shipped():
        done = CliRunner().invoke(app, ["plan", recipe, "--json"])
        assert done.exit_code == 0, (recipe, done.output)
        plan = json.loads(done.output)
        assert want <= plan.keys()
        assert plan["memory_bytes"]["total"] > 0


def test_plan_of_brorl_by_hand():
    """128 · 512 = 65,536 samples; against 512 · 16 = 8,192 they are 8 times as many, √8 = 2.83."""
    from brorl.train.plan import plan
    from brorl.train.recipe import load_recipe

    wide = plan(load_recipe("brorl"), prompt_tokens=256)
    narrow = plan(load_recipe("prorl"), prompt_tokens=256)
    assert (wide.rollout_n, wide.prompts_per_step, wide.samples_per_step) == (512, 128, 65536)
    assert narrow.samples_per_step == 8192
    assert wide.updates_per_step == narrow.updates_per_step
    assert wide.lr == pytest.approx(narrow.lr * 8**0.5, rel=1e-12)
