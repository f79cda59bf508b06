"""What an evaluation writes: one JSON file, versioned, with every problem kept apart.

Means are never stored: they are computed from the problems whenever they are asked for, so a
table and a comparison of one file cannot disagree.

Left out: the sampled texts (they stand beside it, a line each), and any figure.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from brorl.errors import DataError
from brorl.record.files import write_atomic
from brorl.verify.verdict import Kind, Verdict

FORMAT: Literal["brorl-evaluation"] = "brorl-evaluation"
VERSION: Literal[1] = 1

Count = Annotated[int, Field(ge=0)]
Score = Annotated[float, Field(ge=0, le=1)]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ModelSource(_Frozen):
    """What was evaluated."""

    source: str
    """A path, a hub name or a run directory, as the user gave it."""

    revision: str | None = None
    step: Count | None = None
    """The training step of a checkpoint of a run."""

    weights_sha256: str | None = None
    dtype: str | None = None


class Protocol(_Frozen):
    """How answers were sampled. Never taken from training settings."""

    samples: Annotated[int, Field(ge=1)]
    temperature: Annotated[float, Field(ge=0)]
    top_p: Annotated[float, Field(gt=0, le=1)]
    top_k: Count
    """0: no limit."""

    max_new_tokens: Annotated[int, Field(ge=1)]
    chat_template: str | None
    """SHA-256 of the template text; None where prompts went in as they are."""

    engine: str
    seed: int

    @model_validator(mode="after")
    def _greedy_once(self) -> Self:
        if self.temperature == 0 and self.samples > 1:
            raise ValueError(f"temperature 0 is greedy: {self.samples} samples would be equal")
        return self

    def differences(self, other: "Protocol") -> list[str]:
        """Settings that differ, each as `name: ours and theirs`; the seed may differ."""
        mine, theirs = self.model_dump(exclude={"seed"}), other.model_dump(exclude={"seed"})
        return [
            f"{name}: {mine[name]} and {theirs[name]}"
            for name in mine
            if mine[name] != theirs[name]
        ]


class Votes(NamedTuple):
    """How many samples gave one distinct answer, and whether it is right."""

    samples: int
    right: bool


class TextStats(_Frozen):
    """How the n texts of one problem read; brorl.evaluate.texts says how it is measured."""

    distinct_1: Score | None
    """Distinct words over all words; None without words."""

    distinct_2: Score | None
    """The same for pairs of words in a row."""

    self_similarity: Score | None
    """Mean overlap of two texts; None for a single sample."""

    behaviours: dict[str, Count]
    """How many of the n samples show each."""


class ProblemResult(_Frozen):
    """One problem, by its row id. Samples whose grading failed on our side are not in n."""

    id: str
    task: str
    category: str
    n: Annotated[int, Field(ge=1)]
    c: Count
    """Samples with score exactly 1. A score of 0.5 is no success."""

    scores: tuple[Score, ...]
    """[n], in sample order."""

    tokens: tuple[Count, ...]
    """[n], answer length with the end-of-sequence token."""

    truncated: Count
    verdicts: dict[Kind, Count]
    """How many of the n samples got each verdict."""

    answers: tuple[Votes, ...]
    """A distinct extracted answer each; samples without one are in none of them."""

    grader_errors: Count = 0
    texts: TextStats | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        right = sum(s == 1.0 for s in self.scores)
        votes = sum(v.samples for v in self.answers)
        for name, got, want in (
            ("scores", len(self.scores), self.n),
            ("tokens", len(self.tokens), self.n),
            ("verdicts", sum(self.verdicts.values()), self.n),
            ("c", self.c, right),
            ("verdicts.correct", self.verdicts.get(Kind.CORRECT, 0), right),
            ("right votes", sum(v.samples for v in self.answers if v.right), right),
        ):
            if got != want:
                raise ValueError(f"problem {self.id}: {name} should count {want}, got {got}")
        if votes > self.n or self.truncated > self.n or Kind.GRADER_ERROR in self.verdicts:
            raise ValueError(f"problem {self.id}: more answers, truncations or verdicts than n")
        if self.texts and max(self.texts.behaviours.values(), default=0) > self.n:
            raise ValueError(f"problem {self.id}: a behaviour in more samples than n={self.n}")
        return self

    @property
    def score(self) -> float:
        """Mean score over the n samples; equals c/n where scores are 0 or 1."""
        return sum(self.scores) / self.n


class SuiteResult(_Frozen):
    """One benchmark: what it was made of, and each of its problems."""

    source: str
    """Name of the data file, or of the generator with its version."""

    source_sha256: str | None
    verifier: str
    """Name and version of the verifier, e.g. `math 1 (math-verify 0.9.0)`."""

    prompt: str
    """The prompt format, with `{prompt}` where the problem goes."""

    set_aside: Count
    """Problems left out: gold unreadable, or grading failed on our side for every sample."""

    problems: tuple[ProblemResult, ...]

    @model_validator(mode="after")
    def _rows(self) -> Self:
        if not self.problems:
            raise ValueError("an empty suite: it has no problem")
        ids = [p.id for p in self.problems]
        if len(set(ids)) < len(ids):
            twice = next(i for i in ids if ids.count(i) > 1)
            raise ValueError(f"problem {twice} appears twice; ids name data rows")
        return self


class Evaluation(_Frozen):
    """One policy on one or more suites, under one protocol."""

    format: Literal["brorl-evaluation"] = FORMAT
    version: Literal[1] = VERSION
    model: ModelSource
    protocol: Protocol
    versions: dict[str, str]
    """Of brorl, Python and the libraries that sample or grade."""

    suites: Annotated[dict[str, SuiteResult], Field(min_length=1)]


def problem_result(
    id: str,
    *,
    task: str,
    category: str,
    verdicts: Sequence[Verdict],
    tokens: Sequence[int],
    truncated: Sequence[bool],
    texts: TextStats | None = None,
) -> ProblemResult:
    """Gather the samples of one problem, in sample order.

    Args:
        id: of the data row; samples are never gathered by prompt text.
        task, category: for tables.
        verdicts: one a sample; grader errors leave the problem and are counted.
        tokens: answer length of each sample.
        truncated: whether each sample ran into the token limit.
        texts: of the samples that could be graded.

    Raises:
        DataError: lengths differ, or every sample is a grader error.
    """
    if not len(verdicts) == len(tokens) == len(truncated):
        raise DataError(
            f"problem {id}: need one verdict, length and stop a sample, got {len(verdicts)}, "
            f"{len(tokens)} and {len(truncated)}"
        )
    rows = [(v, t, cut) for v, t, cut in zip(verdicts, tokens, truncated, strict=True) if v.counts]
    if not rows:
        raise DataError(f"problem {id}: none of its {len(verdicts)} samples could be graded")
    kinds: dict[Kind, int] = {}
    votes: dict[tuple[str, bool], int] = {}
    for verdict, _, _ in rows:
        kinds[verdict.kind] = kinds.get(verdict.kind, 0) + 1
        # A verifier that extracts nothing (it judges the whole text) still has its right answers.
        if verdict.extracted is not None or verdict.kind is Kind.CORRECT:
            key = (verdict.extracted or "", verdict.kind is Kind.CORRECT)
            votes[key] = votes.get(key, 0) + 1
    return ProblemResult(
        id=id,
        task=task,
        category=category,
        n=len(rows),
        c=kinds.get(Kind.CORRECT, 0),
        scores=tuple(v.score for v, _, _ in rows),
        tokens=tuple(t for _, t, _ in rows),
        truncated=sum(cut for _, _, cut in rows),
        verdicts=kinds,
        answers=tuple(Votes(count, right) for (_, right), count in votes.items()),
        grader_errors=len(verdicts) - len(rows),
        texts=texts,
    )


def write_evaluation(evaluation: Evaluation, path: Path) -> None:
    """Write the file complete or not at all: aside first, then renamed over the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, evaluation.model_dump_json() + "\n")


def read_evaluation(path: Path) -> Evaluation:
    """Read a file that write_evaluation wrote, strictly.

    Raises:
        DataError: no such file, not JSON, another format or version, an unknown or missing field,
            counts that do not add up, or an empty suite. One line that names the file.
    """
    try:
        text = path.read_text(encoding="utf-8")
        raw = json.loads(text)
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such evaluation file") from error
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: need the JSON of an evaluation, got {_first_line(error)}"
        ) from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise DataError(f'{path}: need "format": "{FORMAT}", which `brorl eval` writes')
    version = raw.get("version")
    if type(version) is not int or version != VERSION:
        raise DataError(
            f"{path}: need evaluation version {VERSION}, got {version!r}; evaluate again"
        )
    try:
        return Evaluation.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise DataError(f"{path}: {_first_problem(error.errors()[0])}") from error


def _first_problem(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    what = str(error["msg"]).removeprefix("Value error, ")
    return f"{where}: {what}" if where else what


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
