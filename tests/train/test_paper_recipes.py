"""`prorl`, `brorl` and `adaptive` each go on from one checkpoint by one command, made small."""

import json

import pytest

from brorl.record.metrics import read_metrics
from brorl.train import api
from brorl.train.recipe import load_recipe

from .runs import no_report
from .toys import recipe

__all__ = ["no_report"]
pytestmark = pytest.mark.usefixtures("no_report")

SMALL = {
    "model.dtype": "float32",
    "data.verifier": "exact",
    "data.answer": "answer",
    "rollout.max_new_tokens": 4,
    "eval.max_new_tokens": 4,
    "eval.samples": 2,
    "prompts_per_step": 2,
    "num_minibatches": 2,
    "dynamic_sampling.max_gen_batches": 2,
    "steps": 2,
    "logger": [],
    "threads": 1,
}
WIDTH = {
    "prorl": {"rollout.n": 4},
    "brorl": {"rollout.n": 16, "lr_base_samples": 8},
    "adaptive": {"rollout.waves": [4, 8, 16], "rollout.keep_per_group": 4},
}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A run to go on from, and a data file of one's own."""
    folder = tmp_path_factory.mktemp("start")
    api.train(str(recipe(folder, steps=1)), {"run_dir": folder / "run"})
    rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(5) for b in range(5)]
    data = folder / "own.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "run", data


@pytest.mark.parametrize("name", WIDTH)
def test_each_goes_on_from_one_checkpoint(start, tmp_path, name):
    run, data = start
    overrides = {"init.from": str(run), "data.train": str(data), "run_dir": str(tmp_path / name)}
    result = api.train(name, SMALL | WIDTH[name] | overrides | {"grading.check_golds": 0})
    assert result["steps"] == 2
    steps = [row for row in read_metrics(tmp_path / name) if row["step"]]
    widest = max(WIDTH[name].get("rollout.waves", [WIDTH[name].get("rollout.n")]))
    for row in steps:  # as many answers as the recipe's width asks for, whatever was kept
        assert row["samples/generated"] >= 2 * WIDTH[name].get("rollout.n", 4)
        assert max(int(k.split("/")[1]) for k in row if k.startswith("pass@k/")) <= widest


def test_the_learning_rate_is_scaled_in_brorl_alone():
    rates = {
        name: load_recipe(name, {"data.train": "own.jsonl"}).lr_scale for name in WIDTH
    }  # sqrt(128 · 512 / 8192)
    assert rates == {"prorl": 1.0, "brorl": pytest.approx(8**0.5), "adaptive": 1.0}
