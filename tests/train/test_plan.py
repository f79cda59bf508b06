"""What `brorl plan` counts, against the models, the engine and the runs that it counts for."""

import json

import pytest

from brorl.errors import ConfigError
from brorl.policy.load import save_policy, tiny_policy
from brorl.policy.tiny import TinyShape
from brorl.record.rollouts import rollout_path
from brorl.rollout.embedded import rows_per_wave
from brorl.train import api
from brorl.train.plan import model_shape, parameters, plan
from brorl.train.recipe import load_recipe
from brorl.train.settings import ShapeSettings

from .runs import lines, no_report
from .toys import SHAPE, recipe, settings, tiny

__all__ = ["no_report"]
SHAPE_DICT = dict(zip(TinyShape._fields, SHAPE, strict=True))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt2"])
@pytest.mark.parametrize("tied", [True, False])
def test_parameters_are_those_of_the_model_within_its_biases(architecture, tied):
    shape = TinyShape(architecture, 2, 32, 4, 4 if architecture == "gpt2" else 2, 64, 64, tied)
    policy = tiny_policy(shape, seed=0, device="cpu", trained_length=8)
    named = dict(policy.model.named_parameters())
    biases = sum(p.numel() for n, p in named.items() if n.endswith("bias"))
    counted = parameters(ShapeSettings(**shape._asdict(), vocabulary=policy.vocabulary))
    assert counted == sum(p.numel() for p in named.values()) - biases


def test_rows_of_a_wave_are_those_of_the_engine():
    """The planner's rule and the engine's are written twice; here they meet."""
    policy = tiny()
    for budget, prompt, new in [(1 << 20, 16, 8), (1 << 24, 100, 3), (1 << 22, 1, 50)]:
        s = settings(
            rollout={"memory_budget": budget, "max_new_tokens": new}, model={"shape": SHAPE_DICT}
        )
        assert plan(s, prompt_tokens=prompt).rows_per_wave == rows_per_wave(
            policy, budget, prompt, new
        )


def test_shape_comes_from_a_model_folder_or_from_settings(tmp_path):
    save_policy(tiny(), tmp_path)
    from_folder = model_shape(settings(model={"path": str(tmp_path)}))
    assert from_folder.model_dump() == ShapeSettings(**SHAPE_DICT, vocabulary=100).model_dump()
    with pytest.raises(ConfigError, match="plan needs the model's shape"):
        plan(settings(), prompt_tokens=10)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(ConfigError, match="no shape of a causal LM in it"):
        plan(settings(model={"path": str(tmp_path)}), prompt_tokens=10)


def test_doubling_n_doubles_samples_and_leaves_updates_alone():
    """reports.md row 8: samples 8 to 16 a step, one update of all of them either way."""
    narrow, wide = (
        plan(settings(rollout={"n": n}, model={"shape": SHAPE_DICT}), prompt_tokens=10)
        for n in (4, 8)
    )
    assert (narrow.samples_per_step, wide.samples_per_step) == (8, 16)
    assert narrow.updates_per_step == wide.updates_per_step == 1
    assert (narrow.samples_per_update, wide.samples_per_update) == (8, 16)


def test_a_run_stays_within_what_the_plan_says(tmp_path, no_report):
    """Samples, updates and disk of each step of a real run lie in the planned ranges."""
    made = recipe(tmp_path, steps=3)
    planned = plan(load_recipe(str(made)), prompt_tokens=4)
    api.train(str(made), {"run_dir": tmp_path / "run"})
    for m in lines(tmp_path / "run")[1:]:
        assert planned.samples_generated_least <= m["samples/generated"]
        assert m["samples/generated"] <= planned.samples_generated_most
        assert m["samples/kept"] <= planned.samples_per_step
        assert m["policy/updates"] == planned.updates_per_step
        assert m["policy/lr"] == planned.lr
        share = m["samples/generated"] / planned.samples_generated_least
        size = rollout_path(tmp_path / "run", m["step"]).stat().st_size
        assert size - 20_000 <= planned.disk_bytes_per_step * share  # less the file's own header


def test_the_rate_and_its_warning():
    few = settings(rollout={"n": 512}, prompts_per_step=8, lr_scaling="sqrt", lr_base_samples=512,
                   model={"shape": SHAPE_DICT})  # fmt: skip
    made = plan(few, prompt_tokens=10)
    assert made.lr == pytest.approx(0.01 * 8**0.5)
    assert made.lr_derivation == "lr = 0.01 · sqrt(4096 / 512) = 0.01 · 2.828 = 0.02828"
    assert any("below 32 prompts" in w for w in made.warnings)
    held = plan(settings(model={"shape": SHAPE_DICT}), prompt_tokens=10)
    assert (held.lr_derivation, held.warnings) == ("lr = 0.01, held: lr_scaling is none", [])
