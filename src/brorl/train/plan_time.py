"""Minutes of a step on paper: a stated model of memory bandwidth, arithmetic and waiting.

**Generating.** Each of devices / T engines (T devices hold the weights together) decodes its share
of a round. A decode step with b rows at mean context s takes

    latency + [(W + b s kv) / bandwidth + 2 P b / arithmetic] / (T · decode_share)

(W bytes of weights, kv bytes of cache a token, P weights). Rows fill the memory that weights
leave; those beyond it wait. A round ends with its longest answer, when few rows are left and a
step costs what it costs at one row: narrow rounds are mostly such tails, which is why more
samples a round raise throughput. Lengths have P(length > t) = (1 - t/L)^k on (0, L), with
k = L / mean - 1: uniform where the mean is half of the limit L. Dynamic sampling takes
ceil(1 / pass rate) rounds.

**Updating.** Tokens of kept answers · passes · (2 P + attention) / (devices · update_share ·
arithmetic): 3 passes for forward and backward, 1 for recomputed activations, 1 each for a second
scoring (unless the engine's log-probs serve) and for a reference policy. `fixed_s` is what a step
costs whatever its size: weights to the engine, grading that is waited for, bookkeeping.

docs/planning.md compares all of it with published and with measured figures, and says which
constants were taken from which.
"""

from dataclasses import asdict, dataclass
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from brorl.errors import ConfigError
from brorl.train.plan import BYTES, parameters
from brorl.train.settings import ShapeSettings, TrainSettings

PAGE = 16
"""Tokens of a page of a paged key-value cache (vLLM's default block)."""

STATE = 16
"""Bytes of training state a weight: bf16 weight and gradient, float32 master and two moments."""

_GRID = 400  # points at which the shrinking batch of a round is looked at


@dataclass(frozen=True)
class Device:
    """Figures of one accelerator.

    Attributes:
        memory: bytes.
        bandwidth: of that memory, bytes/s.
        arithmetic: dense bf16 products, operations/s.
        decode_share: of the bandwidth that decoding reaches.
        update_share: of the arithmetic that updates reach, waits between devices included.
        latency_s: of a decode step beyond reading and multiplying.
        fixed_s: of a training step whatever its size.
        memory_share: of the memory that weights and cache may take while generating.
    """

    name: str
    memory: float
    bandwidth: float
    arithmetic: float
    decode_share: float = 0.6
    update_share: float = 0.12
    latency_s: float = 0.004
    fixed_s: float = 156.0
    memory_share: float = 0.85


DEVICES = {
    d.name: d
    for d in (
        # NVIDIA's data sheets of the SXM modules: memory, bandwidth, dense bf16 rate.
        Device("a100", 80e9, 2.039e12, 312e12),
        Device("h100", 80e9, 3.35e12, 989e12),
        Device("h200", 141e9, 4.8e12, 989e12),
    )
}
"""decode_share and latency_s are this project's assumptions, set before the comparison in
docs/planning.md; update_share and fixed_s are solved from the two arms of arXiv:2510.01180v1."""


@dataclass(frozen=True)
class Load:
    """What a step's answers are taken to be like; nothing of it is in a recipe."""

    prompt_tokens: int
    answer_tokens: float  # mean
    pass_rate: float  # kept groups over generated ones


class Length(NamedTuple):
    """P(length > t) = (1 - t/limit)^k on (0, limit)."""

    mean: float
    limit: float

    @property
    def k(self) -> float:
        """limit / mean - 1."""
        return self.limit / self.mean - 1

    @property
    def square(self) -> float:
        """E[length^2] = 2 limit^2 / ((k + 1)(k + 2))."""
        return 2 * self.limit**2 / ((self.k + 1) * (self.k + 2))

    @property
    def context(self) -> float:
        """Mean place of a token in its answer, E[length^2] / (2 E[length])."""
        return self.square / (2 * self.mean)

    def longer(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        """P(length > t)."""
        return np.asarray((1 - t / self.limit) ** self.k)


@dataclass(frozen=True)
class TimePlan:
    """A step in minutes, and what they follow from."""

    device: str
    devices: int
    devices_per_engine: int
    engines: int
    weights_bytes: int  # of one copy, in the model's dtype
    training_state_bytes_per_device: int
    kv_bytes_per_token: int
    kv_pages_per_engine: int
    rows_at_once_per_engine: int
    rounds: int
    answers_per_round_and_engine: float
    waves_per_round: float
    samples_generated: float
    samples_kept: int
    answer_tokens: float
    pass_rate: float
    generate_min: float
    update_min: float
    fixed_min: float

    @property
    def total_min(self) -> float:
        """All phases one after the other."""
        return self.generate_min + self.update_min + self.fixed_min

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the sums."""
        return asdict(self) | {
            "total_min": self.total_min,
            "generated_samples_per_s": self.samples_generated / (60 * self.generate_min),
            "kept_samples_per_s": self.samples_kept / (60 * self.total_min),
        }


def plan_time(
    s: TrainSettings,
    shape: ShapeSettings,
    device: Device,
    load: Load,
    *,
    devices: int,
    recompute: bool = True,
) -> TimePlan:
    """Predict a step's minutes on a number of equal devices.

    Groups that may grow are taken at their widest.

    Args:
        s: of the recipe.
        shape: of the model.
        device: of each of the devices.
        load: prompts, answers and pass rate.
        devices: that generate and then update, in turn.
        recompute: whether activations are computed twice to save memory.

    Raises:
        ConfigError: a load outside its range, or weights that do not fit the devices.
    """
    _check(s, load, devices)
    length = Length(load.answer_tokens, s.rollout.max_new_tokens)
    size, weights = BYTES[s.model.dtype], parameters(shape)
    kv = 2 * shape.layers * shape.kv_heads * (shape.hidden // shape.heads) * size
    together = _together(weights * size, device, devices)
    engines = devices // together
    room = together * device.memory_share * device.memory - weights * size
    rows = max(1, int(room / (kv * (length.context + load.prompt_tokens / s.rollout.widest))))
    kept, rate = s.samples_per_step, load.pass_rate if s.dynamic_sampling.enable else 1.0
    generated = s.prompts_per_step * s.rollout.widest / rate
    rounds = ceil(1 / rate)
    each = generated / rounds / engines
    speed = _Speed(device, together, weights, weights * size, kv, load.prompt_tokens)
    update = (
        operations(s, shape, length, load.prompt_tokens, recompute=recompute) * kept * length.mean
    )
    return TimePlan(
        device=device.name,
        devices=devices,
        devices_per_engine=together,
        engines=engines,
        weights_bytes=weights * size,
        training_state_bytes_per_device=ceil(STATE * weights / devices),
        kv_bytes_per_token=kv,
        kv_pages_per_engine=int(room / (PAGE * kv)),
        rows_at_once_per_engine=rows,
        rounds=rounds,
        answers_per_round_and_engine=each,
        waves_per_round=max(1.0, each / rows),
        samples_generated=generated,
        samples_kept=kept,
        answer_tokens=load.answer_tokens,
        pass_rate=rate,
        generate_min=rounds * _round(each, rows, length, speed) / 60,
        update_min=update / (devices * device.update_share * device.arithmetic) / 60,
        fixed_min=device.fixed_s / 60,
    )


class _Speed(NamedTuple):
    """An engine's decode step."""

    device: Device
    together: int
    weights: int
    weight_bytes: int
    kv: int
    prompt: int

    def step_s(self, rows: Any, context: Any) -> Any:
        """Seconds of one decode step; arrays go through. The prompt is read once a group."""
        d, t = self.device, self.together
        read = (self.weight_bytes + rows * context * self.kv) / d.bandwidth
        multiplied = 2 * self.weights * rows / d.arithmetic
        return d.latency_s + (read + multiplied) / (t * d.decode_share)


def _round(answers: float, rows: int, length: Length, speed: _Speed) -> float:
    """Seconds until the last of `answers` has ended, at most `rows` at once."""
    first = min(answers, rows)
    waiting = (answers - first) / first * length.mean
    full = waiting * speed.step_s(first, length.context + speed.prompt / first)
    t = (np.arange(_GRID) + 0.5) * length.limit / _GRID
    alive = length.longer(t)
    some = 1 - (1 - alive) ** first  # chance that any row is left
    tail = (some * speed.step_s(first * alive / np.maximum(some, 1e-12), t)).mean() * length.limit
    return float(full + tail)


def operations(
    s: TrainSettings,
    shape: ShapeSettings,
    length: Length,
    prompt_tokens: float,
    *,
    recompute: bool,
) -> float:
    """Operations that a token of a kept answer costs in scoring and update.

    passes · (2 P + 4 · context · hidden · layers), without the embedding table of the input.
    """
    passes = 3 + recompute + (not s.reuses_engine_logprobs) + (s.kl_coef > 0)
    embeddings = shape.vocabulary * shape.hidden * (0 if shape.tied else 1)
    attention = 4 * (prompt_tokens + length.context) * shape.hidden * shape.layers
    return passes * (2 * (parameters(shape) - embeddings) + attention)


def _together(weight_bytes: float, device: Device, devices: int) -> int:
    """Devices of one engine: the fewest, by powers of two, whose memory is half free for cache."""
    together = 1
    while weight_bytes > together * device.memory_share * device.memory / 2:
        together *= 2
    if together > devices:
        raise ConfigError(
            f"{weight_bytes / 1e9:,.0f} GB of weights need {together} devices of "
            f"{device.memory / 1e9:,.0f} GB with room for a cache, got {devices}"
        )
    return together


def _check(s: TrainSettings, load: Load, devices: int) -> None:
    if not 0 < load.pass_rate <= 1:
        raise ConfigError(f"a pass rate lies in (0, 1], got {load.pass_rate}")
    if not 1 <= load.answer_tokens <= s.rollout.max_new_tokens:
        raise ConfigError(
            f"answers have 1 to rollout.max_new_tokens={s.rollout.max_new_tokens} tokens on "
            f"average, got {load.answer_tokens:g}"
        )
    if devices < 1:
        raise ConfigError(f"need at least 1 device, got {devices}")
