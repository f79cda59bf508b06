"""A run of the trainer itself: the names that panels ask for are names that training records."""

import pytest

from brorl.record.metrics import read_metrics
from brorl.report.panels import all_panels
from brorl.train.api import train

from .chromium import BINARY, Chromium
from .test_page import page_of

pytestmark = pytest.mark.slow

ELSEWHERE = {
    "policy/clipped_frac_c": "clip_ratio_c",
    "policy/kl_ref": "kl_coef",
    "mismatch/masked_frac": "tis.type icepop or seq-mask-tis",
    "groups/escalated_*": "rollout.waves",
    "groups/widest": "rollout.waves",
    "groups/unsolved_at_max": "rollout.waves",
    "memory/device_peak": "CUDA",
    "samples/kept_share": "derived by the report",
    "plateau/gain": "a full window of evaluations",
}
"""Names that a plain run on the CPU does not record, and what does."""

SMALL = ["warmstart=null", "steps=2", "eval_every=1", "eval.samples=2", "eval.problems=8"]
SMALL += ["rollout.n=8", "prompts_per_step=2", "dynamic_sampling.enable=false", "threads=1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "real"
    train("quickstart", [*SMALL, f"run_dir={path}"])
    return path


def test_panels_ask_for_names_that_training_records(run):
    """Policy: a panel with a misspelt or renamed metric would silently never be drawn."""
    recorded = {name for row in read_metrics(run) for name in row}
    wanted = {m.name for p in all_panels() for m in p.metrics}
    missing = {
        w
        for w in wanted
        if not any(
            n.startswith(w.removesuffix("*")) if w.endswith("*") else n == w for n in recorded
        )
    }
    assert missing == ELSEWHERE.keys()


def test_training_leaves_a_page(run):
    page = page_of(run / "report.html")
    assert "2 of 2 steps, 32 rollouts" in page.words
    assert len(page.data["runs"][0]["evals"]["y"]["eval/pass@1"]) == 3


@pytest.mark.skipif(BINARY is None, reason="needs chromium (Debian: apt-get install chromium)")
def test_the_page_of_a_real_run_has_no_error(run, tmp_path):
    with Chromium(tmp_path / "profile") as chromium:
        chromium.open(run / "report.html")
        chosen = len(page_of(run / "report.html").data["panels"])
        assert chromium.ask("document.querySelectorAll('.panel').length") == chosen + 1
        assert chromium.ask("document.body.innerHTML.includes('NaN')") is False
        assert chromium.complaints == []
