"""Study `mismatch`: its rule on made-up cells, one claim broken at a time."""

import copy

import pytest

from brorl.studies import mismatch
from brorl.studies.runner.spec import make_spec, plan_runs, settings_of

from .toys import toy_results, toy_run

KNOBS = {"widths": (4, 16), "prompts": (1, 2), "lengths": (2, 8)}


def cell(engine, n, prompts, length, k3, sd):
    return {"engine": engine, "n": n, "prompts": prompts, "length": length, "k3": k3, "kl": k3,
            "ratio_mean": 1.0, "ratio_max": 1.1, "ess": 0.99, "tokens": 10, "sequence_sd": sd,
            "sequence_max": sd, "tokens_alone": 1.0, "bits_alone": 0.5, "score_bits_alone": 1.0,
            "score_difference_alone": 0.0}  # fmt: skip


def made():
    """What one run measures where all of the prediction is so."""
    where = [(4, 1, 2), (16, 1, 2), (4, 2, 2), (4, 1, 8)]
    cells = [cell("float32", *w, 1e-13, 1e-6) for w in where]
    cells += [cell("bfloat16", *w, 1e-5, 0.01 * w[2]) for w in where]
    cosines = {"exact": 1.0, "none": 0.999, "tis": 1.0, "icepop": 0.999, "seq-mask-tis": 0.7}
    gradient = {name: {"norm": 1.0, "cosine_exact": c, "cosine_none": c, "left_out": 0.0}
                for name, c in cosines.items()}  # fmt: skip
    return {"cells": cells, "gradient": gradient, "vllm": False}


def judged(per_seed):
    runs = [toy_run(arm, seed, [0.4, 0.4], measured=per_seed[seed])
            for seed in (0, 1) for arm in ("warm-start", "trained")]  # fmt: skip
    return mismatch.judge(toy_results("mismatch", runs, **KNOBS))


def test_all_seen_holds():
    found = judged([made(), made()])
    assert found.holds is True
    assert found.figures["trained"]["not_seen"] == []


def breaks():
    def floor(m):
        m["cells"][3]["k3"] = 1e-8

    def company(m):
        m["cells"][0]["tokens_alone"] = 0.75

    def ratio(m):
        m["cells"][6]["k3"] = 5e-12

    def width(m):
        m["cells"][5]["k3"] = 2e-5

    def length(m):
        m["cells"][7]["sequence_sd"] = 0.02

    def direction(m):
        m["gradient"]["icepop"]["cosine_exact"] = 0.98

    def masked(m):
        m["gradient"]["seq-mask-tis"]["cosine_exact"] = 0.995

    return [floor, company, ratio, width, length, direction, masked]


@pytest.mark.parametrize("spoil", breaks(), ids=lambda f: f.__name__)
def test_one_claim_that_fails_in_every_seed_refutes_and_in_one_leaves_it_open(spoil):
    bad = copy.deepcopy(made())
    spoil(bad)
    assert judged([bad, copy.deepcopy(bad)]).holds is False
    assert judged([bad, made()]).holds is None


def test_axes_must_grow():
    with pytest.raises(ValueError, match="widths must grow"):
        mismatch.MismatchKnobs(widths=(16, 4))


def test_each_axis_is_grown_alone():
    knobs = mismatch.MismatchKnobs(**KNOBS)
    assert list(mismatch._crossed(knobs, "float32")) == [
        (4, 1, 2),
        (16, 1, 2),
        (4, 2, 2),
        (4, 1, 8),
    ]
    assert list(mismatch._crossed(knobs, "vllm")) == [(4, 1, 2), (16, 1, 2)]


def test_vllm_takes_its_tiny_policy():
    """Policy: on a CPU vLLM 0.32 takes heads 32 wide and more; narrower ones end the study."""
    plan = plan_runs(make_spec("mismatch"))[0]
    shape = settings_of(plan).model.shape
    assert shape.hidden // shape.heads in {32, 64, 96, 128}
