"""Our graders as verl's reward, and how a verdict comes back to its group: no Ray, no pool of verl."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from brorl.policy.load import TinyShape, save_policy, tiny_policy
from brorl.rollout.engine import Request, Stop
from brorl.tasks.problem import Problem
from brorl.train.groups import Group
from brorl.train.recipe import dump_settings, load_recipe

pytest.importorskip("verl", reason="verl is not installed: make test-verl")
pytestmark = [
    pytest.mark.verl,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore"),
]

GRADER = """
def grade(answer, gold, row):
    if answer == "boom":
        raise RuntimeError("broken")
    return 1.0 if answer == gold else 0.0
"""
PROBLEM = Problem("p1", "say abc", "abc", row={"k": [1]}, task="say")


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """A reward manager on a run's folder, with a user's own grader that breaks on one text."""
    from brorl.verl.reward import BrorlRewardManager

    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(GRADER)
    shape = TinyShape("llama", 1, 8, 2, 2, 16, 64, True)
    policy = tiny_policy(shape, seed=0, device="cpu", trained_length=1)
    save_policy(policy, tmp_path / "model")
    recipe = ["task=null", "warmstart=null", "data.train=x.jsonl", "grading.workers=0"]
    settings = load_recipe("quickstart", [*recipe, f"data.verifier={tmp_path}/own.py:grade"])
    (tmp_path / "config.yaml").write_text(dump_settings(settings))
    config = SimpleNamespace(
        brorl=SimpleNamespace(run=str(tmp_path)),
        actor_rollout_ref=SimpleNamespace(model=SimpleNamespace(path=str(tmp_path / "model"))),
    )
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield BrorlRewardManager(config, policy.tokenizer), policy, loop
    asyncio.set_event_loop(None)
    loop.close()


def answered(manager, policy, loop, text, session=0, first=0):
    from verl import DataProto

    from brorl.verl.engine import ask_for

    ids = policy.tokenizer(text, add_special_tokens=False).input_ids
    ids = [*ids, policy.tokenizer.eos_token_id]
    request = Request("g#0", "p1", (5, 6), first, 4, 0)
    fields = {
        "brorl": np.array([ask_for(request, PROBLEM, 12)], dtype=object),
        "session_id": np.array([session]),
    }
    padded = torch.tensor([[*ids, 0, 0]])
    mask = torch.tensor([[1, 1] + [1] * len(ids) + [0, 0]])
    data = DataProto.from_dict(
        tensors={"prompts": torch.tensor([[5, 6]]), "responses": padded, "attention_mask": mask},
        non_tensors=fields,
    )
    return ids, loop.run_until_complete(manager.run_single(data))


def test_a_verdict_of_its_kind_travels_with_the_score(parts):
    _, right = answered(*parts, "abc")
    assert right["reward_score"] == 1.0
    info = right["reward_extra_info"]
    assert (info["kind"], info["text"], info["rewarded"]) == ("correct", "abc", True)
    _, wrong = answered(*parts, "abd")
    assert (wrong["reward_score"], wrong["reward_extra_info"]["kind"]) == (0.0, "wrong")
    _, broken = answered(*parts, "boom")
    assert (broken["reward_score"], broken["reward_extra_info"]["kind"]) == (0.0, "grader_error")


def test_a_broken_grading_leaves_its_group_and_a_wrong_answer_stays(parts):
    """Through the engine's own reading of verl's queue, into the trainer's group."""
    from brorl.verl.engine import VerlDesk, VerlEngine

    manager, policy, loop = parts
    engine = VerlEngine(None, {}, policy.eos_ids, lambda: 1, policy_version=7)
    group, completions = Group("g#0", PROBLEM, (5, 6), 0, 1), []
    for text in ("abc", "boom", "abd"):
        ids, found = answered(manager, policy, loop, text)
        extra = {"reward_extra_info": found["reward_extra_info"], "aborted": False}
        logp = -torch.ones(len(ids))
        completions.append(engine._graded(f"uid_{text}_0", torch.tensor(ids), logp, extra))
    VerlDesk().take(group, 0, completions)
    assert [x.index for x in group.counting] == [0, 2]
    assert [x.raw for x in group.counting] == [1.0, 0.0]
    assert group.samples[1].verdict.kind == "grader_error"
    first = group.samples[0].completion
    assert (first.stop, first.policy_version, first.key) == (Stop.EOS, 7, "uid_abc_0")
    cut = engine._graded("k", torch.tensor([9]), -torch.ones(1), extra)
    assert cut.stop is Stop.LENGTH


def test_the_index_of_a_later_wave_names_its_own_random_stream(parts):
    """RandomReward draws by (group, index): session 1 of a wave that begins at 4 is sample 5."""
    from brorl.tasks.reward_sources import RandomReward

    manager, policy, loop = parts
    manager._reward = RandomReward(3, 0.5)
    given = [
        answered(manager, policy, loop, "x", s, f)[1]["reward_score"]
        for f in (0, 4)
        for s in range(4)
    ]
    from brorl.verify.verdict import wrong

    wanted = [manager._reward.score(PROBLEM, "g#0", i, wrong("x", ""), None) for i in range(8)]
    assert given == wanted
    assert set(given) == {0.0, 1.0}


def test_an_answer_without_a_log_prob_each_is_refused():
    from brorl.errors import EngineError
    from brorl.verl.agent_loop import BrorlAgentLoop

    class Server:
        async def generate(self, **asked):
            assert asked["sampling_params"]["max_tokens"] == 3
            return SimpleNamespace(
                token_ids=[7, 8, 9, 10],
                log_probs=self.logprobs,
                stop_reason="completed",
                extra_fields={},
            )

    server = Server()
    ask = {"prompt_ids": [1, 2], "limit": 3, "problem": {"id": "p1"}}
    loop = BrorlAgentLoop(server)
    server.logprobs = [-1.0, -2.0, -3.0, -4.0]
    found = asyncio.run(loop.run({"temperature": 1.0}, brorl=ask))
    assert (found.response_ids, found.response_logprobs) == ([7, 8, 9], [-1.0, -2.0, -3.0])
    assert found.prompt_ids == [1, 2]
    server.logprobs = [-1.0]
    with pytest.raises(EngineError, match="p1: needs tokens with a log-prob each, got 3 and 1"):
        asyncio.run(loop.run({}, brorl=ask))
