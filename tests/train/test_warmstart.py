"""The supervised start: its loss, where it stops, and a cache that knows what it depends on."""

import os

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from brorl.errors import DataError, RunError
from brorl.policy.load import save_policy
from brorl.seeds import generator
from brorl.tasks.problem import Problem
from brorl.train.warmstart import PROBE, cached_warm_start, warm_start
from brorl.verify.exact import ExactMatch

from .test_step import EvenLetter
from .test_update import weights
from .toys import settings, tiny

PROBLEMS = [Problem(f"w{i}", f"{i:03d}=", str(i), str(i)[::-1]) for i in range(2 * PROBE)]
WARM = {"steps": 3, "probe_every": 5, "batch_size": 4, "until": 1.0, "warmup_steps": 1}


def made(**changes):
    return settings(task={"name": "lcm"}, warmstart=WARM | changes, rollout={"max_new_tokens": 4})


def told_by(call):
    heard = []
    return call(lambda *args: heard.append(args)), heard


def train(policy, s, verifier=None, problems=PROBLEMS):
    verifier = verifier or ExactMatch()
    return told_by(lambda note: warm_start(policy, problems, verifier, s, note))


def test_the_first_loss_is_the_mean_over_answer_and_eos_tokens():
    """Oracle: one ordinary forward an example, the prompt's own tokens left out."""
    policy, s = tiny(), made()
    rows = generator(s.seed, "warmstart", 0).integers(len(PROBLEMS) - PROBE, size=4)
    losses = []
    for i in rows.tolist():
        prompt = list(policy.encode(PROBLEMS[i].prompt))
        answer = policy.tokenizer(PROBLEMS[i].worked, add_special_tokens=False).input_ids
        ids = [*prompt, *answer, policy.tokenizer.eos_token_id]
        with torch.no_grad():
            logp = policy.model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        losses += [-float(logp[t - 1, ids[t]]) for t in range(len(prompt), len(ids))]
    _, heard = train(policy, s)
    assert heard[0][1] == pytest.approx(sum(losses) / len(losses), rel=1e-5)


def test_the_probe_is_not_trained_on():
    """Other worked answers of the probe, other golds: the same weights after three steps."""
    changed = [*PROBLEMS[:PROBE], *[Problem(p.id, p.prompt, "9", "zzz") for p in PROBLEMS[PROBE:]]]
    a, b = tiny(), tiny()
    train(a, made())
    train(b, made(), problems=changed)
    assert torch.equal(weights(a), weights(b))


def test_it_stops_at_the_pass_rate_and_not_before():
    """Right about half of the time from the start: `until` 0.2 is met at the first probe."""
    rate, heard = train(tiny(), made(steps=9, probe_every=4, until=0.2), EvenLetter())
    assert [h[0] for h in heard] == [1, 2, 3, 4]
    assert [h[2] is None for h in heard] == [True, True, True, False]
    assert rate == heard[-1][2] >= 0.2
    rate, heard = train(tiny(), made(steps=6, probe_every=4, until=1.0), EvenLetter())
    assert len(heard) == 6
    assert heard[-1][2] == rate < 1.0  # the last step is probed whatever the schedule


def test_it_needs_enough_problems_with_worked_answers():
    with pytest.raises(DataError, match="needs 256 worked problems, got 255"):
        train(tiny(), made(), problems=PROBLEMS[1:])
    bare = [Problem("none", "1=", "1"), *PROBLEMS[1:]]
    with pytest.raises(DataError, match="problem none has no worked answer"):
        train(tiny(), made(), problems=bare)


# The cache


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BRORL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "warmstart"


def cached(s=None, policy=None, verifier=None, problems=PROBLEMS):
    policy = policy or tiny()
    (folder, rate), heard = told_by(
        lambda note: cached_warm_start(
            policy, problems, verifier or ExactMatch(), s or made(), note
        )
    )
    return folder, rate, len(heard), policy


def test_a_second_call_trains_nothing_and_gives_the_same_folder(cache):
    folder, rate, steps, policy = cached()
    assert (steps, rate) == (3, 0.0)
    assert cached()[:3] == (folder, None, 0)
    opened = AutoModelForCausalLM.from_pretrained(folder)
    same = torch.cat([p.detach().flatten() for p in opened.parameters()])
    assert torch.equal(same, weights(policy))
    assert AutoTokenizer.from_pretrained(folder)("ab").input_ids == list(policy.encode("ab"))
    assert [p.name for p in cache.iterdir()] == [folder.name]


def test_the_key_is_everything_that_the_result_depends_on(cache):
    other = [Problem("w0", "000=", "0", "1"), *PROBLEMS[1:]]
    ways = [
        cached(),
        cached(made(steps=2)),
        cached(made(lr=1e-4)),
        cached(made(until=0.9)),
        cached(
            settings(task={"name": "lcm"}, warmstart=WARM, rollout={"max_new_tokens": 4}, seed=9)
        ),
        cached(settings(task={"name": "lcm"}, warmstart=WARM, rollout={"max_new_tokens": 5})),
        cached(verifier=EvenLetter()),
        cached(problems=other),
    ]
    assert len({folder for folder, *_ in ways}) == len(ways)


def test_what_the_result_does_not_depend_on_is_not_in_the_key(cache):
    folder, *_ = cached()
    changed = made().model_copy(update={"steps": 99, "lr": 0.5, "run_dir": "elsewhere"})
    assert cached(changed)[:3] == (folder, None, 0)


def test_a_half_made_folder_is_made_again(cache):
    """Attack: a killed process left a part aside under this number, and a folder without its mark."""
    folder, *_ = cached()
    (folder / "complete").unlink()
    aside = cache / f".{folder.name}.{os.getpid()}.tmp"
    aside.mkdir()
    (aside / "junk").write_text("x")
    again, _, steps, _ = cached()
    assert (again, steps) == (folder, 3)
    assert (folder / "complete").is_file()
    assert not aside.exists()
    assert not (folder / "junk").exists()


def test_a_cache_that_cannot_be_written_is_one_line_before_any_training(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("BRORL_CACHE", str(tmp_path / "file"))
    heard = []
    with pytest.raises(RunError, match="set BRORL_CACHE to a folder that can be written"):
        cached_warm_start(tiny(), PROBLEMS, ExactMatch(), made(), lambda *a: heard.append(a))
    assert heard == []


def test_a_full_disk_while_saving_leaves_nothing_in_the_cache(cache, monkeypatch):
    def full(policy, folder):
        save_policy(policy, folder)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("brorl.train.warmstart.save_policy", full)
    with pytest.raises(RunError, match="No space left on device"):
        cached()
    assert list(cache.iterdir()) == []
