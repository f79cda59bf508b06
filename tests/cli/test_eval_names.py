"""Where `brorl eval` puts results by itself: two runs never want one folder."""

from pathlib import Path

import pytest

from brorl.cli.eval import _own_name
from brorl.errors import PolicyError
from brorl.policy.load import load_policy


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("runs/prorl/checkpoints/step-000003", "prorl-step-000003"),
        ("runs/adaptive/checkpoints/step-000003", "adaptive-step-000003"),
        ("my-model", "my-model"),
        ("owner/model", "model"),
        ("checkpoints/step-1", "step-1"),
    ],
)
def test_default_names(model, name):
    assert _own_name(Path(model)) == name


def test_a_run_as_model_path_says_where_its_checkpoints_are(tmp_path):
    (tmp_path / "checkpoints/step-000002").mkdir(parents=True)
    (tmp_path / "checkpoints/step-000010").mkdir()
    with pytest.raises(PolicyError, match=r"is a run; .*checkpoints/step-000010, or .*init.from="):
        load_policy(str(tmp_path), revision=None, dtype="float32", device="cpu", trained_length=8)
