"""What a program is to do: the tests of a row of data, read once and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from brorl.errors import DataError

KINDS = ("function", "stdin")
COMPARE = ("lines", "tokens", "exact")
MAX_TEST_CHARS = 4_000_000  # of an input or an output


class Run(NamedTuple):
    """An input, and the output that is expected."""

    given: str
    expected: str


@dataclass(frozen=True, slots=True)
class CodeTask:
    """Tests of one problem.

    Attributes:
        kind: "function", where tests are Python statements that call what the program defines,
            or "stdin", where a test is an input and the output that is expected.
        tests: for "function", sources of statements.
        runs: for "stdin".
        entry_point: for "function", the name that tests call. Where it is None, any name that
            tests use and do not define themselves may come from the program.
        setup: for "function", statements run beside the tests before them: imports, helpers.
        preamble: statements run in the program's place before it: imports, given definitions.
        compare: for "stdin": "lines" (equal tokens line by line, blank lines at the end
            aside), "tokens" (equal tokens), "exact" (equal text).
        tolerance: for "stdin": numbers may differ by this much, absolutely or relative to the
            expected one; None for not at all.
        timeout_s: seconds of wall clock for each test; None for the verifier's.
    """

    kind: str
    tests: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()
    entry_point: str | None = None
    setup: str = ""
    preamble: str = ""
    compare: str = "lines"
    tolerance: float | None = None
    timeout_s: float | None = None

    @property
    def declared(self) -> int:
        """How many tests there are: what a share of them is a share of."""
        return len(self.tests) + len(self.runs)


def read_task(row: Mapping[str, Any]) -> CodeTask:
    """The task of a row, from its "task" where it has one, else from the row itself.

    Tests of kind "stdin" may be a list of {"input", "output"} or one {"inputs", "outputs"}.
    No tests at all are read as what they are: it is the verifier that refuses to judge by none.

    Raises:
        DataError: says what was required and what came.
    """
    task = row.get("task", row)
    if not isinstance(task, Mapping):
        raise DataError(f"task must be an object, got {type(task).__name__}")
    kind = task.get("kind")
    if kind not in KINDS:
        raise DataError(f"task.kind must be one of {', '.join(KINDS)}, got {kind!r}")
    tests = task.get("tests")
    compare = task.get("compare", "lines")
    if compare not in COMPARE:
        raise DataError(f"task.compare must be one of {', '.join(COMPARE)}, got {compare!r}")
    return CodeTask(
        kind=kind,
        tests=_statements(tests) if kind == "function" else (),
        runs=_runs(tests) if kind == "stdin" else (),
        entry_point=_text(task, "entry_point", None),
        setup=_text(task, "setup", "") or "",
        preamble=_text(task, "preamble", "") or "",
        compare=compare,
        tolerance=_positive(task, "tolerance"),
        timeout_s=_positive(task, "timeout_s"),
    )


def _text(task: Mapping[str, Any], name: str, default: str | None) -> str | None:
    value = task.get(name, default)
    if value is not None and not isinstance(value, str):
        raise DataError(f"task.{name} must be a string, got {type(value).__name__}")
    return value


def _positive(task: Mapping[str, Any], name: str) -> float | None:
    value = task.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise DataError(f"task.{name} must be a number > 0, got {value!r}")
    return float(value)


def _statements(tests: Any) -> tuple[str, ...]:
    if not _is_list(tests) or not all(isinstance(test, str) for test in tests):
        raise DataError(f"task.tests must be a list of strings of Python, got {_brief(tests)}")
    return tuple(tests)


def _runs(tests: Any) -> tuple[Run, ...]:
    if isinstance(tests, Mapping):
        inputs: Any = tests.get("inputs")
        outputs: Any = tests.get("outputs")
        if not (_is_list(inputs) and _is_list(outputs)) or len(inputs) != len(outputs):
            raise DataError("task.tests must have as many inputs as outputs, both lists")
        tests = [{"input": i, "output": o} for i, o in zip(inputs, outputs, strict=True)]
    if not _is_list(tests):
        raise DataError(f"task.tests must be a list of {{input, output}}, got {_brief(tests)}")
    runs: list[Run] = []
    for test in tests:
        given = test.get("input") if isinstance(test, Mapping) else None
        expected = test.get("output") if isinstance(test, Mapping) else None
        if not (isinstance(given, str) and isinstance(expected, str)):
            raise DataError(f"a test must be {{input, output}}, both strings, got {_brief(test)}")
        if max(len(given), len(expected)) > MAX_TEST_CHARS:
            raise DataError(f"a test may have {MAX_TEST_CHARS} characters, got {_brief(test)}")
        runs.append(Run(given, expected))
    return tuple(runs)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _brief(value: Any) -> str:
    return repr(value)[:80]
