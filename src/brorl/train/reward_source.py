"""The configured reward source: built for a run, with the labels that `majority` samples first.

labels.json holds the labels and their sha256: they are what a run is paid by, so that a file
changed by hand between two sessions must not pass for the one that the run began with.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from brorl.errors import ConfigError, DataError
from brorl.policy.model import Policy
from brorl.record.files import write_json
from brorl.rollout.embedded import EmbeddedEngine
from brorl.rollout.engine import Request, Sampling
from brorl.seeds import derive_seed
from brorl.tasks.reward_sources import LabelReward, RewardSource
from brorl.tasks.rewards import build_reward, majority_labels, needs_labels
from brorl.train.settings import TrainSettings
from brorl.train.setup import Data

LABELS = "labels.json"


def reward_source(
    run: Path, settings: TrainSettings, data: Data, policy: Policy, *, begins: bool
) -> RewardSource:
    """The source that settings name; training problems without a label leave the data.

    Args:
        run: labels of the starting policy are kept here, so that a resumed run has the same.
        settings: of the run.
        data: changed: `train` keeps the problems that the source covers.
        policy: the starting policy where `begins`.
        begins: whether the run stands at its start, so that labels may be sampled.

    Raises:
        ConfigError: an unknown option, or no problem that the source covers.
        DataError: a resumed run whose labels are gone or changed.
    """
    source, options = settings.reward.source, settings.reward.options
    labels = None
    if samples := needs_labels(source, options):
        labels = _labels(run, settings, data, policy, samples, begins)
    reward = build_reward(
        source,
        options,
        seed=settings.seed,
        verifier=data.task.verifier,
        problems=data.train,
        labels=labels,
    )
    if isinstance(reward, LabelReward):
        data.train = [p for p in data.train if reward.covers(p)]
        if not data.train:
            raise ConfigError(f"reward.source {source}: no training problem has a label")
    return reward


def _labels(
    run: Path, settings: TrainSettings, data: Data, policy: Policy, samples: int, begins: bool
) -> dict[str, str]:
    """Each problem's most frequent answer among `samples` of the starting policy."""
    path = run / LABELS
    if path.is_file():
        return _read_labels(path)
    if not begins:
        raise DataError(f"{path} is gone: the labels of the starting policy cannot be made again")
    r = settings.rollout
    engine = EmbeddedEngine(policy, memory_budget=r.memory_budget)
    requests = [
        Request(
            f"label/{p.id}",
            p.id,
            policy.encode(p.prompt),
            0,
            samples,
            derive_seed(settings.seed, "reward", "majority", p.id),
        )
        for p in data.train
    ]
    groups = engine.sample(requests, Sampling(r.temperature, 1.0, 0, r.max_new_tokens))
    texts = {
        p.id: policy.decode_all([c.tokens for c in group])
        for p, group in zip(data.train, groups, strict=True)
    }
    labels = majority_labels(texts, data.train, data.task.verifier)
    write_json(path, {"sha256": _digest(labels), "labels": labels})
    return labels


def _read_labels(path: Path) -> dict[str, str]:
    """Raises DataError: not labels, or not those that were written."""
    try:
        found = json.loads(path.read_text())
        labels, written = found["labels"], found["sha256"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path}: not readable as labels: {error!r:.200}") from error
    if not isinstance(labels, dict) or not all(isinstance(v, str) for v in labels.values()):
        raise DataError(f"{path}: needs one label, a text, for each problem id")
    if _digest(labels) != written:
        raise DataError(
            f"{path} was changed since the run began, and with it what answers are paid; put the "
            "old file back, or begin a new run"
        )
    return labels


def _digest(labels: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(labels, sort_keys=True).encode()).hexdigest()
