"""Tasks from Reasoning Gym, with disjoint splits."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brorl.errors import ConfigError
from brorl.seeds import derive_seed
from brorl.tasks.names import unknown_name
from brorl.tasks.problem import Problem, Split
from brorl.tasks.prompt import fill
from brorl.tasks.text import question_key
from brorl.verify.reasoning_gym import (
    CHUNK,
    ReasoningGymVerifier,
    Score,
    generate_item,
    registered_names,
)
from brorl.verify.reasoning_gym_rules import HASH_DEPENDENT, REFUSED

# Item i of seed s is item 0 of seed s + i, so splits are blocks of one stream, far apart.
BLOCK = 1 << 26
_ORDER: tuple[Split, ...] = ("eval", "train", "warmstart")  # an earlier split keeps its questions
_MAX_DRAWS = 10  # per question wanted, before the data set counts as exhausted


@dataclass(frozen=True, slots=True)
class SplitCounts:
    """How a split came about. All are numbers of items.

    drawn = kept + without_gold + duplicates + equal_to_eval + equal_to_train.
    """

    drawn: int
    kept: int
    without_gold: int  # the generator ran out, or the verifier does not take the item's own gold
    duplicates: int  # same question as an earlier item of this split
    equal_to_eval: int  # dropped: same question as a held-out one
    equal_to_train: int  # dropped from the warm start: same question as a training one


class ReasoningGymTask:
    """One data set of Reasoning Gym, cut into eval, train and warm-start problems.

    The splits are disjoint blocks of one seed stream, and no question (by prompt or by original
    wording) appears twice: held-out questions win over training ones, and both over the warm
    start's. A split of n problems is the beginning of the split of m > n problems as long as the
    splits before it keep their size.
    """

    def __init__(
        self,
        name: str,
        *,
        config: Mapping[str, Any],
        seed: int,
        train_size: int,
        eval_size: int,
        warmstart_size: int,
        prompt: str,
        tagged: bool,
        score: Score,
        cascade: bool = False,
    ) -> None:
        """Check everything that can be checked without generating an item.

        Args:
            name: of a data set of the library.
            config: of that data set, without `seed` and `size`.
            seed: >= 0; neighbouring seeds share no items.
            train_size: number of distinct training questions, >= 0.
            eval_size: number of distinct held-out questions, >= 0.
            warmstart_size: number of distinct questions with worked answers, >= 0.
            prompt: template over `question` and the item's metadata, e.g. "rev {word}=".
            tagged: the answer is expected inside <answer> tags; else the whole text is it.
            score: "threshold" (1 or nothing) or "continuous".
            cascade: see ReasoningGymVerifier.

        Raises:
            ConfigError: an unknown name, a negative size, `seed` or `size` inside `config`.
        """
        if name not in registered_names():
            raise ConfigError(unknown_name("Reasoning Gym data set", name, registered_names()))
        if name in REFUSED:
            raise ConfigError(f"task {name} is refused: {REFUSED[name]}")
        sizes: dict[Split, int] = {
            "eval": eval_size,
            "train": train_size,
            "warmstart": warmstart_size,
        }
        for key, size in sizes.items():
            if size < 0:
                raise ConfigError(f"task.{key}_size must be >= 0, got {size}")
        if reserved := {"seed", "size"} & set(config):
            raise ConfigError(
                f"task.config must not set {sorted(reserved)}: splits are made from task.seed"
            )
        if score not in ("threshold", "continuous"):
            raise ConfigError(f"task.score must be threshold or continuous, got {score!r}")
        self.name = name
        self._config = json.dumps(dict(config), sort_keys=True)
        self._base = derive_seed(seed, "reasoning_gym", name) % (1 << 31)
        self._sizes = sizes
        self._prompt = prompt
        self._verifier = ReasoningGymVerifier(name, dict(config), tagged, score, cascade)
        self._problems: dict[Split, tuple[Problem, ...]] = {}
        self._counts: dict[Split, SplitCounts] = {}
        self._keys: dict[Split, set[str]] = {}

    @property
    def verifier(self) -> ReasoningGymVerifier:
        return self._verifier

    @property
    def counts(self) -> dict[Split, SplitCounts]:
        """How every split came about; generates those that nobody asked for yet."""
        self.problems("warmstart")
        return dict(self._counts)

    def problems(self, split: Split) -> Sequence[Problem]:
        """Generated on the first call, then kept.

        Raises:
            ConfigError: the data set has too few distinct questions, or the prompt template
                names a field that the items do not have.
        """
        for each in _ORDER[: _ORDER.index(split) + 1]:
            if each not in self._problems:
                self._generate(each)
        return self._problems[split]

    def _generate(self, split: Split) -> None:
        """Draw items of one block until enough are new; `counts` says what became of the rest."""
        wanted = self._sizes[split]
        kept: list[Problem] = []
        own: set[str] = set()
        without_gold = duplicates = equal_to_eval = equal_to_train = drawn = 0
        while len(kept) < wanted and drawn < _MAX_DRAWS * wanted + CHUNK:
            item_seed, index = self._place(split, drawn)
            drawn += 1
            item = self._item(item_seed, index)
            if item is None:
                without_gold += 1
                continue
            problem = self._problem(split, item, item_seed, index)
            keys = {question_key(problem.prompt), question_key(item["question"])}
            if keys & own:
                duplicates += 1
            elif keys & self._keys.get("eval", set()):
                equal_to_eval += 1
            elif keys & self._keys.get("train", set()):
                equal_to_train += 1
            else:
                own |= keys
                kept.append(problem)
        if len(kept) < wanted:
            raise ConfigError(
                f"task.{split}_size is {wanted}, but {drawn} items of {self.name} hold only "
                f"{len(kept)} questions that are new to this split; lower it, or change task.config"
            )
        self._problems[split], self._keys[split] = tuple(kept), own
        self._counts[split] = SplitCounts(
            drawn, len(kept), without_gold, duplicates, equal_to_eval, equal_to_train
        )

    def _item(self, seed: int, index: int) -> Mapping[str, Any] | None:
        """An item whose gold, where it has one, its own verifier accepts."""
        try:
            item = generate_item(self.name, self._config, seed, index)
        except IndexError:  # a generator that ran out within its chunk
            return None
        gold, row = item["answer"], self._row(seed, index, item)
        if gold is None:
            return item
        extracted = self._verifier.extract(self._verifier.write(gold, row), row)
        if extracted is None:
            return None
        verdict = self._verifier.grade(extracted, gold=gold, row=row)
        return item if verdict.score == 1.0 else None

    def _row(self, seed: int, index: int, item: Mapping[str, Any]) -> dict[str, Any]:
        row: dict[str, Any] = {"dataset": self.name, "seed": seed, "index": index}
        if self.name in HASH_DEPENDENT:
            row["item"] = dict(item)
        return row

    def _place(self, split: Split, position: int) -> tuple[int, int]:
        """(seed of the chunk, index in it) of the item at `position` of a split's block."""
        chunk, index = divmod(position, CHUNK)
        return self._base + _ORDER.index(split) * BLOCK + chunk * CHUNK, index

    def _problem(self, split: Split, item: Mapping[str, Any], seed: int, index: int) -> Problem:
        gold = item["answer"]
        row = self._row(seed, index, item)
        return Problem(
            id=f"{self.name}/{split}/{seed - self._base + index}",
            prompt=fill(self._prompt, item_fields(item)),
            gold=gold,
            worked=None if gold is None else self._verifier.write(gold, row),
            row=row,
            task=self.name,
        )


def item_fields(item: Mapping[str, Any]) -> dict[str, Any]:
    """What a template may name: the question and the plain fields of the metadata."""
    fields = {k: v for k, v in item["metadata"].items() if isinstance(v, str | int | float)}
    return fields | {"question": item["question"]}
