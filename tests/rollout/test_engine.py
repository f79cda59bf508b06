"""What an engine promises: counts, and values that are checked where they come in."""

import numpy as np
import pytest

from brorl.errors import ConfigError, EngineError
from brorl.rollout.engine import Completion, Request, Sampling, Stop, check_counts
from brorl.rollout.scripted import ScriptedEngine


def completion(tokens=(5,), dtype=np.int32, logprobs=None, mask=None):
    n = len(tokens)
    return Completion(
        np.array(tokens, dtype=dtype),
        np.zeros(n, np.float32) if logprobs is None else logprobs,
        np.ones(n, bool) if mask is None else mask,
        Stop.EOS,
        0,
    )


def request(problem="p", n=2, prompt=(3,), first=0, group="g"):
    return Request(group, problem, prompt, first, n, seed=0)


def test_every_prompt_got_exactly_its_n():
    """Attack: a group that is short by one, one that is long, and a group that is missing."""
    requests = [request("a", 2), request("b", 3)]
    whole = [[completion()] * 2, [completion()] * 3]
    check_counts(requests, whole)
    for groups, message in (
        ([whole[0], whole[1][:2]], "problem b: asked for 3 samples, got 2"),
        ([[*whole[0], completion()], whole[1]], "problem a: asked for 2 samples, got 3"),
        (whole[:1], "asked for 2 groups, the engine gave 1"),
    ):
        with pytest.raises(EngineError, match=message):
            check_counts(requests, groups)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"tokens": ()}, "at least one, got 0, 0, 0"),
        ({"logprobs": np.zeros(2, np.float32)}, "equally many .* got 1, 2, 1"),
        ({"mask": np.ones(3, bool)}, "equally many .* got 1, 1, 3"),
        ({"dtype": np.int64}, "int32 tokens.* got int64, float32, bool"),
        ({"logprobs": np.zeros(1)}, "float32 log-probs.* got int32, float64, bool"),
        ({"mask": np.ones(1)}, "bool mask.* got int32, float32, float64"),
    ],
)
def test_completion_is_checked(bad, message):
    with pytest.raises(EngineError, match=message):
        completion(**bad)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"prompt": ()}, "problem p: the prompt has no token"),
        ({"n": 0}, "problem p: need .* n=0"),
        ({"first": -1}, "problem p: need .* first=-1"),
    ],
)
def test_request_is_checked(bad, message):
    with pytest.raises(EngineError, match=message):
        request(**bad)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
    ],
)
def test_sampling_is_checked(bad, message):
    good = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_new_tokens": 4}
    Sampling(**good)
    with pytest.raises(ConfigError, match=message):
        Sampling(**(good | bad))


def test_scripted_engine_tells_sample_indices_as_any_engine():
    """Identity: samples 2 ... 4 asked for later are samples 2 ... 4 of the whole."""
    engine = ScriptedEngine(lambda r, i: completion((i + 1,)))
    how = Sampling(1.0, 1.0, 0, 4)
    seen = []
    (whole,) = engine.sample([request(n=5)], how)
    first, rest = engine.sample(
        [request(n=2), request(n=3, first=2)], how, lambda i, o, c: seen.append((i, o, len(c)))
    )
    assert [c.tokens.tolist() for c in [*first, *rest]] == [c.tokens.tolist() for c in whole]
    assert seen == [(0, 0, 2), (1, 0, 3)]
    assert [r.n for r in engine.calls] == [5, 2, 3]
