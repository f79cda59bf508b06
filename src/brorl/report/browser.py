"""The groups that the page carries with it: a few of the last recorded steps, ready to be shown."""

from pathlib import Path
from typing import Any

from brorl.record.rollouts import rollout_steps
from brorl.report.groups import Answer, Step
from brorl.report.surprise import Pick, pick
from brorl.report.text import printable, safe_json, shorten

STEPS = 3  # the last ones that have rollouts
ANSWERS = 12  # distinct answers shown of a group
PROMPT, TEXT, SHORT = 2000, 1200, 200  # characters of a prompt, a sample, an answer or reason


def browser_groups(run: Path, *, most_groups: int, most_bytes: int) -> list[dict[str, Any]]:
    """Groups for the rollout browser, the newest step first, the most surprising first in a step.

    Args:
        run: the run folder.
        most_groups: of all steps together; each step gets an equal share.
        most_bytes: of their JSON; groups that would go beyond it are left out.

    Returns:
        Plain values; every text of the model is printable and cut to size.

    Raises:
        DataError: a rollout file that cannot be read.
    """
    steps = rollout_steps(run)[-STEPS:][::-1]
    found: list[dict[str, Any]] = []
    size = 0
    for i, step in enumerate(steps):
        share = (most_groups - len(found)) // (len(steps) - i)
        for group in _of_step(Step(run, step), share):
            more = len(safe_json(group))
            if size + more <= most_bytes:
                found.append(group)
                size += more
    return found


def _of_step(step: Step, most: int) -> list[dict[str, Any]]:
    picks = pick(step.groups(), most)
    answers = step.answers([p.group.group_id for p in picks])
    shown = {name: _shown(found) for name, found in answers.items()}
    heads = step.rows([p.group.first_row for p in picks], ["prompt", "gold"])
    samples = step.rows(
        [a.row for found in shown.values() for a in found], ["text", "reason", "stop"]
    )
    return [
        _group(step.step, p, heads[p.group.first_row], answers[p.group.group_id], samples)
        for p in picks
    ]


def _shown(answers: list[Answer]) -> list[Answer]:
    """The commonest answers; a right one is always among them, however rare."""
    if len(answers) <= ANSWERS:
        return answers
    right = [a for a in answers if a.right][:2]
    chosen = {a.row for a in [*right, *answers][:ANSWERS]}
    return [a for a in answers if a.row in chosen]


def _group(
    step: int,
    picked: Pick,
    head: dict[str, Any],
    answers: list[Answer],
    samples: dict[int, dict[str, Any]],
) -> dict[str, Any]:
    group = picked.group
    shown = _shown(answers)
    return {
        "step": step,
        "kind": picked.kind,
        "problem": _text(group.problem_id, SHORT),
        "group": _text(group.group_id, SHORT),
        "born": group.born,
        "n": group.n,
        "graded": group.graded,
        "right": group.right,
        "distinct": group.distinct,
        "truncated": group.truncated,
        "disputed": group.disputed,
        "outcome": group.outcome,
        "why": group.why,
        "prompt": _text(head["prompt"], PROMPT),
        "gold": None if head["gold"] is None else _text(head["gold"], SHORT),
        "answers": [_answer(a, samples[a.row]) for a in shown],
        "more": len(answers) - len(shown),
    }


def _answer(answer: Answer, sample: dict[str, Any]) -> dict[str, Any]:
    return {
        "answer": _text(answer.answer, SHORT),
        "count": answer.votes,
        "right": answer.right,
        "verdicts": answer.verdicts,
        "advantage": None if answer.advantage is None else round(answer.advantage, 4),
        "text": _text(sample["text"], TEXT),
        "reason": _text(sample["reason"] or "", SHORT),
        "stop": sample["stop"],
        "sample": answer.sample_index,
    }


def _text(text: str, limit: int) -> str:
    return printable(shorten(text, limit))
