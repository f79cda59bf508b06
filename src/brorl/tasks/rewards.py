"""Reward sources by name, and the fixed labels that two of them need."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from brorl.errors import ConfigError
from brorl.seeds import generator
from brorl.tasks.names import unknown_name
from brorl.tasks.problem import Problem
from brorl.tasks.proxies import FirstNumber, Substring, VisibleTests
from brorl.tasks.reward_sources import (
    FormatReward,
    GroundTruth,
    LabelReward,
    LabelVerifier,
    ProxyReward,
    RandomReward,
    RewardSource,
)
from brorl.verify.choice import ChoiceVerifier
from brorl.verify.exact import ExactMatch
from brorl.verify.math import MathVerifier
from brorl.verify.protocol import Verifier
from brorl.verify.user import UserVerifier

OPTIONS: dict[str, tuple[str, ...]] = {
    "ground_truth": (),
    "random": ("gamma",),
    "format": (),
    "incorrect": ("labels", "samples"),
    "majority": ("samples",),
    "proxy": ("kind", "tests"),
}
MAJORITY_SAMPLES = 64  # of the starting policy, for each problem


def build_reward(
    source: str,
    options: Mapping[str, Any],
    *,
    seed: int,
    verifier: Verifier,
    problems: Sequence[Problem],
    labels: Mapping[str, str] | None,
) -> RewardSource:
    """A reward source by name.

    Args:
        source: one of OPTIONS.
        options: of that source: random {gamma: 0.5}; majority {samples: 64}; incorrect
            {labels: other | majority, samples: 64}, see `needs_labels`; proxy
            {kind: first_number | substring | visible_tests, tests: 1}.
        seed: root of the run's streams.
        verifier: of the task.
        problems: the training problems.
        labels: problem id to label: for `majority`, from `majority_labels`; for `incorrect`, the
            majority labels of which the wrong ones are to be used, or None to take the gold of
            another problem, drawn once.

    Raises:
        ConfigError: an unknown source or option, a value out of range, labels missing.
    """
    if source not in OPTIONS:
        raise ConfigError(unknown_name("reward.source", source, OPTIONS))
    for key in options:
        if key not in OPTIONS[source]:
            raise ConfigError(
                unknown_name(f"option of reward.source {source}", key, OPTIONS[source])
            )
    if source == "random":
        gamma = options.get("gamma", 0.5)
        if isinstance(gamma, bool) or not isinstance(gamma, int | float) or not 0 <= gamma <= 1:
            raise ConfigError(f"reward.options.gamma must be in [0, 1], got {gamma!r}")
        return RandomReward(seed, float(gamma))
    if source == "proxy":
        return ProxyReward(_proxy(options, verifier))
    if source == "majority":
        if labels is None:
            raise ConfigError(
                "reward.source majority needs labels sampled from the starting policy"
            )
        return LabelReward(dict(labels), label_verifier(verifier), "majority")
    if source == "incorrect":
        judge = label_verifier(verifier)
        chosen = _other_golds(problems, seed) if labels is None else dict(labels)
        labelled = ((p, chosen[p.id]) for p in problems if p.id in chosen)
        wrong = {p.id: label for p, label in labelled if _is_wrong(p, label, judge)}
        if not wrong:
            raise ConfigError("reward.source incorrect: no problem has a wrong label")
        return LabelReward(wrong, judge, "incorrect")
    return GroundTruth() if source == "ground_truth" else FormatReward()


def needs_labels(source: str, options: Mapping[str, Any]) -> int:
    """How many samples of the starting policy per problem a source needs before training; 0: none.

    `incorrect` with `labels: majority` keeps the problems whose most frequent answer is wrong, as
    Shao et al. do; by default it takes the gold of another problem, which nobody ever answers.

    Raises:
        ConfigError: `samples` is no positive integer, or goes with no labels; unknown `labels`.
    """
    kind = options.get("labels", "other")
    if source == "incorrect" and kind not in ("other", "majority"):
        raise ConfigError(unknown_name("reward.options.labels", str(kind), ("other", "majority")))
    if source != "majority" and (source, kind) != ("incorrect", "majority"):
        if source == "incorrect" and "samples" in options:
            raise ConfigError("reward.options.samples goes with labels: majority, got other")
        return 0
    samples = options.get("samples", MAJORITY_SAMPLES)
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ConfigError(f"reward.options.samples must be an integer >= 1, got {samples!r}")
    return samples


def majority_labels(
    texts: Mapping[str, Sequence[str]], problems: Sequence[Problem], verifier: Verifier
) -> dict[str, str]:
    """The most frequent extracted answer of each problem; of equals the first in the alphabet.

    Args:
        texts: problem id to samples of one policy.
        problems: the problems in question.
        verifier: extracts. A problem of which nothing was ever extracted gets no label.
    """
    labels = {}
    for problem in problems:
        found = (verifier.extract(text, problem.row) for text in texts.get(problem.id, ()))
        counts = Counter(answer.strip() for answer in found if answer is not None)
        if counts:
            labels[problem.id] = min(counts, key=lambda answer: (-counts[answer], answer))
    return labels


def label_verifier(verifier: Verifier) -> Verifier:
    """The verifier itself where it judges by the gold it is given, else by the answer's text."""
    by_gold = ExactMatch | MathVerifier | ChoiceVerifier | UserVerifier
    return verifier if isinstance(verifier, by_gold) else LabelVerifier(verifier)


def _proxy(options: Mapping[str, Any], verifier: Verifier) -> Verifier:
    kind, count = options.get("kind", "first_number"), options.get("tests", 1)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ConfigError(f"reward.options.tests must be an integer >= 1, got {count!r}")
    if "tests" in options and kind != "visible_tests":
        raise ConfigError(f"reward.options.tests is for kind visible_tests, not for {kind}")
    if kind == "first_number":
        return FirstNumber()
    if kind == "substring":
        return Substring()
    if kind == "visible_tests":
        return VisibleTests(verifier, count)
    kinds = ("first_number", "substring", "visible_tests")
    raise ConfigError(unknown_name("reward.options.kind", str(kind), kinds))


def _other_golds(problems: Sequence[Problem], seed: int) -> dict[str, str]:
    """For each problem the gold of another one, drawn from a stream of its own."""
    golds = sorted({p.gold for p in problems if p.gold is not None})
    labels = {}
    for problem in problems:
        others = [g for g in golds if g != problem.gold]
        if problem.gold is not None and others:
            rng = generator(seed, "reward", "incorrect", problem.id)
            labels[problem.id] = others[int(rng.integers(len(others)))]
    return labels


def _is_wrong(problem: Problem, label: str, judge: Verifier) -> bool:
    """Whether a label is not just another way to write the gold."""
    if problem.gold is None:
        return False
    return judge.grade(label, gold=problem.gold, row=problem.row).score == 0.0
