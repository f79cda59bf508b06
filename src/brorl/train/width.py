"""What a width leaves unsampled, measured on the policy's own next-token distributions."""

from collections.abc import Sequence

import numpy as np
import torch

from brorl.policy.model import Policy
from brorl.theory.coverage import expected_unsampled_second_moment, unsampled_second_moment
from brorl.train.groups import Group


@torch.no_grad()
def width_metrics(policy: Policy, groups: Sequence[Group], temperature: float) -> dict[str, float]:
    """What the width left unsampled, on the policy's own first-token distributions.

    Per group, p is the distribution of the first answer token under the weights that sampled
    it and N the group's size: the second moment of the tokens that were not drawn, and its
    expectation sum p^2 (1 - p)^N (arXiv:2510.01180v1, Lemma 2). Means over groups. Call it
    before the update.
    """
    groups = [g for g in groups if g.samples]
    if not groups:
        return {}
    logits = policy.logits(policy.read_prompts([g.prompt for g in groups]).last_hidden_GD)
    logits = logits.double() / temperature
    found, expected = [], []
    for group, row in zip(groups, logits.cpu().numpy(), strict=True):
        p = np.exp(row - row.max())
        p /= p.sum()
        drawn = np.zeros(len(p), dtype=bool)
        drawn[[int(x.completion.tokens[0]) for x in group.samples]] = True
        moment = unsampled_second_moment(p, np.ones_like(drawn), drawn)
        found.append(moment.total)
        lemma = expected_unsampled_second_moment(p, np.ones_like(drawn), [len(group.samples)])
        expected.append(float(lemma.total_W[0]))
    return {
        "width/unsampled_second_moment": float(np.mean(found)),
        "width/unsampled_second_moment_expected": float(np.mean(expected)),
    }
