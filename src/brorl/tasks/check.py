"""Whether a task can be trained on: its verifier takes its own golds, and does not take junk."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from brorl.seeds import generator
from brorl.tasks.problem import Problem, Task
from brorl.verify.pool import GraderPool
from brorl.verify.verdict import Kind, Verdict

JUNK = ("", "zzz", "I do not know.", "\\boxed{}", "<answer></answer>")


class Refusal(NamedTuple):
    """A gold that the task's own verifier does not accept."""

    problem_id: str
    text: str
    verdict: Verdict


class TaskCheck(NamedTuple):
    """What came of a check. Numbers are of problems."""

    checked: int
    accepted: int
    without_gold: int  # nothing to check them with: only a scorer knows what is right
    refused: tuple[Refusal, ...]
    paid_junk: tuple[Refusal, ...]  # junk that was paid in full

    @property
    def valid(self) -> bool:
        """Whether the task may be trained on."""
        return not self.refused and not self.paid_junk


def check_task(task: Task, *, sample: int, seed: int, deadline_s: float) -> TaskCheck:
    """Grade the golds of some problems, and junk against the same problems, in a grader process.

    Args:
        task: to be checked.
        sample: problems to look at, >= 1, drawn from training and held-out problems alike.
        seed: names the draw.
        deadline_s: for one grading.

    Raises:
        VerifierError: the verifier broke.
    """
    problems = [*task.problems("train"), *task.problems("eval")]
    order = generator(seed, "tasks", "check").permutation(len(problems))[:sample]
    chosen = [problems[int(i)] for i in order]
    golds = [(p, text) for p in chosen if (text := gold_text(task, p)) is not None]
    with GraderPool(workers=1, deadline_s=deadline_s) as pool:
        verdicts = _judge(pool, task, golds)
        junk = [(p, text) for p in chosen[:20] for text in JUNK if (p.gold or "").strip() != text]
        paid = _judge(pool, task, junk)
    refused = _those(golds, verdicts, lambda v: v.kind is not Kind.CORRECT)
    return TaskCheck(
        checked=len(golds),
        accepted=len(golds) - len(refused),
        without_gold=len(chosen) - len(golds),
        refused=refused,
        paid_junk=_those(junk, paid, lambda v: v.kind is Kind.CORRECT),
    )


def gold_text(task: Task, problem: Problem) -> str | None:
    """The gold as a policy should write it; None where there is nothing to write."""
    if problem.worked is not None:
        return problem.worked
    write = getattr(task.verifier, "write", None)
    if problem.gold is None:
        return None
    return problem.gold if write is None else str(write(problem.gold, problem.row))


def _judge(pool: GraderPool, task: Task, texts: Sequence[tuple[Problem, str]]) -> list[Verdict]:
    tickets = [
        pool.submit(task.verifier, problem_id=p.id, text=text, gold=p.gold, row=p.row)
        for p, text in texts
    ]
    return pool.gather(tickets)


def _those(
    texts: Sequence[tuple[Problem, str]],
    verdicts: Sequence[Verdict],
    wanted: Callable[[Verdict], bool],
) -> tuple[Refusal, ...]:
    return tuple(
        Refusal(p.id, text, v) for (p, text), v in zip(texts, verdicts, strict=True) if wanted(v)
    )
