"""The fused layer against the stock one: values, gradients of everything, and when it steps aside."""

import copy

import pytest
import torch
from torch import nn

from brorl.policy import fused_layer, layer_halves
from brorl.policy.shared_prefix import PromptReader, shared_attention

from .small_models import ARCHITECTURES, model_of, named_policy

FUSED = [n for n in ARCHITECTURES if n.startswith(("llama", "qwen2"))]


def run(model, ids):
    """Hidden states of two prompts through a PromptReader, and its keys and values."""
    reader = PromptReader()
    positions = torch.arange(ids.shape[1])[None].expand(2, -1)
    with shared_attention(model):
        out = model.base_model(
            input_ids=ids, position_ids=positions, use_cache=False, reader=reader
        ).last_hidden_state
    return [out, *reader.keys_LGKCD, *reader.values_LGKCD]


def count(monkeypatch):
    """How often the fused projection runs."""
    calls = []
    real = fused_layer.project
    monkeypatch.setattr(fused_layer, "project", lambda *a: calls.append(1) or real(*a))
    return calls


@pytest.mark.parametrize("elements", [1, 200, layer_halves.CPU_ELEMENTS])
@pytest.mark.parametrize("name", FUSED)
def test_values_and_gradients_are_the_stock_layers(name, elements, monkeypatch):
    """Oracle: the same weights in a model that was never touched, through autograd. Pieces of a
    token, of some, of all. Float error: 1e-5 of the whole gradient's norm."""
    monkeypatch.setattr(layer_halves, "CPU_ELEMENTS", elements)
    monkeypatch.setattr(layer_halves, "LEAST_TOKENS", 1)
    architecture, config = ARCHITECTURES[name]
    fused, stock = named_policy(name).model, model_of(architecture, **config)
    ids = torch.randint(37, (2, 9), generator=torch.Generator().manual_seed(3))
    calls = count(monkeypatch)
    outs = [run(m, ids) for m in (fused, stock)]
    assert len(calls) == 2  # one a layer, of the fused model alone
    weights = [torch.randn(x.shape, generator=torch.Generator().manual_seed(4)) for x in outs[1]]
    for out in outs:
        sum((x * w).sum() for x, w in zip(out, weights, strict=True)).backward()
    for a, b in zip(*outs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    theirs = dict(stock.base_model.named_parameters())
    whole = torch.cat([p.grad.flatten() for p in theirs.values()]).norm()
    for key, p in fused.base_model.named_parameters():
        assert (p.grad - theirs[key].grad).norm() <= 1e-5 * whole, key
    with torch.no_grad():  # the path in place
        for a, b in zip(run(fused, ids), outs[1], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_gradients_in_pieces_are_summed_wide(monkeypatch):
    """Oracle in bfloat16: one token 1 and 255 tokens that each add 2^-9 to the gradient of W_down.
    A sum that is rounded to 8 bits at every piece stays at 1; the true one is 1 + 255 / 512."""
    monkeypatch.setattr(layer_halves, "CPU_ELEMENTS", 0)
    monkeypatch.setattr(layer_halves, "LEAST_TOKENS", 1)  # a piece a token
    tokens, bf16 = 256, torch.bfloat16
    x = torch.ones(tokens, 1, dtype=bf16, requires_grad=True)
    one, big = torch.ones(1, 1, dtype=bf16), torch.full((1, 1), 8.0, dtype=bf16)
    down = torch.zeros(1, 1, dtype=bf16, requires_grad=True)
    nothing = torch.zeros_like(x)
    out = layer_halves.finish(
        x, nothing, one, None, torch.ones(1, dtype=bf16), 0.0, big, None, one, None, down, None
    )
    out.backward(torch.tensor([1.0] + [2.0**-9] * (tokens - 1), dtype=bf16)[:, None])
    # silu(8) * 1 rounds to 8 in bfloat16: the sum is 8 (1 + 255 / 512), which rounds to 12.
    assert down.grad.item() == 12.0


class Wrapped(nn.Linear):
    """Stands for an adapter in place of a projection."""

    def forward(self, x):
        return super().forward(x) + 1


@pytest.mark.parametrize("name", ["qwen2, GQA, tied", "llama, MQA, biases"])
def test_a_bias_may_train_without_its_weight(name):
    """Oracle: the stock model with as many frozen; a silent None would train nothing."""
    architecture, config = ARCHITECTURES[name]
    fused, stock = named_policy(name).model, model_of(architecture, **config)
    ids = torch.randint(37, (2, 9), generator=torch.Generator().manual_seed(3))
    for model in (fused, stock):
        for key, p in model.named_parameters():
            p.requires_grad_(key.endswith("bias"))
        run(model, ids)[0].square().sum().backward()
    theirs = dict(stock.named_parameters())
    trained = {key: p.grad for key, p in fused.named_parameters() if p.requires_grad}
    assert trained
    for key, grad in trained.items():
        torch.testing.assert_close(grad, theirs[key].grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("what", ["adapter", "hook", "act hook", "method", "activation"])
def test_what_is_not_a_stock_layer_takes_its_own_forward(what):
    """Attack: each changes the layer's result, and would be passed over in silence."""
    policy = named_policy("llama, GQA, untied")
    ids = torch.randint(37, (2, 5), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        before = run(policy.model, ids)[0]
        mlp = policy.model.model.layers[0].mlp
        if what == "adapter":
            mlp.up_proj.__class__ = Wrapped
        elif what == "hook":
            mlp.up_proj.register_forward_hook(lambda m, a, out: out + 1)
        elif what == "act hook":
            mlp.act_fn.register_forward_hook(lambda m, a, out: out + 1)
        elif what == "method":
            real = mlp.forward
            mlp.forward = lambda x: real(x) + 1
        else:
            mlp.act_fn = nn.GELU()
        after = run(policy.model, ids)[0]
    assert (after - before).abs().max() > 0.01


def test_a_copy_runs_its_own_weights():
    """Attack: a bound method that a deep copy shares would run the weights of the original."""
    policy = named_policy("llama, GQA, untied")
    ids = torch.randint(37, (2, 5), generator=torch.Generator().manual_seed(3))
    copied = copy.deepcopy(policy.model)
    with torch.no_grad():
        before = run(policy.model, ids)[0]
        copied.model.layers[0].mlp.up_proj.weight.zero_()
        assert torch.equal(run(policy.model, ids)[0], before)
        assert not torch.equal(run(copied, ids)[0], before)
