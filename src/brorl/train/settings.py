"""What a run is: frozen settings, every default in one place, contradictions refused.

Nothing here loads, builds or computes anything heavy; torch is not imported. Where a default
has a source it is named; the shipped recipes name the source of every number they set.
"""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from brorl.rollout.options import EngineName, OpenAIOptions, VllmOptions
from brorl.train.contradictions import contradictions
from brorl.train.prompts import SOLVED

Count = Annotated[int, Field(ge=1, le=10**9)]
Whole = Annotated[int, Field(ge=0, le=10**9)]
Threads = Annotated[int, Field(ge=1, le=1024)]
Workers = Annotated[int, Field(ge=0, le=1024)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Rate = Annotated[float, Field(gt=0, le=1e6)]
Temperature = Annotated[float, Field(ge=1e-3, le=1e6)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


Normalise = Literal["trajectory", "trajectory_unbiased", "token", "token_unbiased", "none"]


class Section(BaseModel):
    """Base of every section: frozen, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, validate_default=True)


class ShapeSettings(Section):
    """Layers and widths: builds a tiny policy, and lets `plan` work without the model at hand."""

    architecture: str = "llama"
    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count
    mlp: Count
    vocabulary: Count = 100
    max_positions: Count = 512
    tied: bool = True

    @model_validator(mode="after")
    def _heads(self) -> Self:
        if self.hidden % self.heads or self.heads % self.kv_heads:
            raise ValueError(
                f"hidden must be a multiple of heads and heads of kv_heads, "
                f"got {self.hidden}, {self.heads}, {self.kv_heads}"
            )
        return self


class ModelSettings(Section):
    """Where the policy comes from: `path`, or, without one, a new tiny policy of `shape`."""

    path: str | None = None
    revision: str | None = None
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    master_dtype: Literal["float32", "same"] = "float32"  # of the optimizer's weights and moments
    gradient_checkpointing: bool = False  # layers run again backward: less memory, more time
    device: str = "auto"
    shape: ShapeSettings | None = None


class LoraSettings(Section):
    """Train an adapter beside frozen weights: see brorl.policy.lora. Defaults are ours."""

    rank: Count = 16
    alpha: Count = 32
    dropout: NotNegative = 0.0
    target_modules: Literal["all-linear"] | Annotated[tuple[str, ...], Field(min_length=1)] = (
        "all-linear"
    )


class DataSettings(Section):
    """Own data: a JSONL or Parquet file or a hub data set, and how to read and judge it."""

    train: str | None = None
    eval: str | None = None
    prompt: str = "prompt"
    answer: str = "answer"
    verifier: str = "exact"
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.1  # share of rows, without data.eval
    solved_weight: Share = 1.0  # chance that a solved prompt is drawn when its turn comes
    solved_share: Annotated[float, Field(gt=0, le=1)] = SOLVED  # right answers that make it solved
    solved_visits: Count = 1  # in a row


class WarmstartSettings(Section):
    """Supervised steps on worked answers before any reward: right some of the time, not always.

    Ends when `until` of the answers to a probe are right, or after `steps`.
    """

    steps: Count
    until: Annotated[float, Field(gt=0, le=1)] = 0.25
    probe_every: Count = 5
    batch_size: Count = 128
    lr: Rate = 3e-3
    warmup_steps: Whole = 50
    grad_clip: Positive = 1.0


class AutoWavesSettings(Section):
    """`rollout.waves: auto`: see brorl.train.widening."""

    ladder: Annotated[tuple[Count, ...], Field(min_length=1)] = (16, 64, 256, 512)
    window: Annotated[int, Field(ge=3)] = 10  # evaluations; 5 leave the interval too wide to decide
    smallest_gain: Positive = 0.02  # of held-out pass@1 over the window
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    min_all_wrong: Share = 0.02  # of groups
    replay: tuple[Count, ...] | None = None  # steps after which a wave is added, instead


class RolloutSettings(Section):
    """How answers are sampled in training."""

    engine: EngineName = "embedded"
    vllm: VllmOptions = VllmOptions()
    openai: OpenAIOptions | None = None  # a server's weights cannot be trained: for `brorl eval`
    n: Count | None = None
    waves: Literal["auto"] | Annotated[tuple[Count, ...], Field(min_length=1)] | None = None
    auto: AutoWavesSettings = AutoWavesSettings()
    stop_right: Count = 2
    keep_per_group: Count | None = None
    keep_rule: Literal["spread", "max_variance", "random"] = "spread"  # see algo.selection
    temperature: Temperature = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Whole = 0
    max_new_tokens: Count = 1024
    memory_budget: Annotated[int, Field(ge=1 << 20)] = 1 << 30  # bytes that one wave may add

    @property
    def totals(self) -> tuple[int, ...]:
        """Group sizes after each wave: one wave for a fixed width, the whole ladder for auto."""
        if self.waves == "auto":
            return self.auto.ladder
        return self.waves if self.waves is not None else (self.n or 0,)

    @property
    def widest(self) -> int:
        """The largest group a prompt can get."""
        return self.totals[-1]


class AdvantageSettings(Section):
    """From rewards to advantages: see brorl.algo.advantages."""

    estimator: Literal["reinforce_plus_plus_baseline", "grpo", "dr_grpo", "rloo"] = (
        "reinforce_plus_plus_baseline"
    )
    normalise: Normalise | None = None
    baseline: Literal["group", "unbiased"] = "group"
    weight: Literal["none", "unbiased"] = "none"

    @property
    def scaling(self) -> Normalise:
        """`normalise` with its default: over trajectories for reinforce_plus_plus_baseline."""
        if self.normalise is not None:
            return self.normalise
        return "trajectory" if self.estimator == "reinforce_plus_plus_baseline" else "none"


class DynamicSamplingSettings(Section):
    """Keep only groups whose answers disagree; ask for more prompts until there are enough."""

    enable: bool = True
    metric: Literal["score", "accuracy"] = "score"
    max_gen_batches: Count = 10
    on_exhausted: Literal["train", "skip", "stop"] = "train"
    oversample: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 3.0
    surplus: Literal["drop", "carry"] = "drop"
    max_empty_steps: Count = 10


class TisSettings(Section):
    """Correction for an engine whose log-probs differ from the trainer's."""

    type: Literal["none", "tis", "icepop", "seq-mask-tis"] = "none"
    cap: Positive = 2.0
    min: NotNegative = 0.0


class RefSettings(Section):
    """When the reference policy becomes the current one. Needs kl_coef > 0."""

    reset_every: Count | None = None  # steps
    reset_on: tuple[Literal["stall", "kl_spike"], ...] = ()
    stall_evals: Count = 3  # held-out evaluations without a better one
    kl_spike: Positive = 0.5  # nats per token
    reset_optimizer: bool = False


class OptimizerSettings(Section):
    """AdamW, decoupled weight decay."""

    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    eps: Positive = 1e-8
    weight_decay: NotNegative = 0.0
    grad_clip: Positive = 1.0


class LengthPenaltySettings(Section):
    """The scheduled cosine length term of ProRL v2: on for some steps, off for the rest."""

    enable: bool = False
    max: Finite = 0.0
    min: Finite = -1.0
    weight: Finite = 1.0
    on_steps: Count = 100
    off_steps: Whole = 500


class OverlongSettings(Section):
    """What truncation costs: DAPO's soft buffer, or the factor of stop-properly, not both."""

    buffer: Count | None = None  # tokens
    factor: NotNegative = 1.0
    stop_properly: Annotated[float, Field(ge=-1, le=1)] | None = None


class EvalSettings(Section):
    """Held-out evaluation, sampled with streams of its own; never taken from `rollout`."""

    samples: Count = 16
    temperature: NotNegative = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Whole = 0
    max_new_tokens: Count | None = None  # default: the training limit
    problems: Count | None = None  # default: all held-out problems


class PlateauSettings(Section):
    """When held-out progress counts as stopped: see brorl.report.outlook."""

    window: Annotated[int, Field(ge=3)] = 10  # scheduled evaluations
    smallest_gain: Positive = 0.02  # of held-out pass@1 over the window
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95


class RecordSettings(Section):
    """Which tokens rollouts/*.parquet keeps."""

    tokens: Literal["all", "kept", "none"] = "all"


class RewardSettings(Section):
    """Which score the update sees; the true score is always recorded beside it."""

    source: Literal["ground_truth", "random", "format", "incorrect", "majority", "proxy"] = (
        "ground_truth"
    )
    options: dict[str, Any] = Field(default_factory=dict)


class InitSettings(Section):
    """Start a new phase from an older run: named parts only, everything else fresh."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
    from_: str | None = Field(default=None, alias="from")
    restore: tuple[Literal["weights", "optimizer", "reference"], ...] = ("weights",)


class GradingSettings(Section):
    """The pool of grader processes."""

    workers: Workers | None = None  # default: 0 for verifiers that only compare, else the cores
    deadline_s: Positive = 10.0
    check_golds: Whole = 16  # problems whose gold must pass before training; 0: do not look


class TrainSettings(Section):
    """One run. Fields without a default are the ones a recipe must think about."""

    name: str | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    model: ModelSettings = ModelSettings()
    lora: LoraSettings | None = None
    task: dict[str, Any] | None = None
    data: DataSettings = DataSettings()
    reward: RewardSettings = RewardSettings()
    warmstart: WarmstartSettings | None = None
    init: InitSettings = InitSettings()

    rollout: RolloutSettings
    prompts_per_step: Count
    num_minibatches: Count
    advantage: AdvantageSettings = AdvantageSettings()
    dynamic_sampling: DynamicSamplingSettings = DynamicSamplingSettings()
    clip_ratio_low: Annotated[float, Field(ge=0, lt=1)] = 0.2
    clip_ratio_high: NotNegative = 0.28
    clip_ratio_c: Annotated[float, Field(gt=1, allow_inf_nan=False)] | None = None
    loss_agg_mode: Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"] = "token-mean"
    tis: TisSettings = TisSettings()
    reuse_engine_logprobs: bool | None = None
    kl_coef: NotNegative = 0.0
    kl_estimator: Literal["k1", "k2", "k3"] = "k2"
    ref: RefSettings = RefSettings()
    length_penalty: LengthPenaltySettings = LengthPenaltySettings()
    overlong: OverlongSettings = OverlongSettings()

    lr: Rate
    lr_scaling: Literal["none", "sqrt", "linear"] = "none"
    lr_base_samples: Count | None = None
    lr_schedule: Literal["constant", "cosine"] = "constant"
    lr_warmup_updates: Whole = 0
    lr_decay_updates: Count | None = None  # cosine: updates until lr_floor, warm-up included
    lr_floor: Share = 0.0  # cosine: of lr
    optimizer: OptimizerSettings = OptimizerSettings()
    micro_batch_tokens: Count = 16384

    steps: Whole
    max_samples: Count | None = None  # generated; the step that reaches it is the last
    max_seconds: Positive | None = None  # of steps and evaluations; likewise
    eval_every: Count | None = None
    eval_every_samples: Count | None = None  # generated; beside eval_every or in its place
    eval: EvalSettings = EvalSettings()
    plateau: PlateauSettings = PlateauSettings()
    save_every: Count = 10
    keep_checkpoints: Count = 3
    logger: tuple[Literal["console", "tensorboard", "wandb"], ...] = ("console", "tensorboard")
    record: RecordSettings = RecordSettings()
    grading: GradingSettings = GradingSettings()
    run_dir: str | None = None
    threads: Threads | None = None  # of torch; default: OMP_NUM_THREADS, else the cores

    @property
    def evaluates(self) -> bool:
        """Whether held-out evaluations are asked for on the way."""
        return self.eval_every is not None or self.eval_every_samples is not None

    @property
    def samples_per_step(self) -> int:
        """Kept samples a step aims at with the widest groups: prompts_per_step · n."""
        return self.prompts_per_step * min(
            self.rollout.widest, self.rollout.keep_per_group or self.rollout.widest
        )

    @property
    def lr_scale(self) -> float:
        """sqrt(B / B_base), B / B_base or 1: Krizhevsky 2014, arXiv:1404.5997; BroRL sec. 3."""
        if self.lr_scaling == "none" or self.lr_base_samples is None:
            return 1.0
        ratio = self.samples_per_step / self.lr_base_samples
        return math.sqrt(ratio) if self.lr_scaling == "sqrt" else ratio

    @property
    def reuses_engine_logprobs(self) -> bool:
        """Whether the engine's log-probs serve as the old ones; settled where it is not set.

        The embedded engine samples with the trainer's own weights, precision and kernels, so the
        two are the same numbers up to float error, unless a correction between them is asked for.
        Another engine's kernels differ, so the trainer scores its answers again.
        """
        if self.reuse_engine_logprobs is not None:
            return self.reuse_engine_logprobs
        return self.rollout.engine == "embedded" and self.tis.type == "none"

    @model_validator(mode="after")
    def _contradictions(self) -> Self:
        for problem in contradictions(self):
            raise ValueError(problem)
        return self
