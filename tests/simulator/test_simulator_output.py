"""Rows, effects, files: hand-computed numbers and round trips."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from brorl.errors import ConfigError
from brorl.simulator.curves import Curve, simulate
from brorl.simulator.flat import Cell, make_settings, sweep_cells
from brorl.simulator.output import check_folder, curve_table, result_object, write_folder
from brorl.simulator.step import Record
from brorl.simulator.summary import effects, summarise


def curve(n, replicate, masses, **columns):
    """Three steps with the given masses; other columns constant, 0 where not given."""
    values = np.zeros((len(masses), len(Record._fields)))
    for name, value in columns.items():
        values[:, Record._fields.index(name)] = value
    values[:, 0] = masses
    return Curve(n, replicate, values)


def test_rows_by_hand():
    rows = summarise(
        [
            curve(4, 0, [0.5, 0.4, 0.2], worst_change=[0, -0.3, -0.1], decay=[0, 0.1, 0.2]),
            curve(4, 1, [0.5, 0.6, 0.4], worst_change=[0, -0.2, 0.1], decay=[0, 0.3, 0.2]),
            curve(8, 0, [0.5, 0.5, 0.7], improved_share=[0, 0.1, 0.25]),
        ]
    )
    assert [row["n"] for row in rows] == [4, 8]
    assert rows[0]["correct_mass_start"] == 0.5
    assert rows[0]["correct_mass"] == pytest.approx(0.3)
    assert rows[0]["worst_change"] == -0.3
    assert rows[0]["decay"] == pytest.approx(0.4)
    assert [s["correct_mass"] for s in rows[0]["per_seed"]] == [0.2, 0.4]
    assert [s["worst_change"] for s in rows[0]["per_seed"]] == [-0.3, -0.2]
    assert rows[1]["improved_share"] == 0.25
    assert "per_seed" not in rows[1]


def test_effects_by_hand():
    """Changes -3, -1 at the reference; first factor +1, +3; second +1, +1; both +5, +5.

    first - reference = 4, 4; second = 4, 2 (mean 3, s.e. sqrt(2)/sqrt(2) = 1); both = 8, 6;
    interaction = (both - first) - (second - reference) = 4 - 4, 2 - 2 = 0, 0.
    """

    def corner(*changes):
        return [curve(4, i, [0.0, change]) for i, change in enumerate(changes)]

    corners = [corner(-3, -1), corner(1, 1), corner(1, 3), corner(5, 5)]
    (found,) = effects(corners)
    assert found.n == 4
    assert found.reference == (-2, 1)
    assert found.first == (4, 0)
    assert found.second == (3, 1)
    assert found.both == (7, 1)
    assert found.interaction == (0, 0)
    assert effects([c[:1] for c in corners])[0].second == (4, None)


def small_sweep():
    cells = sweep_cells(
        {"vocab": 300, "correct": 30, "steps": 30, "n": (4, 16), "seeds": 2},
        ["eps=1e-8,1e-12,1e-20", "decay=1,0"],
    )
    return cells, simulate([c.settings for c in cells], workers=1, on_steps=lambda _: None)


def test_effects_of_a_sweep_are_differences_of_its_rows():
    """Identity: recomputed from the printed rows of the corner cells."""
    cells, curves = small_sweep()
    result = result_object(cells, curves, 1.0)
    assert result["effects"]["factors"] == [
        {"name": "eps", "from": "1e-8", "to": "1e-20"},
        {"name": "decay", "from": "1", "to": "0"},
    ]
    change = {
        (row["cell"]["eps"], row["cell"]["decay"], row["n"]): row["correct_mass"]
        - row["correct_mass_start"]
        for row in result["rows"]
    }
    for row in result["effects"]["rows"]:
        base = change["1e-8", "1", row["n"]]
        first = change["1e-20", "1", row["n"]] - base
        second = change["1e-8", "0", row["n"]] - base
        both = change["1e-20", "0", row["n"]] - base
        got = [row[k]["value"] for k in ("reference", "first", "second", "both", "interaction")]
        assert got == pytest.approx([base, first, second, both, both - first - second], abs=1e-12)
        assert second > 0  # decay of 1 costs mass


def test_no_effects_without_two_factors():
    cells, curves = small_sweep()
    assert "effects" not in result_object(cells[:1], curves[:1], 1.0)
    assert "effects" not in result_object([Cell({}, cells[0].settings)], curves[:1], 1.0)


def test_curves_survive_parquet(tmp_path):
    cells, curves = small_sweep()
    pq.write_table(curve_table(cells, curves), tmp_path / "c.parquet")
    rows = pq.read_table(tmp_path / "c.parquet").to_pylist()
    assert len(rows) == 6 * 2 * 2 * 31
    for cell, of_cell in zip(cells, curves, strict=True):
        for one in of_cell:
            key = {
                **{f"cell_{k}": v for k, v in cell.axes.items()},
                "n": one.n,
                "replicate": one.replicate,
            }
            mine = [r for r in rows if all(r[k] == v for k, v in key.items())]
            assert [r["step"] for r in mine] == list(range(31))
            got = np.array([[r[name] for name in Record._fields] for r in mine])
            np.testing.assert_array_equal(got, one.values_TR)


def test_a_folder_holds_the_three_files(tmp_path):
    cells, curves = small_sweep()
    for name, some in (("one", 1), ("sweep", 6)):
        folder = tmp_path / name
        check_folder(folder)
        result = result_object(cells[:some], curves[:some], 1.0)
        write_folder(folder, cells[:some], curves[:some], result)
        assert {p.name for p in folder.iterdir()} == {"result.json", "curves.parquet", "figure.png"}
        assert json.loads((folder / "result.json").read_text()) == result
        with Image.open(folder / "figure.png") as image:
            assert len(image.convert("L").getcolors(1 << 24)) > 50  # something is drawn


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(ConfigError, match=r"cannot write into .*x"):
        check_folder(tmp_path / "x")


def test_settings_travel_with_the_result():
    """Identity: the settings of a result build the same settings again."""
    settings = make_settings({"vocab": 300, "correct": 30, "loss": "ppo", "init": "zipf"})
    dumped = result_object([Cell({}, settings)], [[curve(4, 0, [0.1, 0.2])]], 0.0)["settings"]
    assert type(settings).model_validate(dumped) == settings
