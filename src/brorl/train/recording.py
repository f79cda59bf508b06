"""From a step's groups to the rows of its rollout file."""

from collections.abc import Iterator, Sequence

from brorl.record.rollouts import RolloutRow
from brorl.train.collect import Collected
from brorl.train.groups import Fate, Group, Sample


def rollout_rows(run: str, step: int, collected: Collected, tokens: str) -> list[RolloutRow]:
    """Rows of every answer sampled in this step, and of carried groups that this step used.

    Args:
        run: name of the run.
        step: that writes them.
        collected: groups with advantages set.
        tokens: "all", "kept" or "none": whose token fields are recorded.
    """
    used = [g for g in collected.kept if g.born != step]
    return list(_rows(run, step, [*used, *collected.fresh], tokens))


def _rows(run: str, step: int, groups: Sequence[Group], tokens: str) -> Iterator[RolloutRow]:
    for group in groups:
        for sample in group.samples:
            kept = sample.fate is Fate.KEPT and sample.advantage is not None
            with_tokens = tokens == "all" or (tokens == "kept" and kept)
            yield _row(run, step, group, sample, kept, with_tokens)


def _row(
    run: str, step: int, group: Group, sample: Sample, kept: bool, with_tokens: bool
) -> RolloutRow:
    completion, verdict, problem = sample.completion, sample.verdict, group.problem
    return RolloutRow(
        run=run,
        step=step,
        born=group.born,
        task=problem.task,
        problem_id=problem.id,
        group_id=group.id,
        sample_index=sample.index,
        prompt=problem.prompt,
        gold=problem.gold,
        prompt_ids=group.prompt if with_tokens else None,
        response_ids=completion.tokens if with_tokens else None,
        mask=completion.mask if with_tokens else None,
        engine_logprobs=completion.logprobs if with_tokens else None,
        response_length=len(completion.tokens),
        stop=str(completion.stop),
        policy_version=completion.policy_version,
        text=sample.text,
        verdict=str(verdict.kind),
        extracted=verdict.extracted,
        reason=verdict.reason,
        raw_score=sample.raw,
        true_score=verdict.score,
        shaped_reward=sample.shaped,
        advantage=sample.advantage,
        weight=sample.weight,
        kept=kept,
        fate=str(sample.fate),
    )
