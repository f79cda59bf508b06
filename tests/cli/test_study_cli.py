"""`brorl study`: what it prints, and its one-line refusals."""

import json
import sys

import pytest

from brorl.cli import main as cli
from brorl.studies.runner.text import study_names


def call(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["brorl", "study", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_list_names_every_study_as_the_contract_says(monkeypatch, capsys):
    assert call(monkeypatch, "list", "--json") == 0
    studies = json.loads(capsys.readouterr().out)["studies"]
    assert [s["name"] for s in studies] == study_names()
    assert all(set(s) == {"name", "question", "prediction"} for s in studies)
    assert call(monkeypatch, "list") == 0
    assert "Predicted: The pass rate of dynamic sampling rises" in capsys.readouterr().out


def test_show_prints_the_docstring_and_the_knobs(monkeypatch, capsys):
    assert call(monkeypatch, "show", "width") == 0
    out = capsys.readouterr().out
    for words in ("Question ", "Decided by  Holds where", "minutes on two cores",
                  "study.widths=[16, 64, 256, 1024]"):  # fmt: skip
        assert words in out
    assert call(monkeypatch, "show", "width", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["knobs"]["widths"] == [16, 64, 256, 1024]
    assert shown["seeds"] == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "wdith"), "brorl: unknown study 'wdith'; nearest: width"),
        (("show", "zzz"), "brorl: unknown study 'zzz'; known: "),
        (("run", "width", "--seeds", "1"), "--seeds needs at least 2, got 1"),
        (("run", "width", "rollout.n=3"), "rollout.n is what study width sets in its arms"),
        (("run", "width", "lr"), "an override reads key.sub=value, got 'lr'"),
        (("report", "/nowhere"), "has no result.json: it is no finished study"),
    ],
)
def test_bad_input_is_one_line_and_status_2(monkeypatch, capsys, tmp_path, words, said):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, *words) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("holds", "status"), [(True, 0), (None, 0), (False, 1)])
def test_a_refuted_study_is_status_1_and_says_so(monkeypatch, capsys, holds, status):
    """Policy: the work ran and the answer is no."""
    result = {"study": "width", "holds": holds, "because": "It is so.", "result": "r.json",
              "report": "r.html"}  # fmt: skip
    asked = []

    def made(spec, out, voice):
        asked.append((spec, out))
        return result

    monkeypatch.setattr("brorl.studies.runner.run.run_study", made)
    words = ("run", "width", "--seeds", "4", "--budget", "50", "study.evals=7", "lr=0.01")
    assert call(monkeypatch, *words, "--json", "--out", "x") == status
    assert json.loads(capsys.readouterr().out) == result
    spec, out = asked[0]
    assert (spec.seeds, spec.budget_minutes, spec.knobs.evals, str(out)) == (4, 50.0, 7, "x")
    assert dict(spec.overrides) == {"lr": 0.01}
    assert call(monkeypatch, *words) == status
    said = capsys.readouterr().out
    told = {True: "holds", False: "is refuted", None: "is not decided"}[holds]
    assert said == f"The prediction {told}. It is so.\nr.html\n"
