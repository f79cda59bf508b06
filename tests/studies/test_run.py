"""A whole study of toy runs: interrupted and gone on with, judged, reported from its result alone."""

import copy
import json
import re
import shutil
from pathlib import Path

import pytest
from train.runs import lines
from train.toys import recipe

from brorl.errors import ConfigError, DataError, Interrupted
from brorl.evaluate.results import Evaluation
from brorl.record.metrics import read_metrics
from brorl.report.load import read_counts
from brorl.studies.runner import report
from brorl.studies.runner import run as runner
from brorl.studies.runner.progress import Quiet
from brorl.studies.runner.report import open_differences, tables, write_study_report
from brorl.studies.runner.run import answer, report_study, run_study
from brorl.studies.runner.spec import make_spec

ASKED = ["study.widths=[4,8]", "study.batch=16", "study.prompts=2", "study.samples=40",
         "study.evals=2"]  # fmt: skip
"""Arms n4-p2, n4-p4, n8-p2: each run is a second."""


class Said(Quiet):
    def __init__(self):
        self.notes, self.shares = [], []

    def note(self, text):
        self.notes.append(text)

    def share(self, done, left_s, doing):
        self.shares.append(done)


def spec_of(folder, **more):
    return make_spec("width", [f"study.recipe={folder}/toy.yaml", *ASKED],
                     seeds=2, workers=0, **more)  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(folder, what run_study returned, what it said)."""
    folder = tmp_path_factory.mktemp("study")
    recipe(folder, data={"held_out": 0.4})
    said = Said()
    returned = run_study(spec_of(folder), folder / "out", said)
    return folder, returned, said


def result_of(folder):
    return json.loads((folder / "out" / "result.json").read_text())


def test_runs_are_ordinary_runs_of_the_arms_and_seeds(made):
    folder, returned, _ = made
    out = folder / "out"
    names = {f"{arm}-s{seed}" for arm in ("n4-p2", "n4-p4", "n8-p2") for seed in (0, 1)}
    assert {p.name for p in (out / "runs").iterdir()} == names
    for name in names:
        generated = sum(m.get("samples/generated") or 0 for m in read_metrics(out / "runs" / name))
        last = read_metrics(out / "runs" / name)[-1]["samples/generated"]
        assert generated >= 40 > generated - last
    assert returned == {
        "study": "width",
        "holds": result_of(folder)["holds"],
        "because": result_of(folder)["because"],
        "result": str(out / "result.json"),
        "report": str(out / "report.html"),
    }


def test_the_result_repeats_what_the_runs_recorded(made):
    """Identity: final scores and totals computed again from the runs' own files."""
    folder, _, _ = made
    result = result_of(folder)
    for run in result["runs"]:
        path = folder / "out" / run["path"]
        rows = read_metrics(path)
        counts = read_counts(path, rows[-1]["step"])
        mean = sum(p.c / p.n for p in counts.values()) / len(counts)
        assert run["curve"]["scores"]["pass@1"][-1] == pytest.approx(mean)
        assert run["totals"]["generated"] == sum(m.get("samples/generated") or 0 for m in rows)
        assert run["totals"]["updates"] == rows[-1]["updates"]
        assert run["totals"]["cpu_seconds"] > 0
        updating = sum(m.get("time/update") or 0.0 for m in rows)
        assert run["totals"]["update_seconds"] == pytest.approx(updating, abs=1e-3)
        assert run["ended"] == "max_samples"
        Evaluation.model_validate_json((path / "eval" / "step-000000.json").read_text())
    assert set(result["matched"]["all"]) == {
        "generated", "kept", "tokens", "update_tokens", "updates", "update_seconds", "seconds",
        "cpu_seconds",
    }  # fmt: skip
    assert result["matched"]["all"]["generated"]["amount"] == min(
        run["totals"]["generated"] for run in result["runs"]
    )


def test_progress_goes_from_nothing_to_all_and_names_every_run(made):
    _, _, said = made
    assert said.shares == sorted(said.shares)
    assert said.shares[-1] == 1.0
    finished = [n for n in said.notes if re.match(r" +\d/6 n\d-p\d-s\d .* held-out pass@1 ", n)]
    assert len(finished) == 6
    assert any(n.endswith(" left") for n in finished)


def test_asked_again_it_is_finished_and_nothing_is_run(made, monkeypatch):
    folder, returned, _ = made
    monkeypatch.setattr(runner, "run_jobs", lambda *a, **b: pytest.fail("nothing is to be run"))
    said = Said()
    assert run_study(spec_of(folder), folder / "out", said) == returned
    assert said.notes == [f"{folder / 'out'} is finished"]


def test_another_study_in_its_folder_is_refused(made):
    folder, _, _ = made
    spec = make_spec("width", [f"study.recipe={folder}/toy.yaml", *ASKED, "lr=0.5"],
                     seeds=2, workers=0)  # fmt: skip
    with pytest.raises(ConfigError, match=r"holds a study with overrides=\{\}, asked for .*lr"):
        run_study(spec, folder / "out")
    other = folder / "full"
    other.mkdir()
    (other / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match="holds something that is no study"):
        run_study(spec_of(folder), other)


class StopAfter(Quiet):
    """Stops the study as a signal would, at the end of its second run."""

    def note(self, text):
        if text.lstrip().startswith("2/"):
            raise Interrupted("stopped by SIGINT after step 3")


def test_interrupted_it_goes_on_where_it_was_and_ends_the_same(made, tmp_path):
    """Identity: but for the clock, runs and comparisons at equal samples are the unbroken ones."""
    folder, _, _ = made
    out = tmp_path / "out"
    with pytest.raises(Interrupted, match="the same command goes on"):
        run_study(spec_of(folder), out, StopAfter())
    assert len(list((out / "runs").iterdir())) == 2
    assert not (out / "result.json").exists()
    broken = out / "runs" / "n4-p4-s0"
    (out / "done" / "n4-p4-s0.json").unlink()  # as if it had stopped in the middle of this one
    before = {p: p.stat().st_mtime_ns for p in (out / "runs" / "n4-p2-s0").rglob("*.parquet")}
    run_study(spec_of(folder), out)
    assert before == {p: p.stat().st_mtime_ns for p in before}
    whole, parts = result_of(folder), json.loads((out / "result.json").read_text())
    for budget in ("generated", "updates", "update_tokens"):
        assert parts["matched"]["all"][budget] == whole["matched"]["all"][budget]
    assert lines(broken) == lines(folder / "out" / "runs" / "n4-p4-s0")


def test_out_of_time_it_ends_undecided_with_what_there_is(made, tmp_path):
    folder, _, _ = made
    returned = run_study(spec_of(folder, budget_minutes=1e-4), tmp_path / "out")
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert {run["ended"] for run in result["runs"]} == {"max_seconds"}
    assert result["spec"]["budget_minutes"] == 1e-4
    assert result["matched"]["all"]["generated"]["amount"] == 0.0
    assert returned["holds"] is not True
    told = (tmp_path / "out" / "report.md").read_text()
    assert "ended by the budget: 6 of 6 runs" in told


def test_the_report_needs_the_result_alone(made, tmp_path):
    folder, _, _ = made
    shutil.copy(folder / "out" / "result.json", tmp_path)
    path = report_study(tmp_path)
    assert path == tmp_path / "report.html"
    assert answer(tmp_path) == answer(folder / "out") | {
        "result": str(tmp_path / "result.json"),
        "report": str(path),
    }
    page = path.read_text()
    assert page == (folder / "out" / "report.html").read_text()
    assert (tmp_path / "report.md").read_text() == (folder / "out" / "report.md").read_text()
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)
    assert page.count("data:image/png;base64,") == 4
    with pytest.raises(DataError, match="has no result"):
        write_study_report(tmp_path.parent)
    (tmp_path / "result.json").write_text('{"format": "other", "version": 1}')
    with pytest.raises(DataError, match="not the result of a study"):
        report_study(tmp_path)


def test_it_says_how_many_seeds_an_open_difference_would_take(made, tmp_path):
    """By hand: 2 seeds gave +-0.1 about 0.1, so their standard error is 0.1; that of problems is 0.
    S seeds give t(S - 1) 0.1 sqrt(2 / S): 0.101 at 10 (t(9) = 2.262), 0.0950 at 11 (2.228)."""
    result = result_of(made[0])
    (block,) = result["matched"]
    c = result["matched"][block][result["match"]]["comparisons"][0]
    c |= {"value": 0.1, "low": -0.8, "high": 1.0, "per_seed": [0.0, 0.2]}
    c["standard_error"] = {"seeds": 0.1, "problems": 0.0}
    assert open_differences(result)[c["b"]] == 11
    (table,) = [t for t in tables(result) if "seeds to tell" in t.columns]
    assert [row[-1] for row in table.rows if row[0] == c["b"]] == ["11"]
    alone = copy.deepcopy(result)
    one = alone["matched"][block][result["match"]]["comparisons"][0]
    one["standard_error"]["seeds"] = None  # a single seed: nothing is known, and nothing said
    assert c["b"] not in open_differences(alone)
    (table,) = [t for t in tables(alone) if "seeds to tell" in t.columns]
    assert [row[-1] for row in table.rows if row[0] == c["b"]] == [None]
    c["low"] = 0.05  # told already
    assert c["b"] not in open_differences(result)
    (table,) = [t for t in tables(result) if "seeds to tell" in t.columns]
    assert [row[-1] for row in table.rows if row[0] == c["b"]] == [None]


@pytest.mark.parametrize(
    ("place", "value"),
    [("runs", []), ("problems", 5), ("environment", {"seconds": float("inf"), "cores": 2})],
)
def test_a_result_that_no_study_wrote_is_one_line(made, tmp_path, place, value):
    """Attack: values of other kinds, each of which ended in a traceback."""
    result = result_of(made[0]) | {place: value}
    (tmp_path / "result.json").write_text(json.dumps(result))
    with pytest.raises(DataError, match="not what a study writes"):
        write_study_report(tmp_path)


def test_what_a_user_typed_cannot_become_markup(made, tmp_path, monkeypatch):
    """Attack: an override whose value is HTML."""
    folder, _, _ = made
    monkeypatch.setattr(report, "draw_all", lambda result, folder: [])
    result = result_of(folder)
    result["spec"]["overrides"] = {"wandb": "<script>alert(1)</script>"}
    (tmp_path / "result.json").write_text(json.dumps(result))
    page = report_study(tmp_path).read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_bad_input_that_only_a_run_finds_leaves_no_folder(made, tmp_path):
    folder, _, _ = made
    text = (folder / "toy.yaml").read_text().replace("rows.jsonl", "none.jsonl")
    (tmp_path / "toy.yaml").write_text(text)
    with pytest.raises((ConfigError, DataError), match=r"study width: .*none\.jsonl"):
        run_study(spec_of(tmp_path), tmp_path / "out")
    assert not Path(tmp_path / "out").exists()


@pytest.mark.slow
def test_arms_begin_from_a_run_that_is_made_once_and_cut_by_a_budget_with_the_rest(
    made, tmp_path, monkeypatch
):
    """Study plateau on the toy: two starts for six runs, in the cache; ten seconds for eight runs."""
    folder, _, _ = made
    monkeypatch.setenv("BRORL_CACHE", str(tmp_path / "cache"))
    asked = ["study.narrow=4", "study.wide=8", "study.prompts=2", "study.wide_prompts=1",
             "study.samples=40", "study.start_samples=40", "study.evals=2",
             f"study.recipe={folder}/toy.yaml"]  # fmt: skip
    run_study(make_spec("plateau", asked, seeds=2, workers=0), tmp_path / "out")
    starts = list((tmp_path / "cache" / "starts").iterdir())
    assert len(starts) == 2
    before = {p: p.stat().st_mtime_ns for p in starts[0].rglob("*.parquet")}
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    for run in result["runs"]:
        curve = run["measured"]["start"]
        assert curve[-1][0] >= 40
        environment = json.loads((tmp_path / "out" / run["path"] / "environment.json").read_text())
        assert environment["settings"]["init"]["from"] in map(str, starts)
    asked[4] = "study.samples=30"
    run_study(make_spec("plateau", asked, seeds=2, workers=0), tmp_path / "again")
    assert before == {p: p.stat().st_mtime_ns for p in before}
    asked[5] = "study.start_samples=1000000"
    spec = make_spec("plateau", asked, seeds=2, workers=0, budget_minutes=2 / 60)
    run_study(spec, tmp_path / "cut")
    assert len(list((tmp_path / "cut" / "starts").iterdir())) == 2
    done = json.loads((tmp_path / "cut" / "done" / "start-0-s0.json").read_text())
    assert done["ended"] == "max_seconds"
