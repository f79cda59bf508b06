"""One rank of verl's FSDP2 engine on gloo, outside Ray: gradients of prepared mini-batches.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=... MASTER_PORT=... python engine_rank.py MODEL CASES OUT

CASES is a torch file: a list of {"actor": settings of verl's actor, "rows": columns of a
mini-batch, "micro_batch_tokens": n}. OUT gets, from rank 0, the full gradient by parameter and the
loss, for each case; nothing steps.
"""

import os
import sys
from functools import partial

import torch
import verl  # noqa: F401  (loads cpu_platform and our plugin: VERL_USE_EXTERNAL_MODULES)
from tensordict import TensorDict
from verl.trainer.config import CheckpointConfig
from verl.utils import tensordict_utils as tu
from verl.workers.config import (
    FSDPActorConfig,
    FSDPEngineConfig,
    FSDPOptimizerConfig,
    HFModelConfig,
)
from verl.workers.config.actor import PolicyLossConfig
from verl.workers.engine import EngineRegistry
from verl.workers.utils.losses import ppo_loss


def build(model):
    precision = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    engine_config = FSDPEngineConfig(
        strategy="fsdp2",
        use_torch_compile=False,
        mixed_precision=precision,
        model_dtype="fp32",
    )
    model_config = HFModelConfig(
        path=model,
        use_remove_padding=False,
        enable_gradient_checkpointing=False,
        override_config={"attn_implementation": "sdpa"},
    )
    model_config.model_type = "language_model"
    engine = EngineRegistry.new(
        model_type="language_model",
        backend="fsdp2",
        model_config=model_config,
        engine_config=engine_config,
        optimizer_config=FSDPOptimizerConfig(lr=0.0, clip_grad=1e9),
        checkpoint_config=CheckpointConfig(),
    )
    engine.initialize()
    return engine


def ragged(rows):
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def batch_of(case, rank, world):
    """This rank's share of the rows, as verl's workers get them."""
    mine = case["rows"][rank::world]
    columns = {name: ragged([row[name] for row in mine]) for name in mine[0]}
    columns["input_ids"] = ragged([torch.cat([r["prompts"], r["responses"]]) for r in mine])
    columns["position_ids"] = ragged(
        [torch.arange(len(r["prompts"]) + len(r["responses"])) for r in mine]
    )
    columns["loss_mask"] = columns["response_mask"]
    data = TensorDict(columns, batch_size=len(mine))
    tu.assign_non_tensor(
        data,
        global_batch_size=case["global_batch_size"],
        temperature=case["temperature"],
        calculate_entropy=False,
        use_remove_padding=False,
        use_dynamic_bsz=True,
        max_token_len_per_gpu=case["micro_batch_tokens"],
        use_fused_kernels=False,
    )
    return data


def main(model, cases, out):
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.distributed.init_process_group("gloo")
    engine = build(model)
    found = []
    for case in torch.load(cases, weights_only=False):
        given = dict(case["actor"])
        loss_mode = PolicyLossConfig(loss_mode=given.pop("loss_mode"))
        actor = FSDPActorConfig(rollout_n=1, use_dynamic_bsz=True, policy_loss=loss_mode, **given)
        data = batch_of(case, rank, world)
        with engine.train_mode():
            engine.optimizer_zero_grad()
            output = engine.forward_backward_batch(data, partial(ppo_loss, config=actor))
            gradient = {
                name: p.grad.full_tensor().clone()
                if hasattr(p.grad, "full_tensor")
                else p.grad.clone()
                for name, p in engine.module.named_parameters()
            }
        loss = torch.tensor(
            sum(output["loss"]) if isinstance(output["loss"], list) else output["loss"]
        )
        torch.distributed.all_reduce(loss, op=torch.distributed.ReduceOp.AVG)
        found.append({"loss": float(loss), "gradient": gradient})
    if rank == 0:
        torch.save(found, out)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
