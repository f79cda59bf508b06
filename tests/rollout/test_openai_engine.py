"""A server as engine: what is sent, what is done with bad answers, lost servers, and time."""

import http.client
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from policy.small_models import VOCABULARY, policy_of
from pydantic import ValidationError

from brorl.errors import ConfigError, EngineError
from brorl.policy.load import WithoutModel
from brorl.policy.tiny import character_tokenizer
from brorl.rollout import openai_client
from brorl.rollout.engine import Request, Sampling, Stop
from brorl.rollout.openai_client import Server
from brorl.rollout.openai_engine import OpenAIEngine, sample_seed
from brorl.rollout.options import OpenAIOptions

from .loopback import serving

HOW = Sampling(1.3, 1.0, 0, 6)
EOS_IDS = (1, 7, 20)


@pytest.fixture(scope="module")
def policy():
    return policy_of("llama", eos=EOS_IDS, tokenizer=character_tokenizer())


@pytest.fixture
def server(policy):
    with serving(policy) as state:
        yield state


@pytest.fixture
def no_pauses(monkeypatch):
    monkeypatch.setattr(openai_client, "_LONGEST_PAUSE_S", 0.0)


def engine_of(server, **options):
    client = WithoutModel(server.policy.speech, server.policy.eos_ids, 64)
    return OpenAIEngine(client, OpenAIOptions(base_url=server.url, **options))


def request(n=3, first=0, prompt=(3, 4, 8), seed=5):
    return Request("g", "problem-1", prompt, first, n, seed)


def spoilt(**change):
    """A fault that changes the first choice of every answer."""

    def spoil(answer, body):
        answer["choices"][0] |= change
        return answer

    return spoil


def test_what_is_sent_is_the_request_and_nothing_else(server):
    """By hand: ids, the limits, and a seed for each sample that its number alone moves."""
    engine_of(server).sample([request(2, first=3)], Sampling(0.6, 0.9, 5, 4))
    bodies = sorted(server.asked, key=lambda b: b["seed"])
    assert [b.pop("seed") for b in bodies] == [sample_seed(5, 3), sample_seed(5, 4)]
    assert (
        bodies
        == [
            {
                "model": "tiny",
                "prompt": [3, 4, 8],
                "n": 1,
                "temperature": 0.6,
                "top_p": 0.9,
                "top_k": 5,
                "max_tokens": 4,
                "stream": False,
                "return_token_ids": True,
            }
        ]
        * 2
    )


def test_settings_of_others_are_not_sent_to_servers_that_do_not_know_them(server):
    """OpenAI's own interface refuses a field that it does not know."""
    engine_of(server, return_token_ids=False).sample([request(1)], HOW)
    assert not {"top_k", "return_token_ids"} & server.asked[0].keys()


def test_seeds_fit_31_bits_and_move_by_one():
    seeds = [sample_seed(s, 0) for s in range(200)]
    assert len(set(seeds)) == 200
    assert max(seeds) < 2**30
    assert sample_seed(9, 7) == sample_seed(9, 0) + 7


@pytest.mark.parametrize("per_request", [1, 2, 5, 9])
def test_answers_do_not_depend_on_how_many_are_asked_for_at_once(server, per_request):
    """Identity, with a server that seeds answer j of a request with its seed + j."""
    want = [c.tokens.tolist() for c in engine_of(server).sample([request(5)], HOW)[0]]
    got = engine_of(server, samples_per_request=per_request).sample([request(5)], HOW)
    assert [c.tokens.tolist() for c in got[0]] == want
    assert sum(b["n"] for b in server.asked) == 10


def test_without_token_ids_the_text_is_tokenised_and_the_end_put_back(server):
    """Identity: lengths and stops are those that the ids would have given."""
    with_ids = engine_of(server).sample([request(12)], HOW)[0]
    without = engine_of(server, return_token_ids=False).sample([request(12)], HOW)[0]
    assert [c.stop for c in without] == [c.stop for c in with_ids]
    assert {c.stop for c in without} == {Stop.EOS, Stop.LENGTH}
    decode = server.policy.speech.decode
    for ours, theirs in zip(without, with_ids, strict=True):
        assert decode(ours.tokens.tolist()) == decode(theirs.tokens.tolist())
        assert (ours.tokens[-1] in EOS_IDS) == (ours.stop is Stop.EOS)
        assert np.isnan(ours.logprobs).all()


def test_an_end_that_a_server_leaves_out_is_put_back(server):
    """By hand: ids without EOS, ended by EOS: one more token, the tokenizer's EOS."""
    server.spoil = spoilt(token_ids=[5, 6], finish_reason="stop")
    (completion,) = engine_of(server).sample([request(1)], HOW)[0]
    assert completion.tokens.tolist() == [5, 6, server.policy.tokenizer.eos_token_id]
    server.spoil = spoilt(token_ids=[5, 7], finish_reason="stop")
    (completion,) = engine_of(server).sample([request(1)], HOW)[0]
    assert completion.tokens.tolist() == [5, 7]


NONSENSE = {
    "too few": (lambda a, b: a | {"choices": []}, r"asked for 1 answers, got numbers \[\]"),
    "too many": (
        lambda a, b: a | {"choices": [{**a["choices"][0], "index": i} for i in (0, 1)]},
        r"got numbers \[0, 1\]",
    ),
    "no choices": (lambda a, b: {"text": "hello"}, "an answer without choices"),
    "choices of nothing": (lambda a, b: {"choices": [None]}, "an answer without choices"),
    "another prompt": (spoilt(prompt_token_ids=[1, 3, 4, 8]), "it read another prompt"),
    "aborted": (spoilt(finish_reason="abort"), "an answer ended with 'abort'"),
    "filtered": (spoilt(finish_reason="content_filter"), "ended with 'content_filter'"),
    "not said": (spoilt(finish_reason=None), "an answer ended with None"),
    "nothing at all": (spoilt(token_ids=[], finish_reason="length"), "an answer without a token"),
    "unknown letters": (spoilt(token_ids=None, text="\u00e9"), "this tokenizer does not spell"),
    "a list": (lambda a, b: [a], "needs an object"),
    "not JSON": (lambda a, b: b"<html>sorry</html>", "not JSON"),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_an_error_in_one_line_that_names_the_problem(server, name):
    server.spoil, message = NONSENSE[name]
    with pytest.raises(EngineError, match=message) as found:
        engine_of(server).sample([request(1)], HOW)
    assert "problem-1" in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 0])
def test_a_server_that_stumbles_is_asked_again(server, status, no_pauses):
    """Identity: two bad answers (0: a lost connection) in between change no token."""
    want = [c.tokens.tolist() for c in engine_of(server).sample([request(2)], HOW)[0]]
    engine = engine_of(server, concurrency=1)
    server.statuses = [status, status]
    assert [c.tokens.tolist() for c in engine.sample([request(2)], HOW)[0]] == want


def test_a_lost_server_is_an_error_after_the_last_try(server, no_pauses):
    """By hand: retries=2 makes three tries of the one request; then the run goes on elsewhere."""
    engine = engine_of(server, retries=2, concurrency=1)
    server.statuses = [503] * 3
    with pytest.raises(EngineError, match="after 3 tries: status 503: told to say 503"):
        engine.sample([request(1)], HOW)
    assert server.statuses == []
    assert len(engine.sample([request(2)], HOW)[0]) == 2


def test_a_refusal_is_not_asked_again(server):
    engine = engine_of(server)
    server.statuses = [401, 500, 500]
    with pytest.raises(EngineError, match="status 401: told to say 401"):
        engine.sample([request(1)], HOW)
    assert server.statuses == [500, 500]


def test_a_redirect_is_not_followed(server, monkeypatch):
    """Attack: the key would go to whatever host the answer names."""
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    engine = engine_of(server)
    server.statuses = [307]
    with pytest.raises(EngineError, match="status 307"):
        engine.sample([request(1)], HOW)


def test_the_key_is_sent_from_the_environment_alone(server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    engine_of(server)
    assert "Authorization" not in server.headers
    monkeypatch.setenv("OWN_KEY", "abc")
    engine_of(server, api_key_env="OWN_KEY")
    assert server.headers["Authorization"] == "Bearer abc"


def test_a_wish_for_a_pause_is_granted_within_bounds(server, monkeypatch):
    """By hand: 7 s asked for are waited; 9999 are not."""
    waited = []
    monkeypatch.setattr(threading.Event, "wait", lambda self, s=None: waited.append(s))
    engine = engine_of(server, concurrency=1)
    for wish, want in (("7", 7.0), ("9999", 30.0), ("soon", 0.5)):
        server.retry_after, server.statuses = wish, [429]
        engine._server.get("/models")
        assert [w for w in waited if w in (7.0, 30.0, 0.5)][-1] == want


def test_nobody_waits_longer_than_the_timeout(server, no_pauses):
    """A server that says nothing: each try ends after timeout_s, and the call with it."""
    engine = engine_of(server, timeout_s=0.2, retries=1)
    server.delay_s = 30.0
    start = time.monotonic()
    with pytest.raises(EngineError, match="after 2 tries: timed out"):
        engine.sample([request(1)], HOW)
    assert time.monotonic() - start < 20


def test_what_fails_in_between_cuts_the_rest_short(server):
    """Ctrl-C, or a grader that broke: answers in flight are not waited for."""
    engine = engine_of(server, concurrency=4)
    engine.sample([request(1)], HOW)

    def broken(index, offset, completions):
        server.delay_s = 30.0
        raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        engine.sample([request(40)], HOW, broken)
    assert time.monotonic() - start < 20


def test_a_client_closed_while_it_connects_asks_nothing(server, monkeypatch):
    """Ctrl-C between the connection and its being listed: nothing is sent, nobody waits."""
    client = engine_of(server)._server
    asked = len(server.asked)
    connect = http.client.HTTPConnection.connect

    def closed_meanwhile(connection):
        connect(connection)
        client.close()

    monkeypatch.setattr(http.client.HTTPConnection, "connect", closed_meanwhile)
    server.delay_s = 30.0
    start = time.monotonic()
    with pytest.raises(EngineError, match="closed"):
        client.post("/completions", {})
    assert (time.monotonic() - start < 20, len(server.asked)) == (True, asked)


def test_a_client_closed_between_header_and_body_does_not_wait_for_the_body():
    """http.client lets go of its socket there: the cut must reach it all the same."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = Server(OpenAIOptions(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}/v1"))
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(client.get, "/models")
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\n{")
                time.sleep(0.2)  # until the header is read; the cut must work before and after
                start = time.monotonic()
                client.close()
                with pytest.raises(EngineError, match="closed"):
                    answer.result(timeout=20)
    assert time.monotonic() - start < 20


def test_requests_in_flight_are_as_many_as_allowed(server):
    server.delay_s = 0.05
    engine_of(server, concurrency=3).sample([request(9)], HOW)
    assert server.most_at_once == 3


def test_the_model_is_the_servers(server):
    assert (engine_of(server).model, engine_of(server).max_tokens) == ("tiny", 64)
    server.models = [{"id": "a"}, {"id": "b"}]
    assert (engine_of(server, model="b").model, engine_of(server, model="b").max_tokens) == (
        "b",
        None,
    )
    for options, message in (
        ({}, "has the models a, b; name one with model=NAME"),
        ({"model": "c"}, "has the models a, b; not c"),
    ):
        with pytest.raises(ConfigError, match=message):
            engine_of(server, **options)
    for nothing in ([], "none", None):
        server.models = nothing
        with pytest.raises(ConfigError, match="has the models none"):
            engine_of(server)


def test_a_server_that_is_not_there_is_named(server, no_pauses):
    server.url = "http://127.0.0.1:9/v1"
    with pytest.raises(
        EngineError, match=r"http://127.0.0.1:9/v1 does not answer /models .*refused"
    ):
        engine_of(server, retries=0)


def test_updates_are_refused_with_the_reason(server):
    with pytest.raises(EngineError, match="a server's weights do not follow the updates"):
        engine_of(server).weights_changed(1)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"base_url": "127.0.0.1:8000/v1"}, "base_url must be http"),
        ({"base_url": "ftp://h/v1"}, "base_url must be http"),
        ({"base_url": "http://me:secret@h/v1"}, "holds no name, password or query"),
        ({"base_url": "http://h/v1?key=secret"}, "holds no name, password or query"),
        ({"base_url": "http://h/v1", "concurrency": 0}, "concurrency"),
        ({"base_url": "http://h/v1", "api_key": "secret"}, "api_key"),
        ({}, "base_url"),
    ],
)
def test_options_are_checked(bad, message):
    with pytest.raises(ValidationError, match=message):
        OpenAIOptions(**bad)


def test_a_prompt_beyond_the_vocabulary_comes_back_as_the_servers_word(server):
    with pytest.raises(EngineError, match=r"problem-1: .*status 400: .*prompt ids must be in"):
        engine_of(server).sample([request(1, prompt=(VOCABULARY,))], HOW)
