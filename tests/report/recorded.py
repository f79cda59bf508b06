"""Small recorded runs for tests, written with the writers that training uses."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from brorl.evaluate.results import (
    Evaluation,
    ModelSource,
    Protocol,
    SuiteResult,
    problem_result,
    write_evaluation,
)
from brorl.record.evals import eval_path
from brorl.record.metrics import append_metrics
from brorl.record.rollouts import RolloutRow, write_rollouts
from brorl.record.rundir import create_run
from brorl.stats.pass_at_k import pass_at_k
from brorl.verify.verdict import correct, wrong

CONFIG = {
    "name": "tiny",
    "seed": 0,
    "rollout": {"n": 4, "waves": None},
    "prompts_per_step": 2,
    "steps": 3,
}
ENVIRONMENT = {
    "device_name": "cpu",
    "model": {"source": "tiny", "parameters": 1234},
    "data": {"task": "spell_backward"},
}


def new_run(path: Path, config: Any = CONFIG, environment: Any = ENVIRONMENT) -> Path:
    """A run folder with nothing recorded yet."""
    create_run(
        path, {"config.yaml": yaml.safe_dump(config), "environment.json": json.dumps(environment)}
    )
    return path


def row(**fields: Any) -> RolloutRow:
    """A wrong answer that the update saw, but for what `fields` say."""
    plain: dict[str, Any] = {
        "run": "tiny",
        "step": 1,
        "born": fields.get("step", 1),
        "task": "spell_backward",
        "problem_id": "p0",
        "group_id": "p0#0",
        "sample_index": 0,
        "prompt": "rev abc=",
        "gold": "cba",
        "prompt_ids": None,
        "response_ids": None,
        "mask": None,
        "engine_logprobs": None,
        "response_length": 4,
        "stop": "eos",
        "policy_version": 0,
        "text": "abc",
        "verdict": "wrong",
        "extracted": "abc",
        "reason": "",
        "raw_score": 0.0,
        "true_score": 0.0,
        "shaped_reward": 0.0,
        "advantage": -0.5,
        "weight": 1.0,
        "kept": True,
        "fate": "kept",
    }
    assert fields.keys() <= plain.keys()
    return RolloutRow(**(plain | fields))


def group(name: str, answers: Sequence[str | None], gold: str = "cba", **fields: Any) -> list[Any]:
    """Rows of one group; an answer that equals the gold is right, None is no answer."""
    return [
        row(
            problem_id=name,
            group_id=f"{name}#0",
            sample_index=i,
            gold=gold,
            text=answer or "",
            extracted=answer,
            verdict="no_answer" if answer is None else "correct" if answer == gold else "wrong",
            raw_score=float(answer == gold),
            true_score=float(answer == gold),
            **fields,
        )
        for i, answer in enumerate(answers)
    ]


def metrics(step: int, **fields: Any) -> dict[str, Any]:
    """A line of metrics.jsonl as training writes it, shortened."""
    plain = {
        "step": step,
        "updates": 2 * step,
        "groups/solved_none": 0.5,
        "groups/solved_some": 0.5,
        "groups/solved_all": 0.0,
        "samples/generated": 8,
        "samples/kept": 4,
        "dynamic_sampling/pass_rate": 0.5,
        "reward/mean": 0.1 * step,
        "reward/true_mean": 0.1 * step,
        "response/length_mean": 4.0,
        "verdict/correct": 0.25,
        "verdict/wrong": 0.75,
        "verdict/timeout": 0.0,
        "group/distinct_answers": 2.0,
        "policy/entropy": 0.5,
        "policy/lr": 1e-3,
        "pass@k/1": 0.25,
        "pass@k/4": 0.5,
        "time/generate": 1.0,
        "time/grade": 0.25,
        "time/update": 0.5,
        "time/eval": 2.0,
        "time/other": 0.25,
        "memory/peak_rss": 1 << 30,
    }
    return plain | fields


def evaluate(run: Path, step: int, right: Sequence[int], n: int = 4) -> dict[str, Any]:
    """Write eval/step-N.json with `right[i]` of n samples right on problem i; its metrics."""
    problems = [
        problem_result(
            f"heldout/{i}",
            task="spell_backward",
            category="spell_backward",
            verdicts=[correct("x", "")] * c + [wrong("y", "")] * (n - c),
            tokens=[4] * n,
            truncated=[False] * n,
        )
        for i, c in enumerate(right)
    ]
    write_evaluation(
        Evaluation(
            model=ModelSource(source=str(run), step=step, dtype="float32"),
            protocol=Protocol(
                samples=n,
                temperature=1.0,
                top_p=1.0,
                top_k=0,
                max_new_tokens=12,
                chat_template=None,
                engine="embedded",
                seed=0,
            ),
            versions={},
            suites={
                "spell_backward": SuiteResult(
                    source="s",
                    source_sha256="0" * 64,
                    verifier="exact",
                    prompt="{prompt}",
                    set_aside=0,
                    problems=tuple(problems),
                )
            },
        ),
        eval_path(run, step),
    )
    found: dict[str, Any] = {"eval/problems": len(right), "eval/length_mean": 4.0}
    for k in (1, 2, 4):
        value = float(np.mean(pass_at_k(right, [n] * len(right), k)))
        found |= {f"eval/pass@{k}": value, f"eval/pass@{k}_low": max(0.0, value - 0.1)}
        found[f"eval/pass@{k}_high"] = min(1.0, value + 0.1)
    return found


def finished_run(path: Path, steps: int = 3, **config: Any) -> Path:
    """A run with evaluations before and after, and rollouts of every step."""
    run = new_run(path, CONFIG | {"steps": steps} | config)
    append_metrics(run, {"step": 0, "updates": 0} | evaluate(run, 0, [0, 1, 2, 0]))
    for step in range(1, steps + 1):
        rows = group("easy", ["cba", "cba", "abc", "cba"], step=step)
        rows += group("hard", ["abc", "abc", None, "acb"], step=step, kept=False, advantage=None)
        write_rollouts(run, step, rows)
        more = evaluate(run, step, [1, 4, 3, 2]) if step == steps else {}
        append_metrics(run, metrics(step) | more)
    return run
