"""Hugging Face alone: generate(num_return_sequences=N), and a padded forward and backward."""

import torch
from ours import policy_of, prompt_of, rollouts
from serve import case, serve


def generation(c):
    policy = policy_of(c)
    ids = torch.tensor([prompt_of(policy, c)])

    @torch.inference_mode()
    def work():
        policy.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            num_return_sequences=c["n"],
            min_new_tokens=c["answer"],
            max_new_tokens=c["answer"],
            pad_token_id=0,
        )

    return work


def updates(c):
    """As trainers do it: every row is prompt and answer, logits of the answer's tokens only."""
    policy = policy_of(c)
    tokens = rollouts(policy, c)
    whole = torch.cat([torch.tensor([prompt_of(policy, c)]).expand(len(tokens), -1), tokens], 1)
    answer = c["answer"]

    def work():
        policy.model.zero_grad(set_to_none=True)
        for part in whole.split(c["rows"]):
            mask = torch.ones_like(part)
            out = policy.model(
                input_ids=part, attention_mask=mask, use_cache=False, logits_to_keep=answer + 1
            )
            logp = out.logits[:, :-1].float().log_softmax(-1)
            logp.gather(-1, part[:, -answer:, None]).sum().backward()

    return work


if __name__ == "__main__":
    chosen = case()
    serve({"generation": generation, "update": updates}[chosen["work"]](chosen))
