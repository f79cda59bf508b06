"""TRL's GRPOTrainer: one whole step for every line that it is sent."""

import os
import sys

sys.path.pop(0)  # this file's folder: its name would hide the library
sys.path.append(os.path.dirname(os.path.abspath(__file__)))

import tempfile

import torch
from datasets import Dataset
from serve import Meter, case, prompt_text, say
from transformers import AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


def digits(completions, **_):
    return [sum(ch.isdigit() for ch in text) / max(1, len(text)) for text in completions]


class Turn(TrainerCallback):
    """Waits for its turn at the start of each step and says how it went at the end."""

    def on_train_begin(self, *_, **__):
        self.meter = Meter()
        say({"torch": torch.__version__})

    def on_step_begin(self, *_, **__):
        if not sys.stdin.readline():
            os._exit(0)
        self.meter.__enter__()

    def on_step_end(self, *_, **__):
        self.meter.__exit__()
        say(self.meter.reading)


def main(c, folder):
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    text = prompt_text(c["prompt"] - 2)
    rows = Dataset.from_list([{"prompt": f"{text}{i:02d}"} for i in range(64)])
    config = GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=c["rows"],
        gradient_accumulation_steps=c["n"] // c["rows"],
        num_generations=c["n"],
        max_completion_length=c["answer"],
        generation_kwargs={"min_new_tokens": c["answer"]},
        max_steps=1000,
        learning_rate=1e-3,
        beta=0.0,
        epsilon=0.2,
        epsilon_high=0.28,
        loss_type="dapo",
        scale_rewards="group",
        temperature=1.0,
        logging_steps=1000,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        fp16=False,
        disable_tqdm=True,
        gradient_checkpointing=False,
        seed=0,
    )
    trainer = GRPOTrainer(
        model=c["folder"],
        reward_funcs=digits,
        args=config,
        train_dataset=rows,
        processing_class=AutoTokenizer.from_pretrained(c["folder"]),
        callbacks=[Turn()],
    )
    trainer.train()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(case(), made)
