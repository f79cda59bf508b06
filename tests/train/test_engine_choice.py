"""`rollout.engine` at the door: what cannot be had or cannot train is one line and no run."""

from brorl.rollout import vllm_process

from .test_bad_input import refuse

__all__ = ["refuse"]


def test_vllm_that_is_not_there_is_told_before_any_data_is_read(refuse, monkeypatch):
    """By order: the data would be refused too, if they were read."""
    monkeypatch.setattr(vllm_process.importlib.util, "find_spec", lambda name: None)
    line = refuse("rollout.engine=vllm", "data.train=/nowhere/rows.jsonl")
    assert "rollout.engine=vllm needs vLLM, which is not installed here" in line
    assert "pip install 'brorl[vllm]'" in line


def test_a_server_cannot_be_trained(refuse):
    line = refuse("rollout.engine=openai", "rollout.openai.base_url=http://127.0.0.1:8000/v1")
    assert "a server's weights do not follow the updates" in line
    assert "brorl eval MODEL --engine openai" in line


def test_options_of_engines_are_checked_at_the_door(refuse):
    line = refuse("rollout.engine=vllm", "rollout.vllm.max_seqs=8")
    assert "unknown setting rollout.vllm.max_seqs; nearest known: rollout.vllm.max_num_seqs" in line
    assert "rollout.vllm.block_size" in refuse("rollout.vllm.block_size=20")
    assert "base_url must be http" in refuse("rollout.openai.base_url=localhost:8000")
