"""The simulation once more in PyTorch: losses through autograd, torch's own optimisers, one item
at a time where that is plainer. Shares nothing with brorl.simulator but the settings."""

import numpy as np
import torch

from brorl.simulator.settings import AdamW, NormalisedSgd, Ppo


class Oracle:
    def __init__(self, settings, logits, n):
        self.s, self.n = settings, n
        dtype = getattr(torch, settings.dtype)
        self.z = torch.tensor(logits, dtype=dtype, requires_grad=True)
        c = settings.optimizer
        if isinstance(c, AdamW):
            self.optimizer = torch.optim.AdamW(
                [self.z], lr=c.lr, betas=(c.beta1, c.beta2), eps=c.eps, weight_decay=c.decay
            )
        else:
            lr = c.lr * n if isinstance(c, NormalisedSgd) else c.lr
            self.optimizer = torch.optim.SGD([self.z], lr=lr)
        self.start = self.p

    @property
    def p(self):
        return torch.softmax(self.z.detach(), 0)

    def advantages(self, items):
        rewards = [
            self.s.reward_correct if v < self.s.correct else self.s.reward_wrong for v in items
        ]
        if self.s.baseline == "none":
            return rewards
        if self.s.baseline == "mean":
            return [r - sum(rewards) / len(rewards) for r in rewards]
        others = max(len(rewards) - 1, 1)
        return [r - (sum(rewards) - r) / others if len(rewards) > 1 else 0.0 for r in rewards]

    def loss(self, items, advantages, old):
        p = torch.softmax(self.z, 0)[items]
        a = torch.tensor(advantages, dtype=p.dtype)
        if self.s.loss.kind == "linear":
            value = a * p
        elif self.s.loss.kind == "log-likelihood":
            value = a * p.log()
        else:
            assert isinstance(self.s.loss, Ppo)
            ratio = p / old[items]
            clipped = ratio.clamp(1 - self.s.loss.clip_low, 1 + self.s.loss.clip_high)
            value = torch.minimum(ratio * a, clipped * a)
        return -value.sum() / self.n

    def step(self, draws):
        """Returns (correct mass, improved share, worst change, p before, dz)."""
        items = list(dict.fromkeys(draws)) if self.s.counting == "set" else list(draws)
        advantages, old, before = self.advantages(items), self.p, self.z.detach().clone()
        for _ in range(self.s.epochs):
            self.optimizer.zero_grad()
            self.loss(items, advantages, old).backward()
            self.optimizer.step()
        change = (self.p - self.start)[: self.s.correct]
        return (
            float(self.p[: self.s.correct].sum()),
            float((change > 0).double().mean()),
            float(change.min()),
            old.numpy(),
            (self.z.detach() - before).numpy(),
        )


class FirstDrawNumbers:
    """Numbers tokens as the simulator does: those that are alike by their first draw."""

    def __init__(self, next_number, vocab):
        self.next = next_number
        self.number = {v: v for v in range(next_number)}
        self.vocab = vocab

    def __call__(self, draws):
        for v in draws:
            if v not in self.number:
                self.number[v] = self.next
                self.next += 1
        return np.array([self.number[v] for v in draws])
