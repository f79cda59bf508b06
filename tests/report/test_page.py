"""The page: hostile text stays text, nothing is fetched, and every kind of run has a page."""

import base64
import hashlib
import json
import os
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from brorl.errors import DataError, RunError
from brorl.record.metrics import append_metrics
from brorl.record.rollouts import rollout_path, write_rollouts
from brorl.report.panels import FORMS, all_panels
from brorl.report.run import write_page, write_report

from .recorded import CONFIG, ENVIRONMENT, evaluate, finished_run, group, metrics, new_run

HOSTILE = "</script><img src=x onerror=\"alert('x')\"><script>alert(1)</script><!--]]>&lt;{{7*7}}"


class Page(HTMLParser):
    """Elements with their attributes, and the text inside of script and style elements."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.raw, self.text, self._open = [], {}, [], None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._open = (tag, dict(attrs).get("id"))
            self.raw[self._open] = ""

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._open = None

    def handle_data(self, data):
        if self._open:
            self.raw[self._open] += data
        else:
            self.text.append(data)

    @property
    def data(self):
        return json.loads(self.raw["script", "data"])

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())


def page_of(path):
    return Page(path.read_text(encoding="utf-8"))


def hostile_run(path):
    config = CONFIG | {"name": HOSTILE, "note": HOSTILE}
    run = new_run(path, config, ENVIRONMENT | {"device_name": HOSTILE})
    rows = group(
        f"p {HOSTILE}",
        [HOSTILE, "cba", None, f"{HOSTILE}2"],
        gold=HOSTILE,
        prompt=HOSTILE,
        reason=HOSTILE,
    )
    write_rollouts(run, 1, rows)
    append_metrics(run, metrics(1))
    return run


def test_hostile_text_stays_text(tmp_path):
    """Attack: a model, a data set or a config that writes markup. No element of theirs exists,
    their words are on the page, and the numbers can still be read."""
    page = page_of(write_report(hostile_run(tmp_path / "run")))
    tags = [tag for tag, _ in page.elements]
    assert "img" not in tags
    assert tags.count("script") == 2
    assert all(not name.startswith("on") for _, attrs in page.elements for name in attrs)
    assert HOSTILE in page.words
    assert page.data["runs"][0]["groups"][0]["prompt"] == HOSTILE
    assert HOSTILE in [a["answer"] for a in page.data["runs"][0]["groups"][0]["answers"]]
    assert not set("<>&") & set(page.raw["script", "data"])


def test_only_our_own_script_and_style_may_run(tmp_path):
    """Policy: the hashes in the content security policy are those of what is on the page, and
    nothing else is allowed, no request of any kind."""
    page = page_of(write_report(finished_run(tmp_path / "run")))
    (policy,) = (
        a["content"]
        for t, a in page.elements
        if t == "meta" and "Security" in a.get("http-equiv", "")
    )

    def hashed(text):
        return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    assert dict(part.strip().split(" ", 1) for part in policy.split(";")) == {
        "default-src": "'none'",
        "style-src": f"'{hashed(page.raw['style', None])}'",
        "script-src": f"'{hashed(page.raw['script', None])}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_the_page_refers_to_nothing_outside(tmp_path):
    """Policy: no src, no link but to its own parts, no url() or import in the style, and the script
    has no way to ask for anything or to make markup of text."""
    page = page_of(write_report(finished_run(tmp_path / "run")))
    for _, attrs in page.elements:
        assert "src" not in attrs
        assert attrs.get("href", "#").startswith("#")
    assert not [w for w in ("url(", "@import") if w in page.raw["style", None]]
    script = page.raw["script", None].replace("http://www.w3.org/2000/svg", "")
    banned = (
        "http",
        "fetch(",
        "XMLHttp",
        "WebSocket",
        "import(",
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "eval(",
        "document.write",
    )
    assert not [word for word in banned if word in script]


def test_two_writings_are_the_same_bytes(tmp_path):
    run = finished_run(tmp_path / "run")
    first = write_report(run).read_bytes()
    assert write_report(run).read_bytes() == first


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    """Attack: a full disk in the middle of writing."""
    run = finished_run(tmp_path / "run")
    old = write_report(run).read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        RunError, match=r"report\.html: the report cannot be written: No space left"
    ):
        write_report(run)
    assert (run / "report.html").read_bytes() == old
    assert sorted(p.name for p in run.iterdir() if "report" in p.name) == ["report.html"]


def test_what_a_whole_run_shows(tmp_path):
    """By hand: pass@1 0.1875 before and 0.625 after; what was recorded is drawn, nothing else."""
    page = page_of(write_report(finished_run(tmp_path / "run")))
    run = page.data["runs"][0]
    assert "3 of 3 steps, 24 rollouts, 6 s without evaluation." in page.words
    assert "Held-out pass@1 0.188 → 0.625" in page.words
    assert run["y"]["reward/mean"] == [0.1, 0.2, 0.3]
    assert run["evals"]["y"]["eval/pass@1"] == [0.1875, 0.625]
    assert run["spent"]["generated"] == [[4, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0]] * 3
    assert list(page.data["budgets"]) == [
        "step",
        "generated",
        "kept",
        "tokens",
        "update_tokens",
        "updates",
        "seconds",
    ]
    titles = {p["title"]: p for p in page.data["panels"]}
    assert "KL to the reference policy" not in titles
    assert "groups that grew" not in titles
    assert [m["name"] for m in titles["verdicts"]["metrics"]] == [
        "verdict/correct",
        "verdict/wrong",
    ]
    assert [m["label"] for m in titles["pass@k on held-out problems"]["metrics"]] == [
        "pass@1",
        "pass@2",
        "pass@4",
    ]


def test_a_right_answer_is_shown_however_rare(tmp_path):
    """40 distinct answers, the right one last and once; 12 are shown and 28 counted."""
    run = new_run(tmp_path / "run")
    write_rollouts(run, 1, group("p", [f"w{i // 2}" for i in range(78)] + ["cba"]))
    append_metrics(run, metrics(1))
    (shown,) = page_of(write_report(run)).data["runs"][0]["groups"]
    assert shown["kind"] == "rare success"
    assert len(shown["answers"]) == 12
    assert shown["more"] == 28
    assert [a["answer"] for a in shown["answers"] if a["right"]] == ["cba"]


def test_adaptive_waves_are_shown_where_the_run_has_them(tmp_path):
    run = new_run(tmp_path / "run", CONFIG | {"rollout": {"n": None, "waves": [4, 8, 16]}})
    more = {
        "groups/sampled": 9,
        "groups/escalated_8": 4,
        "groups/escalated_16": 2,
        "groups/unsolved_at_max": 1,
    }
    append_metrics(run, metrics(1, **more))
    page = page_of(write_report(run))
    assert "4 → 8 → 16" in page.words
    (panel,) = (p for p in page.data["panels"] if p["title"] == "groups that grew")
    assert [m["label"] for m in panel["metrics"]] == [
        "all groups",
        "grew to 8",
        "grew to 16",
        "unsolved at the widest",
    ]


def test_a_run_killed_after_its_first_step(tmp_path):
    """The evaluation before training is there, none after it; the first step is a curve of one."""
    run = new_run(tmp_path / "run")
    append_metrics(run, {"step": 0, "updates": 0} | evaluate(run, 0, [1, 2]))
    write_rollouts(run, 1, group("p", ["cba", "abc"]))
    append_metrics(run, metrics(1))
    page = page_of(write_report(run))
    assert "1 of 3 steps" in page.words
    assert "there is no later evaluation to compare it with" in page.words
    assert page.data["runs"][0]["y"]["policy/entropy"] == [0.5]
    assert len(page.data["runs"][0]["groups"]) == 1


def test_a_run_killed_before_the_line_of_its_step(tmp_path):
    """Rollouts are written before the metrics: a step with the first and not the second is left
    out of the curves, and its groups can be looked at."""
    run = finished_run(tmp_path / "run", steps=2)
    write_rollouts(run, 3, group("late", ["cba", "abc"], step=3))
    page = page_of(write_report(run))
    assert page.data["runs"][0]["spent"]["steps"] == [1, 2]
    assert page.data["runs"][0]["groups"][0]["problem"] == "late"


def test_a_run_with_nothing_recorded(tmp_path):
    page = page_of(write_report(new_run(tmp_path / "run")))
    assert "Nothing is recorded yet." in page.words
    assert page.data["panels"] == []


def test_a_run_without_held_out_problems(tmp_path):
    run = new_run(tmp_path / "run")
    append_metrics(run, {"step": 0, "updates": 0, "time/eval": 0.0})
    append_metrics(run, metrics(1))
    page = page_of(write_report(run))
    assert "No held-out evaluation is recorded." in page.words
    assert "Held-out problems" not in {p["section"] for p in page.data["panels"]}


def test_a_run_without_kept_groups(tmp_path):
    """No update, so its numbers are absent; nulls are gaps and no zero is made up."""
    run = new_run(tmp_path / "run")
    nothing = {
        "policy/entropy": None,
        "policy/lr": None,
        "samples/kept": 0,
        "group/distinct_answers": None,
    }
    for step in (1, 2):
        append_metrics(run, metrics(step, **nothing))
        write_rollouts(
            run,
            step,
            group(
                "p",
                ["abc", "abc"],
                step=step,
                kept=False,
                advantage=None,
                fate="group_without_spread",
            ),
        )
    page = page_of(write_report(run))
    shown = page.data["runs"][0]
    assert not {"policy/entropy", "policy/lr", "group/distinct_answers"} & shown["y"].keys()
    assert "policy/entropy" not in {m["name"] for p in page.data["panels"] for m in p["metrics"]}
    assert shown["groups"][0]["why"] == "group without spread"
    assert shown["groups"][0]["answers"][0]["advantage"] is None
    assert [sum(row) for row in shown["spent"]["kept"]] == [0, 0]


def test_rollout_files_that_are_gone_leave_the_rest(tmp_path):
    """A user may delete old rollouts to make room: update tokens are not known then."""
    run = finished_run(tmp_path / "run")
    rollout_path(run, 1).unlink()
    page = page_of(write_report(run))
    assert "update_tokens" not in page.data["budgets"]
    assert page.data["runs"][0]["spent"]["steps"] == [2, 3]


def test_a_run_of_a_hundred_steps_stays_small(tmp_path):
    """100 steps of 64 groups with long prompts, long and different answers: under 1.5 MB, and the
    browser keeps to its own share of it."""
    run = new_run(tmp_path / "run", CONFIG | {"steps": 100})
    names = {f"policy/thing_{i}": 0.123456789012 * i for i in range(40)}
    for step in range(1, 101):
        append_metrics(run, metrics(step, **names))
    for step in (98, 99, 100):
        rows = []
        for i in range(64):
            texts = [f"<{i}.{j}>" * 2000 for j in range(16)]
            rows += group(f"p{i}", texts, step=step, prompt="<p>" * 5000, reason="r" * 5000)
        write_rollouts(run, step, rows)
    path = write_report(run)
    assert path.stat().st_size < 1_500_000
    groups = page_of(path).data["runs"][0]["groups"]
    assert len(groups) >= 5
    assert "characters left out" in groups[0]["prompt"]
    assert "characters left out" in groups[0]["answers"][0]["text"]


def test_runs_side_by_side(tmp_path):
    """Names, colours and settings stay with their run, in the order given."""
    a = finished_run(tmp_path / "narrow")
    b = finished_run(tmp_path / "wide", rollout={"n": 8, "waves": None}, prompts_per_step=1)
    out = tmp_path / "both.html"
    write_page([b, a], out, refresh_s=None)
    page = page_of(out)
    assert [r["name"] for r in page.data["runs"]] == ["wide", "narrow"]
    cells = [attrs.get("class") for tag, attrs in page.elements if tag == "td"]
    assert [c for c in cells if c and c.startswith("run")][:2] == ["run0", "run1"]
    assert (cells.count("run0"), cells.count("run1")) == (4, 3)  # the start is shared
    assert "prompts_per_step 1 2" in page.words
    assert "rollout.n 8 4" in page.words


def test_runs_of_one_name_are_told_apart(tmp_path):
    runs = [finished_run(tmp_path / name / "run") for name in ("a", "b")]
    write_page(runs, tmp_path / "x.html", refresh_s=None)
    assert [r["name"] for r in page_of(tmp_path / "x.html").data["runs"]] == [str(r) for r in runs]


def test_runs_of_different_tasks_are_refused(tmp_path):
    a = finished_run(tmp_path / "a")
    b = new_run(tmp_path / "b", environment=ENVIRONMENT | {"data": {"task": "chain_sum"}})
    with pytest.raises(DataError, match=r"need one task, got .*a: spell_backward, .*b: chain_sum"):
        write_page([a, b], tmp_path / "x.html", refresh_s=None)
    assert not (tmp_path / "x.html").exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config.yaml", "a: [", r"config\.yaml: not YAML"),
        ("config.yaml", "just text", r"config\.yaml: needs a mapping"),
        ("environment.json", "{", r"environment\.json: not JSON"),
        ("environment.json", '{"data": 3}', r"environment\.json: needs an object under data"),
        ("metrics.jsonl", "{}\n", r"metrics\.jsonl:1: not a line of metrics"),
        ("best.json", "[]", r"best\.json: needs a JSON object"),
    ],
)
def test_names_the_file_that_cannot_be_read(tmp_path, name, text, message):
    run = finished_run(tmp_path / "run")
    (run / name).write_text(text)
    with pytest.raises(DataError, match=message):
        write_report(run)


def test_panels_are_drawable_and_told_apart():
    """Policy: a form that page.js knows, colours that page.css has, one title each."""
    panels = all_panels()
    style = (files("brorl.report") / "assets" / "page.css").read_text()
    assert len({p.title for p in panels}) == len(panels)
    assert {p.form for p in panels} <= set(FORMS)
    assert all(f"--{m.color}:" in style for p in panels for m in p.metrics if m.color)


def test_what_changed_a_run_on_its_way_is_told_and_marked(tmp_path):
    """A reset at step 1 and a wave added at step 2, after 8 and 16 samples."""
    waves = {"n": None, "waves": "auto", "auto": {"ladder": [4, 8]}}
    run = new_run(tmp_path / "run", CONFIG | {"rollout": waves})
    append_metrics(run, metrics(1, **{"ref/reset": 1, "ref/reset_reason": "stall"}))
    append_metrics(
        run, metrics(2, **{"ref/reset": 0, "width/switch_widest": 8, "width/switch_cause": "stall"})
    )
    page = page_of(write_report(run))
    events = page.data["runs"][0]["events"]
    assert [(e["x"]["step"], e["x"]["generated"]) for e in events] == [(1, 8), (2, 16)]
    assert "step 1: reference policy reset (stall)" in page.words
    assert "step 2: a wave added, groups may grow to 8 (stall)" in page.words
    assert "auto: 4 → 8" in page.words


def test_says_that_progress_has_stopped_and_what_comes_next(tmp_path):
    """Ten equal evaluations, half of groups all wrong, and a doubling that still found some."""
    run = new_run(tmp_path / "run")
    for step in range(10):
        more = {"eval/pass@1": 0.5, "eval/sampling_error": 1e-4, "eval/scheduled": 1}
        more |= {f"eval/pass@1_{end}": 0.5 for end in ("low", "high")} | {"eval/problems": 4}
        append_metrics(run, metrics(step, **more, **{"groups/sampled": 8, "prompts/seen": 8}))
    words = page_of(write_report(run)).words
    assert "Held-out progress has stopped: +0.0000" in words
    assert "the records suggest more width (50.0% of groups all wrong" in words
