"""What a simulation is. Frozen data: nothing here draws, reads or computes.

The defaults are those of figure 3 of BroRL (arXiv:2510.01180v1, section 4.1). The paper does not
state the optimiser's betas, eps and decay, nor the float type; PyTorch's AdamW defaults reproduce
the figure and are taken here.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
MOST_DRAWS = 10**8
"""A step's draws are held at once, in 4 bytes each."""

Beta = Annotated[float, Field(ge=0, lt=1)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Seeded(_Frozen):
    """Logits 0, but `correct_logit` on the correct tokens and `anchor_logit` on one anchor."""

    kind: Literal["seeded"] = "seeded"
    correct_logit: Finite = 3.0
    anchor_logit: Finite = 5.0
    anchor_correct: bool = True
    """Whether the anchor is one of the correct tokens."""


class Uniform(_Frozen):
    """All logits 0."""

    kind: Literal["uniform"] = "uniform"


class Zipf(_Frozen):
    """p of rank r proportional to r ** -exponent."""

    kind: Literal["zipf"] = "zipf"
    exponent: Finite = 1.0
    order: Literal["shuffled", "ranked"] = "shuffled"
    """Ranks dealt to tokens at random (by `seed`), or rank 1 to token 0, which is correct."""


class FromFile(_Frozen):
    """One number per token, the correct tokens first: a .npy vector or text."""

    kind: Literal["file"] = "file"
    path: Path
    values: Literal["probs", "logits"] = "probs"


class AdamW(_Frozen):
    """AdamW with decoupled decay, as torch.optim.AdamW computes it."""

    kind: Literal["adamw"] = "adamw"
    lr: Positive = 1e-3
    beta1: Beta = 0.9
    beta2: Beta = 0.999
    eps: Positive = 1e-8
    decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.01


class Sgd(_Frozen):
    """Plain gradient descent: dz = -lr * gradient, so lr is the theorem's eta."""

    kind: Literal["sgd"] = "sgd"
    lr: Positive


class NormalisedSgd(_Frozen):
    """Plain gradient descent with lr = eta / N held fixed: dz = -lr * N * gradient.

    The loss divides by N; at a fixed eta wide runs would also take smaller steps.
    """

    kind: Literal["sgd-normalised"] = "sgd-normalised"
    lr: Positive


class Linear(_Frozen):
    """-(1/N) sum of A_i p(v_i): the paper's surrogate."""

    kind: Literal["linear"] = "linear"


class LogLikelihood(_Frozen):
    """-(1/N) sum of A_i log p(v_i): REINFORCE."""

    kind: Literal["log-likelihood"] = "log-likelihood"


class Ppo(_Frozen):
    """-(1/N) sum of min(r A, clip(r) A), r = p / p at the draw. Clips from the second epoch on."""

    kind: Literal["ppo"] = "ppo"
    clip_low: Annotated[float, Field(ge=0, lt=1)] = 0.2
    clip_high: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.28


Initial = Annotated[Seeded | Uniform | Zipf | FromFile, Field(discriminator="kind")]
Optimizer = Annotated[AdamW | Sgd | NormalisedSgd, Field(discriminator="kind")]
Loss = Annotated[Linear | LogLikelihood | Ppo, Field(discriminator="kind")]
Baseline = Literal["none", "mean", "leave-one-out"]


class SimulatorSettings(_Frozen):
    """One figure: a curve for every width and every replicate."""

    vocab: Annotated[int, Field(ge=1, le=10**8)] = 128_000
    correct: Annotated[int, Field(ge=1)] = 10_000
    """Size of the correct set: tokens 0 ... correct - 1, or 1 ... correct beside a wrong anchor."""

    widths: Annotated[tuple[int, ...], Field(min_length=1)] = (4, 8, 16, 512, 51_200)
    steps: Annotated[int, Field(ge=1)] = 1_000
    seed: int = 0
    seeds: Annotated[int, Field(ge=1)] = 1
    """Replicates per width, each with streams of its own."""

    reward_correct: Finite = 1.0
    reward_wrong: Finite = -1.0
    initial: Initial = Seeded()
    optimizer: Optimizer = AdamW()
    baseline: Baseline = "mean"
    counting: Literal["draws", "set"] = "draws"
    """Whether a token drawn c times counts c times or once. The loss divides by N either way."""

    loss: Loss = Linear()
    epochs: Annotated[int, Field(ge=1)] = 1
    """Updates per batch of draws."""

    dtype: Literal["float32", "float64"] = "float64"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.correct > self.vocab:
            raise ValueError(f"need correct <= vocab = {self.vocab}, got {self.correct}")
        if min(self.widths) < 1 or max(self.widths) > MOST_DRAWS:
            wrong = next(n for n in self.widths if not 1 <= n <= MOST_DRAWS)
            raise ValueError(f"need every width N >= 1 and <= {MOST_DRAWS:,}, got {wrong}")
        if len(set(self.widths)) < len(self.widths):
            raise ValueError(f"need different widths, got {list(self.widths)}")
        if self.baseline != "none" and min(self.widths) == 1:
            raise ValueError(f"need N >= 2 with baseline {self.baseline}, got 1: use none")
        wrong_anchor = isinstance(self.initial, Seeded) and not self.initial.anchor_correct
        if wrong_anchor and self.correct == self.vocab:
            raise ValueError(f"need correct < vocab = {self.vocab} beside a wrong anchor")
        smallest = float(np.finfo(self.dtype).tiny)
        if isinstance(self.optimizer, AdamW) and self.optimizer.eps < smallest:
            eps = self.optimizer.eps
            raise ValueError(f"need eps >= {smallest:.3g} in {self.dtype}, got {eps}")
        return self
