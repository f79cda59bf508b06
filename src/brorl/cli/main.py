"""The `brorl` command: joins the verbs, and turns every error into one line and an exit status.

No verb imports torch before it runs, so `brorl --help` is instant.
"""

import errno
import os
import signal
import sys
import threading
import warnings
from typing import Annotated

import typer
from typer.exceptions import TyperException

from brorl import __version__
from brorl.cli import (
    compare,
    doctor,
    launch,
    plan,
    report,
    rollouts,
    simulate,
    study,
    tasks,
    theory,
    verify,
    warmstart,
)
from brorl.cli import eval as eval_verb
from brorl.cli import run as run_verbs

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""The machine's fault, not the user's."""

app = typer.Typer(
    name="brorl",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Reinforcement learning with verifiable rewards and wide rollouts.",
    epilog="Begin with: brorl train quickstart",
)
app.command("train")(run_verbs.train)
app.command("resume")(run_verbs.resume)
app.command("plan")(plan.plan)
app.command("rollouts")(rollouts.rollouts)
app.command("report")(report.report)
app.command("eval")(eval_verb.evaluate)
app.command("compare")(compare.compare)
app.command("simulate")(simulate.simulate)
app.add_typer(theory.app, name="theory")
app.add_typer(study.app, name="study")
app.add_typer(tasks.app, name="tasks")
app.command("verify")(verify.verify)
app.command("warmstart")(warmstart.warmstart)
app.command("launch")(launch.launch)
app.command("doctor")(doctor.doctor)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


def main() -> None:
    """Entry point of the console script; returns only through sys.exit."""
    from brorl.errors import BrorlError, EngineError, Interrupted, RunError, VerifierError

    # A verifier named module:function is looked for here too, as `python -m` would.
    sys.path.insert(0, os.getcwd())
    warnings.showwarning = _Warned()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: one line, 130
    words = sys.argv[1:] or ["--help"]
    try:
        status = app(words, standalone_mode=False) or 0
        if status == 130:  # Ctrl-C inside a verb: typer makes a status of it
            raise KeyboardInterrupt
        sys.exit(status)
    except TyperException as error:  # a word that the command line does not know
        verb = f"{words[0]} " if len(words) > 1 else ""
        _say(f"{error.format_message()} (see: brorl {verb}--help)")
        sys.exit(2)
    except BrokenPipeError:  # `brorl rollouts RUN | head`: whoever read has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Interrupted as error:
        _say(str(error))
        sys.exit(130)
    except (KeyboardInterrupt, typer.Abort):
        _say("stopped at once; the last checkpoint is intact")
        sys.exit(130)
    except (EngineError, VerifierError, RunError) as error:
        _say(str(error))
        sys.exit(3)
    except BrorlError as error:
        _say(str(error))
        sys.exit(2)
    except OSError as error:  # of a place that no verb has words for
        _say(f"{error.filename or 'a file'}: {error.strerror or error}")
        sys.exit(3 if error.errno in _FULL else 2)


def _say(message: str) -> None:
    line = " ".join(message.split())
    print(f"brorl: {line}", file=sys.stderr)


class _Warned:
    """Stands in for warnings.showwarning: a line a warning, each once, without our source."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, message: Warning | str, *where: object, **more: object) -> None:
        line = " ".join(str(message).split())
        if line not in self._said:
            self._said.add(line)
            print(f"brorl warning: {line}", file=sys.stderr)
