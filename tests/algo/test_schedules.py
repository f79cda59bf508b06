"""Learning-rate rules: the paper's own batch sizes by hand, and the joints of the schedule."""

import math
import subprocess
import sys

import pytest

from brorl.algo.schedules import cosine_factor, scaled_lr, warmup_factor
from brorl.errors import ConfigError


@pytest.mark.parametrize(
    ("lr_scaling", "want"), [("none", 1.0), ("sqrt", 2 * math.sqrt(2)), ("linear", 8.0)]
)
def test_brorl_against_prorl(lr_scaling, want):
    """Hand-computed: 128 x 512 samples are 8 times 512 x 16."""
    got = scaled_lr(lr=2e-6, lr_scaling=lr_scaling, samples=128 * 512, lr_base_samples=512 * 16)
    assert got == pytest.approx(2e-6 * want, rel=1e-15)


@pytest.mark.parametrize("lr_scaling", ["none", "sqrt", "linear"])
def test_the_base_is_the_base(lr_scaling):
    """Identity: at lr_base_samples every rule gives lr itself."""
    assert scaled_lr(lr=3e-4, lr_scaling=lr_scaling, samples=96, lr_base_samples=96) == 3e-4
    assert scaled_lr(lr=3e-4, lr_scaling=lr_scaling, samples=1, lr_base_samples=1) == 3e-4


def test_warmup_by_hand():
    """Four updates of climb in fifths, the full rate from the fifth on; 0 is no warm-up."""
    got = [warmup_factor(u, warmup=4) for u in range(7)]
    assert got == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 1, 1])
    assert warmup_factor(0, warmup=0) == 1.0


def test_cosine_by_hand():
    """1 until update 10, half way at 60, floor at 110 and after; a third: cos(pi/3) = 1/2."""
    at = {0: 1.0, 10: 1.0, 60: 0.55, 110: 0.1, 500: 0.1}
    for update, want in at.items():
        assert cosine_factor(update, start=10, total=110, floor=0.1) == pytest.approx(want)
    assert cosine_factor(30, start=0, total=90, floor=0.0) == pytest.approx(0.75)
    assert cosine_factor(30, start=0, total=90, floor=1.0) == 1.0


def test_needs_no_torch():
    """Policy: the planner and the command line read these rules before torch is loaded."""
    code = "import sys, brorl.algo.schedules; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_says_what_is_wrong():
    for lr, samples, base in ((0.0, 1, 1), (1.0, 0, 1), (1.0, 1, 0), (math.nan, 1, 1)):
        with pytest.raises(ConfigError, match="need lr, samples and lr_base_samples > 0"):
            scaled_lr(lr=lr, lr_scaling="sqrt", samples=samples, lr_base_samples=base)
    with pytest.raises(ConfigError, match="need update and warmup >= 0, got -1 and 3"):
        warmup_factor(-1, warmup=3)
    for update, start, total, floor in ((-1, 0, 9, 0.0), (0, 9, 9, 0.0), (0, 0, 9, 1.1)):
        with pytest.raises(ConfigError, match=r"0 <= start < total and floor in \[0, 1\]"):
            cosine_factor(update, start=start, total=total, floor=floor)
