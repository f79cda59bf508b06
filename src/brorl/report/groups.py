"""Groups and distinct answers of one recorded step, as aggregates.

Texts are never read to count answers: 65,536 rollouts of a step cost a few narrow columns, and
only the rows that are shown are looked up with their text.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from brorl.record.rollouts import read_rollouts, rollout_path

_NARROW = (
    "born",
    "problem_id",
    "group_id",
    "sample_index",
    "stop",
    "verdict",
    "extracted",
    "raw_score",
    "true_score",
    "advantage",
    "kept",
    "fate",
)
_BATCH = 2048  # rows of text held at once

# What makes two answers the same: the extracted one, or the kind of there being none.
_SAME = "group_id, extracted, CASE WHEN extracted IS NULL THEN verdict END"

_GROUPS = f"""
WITH votes AS (
    SELECT group_id, count(*) AS votes, min(sample_index) AS first_seen,
           any_value(coalesce(extracted, '<' || verdict || '>')) AS answer,
           bool_or(raw_score = 1) AS is_right
    FROM answers WHERE verdict <> 'grader_error' GROUP BY {_SAME}
), tops AS (
    SELECT group_id, count(*) AS n_distinct, max(votes) AS votes,
           first(answer ORDER BY votes DESC, first_seen) AS answer,
           first(is_right ORDER BY votes DESC, first_seen) AS is_right
    FROM votes GROUP BY group_id
), groups AS (
    SELECT group_id, any_value(problem_id) AS problem_id, any_value(born) AS born,
           min("row") AS first_row, count(*) AS n,
           count(*) FILTER (verdict <> 'grader_error') AS graded,
           count(*) FILTER (verdict <> 'grader_error' AND raw_score = 1) AS n_right,
           count(*) FILTER (kept) AS kept,
           histogram(fate) AS fates,
           count(*) FILTER (stop = 'length') AS truncated,
           count(*) FILTER (verdict <> 'grader_error' AND raw_score <> true_score) AS disputed,
           count(*) FILTER (verdict IN ('ungradable', 'timeout', 'grader_error')) AS unread
    FROM answers GROUP BY group_id
)
SELECT g.group_id, problem_id, born, first_row, n, graded, n_right, kept, fates, truncated,
       disputed, unread, coalesce(n_distinct, 0), tops.answer, coalesce(votes / graded, 0),
       coalesce(tops.is_right, false)
FROM groups g LEFT JOIN tops USING (group_id) ORDER BY first_row
"""

_ANSWERS = f"""
SELECT group_id, any_value(coalesce(extracted, '<' || verdict || '>')), count(*) AS votes,
       count(*) FILTER (verdict <> 'grader_error' AND raw_score = 1), histogram(verdict),
       avg(advantage), first("row" ORDER BY sample_index), min(sample_index) AS first_seen
FROM answers WHERE list_contains($wanted, group_id)
GROUP BY {_SAME} ORDER BY group_id, votes DESC, first_seen
"""


class Group(NamedTuple):
    """One group of a step. "Right" is a raw score of 1, as for the filter."""

    group_id: str
    problem_id: str
    born: int  # the step that sampled it
    first_row: int  # in the step's file
    n: int  # answers
    graded: int  # answers that belong to the group: no grader error
    right: int
    kept: int  # answers that the update saw
    fates: dict[str, int]
    truncated: int
    disputed: int  # raw and true score differ
    unread: int  # ungradable, timeout or grader error
    distinct: int  # answers, equal ones counted once
    top_answer: str | None
    top_share: float  # of the graded; 0 where none is
    top_right: bool

    @property
    def right_share(self) -> float:
        """In [0, 1]; 0 where nothing was graded."""
        return self.right / self.graded if self.graded else 0.0

    @property
    def outcome(self) -> str:
        """Solved by `none`, `some` or `all` of its answers; `ungraded` where none counts."""
        if not self.graded:
            return "ungraded"
        return "none" if self.right == 0 else "all" if self.right == self.graded else "some"

    @property
    def why(self) -> str:
        """What became of it: `kept`, `kept 16 of 64` or the reasons, the commonest first."""
        if self.kept == self.n:
            return "kept"
        if self.kept:
            return f"kept {self.kept} of {self.n}"
        reasons = sorted(self.fates, key=lambda fate: (-self.fates[fate], fate))
        return ", ".join(reason.replace("_", " ") for reason in reasons)


class Answer(NamedTuple):
    """A distinct answer of a group."""

    group_id: str
    answer: str  # the extracted one, or <kind> where there is none
    votes: int  # samples that gave it
    right: int  # of the votes: grading may depend on more than what was extracted
    verdicts: dict[str, int]
    advantage: float | None  # mean; None where the update saw none of them
    row: int  # of the first sample, in the step's file
    sample_index: int  # of that sample


class Step:
    """The answers of one step, read once.

    Args:
        run: the run folder.
        step: one that has rollouts.

    Raises:
        DataError: no such step, or a file that is not ours.
    """

    def __init__(self, run: Path, step: int) -> None:
        table = read_rollouts(run, step, _NARROW)
        rows = pa.array(np.arange(table.num_rows, dtype=np.int64))
        self.run, self.step = run, step
        self._database = database()
        self._database.register("answers", table.append_column("row", rows))

    def groups(self) -> list[Group]:
        """Every group, in the order of the file."""
        return [Group(*row) for row in self._ask(_GROUPS, {})]

    def answers(self, group_ids: Iterable[str]) -> dict[str, list[Answer]]:
        """The distinct answers of each group, the commonest first."""
        wanted = list(group_ids)
        found: dict[str, list[Answer]] = {name: [] for name in wanted}
        for row in self._ask(_ANSWERS, {"wanted": wanted}):
            found[row[0]].append(Answer(*row))
        return found

    def rows(self, numbers: Iterable[int], columns: Sequence[str]) -> dict[int, dict[str, Any]]:
        """Whole rows by their number in the file, a batch of the file in memory at a time."""
        wanted = np.unique(np.fromiter(numbers, dtype=np.int64))
        found: dict[int, dict[str, Any]] = {}
        with pq.ParquetFile(rollout_path(self.run, self.step)) as file:
            start = 0
            for batch in file.iter_batches(batch_size=_BATCH, columns=list(columns)):
                here = wanted[(wanted >= start) & (wanted < start + batch.num_rows)]
                taken = batch.take(pa.array(here - start)).to_pylist() if here.size else []
                found |= dict(zip(here.tolist(), taken, strict=True))
                start += batch.num_rows
        return found

    def _ask(self, query: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._database.execute(query, values).fetchall()
        return found


def database() -> duckdb.DuckDBPyConnection:
    """A database in memory that fetches nothing from the network."""
    return duckdb.connect(config={"autoinstall_known_extensions": "false"})
