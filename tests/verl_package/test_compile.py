"""A recipe compiled for verl: every setting has a place (policy), hand-computed values, units."""

import pytest

from brorl.errors import ConfigError
from brorl.train.recipe import load_recipe, shipped
from brorl.train.settings import TrainSettings
from brorl.verl.compile import Cluster, compile_recipe, differences, minibatch_prompts
from brorl.verl.names import estimator_name, estimators
from brorl.verl.overrides import override, parsed, rendered
from brorl.verl.table import TABLE, Place, fields, value_of

OWN = ["model.path=/models/m", "warmstart=null"]
EMBEDDED = {
    "model.gradient_checkpointing",
    "model.shape",
    "rollout.memory_budget",
    "rollout.openai",
    "rollout.vllm",
    "threads",
    "plateau",
}


def compiled(tmp_path, *overrides, recipe="quickstart", cluster=None, more=None):
    settings = load_recipe(recipe, [*OWN, *overrides])
    return compile_recipe(settings, tmp_path, cluster or Cluster(), more)


def test_every_setting_has_a_place_and_every_place_a_setting():
    """Walks all fields of TrainSettings: a new setting without a line in TABLE fails here."""
    assert set(fields()) == set(TABLE)


def test_the_walk_opens_every_section():
    """Against pydantic's own dump: a leaf is in `fields`, or lies in a whole that is."""
    plain = load_recipe("quickstart", []).model_dump(by_alias=True)

    def leaves(value, above):
        for key, item in value.items():
            name = f"{above}{key}"
            if isinstance(item, dict) and name not in TABLE:
                yield from leaves(item, f"{name}.")
            else:
                yield name

    assert set(leaves(plain, "")) == set(fields())


def test_only_the_embedded_engine_s_own_settings_go_nowhere():
    assert {k for k, v in TABLE.items() if v.place is Place.EMBEDDED} == EMBEDDED


@pytest.mark.parametrize("recipe", sorted(set(shipped()) - {"quickstart"}))
def test_shipped_recipes_compile_with_nothing_unmapped(tmp_path, recipe):
    own = ["task=null", "data.train=rows.jsonl", "warmstart=null"]
    path = load_recipe(recipe, own).model.path or "/models/m"
    adaptive = ["rollout.n=64"] if load_recipe(recipe, own).rollout.waves == "auto" else []
    settings = load_recipe(recipe, [*own, f"model.path={path}", *adaptive])
    found = compile_recipe(settings, tmp_path, Cluster(8, 8))
    assert found.unmapped == []
    assert set(found.brorl) | set(found.not_used) | {
        k for k, v in TABLE.items() if v.place in (Place.VERL, Place.REFUSED)
    } == set(fields())
    assert "${" not in str(found.verl)


def test_a_target_named_in_the_table_is_compiled(tmp_path):
    """Every verl setting that the table names is in the compiled mapping, where it has a value."""
    found = compiled(
        tmp_path, "kl_coef=0.1", "clip_ratio_c=3", "eval_every=1", "advantage.estimator=grpo"
    )
    missing = {
        target
        for entry in TABLE.values()
        if entry.place is Place.VERL
        for target in entry.target.split(", ")
        if target not in found.verl
    }
    assert missing == set()


def test_each_mapped_setting_changes_what_verl_gets(tmp_path):
    """Attack: a setting that is named in the table and read by nobody."""
    changes = {
        "name": "other",
        "seed": 7,
        "model.path": "/models/other",
        "model.dtype": "bfloat16",
        "rollout.n": 32,
        "rollout.temperature": 0.7,
        "rollout.max_new_tokens": 20,
        "prompts_per_step": 24,
        "clip_ratio_low": 0.1,
        "clip_ratio_high": 0.3,
        "clip_ratio_c": 4.0,
        "loss_agg_mode": "seq-mean-token-mean",
        "reuse_engine_logprobs": True,
        "kl_coef": 0.5,
        "kl_estimator": "k3",
        "lr": 1e-5,
        "optimizer.beta1": 0.8,
        "optimizer.beta2": 0.9,
        "optimizer.eps": 1e-6,
        "optimizer.weight_decay": 0.01,
        "optimizer.grad_clip": 0.5,
        "micro_batch_tokens": 9999,
        "steps": 3,
        "eval_every": 5,
        "eval.samples": 3,
        "eval.temperature": 0.6,
        "eval.top_p": 0.9,
        "eval.top_k": 5,
        "save_every": 2,
        "keep_checkpoints": 9,
        "logger": ["console"],
        "grading.workers": 3,
    }
    constant = {  # one value only in training, or another test's
        "rollout.engine",
        "rollout.top_p",
        "rollout.top_k",
        "model.device",
        "init.from",
    }
    mapped = {k for k, v in TABLE.items() if v.place is Place.VERL}
    assert mapped == set(changes) | constant
    before = compiled(tmp_path).verl
    for name, value in changes.items():
        after = compiled(tmp_path, (name, value)).verl
        named = TABLE[name].target.split(", ")
        changed = {t for t in named if after.get(t) != before.get(t)}
        assert changed, f"{name} changes none of {named}"


def test_units_of_mini_batches(tmp_path):
    """128 prompts in 8 mini-batches: 16 prompts each, which verl multiplies by n = 512 to 8,192."""
    found = compiled(tmp_path, "prompts_per_step=128", "num_minibatches=8", "rollout.n=512")
    assert found.verl["actor_rollout_ref.actor.ppo_mini_batch_size"] == 16
    assert found.verl["data.train_batch_size"] == 128
    assert (
        minibatch_prompts(load_recipe("quickstart", ["prompts_per_step=2", "num_minibatches=8"]))
        == 1
    )


def test_the_rate_is_scaled_by_samples(tmp_path):
    """128 x 512 over a base of 8,192: a factor of 8, sqrt 2.8284, times 1e-6."""
    found = compile_recipe(load_recipe("brorl", ["data.train=x.jsonl"]), tmp_path, Cluster())
    assert found.verl["actor_rollout_ref.actor.optim.lr"] == pytest.approx(2.8284271e-6)


def test_a_row_longer_than_the_budget_still_fits(tmp_path):
    """verl cannot take a row beyond its token budget; ours makes it a part of its own."""
    found = compiled(tmp_path, "micro_batch_tokens=10", cluster=Cluster(max_prompt_tokens=40))
    assert found.verl["actor_rollout_ref.actor.ppo_max_token_len_per_gpu"] == 40 + 12


def test_the_longer_limit_sizes_the_engine(tmp_path):
    assert compiled(tmp_path, "eval.max_new_tokens=40").verl["data.max_response_length"] == 40
    assert compiled(tmp_path, "eval.max_new_tokens=4").verl["data.max_response_length"] == 12


def test_a_pinned_revision_is_loaded_from_the_run(tmp_path):
    found = compile_recipe(load_recipe("prorl", ["data.train=x.jsonl"]), tmp_path, Cluster())
    assert found.verl["actor_rollout_ref.model.path"] == str(tmp_path / "model")
    found = compile_recipe(load_recipe("grpo", ["data.train=x.jsonl"]), tmp_path, Cluster())
    assert found.verl["actor_rollout_ref.model.path"] == "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["warmstart={steps: 1}", "model.path=null"], "warmstart"),
        (["model.path=null"], "model.path"),
        (["model.device=cpu"], "model.device"),
        (["rollout.waves=auto", "eval_every=1"], "rollout.waves"),
        (["dynamic_sampling.surplus=carry"], "dynamic_sampling.surplus"),
        (["reward.source=majority"], "reward.source"),
        (["reward.source=incorrect", "reward.options={labels: majority}"], "reward.source"),
        (["max_samples=5"], "max_samples"),
        (["max_seconds=5"], "max_seconds"),
        (["eval_every_samples=5"], "eval_every_samples"),
        (["init.from=runs/a", "init.restore=[weights, optimizer]"], "init.restore"),
        (
            ["rollout.keep_per_group=8", "advantage.weight=unbiased", "kl_coef=0.1"],
            "advantage.weight",
        ),
    ],
)
def test_what_verl_cannot_do_is_refused_by_name(tmp_path, overrides, named):
    with pytest.raises(ConfigError, match=rf"verl cannot run this recipe: .*{named}"):
        compiled(tmp_path, *overrides)


def test_everything_in_the_way_is_said_at_once(tmp_path):
    with pytest.raises(ConfigError, match=r"surplus.*max_samples"):
        compiled(tmp_path, "dynamic_sampling.surplus=carry", "max_samples=3")


def test_no_dual_clip_unless_asked(tmp_path):
    """verl's own losses clip at 3 whether asked or not; ours is named instead."""
    name = "actor_rollout_ref.actor.policy_loss.loss_mode"
    assert compiled(tmp_path).verl[name] == "brorl_clip"
    assert compiled(tmp_path, "clip_ratio_c=3").verl[name] == "brorl_dual_clip"


def test_estimators_by_name():
    """Four estimators, and five normalisations of one: 3 + 5 names, the recipe's among them."""
    assert len(estimators()) == 8
    for name, (estimator, normalise) in estimators().items():
        given = {"estimator": estimator}
        if estimator == "reinforce_plus_plus_baseline":
            given["normalise"] = normalise
        settings = TrainSettings.model_fields["advantage"].annotation(**given)
        assert estimator_name(settings) == name


def test_further_settings_of_verl_and_none_that_the_recipe_decides(tmp_path):
    key = "actor_rollout_ref.rollout.gpu_memory_utilization"
    found = compiled(tmp_path, more={key: 0.8})
    assert f"{key}=0.8" in found.command()
    with pytest.raises(ConfigError, match="clip_ratio_high: the recipe decides it"):
        compiled(tmp_path, more={"actor_rollout_ref.actor.clip_ratio_high": 9})


def test_a_changed_rule_is_seen(tmp_path):
    found = compiled(tmp_path)
    assert differences(found.settings, found.verl) == []
    changed = found.verl | {"actor_rollout_ref.rollout.n": 8}
    assert differences(found.settings, changed) == ["actor_rollout_ref.rollout.n must be 64, got 8"]


def test_words_of_the_command_line():
    """Hand-written hydra words; tests/verl_package/test_loading.py has hydra read all of them back."""
    assert override("a.b", None, added=False) == "a.b=null"
    assert override("a", True, added=True) == "+a=true"
    assert rendered([1, 2.5, "x"]) == "[1,2.5,x]"
    assert rendered({"eps": 1e-8}) == "{eps:1e-08}"
    assert rendered("a b, c") == "'a b, c'"
    assert rendered("it's") == r"'it\'s'"
    assert rendered("true") == "'true'"
    assert rendered("") == "''"
    assert parsed("+a.b=[1, 2]") == ("a.b", [1, 2])
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        parsed("nothing")


def test_values_are_read_by_dotted_name():
    settings = load_recipe("quickstart", ["warmstart=null"])
    assert value_of(settings, "rollout.n") == 64
    assert value_of(settings, "init.from") is None
    assert value_of(settings, "model.shape")["layers"] == 2
