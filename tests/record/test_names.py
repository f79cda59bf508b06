"""Only names of our own are read or removed in a run folder; whatever else lies there stays."""

from brorl.record.evals import cut_evals, eval_steps
from brorl.record.files import step_files, sweep_asides
from brorl.record.rollouts import cut_rollouts, rollout_steps

FOREIGN = [".DS_Store", "step-abc.parquet", "step-x.json", "step-12.json", "notes.txt", ".mine"]
OURS = [".step-000003.parquet.4711.tmp", ".x.json.12.partial", ".trash-step-000001-99"]


def test_leftovers_of_both_kinds_go_and_the_rest_stays(tmp_path):
    """Attack: a user's own files and folders, hidden ones too, beside what a kill left."""
    for name in [*FOREIGN, OURS[0]]:
        (tmp_path / name).write_text("x")
    for name in [".ipynb_checkpoints", OURS[1], OURS[2]]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "inside").write_text("x")
    sweep_asides(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*FOREIGN, ".ipynb_checkpoints"])


def test_steps_are_read_from_whole_names(tmp_path):
    for name in ["step-000002.json", "step-1000000.json", *FOREIGN]:
        (tmp_path / name).write_text("x")
    assert step_files(tmp_path, "json") == [2, 1000000]
    assert step_files(tmp_path / "absent", "json") == []


def test_cutting_a_run_ignores_foreign_names(tmp_path):
    for folder, ending in (("eval", "json"), ("rollouts", "parquet")):
        (tmp_path / folder).mkdir()
        for name in [f"step-000001.{ending}", f"step-000005.{ending}", *FOREIGN]:
            (tmp_path / folder / name).write_text("x")
    cut_evals(tmp_path, 1)
    cut_rollouts(tmp_path, 1)
    assert eval_steps(tmp_path) == rollout_steps(tmp_path) == [1]
    assert (tmp_path / "eval/.DS_Store").exists()
