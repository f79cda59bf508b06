"""Settings from flat names, sweeps, initial distributions; what is wrong is said in one line."""

import numpy as np
import pytest

from brorl.errors import ConfigError
from brorl.simulator.flat import NAMES, make_settings, sweep_cells
from brorl.simulator.initial import initial_logits
from brorl.simulator.settings import SimulatorSettings
from brorl.simulator.step import TokenSimulator


def test_defaults_are_the_papers():
    """Policy: section 4.1 and figure 3 of arXiv:2510.01180v1, PyTorch's AdamW for the rest."""
    s = make_settings({})
    assert s == SimulatorSettings()
    assert (s.vocab, s.correct, s.steps, s.widths) == (
        128_000,
        10_000,
        1000,
        (4, 8, 16, 512, 51200),
    )
    assert (s.reward_correct, s.reward_wrong, s.baseline, s.counting) == (1, -1, "mean", "draws")
    assert s.loss.kind == "linear"
    assert s.initial.model_dump() == {
        "kind": "seeded", "correct_logit": 3, "anchor_logit": 5, "anchor_correct": True,
    }  # fmt: skip
    assert s.optimizer.model_dump() == {
        "kind": "adamw", "lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "decay": 0.01,
    }  # fmt: skip


def test_start_of_the_papers_figure():
    """Published recomputation: Q = 0.6301 with the anchor correct, 0.6296 with it wrong."""
    for anchor, want in ((True, 0.6301), (False, 0.6296)):
        s = make_settings({"anchor_correct": anchor})
        assert TokenSimulator(s, 4).start.correct_mass == pytest.approx(want, abs=5e-5)


def test_every_flat_name_reaches_its_setting():
    """Identity: a value that differs from the default arrives under the name it belongs to."""
    values = {
        "vocab": 77, "correct": 5, "steps": 3, "seed": 9, "seeds": 2, "reward_correct": 2.5,
        "reward_wrong": -3.5, "baseline": "none", "counting": "set", "epochs": 4,
        "dtype": "float32", "n": (3, 9),
    }  # fmt: skip
    groups = [
        {"init": "seeded", "correct_logit": 1.5, "anchor_logit": 2.5, "anchor_correct": False},
        {"init": "zipf", "zipf_exponent": 1.7, "zipf_order": "ranked"},
        {"init": "file", "init_file": "x.npy", "init_values": "logits"},
        {"optimizer": "adamw", "lr": 0.3, "beta1": 0.5, "beta2": 0.7, "eps": 1e-3, "decay": 0.2},
        {"optimizer": "sgd-normalised", "lr": 0.4},
        {"loss": "ppo", "clip_low": 0.11, "clip_high": 0.22},
    ]
    reached = set()
    for flat in (values, *groups):
        dumped = make_settings(flat).model_dump(mode="json")
        for name, value in flat.items():
            found = dumped
            for key in NAMES[name]:
                found = found[key]
            assert found == (list(value) if name == "n" else value), name
            reached.add(name)
    assert reached == set(NAMES)


@pytest.mark.parametrize(
    ("flat", "message"),
    [
        ({"n": (0, 4)}, r"need every width N >= 1 .*, got 0"),
        ({"n": (4, 10**9)}, r"<= 100,000,000, got 1000000000"),
        ({"n": (4, 4)}, r"need different widths, got \[4, 4\]"),
        ({"n": ("x",)}, r"n: input should be a valid integer.*got 'x'"),
        ({"n": (1,)}, r"need N >= 2 with baseline mean, got 1"),
        ({"correct": 11, "vocab": 10}, r"need correct <= vocab = 10, got 11"),
        ({"correct": 10, "vocab": 10, "anchor_correct": False}, r"need correct < vocab = 10"),
        ({"correct": 0}, r"correct: input should be greater than or equal to 1, got 0"),
        ({"lr": float("nan")}, r"lr: input should be .*, got nan"),
        ({"beta1": 1.0}, r"beta1: input should be less than 1, got 1.0"),
        ({"eps": 1e-40, "dtype": "float32"}, r"need eps >= 1.18e-38 in float32, got 1e-40"),
        ({"optimizer": "sgd"}, r"lr is required with optimizer sgd"),
        ({"optimizer": "sgd", "lr": 1, "eps": 1}, r"eps does not apply to optimizer sgd"),
        ({"clip_low": 0.1}, r"clip_low does not apply to loss linear"),
        ({"zipf_exponent": 2}, r"zipf_exponent does not apply to init seeded"),
        ({"optimizer": "adam"}, r"need optimizer to be one of 'adamw', 'sgd', .*, got 'adam'"),
        ({"width": 3}, r"need one of vocab, .*, got 'width'"),
    ],
)
def test_bad_settings(flat, message):
    with pytest.raises(ConfigError, match=message) as caught:
        make_settings(flat)
    assert "\n" not in str(caught.value)


def test_sweep_is_the_product_in_order():
    cells = sweep_cells({"vocab": 50, "correct": 5}, ["eps=1e-8,1e-20", "decay=0.01,0"])
    assert [tuple(c.axes.values()) for c in cells] == [
        ("1e-8", "0.01"), ("1e-8", "0"), ("1e-20", "0.01"), ("1e-20", "0"),
    ]  # fmt: skip
    assert [(c.settings.optimizer.eps, c.settings.optimizer.decay) for c in cells] == [
        (1e-8, 0.01), (1e-8, 0), (1e-20, 0.01), (1e-20, 0),
    ]  # fmt: skip
    assert {c.settings.vocab for c in cells} == {50}
    assert sweep_cells({}, ["reward-wrong=-1,0"])[1].settings.reward_wrong == 0


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ([], "need at least one sweep axis"),
        (["eps"], "need a sweep axis NAME=VALUE,VALUE such as .*, got 'eps'"),
        (["n=4,8"], "need a sweep axis .*, got 'n=4,8'"),
        (["foo=1"], "need a sweep axis .*, got 'foo=1'"),
        (["eps=1,2", "eps=3"], "every sweep axis once, got eps twice"),
        (["eps=1,1"], "different values on sweep axis eps"),
        (["eps=1,x"], "eps: input should be a valid number.*got 'x'"),
    ],
)
def test_bad_sweeps(axes, message):
    with pytest.raises(ConfigError, match=message):
        sweep_cells({}, axes)


def from_file(path, **flat):
    return make_settings({"vocab": 4, "correct": 1, "init": "file", "init_file": path, **flat})


def test_a_file_of_probabilities_or_logits(tmp_path):
    p = np.array([0.1, 0.2, 0.3, 0.4])
    np.save(tmp_path / "p.npy", p)
    (tmp_path / "p.txt").write_text("0.1 0.2\n0.3 0.4\n")
    np.save(tmp_path / "z.npy", np.log(p) + 7)
    for name, values in (("p.npy", "probs"), ("p.txt", "probs"), ("z.npy", "logits")):
        s = from_file(tmp_path / name, init_values=values)
        np.testing.assert_allclose(TokenSimulator(s, 4).p_L, p, rtol=1e-14)


@pytest.mark.parametrize(
    ("text", "values", "message"),
    [
        ("0.5 0.5", "probs", r"need 4 numbers, one per token .*, got shape \[2\]"),
        ("0.5 0.6 -0.1 0", "probs", r"need probabilities > 0, got -0.1 at token 2"),
        ("0.5 0.5 0.5 0.5", "probs", r"need probabilities that sum to 1, got 2"),
        ("0 nan 0 0", "logits", r"need finite numbers, got nan at token 1"),
        ("0 0 inf 0", "logits", r"need finite numbers, got inf at token 2"),
        ("a b c d", "probs", r"need a \.npy vector or numbers as text"),
    ],
)
def test_bad_files(tmp_path, text, values, message):
    path = tmp_path / "p.txt"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        initial_logits(from_file(path, init_values=values))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["missing.npy", "missing.txt", "text.npy"])
def test_files_that_cannot_be_read(tmp_path, name):
    (tmp_path / "text.npy").write_text("0.5 0.5")
    with pytest.raises(ConfigError, match=name):
        initial_logits(from_file(tmp_path / name))


def test_zipf_is_shuffled_by_the_seed_or_ranked():
    """Identity: the same probabilities in another order, the same order for the same seed."""
    base = {"vocab": 500, "correct": 50, "init": "zipf", "zipf_exponent": 1.2}
    ranked = initial_logits(make_settings({**base, "zipf_order": "ranked"}))
    assert (np.diff(ranked) < 0).all()
    one, again, other = (initial_logits(make_settings({**base, "seed": s})) for s in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    np.testing.assert_array_equal(np.sort(one), np.sort(ranked))
