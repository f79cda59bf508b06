"""The supervised start: worked answers until the policy is right some of the time.

A policy that is never right gives no reward to learn from, and one that is always right has
nothing left to learn. So training stops at a pass rate, not at a number of steps, which differs
between seeds. The result is cached by content.
"""

import hashlib
import json
import os
import pickle
import platform
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import transformers
from safetensors import SafetensorError
from torch.nn import functional as F

import brorl
from brorl.errors import DataError, RunError
from brorl.policy.load import save_policy
from brorl.policy.model import Policy
from brorl.record.files import remove_tree, sync_folder, sync_tree
from brorl.rollout.embedded import EmbeddedEngine
from brorl.rollout.engine import Request, Sampling
from brorl.seeds import derive_seed, generator
from brorl.tasks.problem import Problem
from brorl.train.settings import TrainSettings, WarmstartSettings
from brorl.verify.protocol import Verifier

PROBE = 128
"""Worked problems set apart from training: the pass rate is measured on them."""


def warm_start(
    policy: Policy,
    problems: Sequence[Problem],
    verifier: Verifier,
    settings: TrainSettings,
    progress: Callable[[int, float, float | None], None],
) -> float:
    """Train on worked answers until `until` of the probe's answers are right; the rate reached.

    Cross-entropy of answer and EOS, averaged over their tokens; the prompt is not trained on.

    Args:
        policy: changed in place.
        problems: with worked answers; the last PROBE of them are the probe.
        verifier: judges the probe's answers.
        settings: of the run; `warmstart` must be set.
        progress: called with (step, loss, pass rate or None).

    Raises:
        DataError: too few problems, or one without a worked answer.
    """
    s = settings.warmstart
    if s is None:
        raise DataError("warm start without warmstart settings")
    if len(problems) < 2 * PROBE:
        raise DataError(f"a warm start needs {2 * PROBE} worked problems, got {len(problems)}")
    eos = policy.tokenizer.eos_token_id
    examples = [_example(policy, p, eos) for p in problems[:-PROBE]]
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=s.lr, betas=(0.9, 0.95))
    rate = 0.0
    for step in range(s.steps):
        rows = generator(settings.seed, "warmstart", step).integers(
            len(examples), size=s.batch_size
        )
        loss = _loss(policy, [examples[i] for i in rows.tolist()])
        for group in optimizer.param_groups:
            group["lr"] = s.lr * min(1.0, (step + 1) / (s.warmup_steps + 1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), s.grad_clip)
        optimizer.step()
        probes = (step + 1) % s.probe_every == 0 or step + 1 == s.steps
        if probes:
            rate = _pass_rate(policy, problems[-PROBE:], verifier, settings)
        progress(step + 1, float(loss.detach()), rate if probes else None)
        if probes and rate >= s.until:
            break
    return rate


def cached_warm_start(
    policy: Policy,
    problems: Sequence[Problem],
    verifier: Verifier,
    settings: TrainSettings,
    progress: Callable[[int, float, float | None], None],
) -> tuple[Path, float | None]:
    """The warm start's checkpoint folder: from the cache, or made now and put there.

    Returns:
        The folder, and the pass rate reached where it was made now.
    """
    folder = cache_root() / "warmstart" / _key(policy, problems, verifier, settings)
    if (folder / "complete").is_file():
        return folder, None
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        shutil.rmtree(aside, ignore_errors=True)  # of a killed process that had this number
        aside.mkdir(parents=True)  # before the work: a folder that cannot be written shows at once
        rate = warm_start(policy, problems, verifier, settings, progress)
        save_policy(policy, aside)
        (aside / "complete").write_text(f"{rate}\n")
        sync_tree(aside)
        if (folder / "complete").is_file():  # another run of the same content was faster
            return folder, rate
        if folder.exists():  # not ours, or damaged
            remove_tree(folder)
        aside.rename(folder)
        sync_folder(folder.parent)
    except (OSError, SafetensorError) as error:
        raise RunError(
            f"the warm start cannot be kept in {folder.parent}: "
            f"{getattr(error, 'strerror', None) or error}; set BRORL_CACHE to a folder that can "
            "be written"
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder, rate


def cache_root() -> Path:
    """BRORL_CACHE, else ~/.cache/brorl."""
    named = os.environ.get("BRORL_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "brorl"


def _key(
    policy: Policy, problems: Sequence[Problem], verifier: Verifier, settings: TrainSettings
) -> str:
    """Hash of all that the result depends on, machine type and versions included."""
    s: WarmstartSettings | None = settings.warmstart
    content = {
        "settings": s.model_dump(mode="json") if s else None,
        "max_new_tokens": settings.rollout.max_new_tokens,
        "seed": settings.seed,
        "config": policy.model.config.to_json_string(),
        "vocabulary": sorted(policy.tokenizer.get_vocab().items()),
        "verifier": hashlib.sha256(pickle.dumps(verifier, protocol=5)).hexdigest(),
        "memory_budget": settings.rollout.memory_budget,
        "problems": [(p.id, p.prompt, p.worked, p.gold) for p in problems],
        "versions": [brorl.__version__, torch.__version__, transformers.__version__],
        "machine": [platform.machine(), str(torch.backends.cpu.get_cpu_capability())],
        "threads": torch.get_num_threads(),
        "device": str(policy.device),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]


def _example(policy: Policy, problem: Problem, eos: int) -> tuple[list[int], int]:
    """Token ids of prompt + worked answer + EOS, and how many belong to the prompt."""
    if problem.worked is None:
        raise DataError(f"problem {problem.id} has no worked answer to start from")
    prompt = policy.encode(problem.prompt)
    answer = policy.tokenizer(problem.worked, add_special_tokens=False).input_ids
    return [*prompt, *answer, eos], len(prompt)


def _loss(policy: Policy, examples: Sequence[tuple[list[int], int]]) -> torch.Tensor:
    width = max(len(ids) for ids, _ in examples)
    ids = torch.zeros(len(examples), width, dtype=torch.int64)
    target = torch.full_like(ids, -100)
    for row, (tokens, prompt) in enumerate(examples):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        target[row, prompt : len(tokens)] = torch.tensor(tokens[prompt:])
    ids, target = ids.to(policy.device), target.to(policy.device)
    # Padding lies on the right, where a causal model does not look.
    logits = policy.model(input_ids=ids, use_cache=False).logits[:, :-1].float()
    return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())


def _pass_rate(
    policy: Policy, problems: Sequence[Problem], verifier: Verifier, settings: TrainSettings
) -> float:
    engine = EmbeddedEngine(policy, memory_budget=settings.rollout.memory_budget)
    requests = [
        Request(
            p.id, p.id, policy.encode(p.prompt), 0, 4, derive_seed(settings.seed, "probe", p.id)
        )
        for p in problems
    ]
    right = total = 0
    groups = engine.sample(requests, Sampling(1.0, 1.0, 0, settings.rollout.max_new_tokens))
    for problem, group in zip(problems, groups, strict=True):
        for text in policy.decode_all([c.tokens for c in group]):
            answer = verifier.extract(text, problem.row)
            total += 1
            if answer is not None:
                right += verifier.grade(answer, gold=problem.gold, row=problem.row).score == 1.0
    return right / total
