"""A whole run of five steps: what it leaves behind, and that its records agree with each other."""

import json
import math

import pyarrow.compute as pc
import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from brorl.errors import ConfigError, DataError, EngineError, RunError
from brorl.record.evals import eval_steps
from brorl.record.rollouts import read_rollouts, rollout_steps
from brorl.train import api
from brorl.train.checkpoint import checkpoint_path, checkpoint_steps, open_checkpoint
from brorl.train.recipe import load_recipe, load_settings
from brorl.train.telemetry import without_clock

from .runs import RICH, Stopper, lines, names, newest, no_report, same_end
from .toys import recipe

__all__ = ["no_report"]  # a fixture


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(folder with the recipe, the run, its result), made once."""
    folder = tmp_path_factory.mktemp("whole")
    made = recipe(folder, **RICH)
    result = api.train(str(made), {"run_dir": folder / "run"})
    return folder, folder / "run", result


def test_leaves_what_the_contract_names(whole):
    _, run, result = whole
    assert set(names(run)) >= {
        "config.yaml", "environment.json", "metrics.jsonl", "rollouts", "checkpoints", "eval",
        "report.html", "best.json",
    }  # fmt: skip
    assert [m["step"] for m in lines(run)] == [0, 1, 2, 3, 4, 5]
    assert rollout_steps(run) == [1, 2, 3, 4, 5]
    assert eval_steps(run) == [0, 2, 4, 5]
    assert not [p for p in run.rglob(".*") if p.name.startswith(".")]
    assert set(result) >= {
        "run", "eval_before", "eval_after", "steps", "samples_generated", "samples_kept", "seconds",
    }  # fmt: skip
    assert set(result["seconds"]) == {"generate", "grade", "update", "eval", "other", "total"}


def test_config_is_everything_resolved(whole):
    folder, run, _ = whole
    wanted = load_recipe(str(folder / "toy.yaml"), {"run_dir": run})
    assert load_settings(run / "config.yaml", (), may_change=()) == wanted
    values = yaml.safe_load((run / "config.yaml").read_text())
    assert (values["clip_ratio_high"], values["rollout"]["temperature"]) == (0.28, 1.0)


def test_environment_says_what_decides_the_bits(whole):
    _, run, _ = whole
    record = json.loads((run / "environment.json").read_text())
    assert (record["threads"], record["device"]) == (1, "cpu")
    assert record["versions"]["torch"] == torch.__version__
    assert record["model"]["parameters"] > 0
    assert len(record["model"]["weights_sha256"]) == len(record["data"]["sha256"]) == 64


def test_checkpoints_are_the_newest_and_the_best(whole):
    _, run, _ = whole
    best = json.loads((run / "best.json").read_text())
    scores = {m["step"]: m["eval/pass@1"] for m in lines(run) if "eval/pass@1" in m}
    assert best["pass@1"] == scores[best["step"]] == max(scores.values())
    assert set(checkpoint_steps(run)) >= {best["step"], 5}
    assert len(checkpoint_steps(run)) <= 4
    AutoModelForCausalLM.from_pretrained(newest(run))


def test_rollouts_and_metrics_tell_the_same(whole):
    """Identity: every figure of a step computed again from its rows."""
    _, run, result = whole
    generated = kept = 0
    for m in lines(run)[1:]:
        table = read_rollouts(run, m["step"])
        fresh = table.filter(pc.equal(table["born"], m["step"]))
        stale = table.filter(pc.less(table["born"], m["step"]))
        assert fresh.num_rows == m["samples/generated"]
        assert stale.num_rows == m["samples/stale"]
        if fresh.num_rows:
            assert pc.mean(fresh["raw_score"]).as_py() == pytest.approx(m["reward/mean"])
            lengths = pc.mean(fresh["response_length"]).as_py()
            assert lengths == pytest.approx(m["response/length_mean"])
        trained = table.filter(table["kept"])
        assert trained.num_rows == m["samples/kept"]
        assert not any(math.isnan(a) for a in trained["advantage"].to_pylist())
        groups = {}
        for row in trained.to_pylist():
            groups.setdefault(row["group_id"], []).append(row)
            assert row["policy_version"] <= m["updates"]
            assert row["fate"] == "kept"
            assert len(row["response_ids"]) == row["response_length"] == len(row["mask"])
        assert len(groups) == m["groups/kept"]
        generated, kept = generated + fresh.num_rows, kept + trained.num_rows
    assert (result["samples_generated"], result["samples_kept"]) == (generated, kept)


def test_every_prompt_got_exactly_its_n(whole):
    _, run, _ = whole
    for step in rollout_steps(run):
        table = read_rollouts(run, step, ["group_id", "sample_index", "born"])
        indices = {}
        for row in table.to_pylist():
            indices.setdefault(row["group_id"], []).append(row["sample_index"])
        assert all(sorted(i) == list(range(8)) for i in indices.values())


def test_carried_groups_are_counted_as_stale_and_used_in_a_later_step(whole):
    _, run, _ = whole
    assert sum(m["samples/stale"] for m in lines(run)[1:]) > 0


def test_the_reference_is_reset_on_schedule_and_said_so(whole):
    _, run, _ = whole
    resets = [m["step"] for m in lines(run)[1:] if m["ref/reset"]]
    assert resets == [2, 4]
    checkpoint = open_checkpoint(checkpoint_path(run, 4))
    assert checkpoint.state["reference_step"] == 4
    weights = load_file(checkpoint.folder / "model.safetensors")
    reference = load_file(checkpoint.reference / "model.safetensors")
    assert all(torch.equal(weights[k], reference[k]) for k in weights)
    optimizer = torch.load(checkpoint.folder / "trainer/optimizer.pt", weights_only=True)
    assert optimizer["state"] == {}  # reset with it
    kl = {m["step"]: m["policy/kl_ref"] for m in lines(run)[1:]}
    assert kl[2] > kl[1] or kl[2] > 0


def test_learning_rate_warms_up_over_updates(whole):
    """Updates 1 to 4 at (u / 4) of 0.01, then held; the last of a step is the one logged."""
    _, run, _ = whole
    assert [m["policy/lr"] for m in lines(run)[1:]] == pytest.approx(
        [0.005, 0.01, 0.01, 0.01, 0.01]
    )


def test_a_finished_run_says_so_and_changes_nothing(whole, no_report):
    _, run, result = whole
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != "lock"}
    progress = Stopper()
    assert api.resume(run, progress=progress) == result
    assert any("is finished: 5 steps are done" in n for n in progress.notes)
    assert {p: p.read_bytes() for p in before} == before


def test_two_runs_of_one_recipe_are_equal_and_another_seed_is_not(whole, tmp_path, no_report):
    folder, run, _ = whole
    api.train(str(folder / "toy.yaml"), {"run_dir": tmp_path / "again"})
    same_end(run, tmp_path / "again")
    api.train(str(folder / "toy.yaml"), {"run_dir": tmp_path / "other", "seed": 2})
    assert lines(tmp_path / "other") != lines(run)


@pytest.mark.parametrize("tokens", ["kept", "none"])
def test_tokens_are_recorded_as_asked_and_change_nothing_else(whole, tmp_path, no_report, tokens):
    folder, run, _ = whole
    changes = {"run_dir": tmp_path / "run", "record.tokens": tokens, "steps": 2}
    api.train(str(folder / "toy.yaml"), changes)
    assert [without_clock(m) for m in lines(tmp_path / "run")][1:3] == lines(run)[1:3]
    for row in read_rollouts(tmp_path / "run", 1).to_pylist():
        has = row["response_ids"] is not None
        assert has == (tokens == "kept" and row["kept"])


# Runs that cannot go on


def test_steps_without_a_group_that_teaches_stop_with_a_summary(tmp_path, no_report):
    """Exact match with golds no random policy writes: all wrong, never an endless loop."""
    made = recipe(tmp_path, data={"verifier": "exact", "held_out": 0.3},
                  dynamic_sampling={"max_gen_batches": 2, "max_empty_steps": 3})  # fmt: skip
    (tmp_path / "rows.jsonl").write_text(
        (tmp_path / "rows.jsonl").read_text().replace('"x"', '"a long gold"')
    )
    with pytest.raises(
        RunError, match=r"3 steps in a row found no group .* all wrong, 0 all right"
    ):
        api.train(str(made), {"run_dir": tmp_path / "run", "steps": 50})
    found = lines(tmp_path / "run")
    assert [m["step"] for m in found] == [0, 1, 2]
    assert {m["policy/updates"] for m in found[1:]} == {0}
    weights = [load_file(p / "model.safetensors") for p in (tmp_path / "run/checkpoints").iterdir()]
    assert all(torch.equal(w[k], weights[0][k]) for w in weights for k in w)


def test_a_loss_that_is_not_finite_saves_its_rows_and_keeps_the_checkpoint(tmp_path, monkeypatch):
    """The second step's advantages are poisoned: exit before the optimizer steps, rows on disk."""
    made = recipe(tmp_path, save_every=1)
    real = api.Loop.__init__.__globals__["train_step"].__globals__["assign_advantages"]

    def poisoned(groups, settings, step):
        real(groups, settings, step)
        if step == 2:
            groups[0].samples[0].advantage = math.nan

    monkeypatch.setattr("brorl.train.step.assign_advantages", poisoned)
    with pytest.raises(RunError, match=r"step 2: the loss is nan at update [34]; the rows are in"):
        api.train(str(made), {"run_dir": tmp_path / "run"})
    (file,) = (tmp_path / "run" / "nonfinite").iterdir()
    rows = json.loads(file.read_text())
    assert "nan" in {row["advantage"] for row in rows}
    assert {"group_id", "sample_index", "prompt_ids", "response_ids", "old_logp"} <= set(rows[0])
    assert open_checkpoint(newest(tmp_path / "run")).step == 1


def test_weights_that_explode_stop_the_run_in_one_line(tmp_path, monkeypatch, no_report):
    """A rate beyond what settings allow, as a schedule gone wrong would give."""
    monkeypatch.setattr("brorl.train.setup.Workbench.lr", lambda self, updates: 1e30)
    made = recipe(tmp_path)
    with pytest.raises((RunError, EngineError), match=r"finite|is nan|is inf"):
        api.train(str(made), {"run_dir": tmp_path / "run"})
    assert open_checkpoint(newest(tmp_path / "run")).step in (0, 1)


@pytest.mark.parametrize("place", ["append_metrics", "write_rollouts", "write_evaluation"])
def test_a_full_disk_stops_in_one_line_and_the_run_goes_on(
    whole, tmp_path, monkeypatch, no_report, place
):
    folder, run, _ = whole
    real = api.Loop.__init__.__globals__[place]
    calls = []

    def full(*args):
        calls.append(args)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return real(*args)

    with monkeypatch.context() as m:
        m.setattr(f"brorl.train.loop.{place}", full)
        with pytest.raises(
            RunError, match="No space left on device; the last checkpoint is intact"
        ):
            api.train(str(folder / "toy.yaml"), {"run_dir": tmp_path / "run"})
    api.resume(tmp_path / "run")
    same_end(run, tmp_path / "run")


# Bad input that only the running run can find


def test_bad_input_found_late_leaves_no_folder(tmp_path, monkeypatch):
    made = recipe(tmp_path, logger=["wandb"])
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(ConfigError, match="logger wandb needs the extra"):
        api.train(str(made), {"run_dir": tmp_path / "deep" / "run"})
    assert names(tmp_path / "deep") == []


def test_a_warm_start_without_enough_problems_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BRORL_CACHE", str(tmp_path / "cache"))
    changes = {
        "run_dir": tmp_path / "run", "task.warmstart_size": 20, "task.train_size": 4,
        "task.eval_size": 4, "grading.check_golds": 0, "threads": 1,
    }  # fmt: skip
    with pytest.raises(DataError, match="a warm start needs 256 worked problems, got 20"):
        api.train("quickstart", changes)
    assert not (tmp_path / "run").exists()


def test_a_used_folder_is_refused_before_any_work_and_left_alone(whole):
    folder, run, _ = whole
    before = (run / "config.yaml").read_bytes()
    with pytest.raises(ConfigError, match="is not empty; go on with `brorl resume"):
        api.train(str(folder / "toy.yaml"), {"run_dir": run})
    assert (run / "config.yaml").read_bytes() == before


# A new phase


def test_a_new_phase_has_old_weights_and_fresh_counters(whole, tmp_path, no_report):
    """BroRL's own use: another width and length from the weights of an older run."""
    folder, run, _ = whole
    changes = {
        "run_dir": tmp_path / "wide", "init.from": run, "rollout.n": 16,
        "rollout.max_new_tokens": 6, "keep_checkpoints": 9, "steps": 2, "rollout.keep_per_group": None,
    }  # fmt: skip
    api.train(str(folder / "toy.yaml"), changes)
    old = load_file(newest(run) / "model.safetensors")
    start = checkpoint_path(tmp_path / "wide", 0)
    new = load_file(start / "model.safetensors")
    assert all(torch.equal(old[k], new[k]) for k in old)
    state = open_checkpoint(start).state
    assert (state["updates"], state["source"]["drawn"], state["empty_steps"]) == (0, 0, 0)
    assert torch.load(start / "trainer/optimizer.pt", weights_only=True)["state"] == {}
    reference = load_file(open_checkpoint(start).reference / "model.safetensors")
    assert all(torch.equal(old[k], reference[k]) for k in old)  # begins at the phase's start
    found = lines(tmp_path / "wide")
    assert [m["step"] for m in found] == [0, 1, 2]
    assert found[1]["updates"] == 2
    versions = read_rollouts(tmp_path / "wide", 1)["policy_version"].to_pylist()
    assert set(versions) == {0}
    sizes = read_rollouts(tmp_path / "wide", 1)["sample_index"].to_pylist()
    assert max(sizes) == 15


def test_a_new_phase_restores_what_is_named(whole, tmp_path, no_report):
    """From step 3's checkpoint: the optimizer's moments, and the reference of step 2."""
    folder, _, _ = whole
    plain = {"ref.reset_optimizer": False, "save_every": 1, "keep_checkpoints": 9, "steps": 3}
    api.train(str(folder / "toy.yaml"), plain | {"run_dir": tmp_path / "old"})
    old = checkpoint_path(tmp_path / "old", 3)
    changes = {
        "run_dir": tmp_path / "new", "init.from": old, "optimizer.beta2": 0.5,
        "init.restore": ["weights", "optimizer", "reference"], "steps": 0,
    }  # fmt: skip
    api.train(str(folder / "toy.yaml"), plain | changes)
    start = open_checkpoint(checkpoint_path(tmp_path / "new", 0))
    a, b = (torch.load(c / "trainer/optimizer.pt", weights_only=True) for c in (old, start.folder))
    assert a["state"].keys() == b["state"].keys() != set()
    for i in a["state"]:
        assert all(torch.equal(a["state"][i][k], b["state"][i][k]) for k in a["state"][i])
    assert a["param_groups"][0]["betas"] == (0.9, 0.999)
    assert b["param_groups"][0]["betas"] == (0.9, 0.5)  # moments are old, settings are new
    x = load_file(open_checkpoint(old).reference / "model.safetensors")
    y = load_file(start.reference / "model.safetensors")
    assert all(torch.equal(x[k], y[k]) for k in x)
    weights = load_file(old / "model.safetensors")
    assert not all(torch.equal(x[k], weights[k]) for k in x)
    assert start.state["reference_step"] == 0
