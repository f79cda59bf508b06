"""Where a start lies: one folder for equal content, another for any other content."""

import pytest

from brorl.studies.runner.spec import make_spec, plan_runs
from brorl.studies.runner.starts import start_folder


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("BRORL_CACHE", str(tmp_path))
    return tmp_path


def folders(*overrides, **more):
    plans = plan_runs(make_spec("plateau", overrides, seeds=2, **more))
    return {plan.name: start_folder(plan) for plan in plans}


def test_arms_of_a_seed_share_it_and_seeds_do_not(cache):
    found = folders()
    assert len(set(found.values())) == 2
    assert found["narrow-s0"] == found["wide-s0"] != found["narrow-s1"]
    assert found["narrow-s0"].parent == cache / "starts"
    assert start_folder(plan_runs(make_spec("width", seeds=2))[0]) is None


def test_under_a_budget_a_study_keeps_them_to_itself(tmp_path):
    plan = plan_runs(make_spec("plateau", seeds=2))[0]
    own = start_folder(plan, tmp_path / "study")
    assert own.parent == tmp_path / "study"
    assert own.name == start_folder(plan).name


@pytest.mark.parametrize("override", ["study.samples=1000", "study.wide=256", "keep_checkpoints=2"])
def test_what_its_weights_do_not_depend_on_is_no_content(override):
    assert folders(override) == folders()


@pytest.mark.parametrize(
    "override",
    ["study.start_samples=1000", "study.narrow=32", "lr=0.001", "rollout.temperature=0.9",
     "threads=3"],
)  # fmt: skip
def test_what_they_depend_on_is(override):
    assert not set(folders(override).values()) & set(folders().values())


def test_the_contents_of_files_count_not_their_names_alone(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "a", "answer": "b"}\n')
    asked = ("task=null", "warmstart=null", f"data.train={rows}")
    one = folders(*asked)
    assert folders(*asked) == one
    rows.write_text('{"prompt": "a", "answer": "c"}\n')
    assert not set(folders(*asked).values()) & set(one.values())
