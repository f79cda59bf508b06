"""`brorl simulate` through its command: the JSON contract, files, sweeps, mistakes."""

import json

import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from brorl.cli.simulate import simulate
from brorl.errors import BrorlError
from brorl.simulator.curves import simulate as run
from brorl.simulator.flat import NAMES, make_settings

SMALL = ["--vocab", "300", "--correct", "30", "--steps", "25", "--n", "4,16"]
FLAT = {"vocab": 300, "correct": 30, "steps": 25, "n": (4, 16)}

app = typer.Typer(add_completion=False)
app.command()(simulate)


def invoke(*args):
    return CliRunner().invoke(app, list(args), catch_exceptions=False)


def test_json_is_the_contract():
    """Identity: the rows are those of the curves, for the settings that the object names."""
    out = json.loads(invoke(*SMALL, "--seeds", "2", "--seed", "7", "--json").stdout)
    assert set(out) == {"rows", "settings", "seconds"}
    curves = run([make_settings({**FLAT, "seeds": 2, "seed": 7})], workers=1, on_steps=id)[0]
    assert [row["n"] for row in out["rows"]] == [4, 16]
    for row in out["rows"]:
        mine = [c for c in curves if c.n == row["n"]]
        for key in ("correct_mass_start", "correct_mass", "improved_share", "worst_change"):
            assert key in row
        ends = [c.column("correct_mass")[-1] for c in mine]
        assert [s["correct_mass"] for s in row["per_seed"]] == ends
        assert row["correct_mass"] == pytest.approx(sum(ends) / 2)
        assert row["worst_change"] == min(c.column("worst_change").min() for c in mine)
    assert out["settings"]["widths"] == [4, 16]
    assert out["settings"]["seed"] == 7


def test_one_seed_has_no_per_seed():
    assert "per_seed" not in json.loads(invoke(*SMALL, "--json").stdout)["rows"][0]


def test_table_shows_the_rows():
    args = [*SMALL, "--workers", "1"]
    rows = json.loads(invoke(*args, "--json").stdout)["rows"]
    lines = invoke(*args).stdout.splitlines()
    assert len(lines) == 4
    for line, row in zip(lines[1:], rows, strict=False):
        cells = line.split()
        assert cells[0] == str(row["n"])
        assert float(cells[2]) == pytest.approx(row["correct_mass"], abs=5e-5)
        assert float(cells[3].rstrip("%")) == pytest.approx(100 * row["improved_share"], abs=0.05)


def test_out_writes_the_three_files(tmp_path):
    out = tmp_path / "a" / "b"
    printed = json.loads(invoke(*SMALL, "--out", str(out), "--json").stdout)
    assert json.loads((out / "result.json").read_text()) == printed
    assert pq.read_table(out / "curves.parquet").num_rows == 2 * 26
    assert (out / "figure.png").stat().st_size > 10_000


def test_sweep_in_the_order_it_is_typed(tmp_path):
    args = [*SMALL, "--seeds", "2", "--sweep", "eps=1e-8,1e-20", "decay=0.01,0"]
    out = json.loads(invoke(*args, "--out", str(tmp_path), "--json").stdout)
    assert [(r["cell"]["eps"], r["cell"]["decay"], r["n"]) for r in out["rows"]] == [
        (eps, decay, n) for eps in ("1e-8", "1e-20") for decay in ("0.01", "0") for n in (4, 16)
    ]
    assert [row["n"] for row in out["effects"]["rows"]] == [4, 16]
    assert (tmp_path / "figure.png").exists()
    text = invoke(*args).stdout
    assert "eps=1e-20 decay=0" in text
    assert "interaction" in text


def test_every_setting_has_an_option():
    """Policy: a setting that is added is offered; an option is never without its setting."""
    options = {p.name for p in typer.main.get_command(app).params}
    assert options - set(NAMES) == {"axes", "sweep", "workers", "out", "as_json"}
    assert set(NAMES) <= options


def test_help_has_examples_that_parse():
    """Policy: the examples of the help text are accepted, made small."""
    text = " ".join(invoke("--help").stdout.split())
    assert "Example: brorl simulate --seeds 5 --out runs/figure" in text
    assert "Example: brorl simulate --seeds 5 --sweep eps=1e-8,1e-20 decay=0.01,0" in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--n", "0"], "need every width N >= 1"),
        (["--vocab", "10", "--correct", "11"], "need correct <= vocab = 10, got 11"),
        (["--optimizer", "sgd", "--lr", "1", "--eps", "1"], "eps does not apply to optimizer sgd"),
        (["--lr", "fast"], "lr: input should be a valid number"),
        (["eps=1,2"], "need --sweep before axes such as 'eps=1,2'"),
        (["--sweep"], "need at least one sweep axis"),
        (["--sweep", "n=4,8"], "need a sweep axis NAME=VALUE,VALUE"),
        (["--workers", "0"], "need --workers >= 1, got 0"),
        (["--init", "file", "--init-file", "no.npy"], "no.npy: need a .npy vector"),
        (["--out", "/dev/null/x"], "cannot write into /dev/null/x"),
        (
            ["--optimizer", "sgd", "--lr", "1e308", "--loss", "log-likelihood",
             "--reward-correct", "100", "--baseline", "none", "--n", "4"],
            "no longer finite",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(args, message):
    with pytest.raises(BrorlError) as caught:
        invoke(*(SMALL[:-2] if "--vocab" not in args else ["--steps", "5"]), *args)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_mistake_leaves_no_folder(tmp_path):
    for args in (["--n", "0"], ["--init", "file", "--init-file", "no.npy"]):
        with pytest.raises(BrorlError):
            invoke(*args, "--out", str(tmp_path / "out"))
        assert not (tmp_path / "out").exists()


def test_bad_files_of_probabilities(tmp_path):
    for text, message in (
        ("0.5 0.6", "sum to 1, got 1.1"),
        ("1.5 -0.5", "> 0, got -0.5 at token 1"),
    ):
        (tmp_path / "p.txt").write_text(text)
        with pytest.raises(BrorlError, match=message):
            invoke(
                "--vocab",
                "2",
                "--correct",
                "1",
                "--init",
                "file",
                "--init-file",
                str(tmp_path / "p.txt"),
            )
    (tmp_path / "z.txt").write_text("0 nan")
    with pytest.raises(BrorlError, match="finite numbers, got nan at token 1"):
        invoke(
            "--vocab",
            "2",
            "--correct",
            "1",
            "--init",
            "file",
            "--init-values",
            "logits",
            "--init-file",
            str(tmp_path / "z.txt"),
        )
