"""Who answers in an evaluation: a policy opened here, in process or through vLLM, or a server."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from brorl.cli.eval_model import CONTEXT, RESERVED, new_token_limit, open_model, template_hash
from brorl.errors import ConfigError, DataError
from brorl.evaluate.results import ModelSource
from brorl.policy.load import load_without_model
from brorl.policy.model import Policy
from brorl.policy.speech import Speech
from brorl.record.rundir import CONFIG
from brorl.rollout.engine import Engine
from brorl.rollout.factory import check_engine, open_engine
from brorl.rollout.options import (
    LOWEST_VLLM_TEMPERATURE,
    EngineName,
    OpenAIOptions,
    VllmOptions,
)
from brorl.train.checkpoint import find_checkpoint, open_checkpoint
from brorl.train.yaml_values import parse

Options = TypeVar("Options", bound=BaseModel)


class Answerer(NamedTuple):
    """What an evaluation needs to know of whoever answers."""

    speech: Policy | Speech  # encodes prompts, decodes answers
    source: ModelSource
    template: str | None  # hash
    max_new_tokens: Callable[[Iterable[str], int | None], int]
    engine: Callable[[int], Engine]  # opened last, for prompt + answer of so many tokens


def engine_name(name: str, base_url: str | None, temperature: float) -> EngineName:
    """The engine that the words name, if it samples at that temperature. Raises ConfigError."""
    if name not in ("embedded", "vllm", "openai"):
        raise ConfigError(f"need --engine embedded, vllm or openai, got {name!r:.60}")
    if (name == "openai") != (base_url is not None):
        raise ConfigError("--engine openai and --base-url URL belong together")
    if name == "vllm" and 0 < temperature < LOWEST_VLLM_TEMPERATURE:
        raise ConfigError(
            f"--temperature {temperature}: vLLM would sample at {LOWEST_VLLM_TEMPERATURE} instead"
        )
    return name  # type: ignore[return-value]  # one of them: checked above


def options_of(kind: type[Options], pairs: Sequence[str], **given: object) -> Options:
    """Options from KEY=VALUE texts, values in YAML. Raises ConfigError in one line."""
    values = dict(given)
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or not key.strip():
            raise ConfigError(f"--engine-option reads KEY=VALUE, got {pair!r:.80}")
        values[key.strip()] = parse(text, f"--engine-option {key.strip()}")
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"])) or "options"
        known = ", ".join(kind.model_fields)
        reason = " ".join(first["msg"].removeprefix("Value error, ").split())
        raise ConfigError(f"--engine-option {key}: {reason}; known: {known}") from error


def answering_policy(
    model: str,
    name: EngineName,
    pairs: Sequence[str],
    *,
    revision: str | None,
    dtype: str | None,
    device: str,
    plain: bool,
    memory_budget: int,
) -> Answerer:
    """MODEL opened here; it samples in process, or vLLM does with its weights.

    Raises:
        ConfigError, DataError, PolicyError: see open_model and open_engine.
    """
    if name == "embedded" and pairs:
        raise ConfigError("--engine-option belongs to vllm and openai, the engine is embedded")
    options = options_of(VllmOptions, pairs) if name == "vllm" else VllmOptions()
    check_engine(name)
    opened = open_model(model, revision=revision, dtype=dtype, device=device, plain=plain)
    policy = opened.policy
    return Answerer(
        policy,
        opened.source,
        template_hash(policy),
        lambda prompts, wanted: new_token_limit(policy, prompts, wanted),
        lambda tokens: open_engine(
            name, policy, memory_budget=memory_budget, max_tokens=lambda: tokens, vllm=options
        ),
    )


def answering_server(
    model: str,
    pairs: Sequence[str],
    *,
    base_url: str,
    revision: str | None,
    dtype: str | None,
    device: str,
    plain: bool,
) -> Answerer:
    """A server's model, with the tokenizer and template of MODEL.

    Raises:
        ConfigError: options of another engine, or a model that the server does not have.
        PolicyError, DataError: no tokenizer at MODEL.
        EngineError: the server does not answer.
    """
    from brorl.rollout.openai_engine import OpenAIEngine

    if dtype is not None or device != "auto":
        raise ConfigError("--dtype and --device are the server's affair with --engine openai")
    options = options_of(OpenAIOptions, pairs, base_url=base_url)
    path = Path(model)
    run = (path / CONFIG).is_file()
    folder = str(open_checkpoint(find_checkpoint(path)).folder) if run else model
    without = load_without_model(folder, revision=revision)
    if plain:
        without.speech.tokenizer.chat_template = None
    engine = OpenAIEngine(without, options)
    known = [n for n in (without.positions, engine.max_tokens) if n is not None]
    return Answerer(
        without.speech,
        ModelSource(source=f"{engine.model} at {base_url}", revision=revision),
        template_hash(without.speech),
        lambda prompts, wanted: _room(without.speech, prompts, wanted, min(known, default=CONTEXT)),
        lambda tokens: engine,
    )


def _room(speech: Speech, prompts: Iterable[str], wanted: int | None, positions: int) -> int:
    """As new_token_limit, from the positions that model and server are known to have."""
    longest = max(len(speech.encode(prompt)) for prompt in prompts)
    limit = wanted or max(1, min(CONTEXT - RESERVED, positions - longest))
    if longest + limit > positions:
        raise DataError(
            f"a prompt of {longest} tokens and {limit} new ones need {longest + limit} positions, "
            f"the server's model has {positions}"
        )
    return limit
