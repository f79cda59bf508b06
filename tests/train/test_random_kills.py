"""SIGKILL at random instants of every phase: as many identical endings as kills.

BRORL_KILLS says how many (7, one for each phase, where it is not set); docs/measure_kills.py makes
a hundred and records them.
"""

import os
import shutil

import pytest

from .killing import PHASES, Killer
from .runs import no_report

__all__ = ["no_report"]
KILLS = int(os.environ.get("BRORL_KILLS", len(PHASES)))


@pytest.fixture(scope="module")
def killer(tmp_path_factory):
    return Killer(tmp_path_factory.mktemp("kills"))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(KILLS))
def test_killed_at_random_it_ends_the_same(killer, no_report, number):
    """Metrics, weights, optimizer, answers, evaluations: equal; no grader process is left."""
    kill = killer.kill(number)
    assert kill.hit != "finished"
    shutil.rmtree(killer.folder / f"kill-{number}")
