"""`brorl verify`: judge one answer, or every row of a file; one JSON object a line."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from brorl.verify.protocol import Verifier
    from brorl.verify.verdict import Verdict


class _Row(NamedTuple):
    """One answer to judge."""

    verifier: "Verifier"
    text: str
    gold: str | None
    row: Mapping[str, Any]


def verify(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE.jsonl",
            help='Rows {"gold", "answer", "kind"?} or {"task": {"kind": "function" or "stdin", '
            '"tests", "entry_point"?, ...}, "code"}.',
        ),
    ] = None,
    gold: Annotated[str | None, typer.Option(help="The reference, of a single answer.")] = None,
    answer: Annotated[
        str | None, typer.Option(help="The text to judge, as a model would write it.")
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            help="Verifier of rows that name none: math, math-strict, choice, exact, "
            "instructions, or your own as module:function or file.py:function."
        ),
    ] = "math",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Grader processes; one a core if not given.")
    ] = None,
    deadline: Annotated[float, typer.Option(help="Seconds that one answer may take.")] = 10.0,
    timeout: Annotated[float, typer.Option(help="Seconds for each test of a program.")] = 6.0,
    partial: Annotated[
        bool, typer.Option("--partial", help="Score programs by the share of tests they pass.")
    ] = False,
    unsafe_local: Annotated[
        bool,
        typer.Option("--unsafe-local", help="Run programs without a sandbox, with your rights."),
    ] = False,
) -> None:
    r"""Judge answers by the rules that training uses.

    Prints {"verdict", "extracted", "reason", "score"} for each row, in order. Exit status 0 when
    every row could be read, whatever the verdicts.

    Example: brorl verify --gold '\frac{1}{2}' --answer 'so it is \boxed{0.5}'
    """
    from brorl.errors import ConfigError
    from brorl.verify.code import CodeVerifier
    from brorl.verify.verdict import Kind

    code = CodeVerifier(
        partial=partial,
        timeout_s=timeout,
        total_s=max(5 * timeout, 10.0),
        unsafe_local=unsafe_local,
    )
    single = gold is not None or answer is not None
    if single == (file is not None):
        raise ConfigError("verify needs either FILE.jsonl or both --gold and --answer")
    if deadline <= 0 or timeout <= 0:
        raise ConfigError(f"need --deadline > 0 and --timeout > 0, got {deadline} and {timeout}")
    if file is not None:
        rows = _read(file, kind, code)
    elif gold is None or answer is None:
        raise ConfigError("verify needs both --gold and --answer, got one of them")
    else:
        rows = [_plain_row({"gold": gold, "answer": answer}, kind)]
    if any(row.verifier is code for row in rows):
        if unsafe_local:
            typer.echo("running programs without a sandbox, with your rights", err=True)
        code.prepare()  # refuses where there is no sandbox, before anything is judged
    count = min(workers or os.cpu_count() or 1, len(rows)) or 1
    for verdict in _judged(rows, count, deadline):
        found = {
            "verdict": verdict.kind.value,
            "extracted": verdict.extracted,
            "reason": verdict.reason,
            "score": verdict.score,
        }
        typer.echo(json.dumps(found))
        if file is None and verdict.kind is Kind.NO_ANSWER:
            typer.echo("write the answer as a model would, e.g. \\boxed{...}", err=True)


def _judged(rows: list[_Row], workers: int, deadline: float) -> Iterator["Verdict"]:
    """The verdicts in the order of the rows, each as soon as it and those before it are there."""
    from brorl.verify.pool import GraderPool

    with GraderPool(workers=workers, deadline_s=deadline) as pool:
        tickets = [
            pool.submit(row.verifier, problem_id="", text=row.text, gold=row.gold, row=row.row)
            for row in rows
        ]
        for ticket in tickets:
            yield pool.gather([ticket])[0]


def _read(path: Path, kind: str, code: "Verifier") -> list[_Row]:
    """Every row of a file, checked before any is judged. Raises DataError with file and line."""
    from brorl.errors import BrorlError, DataError

    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise DataError(f"a row must be an object, got {type(row).__name__}")
            rows.append(_code_row(row, code) if "task" in row else _plain_row(row, kind))
        except (ValueError, RecursionError, BrorlError) as error:
            raise DataError(f"{path}:{number}: {error}") from error
    return rows


def _code_row(row: Mapping[str, Any], code: "Verifier") -> _Row:
    from brorl.errors import DataError
    from brorl.verify.code_task import read_task

    read_task(row)
    text = row.get("code")
    if not isinstance(text, str):
        raise DataError(f"code must be a string, got {type(text).__name__}")
    return _Row(code, text, None, row)


def _plain_row(row: Mapping[str, Any], kind: str) -> _Row:
    from brorl.errors import DataError
    from brorl.tasks.build import build_verifier

    named = row.get("kind", kind)
    if not isinstance(named, str):
        raise DataError(f"kind must be a string, got {type(named).__name__}")
    verifier = build_verifier(named)
    answer = row.get("answer")
    if not isinstance(answer, str):
        raise DataError(f"answer must be a string, got {type(answer).__name__}")
    gold = row.get("gold")
    if gold is None and not getattr(verifier, "needs_gold", True):
        return _Row(verifier, answer, None, row)
    if isinstance(gold, bool) or not isinstance(gold, str | int | float):
        raise DataError(f"gold must be a string or a number, got {type(gold).__name__}")
    return _Row(verifier, answer, str(gold), row)
