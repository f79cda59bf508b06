"""Problems as the Parquet files that verl is given, and back.

The columns are verl's own (data_source, prompt, ability, reward_model, extra_info), so that its
tools read them too; extra_info.problem holds the whole problem as JSON, from which our code in
verl makes the same Problem again. Every node needs these files, and none needs the recipe's.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from brorl.errors import DataError
from brorl.tasks.problem import Problem

FOLDER, TRAIN, HELDOUT = "data", "train.parquet", "heldout.parquet"


def write_problems(run: Path, train: Sequence[Problem], heldout: Sequence[Problem]) -> None:
    """Write both splits below a run's folder.

    Raises:
        DataError: a row that JSON cannot hold, by its problem.
    """
    folder = run / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, problems in ((TRAIN, train), (HELDOUT, heldout)):
        rows = [_row(problem, name, index) for index, problem in enumerate(problems)]
        pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), folder / name)


def read_problems(path: Path) -> list[Problem]:
    """The problems of a file that `write_problems` wrote. Raises DataError."""
    try:
        cells = pq.read_table(path, columns=["extra_info"]).column("extra_info").to_pylist()
        return [_problem(json.loads(cell["problem"])) for cell in cells]
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path}: not a data file of `brorl launch`: {reason}") from error


_SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        (
            "extra_info",
            pa.struct([("index", pa.int64()), ("split", pa.string()), ("problem", pa.string())]),
        ),
    ]
)


def _row(problem: Problem, name: str, index: int) -> dict[str, Any]:
    whole = {
        "id": problem.id,
        "prompt": problem.prompt,
        "gold": problem.gold,
        "task": problem.task,
        "row": dict(problem.row),
    }
    try:
        text = json.dumps(whole, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"problem {problem.id}: its row does not fit JSON: {error}") from error
    return {
        "data_source": problem.task or "brorl",
        "prompt": [{"role": "user", "content": problem.prompt}],
        "ability": problem.task or "brorl",
        "reward_model": {"style": "rule", "ground_truth": problem.gold},
        "extra_info": {"index": index, "split": name.removesuffix(".parquet"), "problem": text},
    }


def _problem(whole: dict[str, Any]) -> Problem:
    return Problem(
        id=whole["id"],
        prompt=whole["prompt"],
        gold=whole["gold"],
        row=whole["row"],
        task=whole["task"],
    )
