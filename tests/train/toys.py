"""Small parts that several test files share: a policy, groups by hand, and a run of seconds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from brorl.policy.load import tiny_policy
from brorl.policy.model import Policy
from brorl.policy.tiny import TinyShape
from brorl.rollout.engine import Completion, Stop
from brorl.tasks.problem import Problem
from brorl.train.groups import Fate, Group, Sample
from brorl.train.recipe import settings_from
from brorl.train.settings import TrainSettings
from brorl.verify.verdict import Verdict, correct, grader_error, wrong

SHAPE = TinyShape("llama", 1, 16, 2, 1, 32, 64, True)

VERIFIER = '''"""Right: the answer's first character has an even code. No model needs to be taught it."""

def grade(*, gold, answer, row):
    return ord(answer[0]) % 2 == 0
'''


STEP = {
    "rollout": {"n": 4, "max_new_tokens": 8},
    "prompts_per_step": 2,
    "num_minibatches": 1,
    "lr": 0.01,
    "steps": 1,
    "seed": 3,
}


def tiny(seed: int = 0) -> Policy:
    """A Llama of about 4,000 weights with random ones."""
    return tiny_policy(SHAPE, seed=seed, device="cpu", trained_length=8)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dictionaries, the second on top."""
    out = dict(below)
    for key, value in above.items():
        old = out.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        out[key] = merged(old, value) if both else value
    return out


def settings(**changes: Any) -> TrainSettings:
    """Settings of a step of 2 prompts and 4 rollouts each; nested dictionaries change them."""
    values = merged(STEP, changes)
    if "waves" in values["rollout"]:
        values["rollout"].pop("n")
    return settings_from(values, "test")


def completion(
    tokens: Sequence[int],
    logprobs: Sequence[float] | None = None,
    version: int = 0,
    stop: Stop = Stop.EOS,
) -> Completion:
    """An answer of given tokens; log-probs -1 each where none are given."""
    values = [-1.0] * len(tokens) if logprobs is None else logprobs
    return Completion(
        np.array(tokens, np.int32),
        np.array(values, np.float32),
        np.ones(len(tokens), bool),
        stop,
        version,
    )


def verdict(score: float | None, extracted: str | None = None) -> Verdict:
    """By score: 1 is correct, None is a grader error, the rest is wrong with part credit."""
    if score is None:
        return grader_error("lost worker")
    return correct(extracted, "") if score == 1.0 else wrong(extracted, "", score)


def sample(index: int, tokens: Sequence[int], score: float | None, **rest: Any) -> Sample:
    """An answer as the grading desk leaves it."""
    judged = verdict(score, "".join(chr(60 + t) for t in tokens))
    return Sample(index, completion(tokens, **rest), judged.extracted or "", judged, judged.score)


def problem(name: str, prompt: str = "ab=") -> Problem:
    return Problem(name, prompt, "x", row={"id": name}, task="toy")


def group(
    name: str, samples: Sequence[Sample], prompt: Sequence[int] = (5, 6, 7), born: int = 1
) -> Group:
    """A group whose answers are all to be trained on."""
    for s in samples:
        s.fate = Fate.KEPT if s.counts else Fate.GRADER_ERROR
    return Group(f"{name}#0", problem(name), tuple(prompt), 11, born, list(samples))


def recipe(folder: Path, **changes: Any) -> Path:
    """A recipe for a real run of about a second: 12 prompts of own data, a Python verifier."""
    (folder / "judge.py").write_text(VERIFIER)
    rows = "".join(f'{{"prompt": "q{i:02d}=", "answer": "x"}}\n' for i in range(12))
    (folder / "rows.jsonl").write_text(rows)
    base = {
        "model": {
            "shape": dict(
                zip(
                    (
                        "architecture",
                        "layers",
                        "hidden",
                        "heads",
                        "kv_heads",
                        "mlp",
                        "max_positions",
                        "tied",
                    ),
                    SHAPE,
                    strict=True,
                )
            )
        },
        "data": {
            "train": str(folder / "rows.jsonl"),
            "held_out": 0.3,
            "verifier": f"{folder}/judge.py:grade",
        },
        "rollout": {"n": 8, "max_new_tokens": 4},
        "prompts_per_step": 2,
        "num_minibatches": 2,
        "lr": 0.01,
        "micro_batch_tokens": 64,
        "steps": 5,
        "save_every": 2,
        "eval_every": 2,
        "eval": {"samples": 4},
        "logger": [],
        "grading": {"workers": 0, "check_golds": 0},
        "threads": 1,
        "seed": 1,
    }
    path = folder / "toy.yaml"
    path.write_text(yaml.safe_dump(merged(base, changes)))
    return path


class Spelling:
    """Stands for a policy where only its texts matter: a token is a character's code."""

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(ord(c) for c in text)

    def decode_all(self, answers: Sequence[Any]) -> list[str]:
        return ["".join(chr(t) for t in tokens) for tokens in answers]


class Judge:
    """By an answer's first letter: R right, W wrong, H half, N no answer, E the grader breaks.

    With a gold, R is right only where the rest of the answer is the gold of its own problem.
    """

    def extract(self, text: str, row: Mapping[str, Any]) -> str | None:
        return None if text[0] == "N" else text

    def grade(self, extracted: str, *, gold: str | None, row: Mapping[str, Any]) -> Verdict:
        if extracted[0] == "E":
            raise RuntimeError("broken on purpose")
        if extracted[0] == "R":
            return (
                correct(extracted, "R") if gold in (None, extracted[1:]) else wrong(extracted, "")
            )
        return wrong(extracted, extracted[0], 0.5 if extracted[0] == "H" else 0.0)


def letters(text: str, **rest: Any) -> Completion:
    """A completion that spells a text."""
    return completion([ord(c) for c in text], **rest)
