"""`brorl theory` through its command: numbers by hand, figures, one line for a mistake."""

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from brorl.cli.theory import app
from brorl.errors import BrorlError

BY_HAND = ["mass", "--probs", "0.5,0.3,0.2", "--correct", "0", "--sampled", "0,1"]


def invoke(*args):
    return CliRunner().invoke(app, list(args), catch_exceptions=False)


def test_mass_by_hand():
    """tests/theory/test_correct_mass.py's numbers, .1 .054 .004, times eta / N = 1 / 2."""
    out = json.loads(invoke(*BY_HAND, "--json").stdout)
    assert out["q_pos"] == 0.5
    assert out["s_r"] == pytest.approx(0.2)
    assert (out["n"], out["eta"]) == (2, 1)
    terms = [out[k] for k in ("sampled_correct", "sampled_wrong", "unsampled", "first_order")]
    assert terms == pytest.approx([0.05, 0.027, 0.002, 0.079])
    # The step by hand: dz = p (R - S) / 2 = (.2, -.18, -.02); Q' = .5 e^.2 / sum.
    moved = np.array([0.5, 0.3, 0.2]) * np.exp([0.2, -0.18, -0.02])
    assert out["exact"] == pytest.approx(moved[0] / moved.sum() - 0.5)


def test_mass_in_words_says_the_same():
    lines = invoke(*BY_HAND).stdout.splitlines()
    assert lines[0].startswith("N = 2, eta = 1:")
    found = {line.rsplit(None, 1)[0].strip(): float(line.rsplit(None, 1)[1]) for line in lines[1:]}
    assert found["sampled correct"] == pytest.approx(0.05)
    assert found["sum of the three"] == pytest.approx(0.079)
    assert found["exact, by softmax"] == pytest.approx(0.0775925184)


def test_repeated_draws_count_in_n_only():
    out = json.loads(invoke(*BY_HAND[:-1], "0,1,0-1", "--json").stdout)
    assert out["n"] == 4
    assert out["first_order"] == pytest.approx(0.158 / 4)


def test_drawing_depends_on_the_seed_alone():
    args = ["mass", "--zipf", "50,1", "--correct", "0-9", "--n", "5", "--json"]
    one, again, other = (invoke(*args, "--seed", seed).stdout for seed in "112")
    assert one == again != other
    assert invoke(*args).stdout == invoke(*args, "--seed", "0").stdout


def test_width_by_hand():
    """Ten equal tokens: E[U2(N)] = .1 * .9**N; halves, tenths, hundredths at 7, 22, 44."""
    out = json.loads(
        invoke("width", "--zipf", "10,0", "--correct", "0,1,7", "--n", "0,3", "--json").stdout
    )
    assert out["widths"] == {"50": 7, "90": 22, "99": 44}
    assert [row["n"] for row in out["rows"]] == [0, 3]
    assert out["rows"][1]["total"] == pytest.approx(0.1 * 0.9**3)
    assert out["rows"][1]["left"] == pytest.approx(0.9**3)
    assert out["rows"][1]["correct"] == pytest.approx(0.03 * 0.9**3)
    assert out["rows"][1]["wrong"] == pytest.approx(0.07 * 0.9**3)


def test_width_in_words(tmp_path):
    np.save(tmp_path / "p.npy", np.full(10, 0.1))
    text = invoke("width", "--probs", str(tmp_path / "p.npy"), "--gone", "50,99.9").stdout
    assert "50 % is gone from N = 7" in text
    assert "99.9 % is gone from N = 66" in text  # ln 1000 / -ln .9 = 65.56
    assert text.splitlines()[1].split() == ["0", "0.1", "100.00%"]
    assert text.splitlines()[-3].split()[0] == "256"  # powers of 4 until the last width is passed


@pytest.mark.parametrize(
    "args", [BY_HAND, ["width", "--zipf", "100,1", "--correct", "3-9"], ["width", "--zipf", "9,0"]]
)
def test_plot_draws_something(args, tmp_path):
    path = tmp_path / "deep" / "figure.png"
    invoke(*args, "--plot", str(path))
    with Image.open(path) as image:
        assert len(image.convert("L").getcolors(1 << 24)) > 20


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["mass", "--correct", "0", "--n", "3"], "need one of --probs and --zipf, got none"),
        (["width", "--probs", "1", "--zipf", "3,1"], "need one of --probs and --zipf, got both"),
        (["width", "--probs", "0.5,0.6"], "sum to 1, got a sum of 1.1"),
        (["width", "--probs", "1.5,-0.5"], "probabilities >= 0, got -0.5 at token 1"),
        (["width", "--probs", "nan,1"], "without NaN, got NaN at token 0"),
        (["width", "--probs", "no/such/file"], "no/such/file: need a .npy vector or numbers"),
        (["width", "--zipf", "10"], "need --zipf V,EXPONENT such as 1000,1.1, got '10'"),
        (["width", "--zipf", "0,1"], "at least 1 token, got 0"),
        (["width", "--zipf", "10,inf"], "finite Zipf exponent, got inf"),
        (["width", "--zipf", "1000000000,1"], "at most 100,000,000 tokens"),
        (["width", "--zipf", "9,1", "--n", "4,-1"], "need --n as whole numbers >= 0"),
        (["width", "--zipf", "9,1", "--n", "9" * 5000], "need --n as whole numbers >= 0"),
        (["width", "--zipf", "9,1", "--gone", "100"], "need --gone above 0 and below 100 %"),
        (["width", "--zipf", "9,1", "--gone", "x"], "need --gone as percentages"),
        (
            ["width", "--zipf", "9,1", "--correct", "9"],
            "need --correct in 0 ... 8, rising, got '9'",
        ),
        (["width", "--zipf", "9,1", "--correct", "5-3"], "need --correct in 0 ... 8, rising"),
        (["width", "--zipf", "9,1", "--correct", "a"], "need --correct as numbers and ranges"),
        (["width", "--zipf", "9,1", "--plot", "x.foo"], "cannot write a figure to x.foo"),
        ([*BY_HAND, "--n", "3"], "need one of --sampled and --n, got both"),
        (BY_HAND[:-2], "need one of --sampled and --n, got none"),
        ([*BY_HAND, "--seed", "3"], "--seed is for the draws of --n"),
        ([*BY_HAND[:-2], "--n", "0"], "need --n in 1 ... 10**18, got 0"),
        ([*BY_HAND, "--eta", "nan"], "need finite --reward-correct, --reward-wrong and --eta"),
    ],
)
def test_mistakes_are_one_line(args, message):
    with pytest.raises(BrorlError) as caught:
        invoke(*args)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("verb", ["mass", "width"])
def test_help_has_an_example_that_runs(verb):
    """Policy: the example of the help text is executed."""
    text = " ".join(invoke(verb, "--help").stdout.split())
    example = text.split("Example: brorl theory ")[1].split()
    assert invoke(*example).exit_code == 0


def test_no_torch_for_help():
    """Policy: neither the verbs nor what they import at import time needs torch."""
    code = (
        "import sys, brorl.cli.theory, brorl.cli.simulate, brorl.cli.theory_plot, "
        "brorl.simulator.output, brorl.simulator.figure; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
