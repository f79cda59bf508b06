"""What every engine promises, asked of each of them: brorl.rollout.engine.Engine.

The scripted one knows no weights, and a server's do not follow updates; what only holds with
weights of one's own is asked of the embedded engine and of vLLM.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from policy.small_models import VOCABULARY, padded, plain, policy_of

from brorl.errors import EngineError
from brorl.policy.load import WithoutModel
from brorl.policy.tiny import character_tokenizer
from brorl.rollout.embedded import EmbeddedEngine
from brorl.rollout.engine import Completion, Engine, Request, Sampling, Stop
from brorl.rollout.factory import open_engine
from brorl.rollout.openai_engine import OpenAIEngine
from brorl.rollout.options import OpenAIOptions, VllmOptions
from brorl.rollout.scripted import ScriptedEngine
from brorl.seeds import generator

from .loopback import serving

EOS_IDS = (1, 7, 20)
LONGEST = 64
PROMPTS = [(5,), (3, 4, 8, 9, 2, 6), (10, 11, 12)]
HOW = Sampling(1.3, 1.0, 0, 8)


class Case(NamedTuple):
    """An engine and what is known of it."""

    engine: Engine
    policy: Any  # whose weights it samples from; None for the scripted engine
    follows: bool  # updates of these weights


def requests_of(sizes=(2, 9, 5), first=0):
    return [
        Request(f"g{i}", f"problem-{i}", prompt, first, n, seed=100 + i)
        for i, (prompt, n) in enumerate(zip(PROMPTS, sizes, strict=True))
    ]


def small() -> Any:
    """One head width that vLLM's CPU attention has, and three tokens that end an answer."""
    return policy_of(
        "llama",
        eos=EOS_IDS,
        tokenizer=character_tokenizer(),
        hidden_size=64,
        num_attention_heads=2,
        num_key_value_heads=1,
    )


def scripted() -> ScriptedEngine:
    """One to eight tokens from a stream of the sample's own; the last may end the answer."""

    def script(request: Request, index: int) -> Completion:
        draw = generator(request.seed, "script", index)
        length = int(draw.integers(1, 9))
        tokens = draw.integers(21, VOCABULARY, size=length).astype(np.int32)
        ends = length < 8 or bool(draw.integers(2))
        if ends:
            tokens[-1] = EOS_IDS[0]
        return Completion(
            tokens,
            np.full(length, -1.0, np.float32),
            np.ones(length, bool),
            Stop.EOS if ends else Stop.LENGTH,
            engine.version,
        )

    engine = ScriptedEngine(script)
    return engine


@contextmanager
def opened(name: str) -> Iterator[Case]:
    policy = small()
    with ExitStack() as stack:
        if name == "scripted":
            yield Case(scripted(), None, follows=False)
            return
        if name.startswith("openai"):
            server = stack.enter_context(serving(policy))
            options = OpenAIOptions(base_url=server.url, samples_per_request=int(name[-1]))
            client = WithoutModel(policy.speech, policy.eos_ids, LONGEST)
            yield Case(OpenAIEngine(client, options), policy, follows=False)
            return
        engine = open_engine(
            name,
            policy,
            memory_budget=1 << 24,
            max_tokens=lambda: LONGEST,
            vllm=VllmOptions(),
        )
        stack.callback(engine.close)
        yield Case(engine, policy, follows=True)


@pytest.fixture(scope="module")
def engines():
    """Each engine by name, opened when it is first asked for: vLLM takes its time."""
    with ExitStack() as stack:
        found: dict[str, Case] = {}

        def get(name: str) -> Case:
            if name not in found:
                found[name] = stack.enter_context(opened(name))
            return found[name]

        yield get


OWNERS = ["embedded", pytest.param("vllm", marks=pytest.mark.vllm)]
SAMPLERS = [*OWNERS, "openai 1", "openai 4"]


@pytest.fixture(params=[*SAMPLERS, "scripted"])
def case(request, engines):
    """Every engine."""
    return engines(request.param)


@pytest.fixture(params=SAMPLERS)
def sampler(request, engines):
    """Those that draw from a policy."""
    return engines(request.param)


@pytest.fixture(params=OWNERS)
def owner(request, engines):
    """Those that follow the trainer's weights."""
    return engines(request.param)


def texts(groups):
    return [[c.tokens.tolist() for c in group] for group in groups]


def test_every_request_gets_its_n_and_every_part_is_told_once(case):
    """Identity: the parts told on the way are the groups returned, each sample once."""
    requests = requests_of()
    told: list[dict[int, Completion]] = [{} for _ in requests]

    def finished(index, offset, completions):
        for i, completion in enumerate(completions, start=offset):
            assert i not in told[index]
            told[index][i] = completion

    groups = case.engine.sample(requests, HOW, finished)
    assert [len(g) for g in groups] == [2, 9, 5]
    assert [[t[i] for i in range(len(t))] for t in told] == groups


def test_sample_i_is_the_same_in_waves_alone_and_beside_others(case):
    """Identity: sample i depends on the weights and on (seed, i), not on its company."""
    whole = texts(case.engine.sample(requests_of((3, 9, 5)), HOW))
    first = texts(case.engine.sample(requests_of((1, 4, 1)), HOW))
    case.engine.forget(["g0"])
    rest = texts(
        [
            *case.engine.sample(requests_of((2, 5, 4), first=1)[:1], HOW),
            *case.engine.sample([requests_of((1, 5, 1), first=4)[1]], HOW),
            *case.engine.sample(requests_of((2, 5, 4), first=1)[2:], HOW),
        ]
    )
    assert [a + b for a, b in zip(first, rest, strict=True)] == whole


def test_samples_of_a_group_and_of_two_seeds_differ(case):
    """Attack: one seed for all answers of a request would make a group of equals."""
    (group,) = texts(case.engine.sample(requests_of((1, 16, 1))[1:2], HOW))
    other = Request("other", "problem-1", PROMPTS[1], 0, 16, seed=7)
    (second,) = texts(case.engine.sample([other], HOW))
    assert len({tuple(t) for t in group}) >= 12
    assert group != second


def test_an_answer_ends_with_eos_or_at_the_limit(case):
    """By the contract: EOS is the last token, once, and is said; without it the limit is full."""
    for group in case.engine.sample(requests_of((20, 20, 20)), HOW):
        for c in group:
            ends = np.isin(c.tokens, EOS_IDS)
            assert not ends[:-1].any()
            assert c.mask.all()
            assert (c.stop is Stop.EOS) == bool(ends[-1])
            assert c.stop in (Stop.EOS, Stop.LENGTH)
            assert len(c.tokens) == HOW.max_new_tokens or c.stop is Stop.EOS


def test_nothing_asked_is_nothing_answered(case):
    assert case.engine.sample([], HOW) == []


def test_a_report_measures_anew_and_a_cache_has_a_size(case):
    case.engine.sample(requests_of(), HOW)
    assert (case.engine.report().kv_cache > 0) == case.follows
    assert case.engine.report().fingerprint is None


def test_a_prompt_that_cannot_be_served_is_refused_by_name(sampler):
    """Attack: an id beyond the vocabulary, one below 0, and an answer beyond the positions."""
    for prompt, how in (
        ((5, VOCABULARY), HOW),
        ((5, -1), HOW),
        (PROMPTS[1], Sampling(1.0, 1.0, 0, LONGEST)),
    ):
        with pytest.raises(EngineError, match="problem-x"):
            sampler.engine.sample([Request("x", "problem-x", prompt, 0, 2, seed=1)], how)
    assert len(sampler.engine.sample(requests_of()[:1], HOW)[0]) == 2


def test_greedy_answers_are_the_likeliest_tokens(sampler):
    """Oracle: argmax of plain forwards, for every sample of the group."""
    request = requests_of((2, 3, 2))[1]
    (group,) = sampler.engine.sample([request], Sampling(0.0, 1.0, 0, 8))
    tokens: list[int] = []
    while len(tokens) < 8 and not (tokens and tokens[-1] in EOS_IDS):
        with torch.no_grad():
            ids = torch.tensor([[*request.prompt, *tokens]])
            tokens.append(int(sampler.policy.model(input_ids=ids).logits[0, -1].argmax()))
    assert texts([group]) == [[tokens] * 3]


def first_probabilities(policy, prompt, temperature):
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([prompt])).logits[0, -1].double()
    return (logits / temperature).softmax(-1).numpy()


def test_tokens_are_drawn_with_their_probabilities(sampler):
    """Statistical: counts of 400 first tokens within 4 standard errors, where 5 are expected."""
    n, request = 400, Request("d", "problem-d", PROMPTS[2], 0, 400, seed=3)
    (group,) = sampler.engine.sample([request], Sampling(1.5, 1.0, 0, 1))
    counts = np.bincount([int(c.tokens[0]) for c in group], minlength=VOCABULARY)
    p = first_probabilities(sampler.policy, request.prompt, 1.5)
    often = n * p >= 5
    assert often.sum() >= 5
    error = np.sqrt(n * p * (1 - p))
    assert (np.abs(counts - n * p) <= 4 * error)[often].all()


def test_top_k_and_top_p_leave_out_what_they_should(sampler):
    """Oracle: the sets by a plain sort. k = 3; p = 0.6 keeps the fewest that reach it."""
    p = first_probabilities(sampler.policy, PROMPTS[2], 1.5)
    order = np.argsort(-p)
    nucleus = order[: int(np.searchsorted(p[order].cumsum(), 0.6)) + 1]
    request = Request("k", "problem-k", PROMPTS[2], 0, 60, seed=4)
    for how, allowed in (
        (Sampling(1.5, 1.0, 3, 1), order[:3]),
        (Sampling(1.5, 0.6, 0, 1), nucleus),
    ):
        drawn = {int(c.tokens[0]) for c in sampler.engine.sample([request], how)[0]}
        assert drawn <= set(allowed.tolist())
        assert len(drawn) > 1


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.6])
def test_logprobs_are_the_trainers_at_the_sampling_temperature(owner, temperature):
    """Oracle: Policy.score of the same tokens at the same temperature, to float32 error: 3e-5 of
    up to 12 nats, from other kernels."""
    groups = owner.engine.sample(requests_of(), Sampling(temperature, 1.0, 0, 8))
    compare(owner.policy, groups, temperature)


def compare(policy, groups, temperature=1.0):
    rows = [(g, c) for g, group in enumerate(groups) for c in group]
    tokens, lengths = padded([c.tokens for _, c in rows])
    with torch.no_grad():
        scored = policy.score(
            PROMPTS, torch.tensor([g for g, _ in rows]), tokens, lengths, temperature=temperature
        )
    engine_logp = np.concatenate([c.logprobs for _, c in rows])
    np.testing.assert_allclose(scored.logp_M.numpy(), engine_logp, rtol=0, atol=3e-5)


def test_greedy_logprobs_are_at_temperature_1(owner):
    request = requests_of()[1]
    (group,) = owner.engine.sample([request], Sampling(0.0, 1.0, 0, 8))
    with torch.no_grad():
        want = plain(owner.policy, request.prompt, group[0].tokens.tolist())[0]
    np.testing.assert_allclose(group[0].logprobs, want, rtol=0, atol=3e-5)


def test_what_follows_an_update_is_of_the_new_weights_and_says_so(owner):
    """Identity: log-probs of the changed policy, and its version; then the old ones again."""
    before = owner.engine.sample(requests_of(), HOW)
    saved = {k: v.clone() for k, v in owner.policy.model.state_dict().items()}
    noise = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in owner.policy.model.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=noise))
    owner.engine.weights_changed(11)
    after = owner.engine.sample(requests_of(), Sampling(1.0, 1.0, 0, 8))
    compare(owner.policy, after)
    assert {c.policy_version for g in after for c in g} == {11}
    owner.policy.model.load_state_dict(saved)
    owner.engine.weights_changed(12)
    again = owner.engine.sample(requests_of(), HOW)
    assert texts(again) == texts(before)
    assert {c.policy_version for g in again for c in g} == {12}
    owner.engine.report()


def test_the_scripted_engine_stamps_versions_through_its_script():
    engine = scripted()
    engine.weights_changed(4)
    assert {c.policy_version for g in engine.sample(requests_of(), HOW) for c in g} == {4}


def test_a_closed_engine_may_be_closed_again():
    for engine in (EmbeddedEngine(small(), memory_budget=1 << 28), scripted()):
        engine.close()
        engine.close()
