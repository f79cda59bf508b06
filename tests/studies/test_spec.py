"""From a command line to runs: what is refused before anything starts, and what a run gets."""

import json

import pytest

from brorl.errors import ConfigError
from brorl.studies.runner import memory
from brorl.studies.runner.memory import check_memory
from brorl.studies.runner.spec import (
    COMMON,
    load_study,
    make_spec,
    pairs_of,
    plan_runs,
    settings_of,
)
from brorl.studies.runner.text import study_names
from brorl.tasks.build import build_task
from brorl.train.plan import memory_parts
from brorl.train.recipe import load_recipe


@pytest.mark.parametrize(
    ("overrides", "more", "said"),
    [
        ([], {"seeds": 1}, "--seeds needs at least 2, got 1"),
        ([], {"budget_minutes": 0.0}, "--budget is minutes above 0, got 0"),
        ([], {"budget_minutes": float("nan")}, "--budget is minutes above 0, got nan"),
        ([], {"workers": -1}, "--workers lies in 0 ... 64, got -1"),
        (["study.width=[16,32]"], {}, "unknown knob of study width 'width'; nearest: widths"),
        (["study.widths=[16]"], {}, r"study.widths: .*at least 2 items"),
        (["study.widths=[64,16]"], {}, "study: widths must grow, got"),
        (["study.widths=[16,17]"], {}, "must be a multiple of every width, not of 17"),
        (["study.samples=0"], {}, "study.samples: .*greater than or equal to 1, got 0"),
        (["study.match=dollars"], {}, "study.match: "),
        (["rollout.n=64"], {}, "rollout.n is what study width sets in its arms"),
        (["rollout.waves=[16,64]"], {}, "rollout.waves is what study width sets in its arms"),
        (["rollout={n: 64}"], {}, "rollout.n is what study width sets in its arms"),
        (["init={from: x}"], {}, "init.from is the runner's in a study; use nothing: arms share"),
        (["seed=3"], {}, "seed is the runner's in a study; use --seeds"),
        (["max_samples=3"], {}, "max_samples is the runner's in a study; use study.samples"),
        (["run_dir=x"], {}, "run_dir is the runner's in a study; use --out"),
    ],
)
def test_refused_in_one_line(overrides, more, said):
    with pytest.raises(ConfigError, match=said) as caught:
        make_spec("width", overrides, **more)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "said"),
    [("lrr=1", "unknown setting lrr"), ("clip_ratio_high=0.1", "clip_ratio_high must be at least")],
)
def test_settings_are_checked_as_those_of_a_run(override, said):
    with pytest.raises(ConfigError, match=said):
        plan_runs(make_spec("width", [override]))


def test_a_run_gets_recipe_base_users_and_arms_settings_in_that_order():
    spec = make_spec("width", ["lr=0.002", "save_every=7", "study.widths=[16,64]"], seeds=2)
    plans = plan_runs(spec)
    assert [p.name for p in plans][:2] == ["n16-p16-s0", "n16-p64-s0"]
    assert {p.seed for p in plans} == {0, 1}
    made = settings_of(plans[0])
    assert (made.rollout.n, made.prompts_per_step, made.lr, made.save_every) == (16, 16, 0.002, 7)
    assert made.max_samples == spec.knobs.samples
    assert made.eval_every_samples == spec.knobs.samples // spec.knobs.evals
    assert made.keep_checkpoints == COMMON["keep_checkpoints"]
    assert made.clip_ratio_high == load_recipe("quickstart").clip_ratio_high
    assert settings_of(plans[-1]).seed == 1


def test_arms_of_a_seed_share_their_warm_start():
    """Identity: what the cache of warm starts hashes is the same in every arm."""
    for plans in (plan_runs(make_spec("width", seeds=2)),):
        of_seed = [settings_of(p) for p in plans if p.seed == 1]
        shared = {
            (s.seed, s.warmstart, s.rollout.max_new_tokens, s.rollout.memory_budget, s.threads)
            for s in of_seed
        }
        assert len(shared) == 1
        assert len({json.dumps(s.task) for s in of_seed}) == 1


def test_a_start_gives_a_run_streams_of_its_own(tmp_path):
    plan = plan_runs(make_spec("width", seeds=2))[0]
    assert ("init.from", str(tmp_path)) in pairs_of(plan, tmp_path)
    assert not [k for k, _ in pairs_of(plan, None) if k == "init.from"]


def test_a_budget_scales_the_samples_by_the_cost_of_so_many_seeds():
    """Hand-computed: twice the default minutes for twice the seeds leaves the samples alone."""
    study = load_study("width")
    whole = study.knobs().samples

    def samples(minutes, seeds, *overrides):
        return make_spec("width", overrides, seeds=seeds, budget_minutes=minutes).knobs.samples

    assert samples(2 * study.minutes, 2 * study.seeds) == whole
    assert samples(study.minutes / 2, study.seeds) == whole / 2
    assert samples(4 * study.minutes, study.seeds) == 4 * whole
    assert samples(1.0, study.seeds, "study.samples=123") == 123


def test_smoke_is_the_same_plan_made_small():
    full, small = (plan_runs(make_spec("width", smoke=smoke)) for smoke in (False, True))
    assert small[0].samples < full[0].samples / 100
    made = settings_of(small[0])
    assert made.model.shape.layers == 1
    assert made.task["name"] == "letter_counting"
    own = settings_of(plan_runs(make_spec("width", ["task.name=spell_backward"], smoke=True))[0])
    assert own.task["prompt"] == "rev {word}="


def test_a_recipe_of_ones_own_gets_no_settings_of_the_tiny_policy(tmp_path):
    recipe = tmp_path / "own.yaml"
    recipe.write_text(
        "rollout: {n: 16, max_new_tokens: 8}\nprompts_per_step: 4\nnum_minibatches: 2\nlr: 1.0e-5\n"
        "steps: 10\nmodel: {path: some/hub-name}\ndata: {train: rows.jsonl}\n"
    )
    spec = make_spec("width", [f"study.recipe={recipe}"], smoke=True)
    made = settings_of(plan_runs(spec)[0])
    assert (made.task, made.model.shape, made.warmstart) == (None, None, None)
    assert (made.lr, made.eval.samples) == (1e-5, 4)


def test_what_does_not_fit_memory_is_refused_before_it_starts():
    settings = load_recipe("quickstart", ["rollout.n=512"])
    parts, _ = memory_parts(settings, settings.model.shape, memory.PROMPT_TOKENS)
    needed = parts["total"]
    check_memory("a", settings, workers=1, bytes_here=needed)
    check_memory("a", settings, workers=2, bytes_here=2 * needed)
    with pytest.raises(
        ConfigError, match=r"arm a \(rollout width 512\) needs about .* the largest"
    ):
        check_memory("a", settings, workers=1, bytes_here=needed - 1)
    with pytest.raises(ConfigError, match="times 2 runs at once"):
        check_memory("a", settings, workers=2, bytes_here=2 * needed - 1)
    wide = [
        "study.widths=[16,65536]",
        "study.batch=65536",
        "rollout.memory_budget=1000000000000000",
    ]
    with pytest.raises(ConfigError, match=r"\(rollout width \d+\) needs about [\d.,]+ GiB"):
        plan_runs(make_spec("width", [*wide, "rollout.max_new_tokens=200"]))


@pytest.mark.parametrize("device", ["cuda:63", "tpu9"])
def test_a_device_that_is_not_there_is_one_line(device):
    with pytest.raises(ConfigError, match=f"model.device: '{device}' cannot be used here: "):
        plan_runs(make_spec("width", [f"model.device={device}"]))


@pytest.mark.parametrize("smoke", [False, True], ids=["full", "smoke"])
@pytest.mark.parametrize("name", study_names())
def test_every_arm_of_every_study_has_a_task_that_can_be_built(name, smoke):
    """Policy: what an arm asks for reaches the task and is known there, before any run."""
    for plan in plan_runs(make_spec(name, smoke=smoke, workers=0)):
        if plan.seed:
            continue
        settings = settings_of(plan)
        build_task(settings.task or {}, settings.data.model_dump())
        if plan.start is not None:
            start = load_recipe(plan.recipe, list(plan.start))
            build_task(start.task or {}, start.data.model_dump())
