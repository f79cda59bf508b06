"""Settings that say two things at once are refused, each in a line that names the user's keys."""

import ast
import inspect
import math

import pytest

from brorl.errors import ConfigError
from brorl.train import contradictions
from brorl.train.recipe import settings_from

from .toys import STEP, merged, settings

WAVES = {"n": None, "waves": [4, 8]}
LORA = {"lora": {"rank": 2}, "model": {"path": "somewhere"}}
CONTRADICTIONS = {
    "adapter with dropout": (LORA | {"lora": {"dropout": 0.1}}, r"lora\.dropout=0\.1"),
    "adapter without a base": ({"lora": {}}, "lora needs model.path"),
    "adapter on a phase": (
        LORA | {"init": {"from": "runs/x"}},
        "lora and init.from exclude each other",
    ),
    "adapter elsewhere": (LORA | {"rollout": {"engine": "vllm"}}, "lora with rollout.engine=vllm"),
    "n and waves": ({"rollout": {"n": 4, "waves": [4, 8]}}, "either rollout.n"),
    "neither": ({"rollout": {"n": None}}, "either rollout.n"),
    "one rollout": ({"rollout": {"n": 1}}, "rollout.n is 1: a group baseline needs at least 2"),
    "waves fall": ({"rollout": WAVES | {"waves": [8, 4]}}, r"must grow, got \[8, 4\]"),
    "waves repeat": ({"rollout": WAVES | {"waves": [4, 4]}}, r"must grow, got \[4, 4\]"),
    "first wave": (
        {"rollout": WAVES | {"waves": [1, 4], "stop_right": 1}},
        "begin with at least 2, got 1",
    ),
    "stop": ({"rollout": WAVES | {"stop_right": 5}}, "stop_right is 5, more than the first wave"),
    "auto without evaluation": (
        {"rollout": WAVES | {"waves": "auto"}, "eval_every": None},
        "rollout.waves=auto watches held-out progress: set eval_every",
    ),
    "auto ladder": (
        {"rollout": WAVES | {"waves": "auto", "auto": {"ladder": [8, 4]}}, "eval_every": 5},
        r"rollout.auto.ladder are totals and must grow, got \[8, 4\]",
    ),
    "rloo": ({"rollout": WAVES, "advantage": {"estimator": "rloo"}}, "rloo leaves one out"),
    "waves unfiltered": (
        {"rollout": WAVES, "dynamic_sampling": {"enable": False}},
        "need dynamic_sampling.enable",
    ),
    "unbiased without waves": (
        {"advantage": {"baseline": "unbiased"}},
        "baseline=unbiased .* needs rollout.waves",
    ),
    "unbiased grpo": (
        {"rollout": WAVES, "advantage": {"baseline": "unbiased", "estimator": "grpo"}},
        "baseline=unbiased .* reinforce_plus_plus_baseline or dr_grpo",
    ),
    "weights without a cut": (
        {"advantage": {"weight": "unbiased"}},
        "needs rollout.keep_per_group",
    ),
    "cut above n": ({"rollout": {"keep_per_group": 5}}, "keep_per_group=5 exceeds the widest"),
    "cut to one": ({"rollout": {"keep_per_group": 1}}, "keep_per_group must be at least 2, got 1"),
    "rule without a cut": (
        {"rollout": {"keep_rule": "random"}},
        "keep_rule=random .* needs rollout.keep_per_group",
    ),
    "no weight for what has no chance": (
        {
            "rollout": {"keep_per_group": 2, "keep_rule": "max_variance"},
            "advantage": {"weight": "unbiased"},
        },
        "weight=unbiased with rollout.keep_rule=max_variance",
    ),
    "solved share alone": ({"data": {"solved_share": 1.0}}, "need data.solved_weight below 1"),
    "solved visits alone": ({"data": {"solved_visits": 2}}, "need data.solved_weight below 1"),
    "top-p": ({"rollout": {"top_p": 0.9}}, "top_p=0.9, top_k=0: training needs the full"),
    "top-k": ({"rollout": {"top_k": 5}}, "top_p=1.0, top_k=5: training needs the full"),
    "two sources": (
        {"task": {"name": "lcm"}, "data": {"train": "x.jsonl"}},
        "task and data.train exclude",
    ),
    "two held-out": (
        {"task": {"name": "lcm"}, "data": {"eval": "x"}},
        "task and data.eval exclude",
    ),
    "warm start of data": ({"warmstart": {"steps": 5}}, "warmstart needs a task"),
    "warm start of a model": (
        {"warmstart": {"steps": 5}, "task": {"name": "lcm"}, "model": {"path": "m"}},
        "warmstart is for a new tiny policy",
    ),
    "clip": ({"clip_ratio_low": 0.3}, "clip_ratio_high must be at least clip_ratio_low, got 0.28"),
    "scaling without a base": ({"lr_scaling": "sqrt"}, "lr_scaling=sqrt needs lr_base_samples"),
    "base without scaling": ({"lr_base_samples": 64}, "it would be ignored"),
    "cosine without an end": ({"lr_schedule": "cosine"}, "lr_decay_updates belong together"),
    "an end without cosine": ({"lr_decay_updates": 9}, "lr_decay_updates belong together"),
    "decay in warm-up": (
        {"lr_schedule": "cosine", "lr_decay_updates": 9, "lr_warmup_updates": 9},
        "must exceed",
    ),
    "minibatches": ({"num_minibatches": 9}, "num_minibatches=9 needs as many samples, .* 8"),
    "reset without a reference": ({"ref": {"reset_every": 5}}, "without kl_coef > 0"),
    "stall without evaluations": (
        {"kl_coef": 0.1, "ref": {"reset_on": ["stall"]}},
        "reset_on=stall needs eval_every",
    ),
    "length term": (
        {"length_penalty": {"min": 0.5, "max": 0.0}},
        "length_penalty.min must not exceed",
    ),
    "reuse and correct": (
        {"reuse_engine_logprobs": True, "tis": {"type": "tis"}},
        "the correction would always be 1",
    ),
    "tis bounds": ({"tis": {"min": 3.0}}, "tis.min must not exceed tis.cap, got 3.0 and 2.0"),
    "two truncation costs": (
        {"overlong": {"buffer": 4, "stop_properly": 0.0}},
        "exclude each other",
    ),
    "buffer": ({"overlong": {"buffer": 9}}, "overlong.buffer=9 exceeds rollout.max_new_tokens=8"),
    "greedy samples": ({"eval": {"temperature": 0}}, "eval.temperature=0 is greedy: 16 samples"),
    "restore from nothing": ({"init": {"restore": ["weights"]}}, "init.restore without init.from"),
    "restore no weights": (
        {"init": {"from": "x", "restore": ["optimizer"]}},
        "must name weights, got",
    ),
    "restore no reference": (
        {"init": {"from": "x", "restore": ["weights", "reference"]}},
        "kl_coef is 0: there is none",
    ),
    "normalise": ({"advantage": {"estimator": "grpo", "normalise": "token"}}, "not to grpo"),
    "a server": (
        {"rollout": {"engine": "openai", "openai": {"base_url": "http://h/v1"}}},
        "a server's weights do not follow the updates",
    ),
    "a server's options": (
        {"rollout": {"openai": {"base_url": "http://h/v1"}}},
        "rollout.openai names a server, rollout.engine is embedded",
    ),
    "another engine's options": (
        {"rollout": {"vllm": {"max_num_seqs": 8}}},
        "rollout.vllm belongs to rollout.engine=vllm, got embedded",
    ),
    "colder than vLLM": (
        {"rollout": {"engine": "vllm", "temperature": 0.005}},
        "rollout.temperature=0.005: vLLM would sample at 0.01 instead",
    ),
    "evaluated colder than vLLM": (
        {"rollout": {"engine": "vllm"}, "eval": {"temperature": 0.005}},
        "eval.temperature=0.005: vLLM would sample at 0.01 instead",
    ),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_each_contradiction_has_its_line(case):
    changes, message = CONTRADICTIONS[case]
    with pytest.raises(ConfigError, match=message) as found:
        settings_from(merged(STEP, changes), "test")
    assert "\n" not in str(found.value)


def test_no_contradiction_is_without_a_case():
    """Policy: every message in the source is given by one of the cases above."""
    given = []
    for changes, _ in CONTRADICTIONS.values():
        with pytest.raises(ConfigError) as found:
            settings_from(merged(STEP, changes), "test")
        given.append(str(found.value))
    for node in ast.walk(ast.parse(inspect.getsource(inspect.getmodule(contradictions)))):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "append":
            text = max(
                (n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and n.value),
                key=len,
            )
            assert any(text in line for line in given), f"no case gives: {text}"


def test_old_logprobs_come_from_the_trainer_unless_engine_and_trainer_are_one():
    """By hand: reuse is settled by the engine and the correction, and can be asked for."""
    for changes, want in (
        ({}, True),
        ({"tis": {"type": "tis"}}, False),
        ({"rollout": {"engine": "vllm"}}, False),
        ({"rollout": {"engine": "vllm"}, "tis": {"type": "tis"}}, False),
        ({"rollout": {"engine": "vllm"}, "reuse_engine_logprobs": True}, True),
        ({"reuse_engine_logprobs": False}, False),
    ):
        assert settings_from(merged(STEP, changes), "test").reuses_engine_logprobs is want


IMPOSSIBLE = {
    "rollout.engine": ["vLLM", None],
    "rollout.vllm.block_size": [8, 17],
    "rollout.vllm.tolerance": [0, math.inf],
    "rollout.vllm.max_num_seqs": [0],
    "rollout.temperature": [0, -1, math.inf],
    "rollout.max_new_tokens": [0, 1.5, "many"],
    "rollout.waves": [[], [0], 4],
    "prompts_per_step": [0, None, 10**10],
    "clip_ratio_low": [-0.1, 1.0],
    "clip_ratio_c": [1.0],
    "kl_coef": [-1e-9],
    "lr": [0, -1e-3, "fast"],
    "seed": [-1, 2**63],
    "steps": [-1],
    "eval.samples": [0],
    "data.solved_weight": [-0.1, 1.1],
    "data.solved_share": [0, 1.1],
    "data.solved_visits": [0],
    "rollout.keep_rule": ["best"],
    "data.held_out": [1.0, -0.1],
    "dynamic_sampling.oversample": [0.9],
    "dynamic_sampling.on_exhausted": ["panic"],
    "loss_agg_mode": ["mean"],
    "tis.type": ["truncated"],
    "kl_estimator": ["k4"],
    "logger": ["print"],
    "overlong.stop_properly": [1.5],
    "optimizer.beta1": [1.0],
}


@pytest.mark.parametrize("key", IMPOSSIBLE)
def test_impossible_values_name_their_key(key):
    for value in IMPOSSIBLE[key]:
        changes = value
        for name in reversed(key.split(".")):
            changes = {name: changes}
        with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
            settings_from(merged(STEP, changes), "test")


def test_settings_cannot_be_changed_after_the_door():
    with pytest.raises(ValueError, match="frozen"):
        settings().steps = 5


def test_learning_rate_of_the_paper_by_hand():
    """512 prompts x 16 = 8,192 samples to 128 x 512 = 65,536: sqrt(8) = 2.828, linear 8."""
    wide = {"rollout": {"n": 512}, "prompts_per_step": 128, "lr_base_samples": 8192}
    assert settings(**wide, lr_scaling="sqrt").lr_scale == pytest.approx(2.8284271, rel=1e-7)
    assert settings(**wide, lr_scaling="linear").lr_scale == 8.0
    assert settings(rollout={"n": 512}, prompts_per_step=128).lr_scale == 1.0


def test_a_cut_group_counts_as_what_is_kept():
    """4 prompts, groups of up to 512 cut to 16: the update holds 64 samples, not 2,048."""
    cut = settings(prompts_per_step=4, rollout={"waves": [16, 512], "keep_per_group": 16})
    assert cut.samples_per_step == 64
    assert settings(prompts_per_step=4, rollout={"waves": [16, 512]}).samples_per_step == 2048


def test_engine_logprobs_are_reused_only_without_a_correction():
    assert settings().reuses_engine_logprobs
    assert not settings(tis={"type": "icepop"}).reuses_engine_logprobs
    assert not settings(reuse_engine_logprobs=False).reuses_engine_logprobs


def test_normalise_defaults_to_trajectories_for_the_paper_s_estimator_alone():
    assert settings().advantage.scaling == "trajectory"
    assert settings(advantage={"estimator": "grpo"}).advantage.scaling == "none"
    assert settings(advantage={"normalise": "token"}).advantage.scaling == "token"
