"""`brorl eval` with other engines: a server of the test's own, and what is refused before it."""

import json
from pathlib import Path

import pytest
from rollout.loopback import serving

from brorl.errors import ConfigError, DataError, EngineError, PolicyError
from brorl.evaluate.results import read_evaluation
from brorl.policy.load import load_policy
from brorl.rollout import openai_client

from .test_cli_eval import OWN, call, model, place

__all__ = ["model", "place"]  # fixtures


@pytest.fixture
def server(model):
    policy = load_policy(str(model), revision=None, dtype="float32", device="cpu", trained_length=1)
    with serving(policy) as state:
        yield state


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(openai_client, "_LONGEST_PAUSE_S", 0.0)


def ask(server, *words):
    return call("--engine", "openai", "--base-url", server.url, "--workers", 0, *words)


def test_a_server_is_evaluated_by_the_tokens_that_the_embedded_engine_would_read(
    server, model, place
):
    """Identity: same prompts, counts and protocol; what differs says whose answers they are."""
    got = json.loads(ask(server, model, *OWN, "--json"))
    assert (got["suites"]["own"]["problems"], got["suites"]["own"]["samples"]) == (12, 48)
    evaluation = read_evaluation(place / "evals/tiny/evaluation.json")
    assert evaluation.model.source == f"tiny at {server.url}"
    assert (evaluation.model.weights_sha256, evaluation.model.dtype) == (None, None)
    call(model, *OWN, "--workers", 0, "--out", "embedded", "--json")
    own = read_evaluation(place / "embedded/evaluation.json")
    assert own.protocol.differences(evaluation.protocol) == ["engine: embedded and openai"]
    encoded = {server.policy.encode(f"say {i}") for i in range(12)}
    assert {tuple(body["prompt"]) for body in server.asked} == encoded
    tokens = [t for p in evaluation.suites["own"].problems for t in p.tokens]
    assert all(1 <= t <= 3 for t in tokens)


def test_a_server_lost_on_the_way_loses_nothing(server, model, place):
    """Identity: the same command goes on, and ends with the verdicts of an undisturbed one."""
    options = ("--engine-option", "retries=0", "--engine-option", "concurrency=1")
    ask(server, model, *OWN, "--out", "whole", *options)

    def lost(answer, body):
        if len(server.asked) == 48 + 20:
            server.statuses = [503] * 100
        return answer

    server.spoil = lost
    with pytest.raises(EngineError, match="does not answer /completions after 1 tries: status 503"):
        ask(server, model, *OWN, "--out", "cut", *options)
    kept = len(Path("cut/samples.jsonl").read_text().splitlines()) - 1
    assert 19 <= kept <= 20
    server.statuses = []
    ask(server, model, *OWN, "--out", "cut", *options)
    assert len(server.asked) <= 48 + 20 + 1 + 48 - kept
    for name in ("verdicts.jsonl", "evaluation.json"):
        assert Path("cut", name).read_text() == Path("whole", name).read_text()


def test_answers_fill_what_server_and_configuration_leave(server, model, place):
    """By hand: 64 positions of the model, 40 of the server, less the longest prompt of 6."""
    server.models = [{"id": "tiny", "max_model_len": 40}]
    words = (*OWN[:4], "--samples", 1, "--problems", 12, "--json")
    got = json.loads(ask(server, model, *words))
    assert got["protocol"]["max_new_tokens"] == 34
    with pytest.raises(DataError, match=r"6 tokens and 35 new ones need 41 positions, .* has 40"):
        ask(server, model, *words, "--max-new-tokens", 35, "--out", "long")
    assert not (place / "long").exists()


REFUSED = {
    "an engine that is none": (("--engine", "sglang"), "need --engine embedded, vllm or openai"),
    "a server without an address": (("--engine", "openai"), "belong together"),
    "an address without a server": (("--base-url", "http://h/v1"), "belong together"),
    "no address": (
        ("--engine", "openai", "--base-url", "h:80"),
        "--engine-option options: base_url must be http",
    ),
    "a key that is none": (
        ("--engine", "openai", "--base-url", "http://h/v1", "--engine-option", "cap=3"),
        "--engine-option cap: .*; known: base_url, model, api_key_env",
    ),
    "a word that is no pair": (
        ("--engine", "openai", "--base-url", "http://h/v1", "--engine-option", "retries"),
        "--engine-option reads KEY=VALUE, got 'retries'",
    ),
    "an option of no engine": (("--engine-option", "retries=3"), "the engine is embedded"),
    "colder than vLLM": (
        ("--engine", "vllm", "--temperature", "0.009"),
        "--temperature 0.009: vLLM would sample at 0.01 instead",
    ),
    "what is the server's": (
        ("--engine", "openai", "--base-url", "http://h/v1", "--dtype", "bfloat16"),
        "--dtype and --device are the server's affair",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_leaves_no_folder(model, place, name):
    words, message = REFUSED[name]
    with pytest.raises(ConfigError, match=message):
        call(model, *OWN, *words)
    assert not (place / "evals").exists()


def test_a_model_that_is_nowhere_is_refused_before_the_server_is_asked(server, place):
    with pytest.raises(PolicyError, match="no folder '/nowhere'"):
        ask(server, "/nowhere", *OWN)
    assert server.headers == {}
