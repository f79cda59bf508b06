"""The process that makes items with a fixed hash seed: killed, it is replaced."""

import os
import signal

from brorl.verify import reasoning_gym_child


def test_a_killed_child_is_replaced_and_answers_alike():
    """Attack: kill -9 between two requests; the second answer is the first one's equal."""
    request = ("isomorphic_strings", "{}", 1, 0)
    before = reasoning_gym_child.item_with_fixed_hashes(*request)
    child = reasoning_gym_child._child()
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert reasoning_gym_child.item_with_fixed_hashes(*request) == before
    assert reasoning_gym_child._child().pid != child.pid
