"""A user's mistake at the command line: status 2, one line, and no run folder left."""

import json

import pytest
import torch
from transformers import AutoConfig, BertConfig, BertModel

from brorl.cli import main as cli
from brorl.policy.load import save_policy
from brorl.policy.model import Policy
from brorl.policy.tiny import character_tokenizer
from brorl.train import api

from .runs import names
from .toys import recipe, tiny


def told(capfd, monkeypatch, *arguments):
    """(status, lines on standard error, standard output) of one command in this process."""
    monkeypatch.setattr("sys.argv", ["brorl", *map(str, arguments)])
    monkeypatch.setattr("sys.path", ["", *__import__("sys").path])
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capfd.readouterr()
    return ended.value.code, err.splitlines(), out


@pytest.fixture
def refuse(tmp_path, capfd, monkeypatch):
    """Trains the toy recipe with overrides; asserts the refusal; returns its line."""
    (tmp_path / "in").mkdir()
    made = recipe(tmp_path / "in")

    def call(*overrides, path=None):
        run = tmp_path / "out" / "run"
        status, lines, out = told(
            capfd, monkeypatch, "train", path or made, f"run_dir={run}", *overrides
        )
        assert (status, len(lines), out) == (2, 1, ""), lines
        assert lines[0].startswith("brorl: ")
        assert not (tmp_path / "out").exists()
        return lines[0]

    return call


SETTINGS = {
    "rollout.m=4": "unknown setting rollout.m; nearest known: rollout.n",
    "num_generations=4": "unknown setting num_generations; nearest known: rollout.n",
    "rollout.n=1": "a group baseline needs at least 2",
    "rollout.temperature=0": "rollout.temperature: input should be greater than or equal to 0.001",
    "rollout.temperature=1e-300": "rollout.temperature: input should be greater than or equal",
    "lr=1e300": "lr: input should be less than or equal to 1000000",
    "rollout.top_p=0.9": "training needs the full distribution",
    "lr=nan": "lr",
    "grading.workers=1000000000": "grading.workers: input should be less than or equal to 1024",
    "threads=1000000000": "threads: input should be less than or equal to 1024",
    "lr": "an override reads key.sub=value",
    "tis={type: tis, min: 9}": "tis.min must not exceed tis.cap",
    "data.verifier=exat": "unknown verifier 'exat'; nearest: exact",
    "data.verifier=/nowhere/judge.py:grade": "no such file",
    "data.verifier=os:nothing": "os has no 'nothing'",
    "data.train=/nowhere/rows.jsonl": "need a data file, there is none at /nowhere/rows.jsonl",
    "data.train=/": "need a data file",
    "data.prompt=question": "no field 'question'; it has answer, prompt",
    "model.path=/nowhere/model": "no folder '/nowhere/model'",
    "model.device=abacus": "model.device: 'abacus' cannot be used here",
    "model.shape.vocabulary=99": "the character tokenizer of a tiny policy has 100",
    "model.shape.architecture=mamba": "must be one of llama",
    "model.shape.heads=3": "hidden must be a multiple of heads",
    "model.shape=null": "no policy: set model.path",
    "init.from=/nowhere": "is neither a checkpoint nor a run with one",
    "rollout.max_new_tokens=70": "positions",
    "eval.max_new_tokens=70": "positions",
}


@pytest.mark.parametrize("override", SETTINGS)
def test_settings(refuse, override):
    assert SETTINGS[override] in refuse(override)


ROWS = {
    "nothing": (b"", "no rows"),
    "blank lines": (b"\n \n\n", "no rows"),
    "no answer": (b'{"prompt": "a", "answer": "x"}\n{"prompt": "b"}\n', "rows.jsonl:2: no field 'answer'"),
    "answer null": (b'{"prompt": "a", "answer": null}\n', "rows.jsonl:1: field 'answer' must be text"),
    "empty prompt": (b'{"prompt": " ", "answer": "x"}\n', "rows.jsonl:1: field 'prompt' must be text"),
    "not json": (b'{"prompt": "a", "answer": "x"}\n\n{\n', "rows.jsonl:3: not JSON"),
    "a list": (b"[1]\n", "rows.jsonl:1: need a JSON object, got list"),
    "bytes": (b"\xff\xfe\x00\x01", "need UTF-8 text"),
    "deep": (b"[" * 100_000 + b"\n", "rows.jsonl:1: not JSON"),
    "key twice": (b'{"prompt": "a", "answer": "x", "prompt": "b"}\n', "rows.jsonl:1: not JSON: key 'prompt' twice"),
    "ten megabytes that are a few tokens": (
        json.dumps({"prompt": "\u65e5" * 100_000, "answer": "x"}).encode(), "positions, tiny has 64"
    ),
    "nul and other controls": (
        json.dumps({"prompt": "\0" * 100, "answer": "x"}).encode(), "positions, tiny has 64"
    ),
    "a huge gold": (b'{"prompt": "a", "answer": ' + b"9" * 5000 + b"}\n", "rows.jsonl:1: not JSON"),
    "not a number": (b'{"prompt": "a", "answer": NaN}\n', "must be text or a number, got nan"),
    "half a surrogate": (b'{"prompt": "a\\ud800", "answer": "x"}\n', "need whole Unicode text"),
    "long prompt": (
        json.dumps({"prompt": "a" * 100, "answer": "x"}).encode() * 1, "positions, tiny has 64"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_rows(refuse, tmp_path, name):
    content, message = ROWS[name]
    (tmp_path / "in" / "rows.jsonl").write_bytes(content)
    assert message in refuse("data.held_out=0")


def test_ten_megabytes_are_refused_without_being_tokenised(refuse, tmp_path, monkeypatch):
    """By hand: 10,000,000 known characters, five in the longest entry, are at least 2,000,000
    tokens; and 4 of an answer."""
    text = json.dumps({"prompt": "a" * 10_000_000, "answer": "x"})
    (tmp_path / "in" / "rows.jsonl").write_text(text)
    monkeypatch.setattr(Policy, "encode", lambda self, text: pytest.fail("tokenised"))
    monkeypatch.setattr("brorl.policy.load.check_shared_prefix", lambda policy: None)
    assert "prompt + answer need 2000004 positions" in refuse("data.held_out=0")


def test_characters_that_become_unknown_are_counted(tmp_path, monkeypatch):
    """By hand: two of three prompts, three characters; \u00e9 stands twice in one."""
    made = recipe(tmp_path, data={"held_out": 0}, steps=1)
    rows = [{"prompt": p, "answer": "x"} for p in ("ab=", "\u00e9x\u00e9=", "\u65e5=")]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.warns(UserWarning, match="hold characters") as found:
        api.train(str(made), {"run_dir": tmp_path / "run", "steps": 0})
    assert (
        "2 of 3 training prompts hold characters that the tokenizer does not know, 3 in all: the "
        "policy reads each as <unk>; first data/train/2: '\\xe9'" in str(found[0].message)
    )


def test_every_row_held_out_leaves_nothing_to_train_on(refuse):
    assert "no training row is left" in refuse("data.held_out=0.9999999")


# Models


def test_a_tokenizer_without_eos(refuse, tmp_path):
    policy = tiny()
    save_policy(policy, tmp_path / "model")
    tokenizer = character_tokenizer()
    tokenizer.eos_token = None
    tokenizer.save_pretrained(tmp_path / "model")
    config = AutoConfig.from_pretrained(tmp_path / "model")
    config.eos_token_id = None
    config.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").unlink()
    line = refuse(f"model.path={tmp_path / 'model'}", "model.shape=null")
    assert "the tokenizer has no EOS token" in line


def test_a_model_that_is_no_causal_lm(refuse, tmp_path):
    config = BertConfig(
        vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32,
    )  # fmt: skip
    BertModel(config).save_pretrained(tmp_path / "model")
    character_tokenizer().save_pretrained(tmp_path / "model")
    line = refuse(f"model.path={tmp_path / 'model'}", "model.shape=null")
    assert "BertModel, not a causal language model" in line


@pytest.mark.parametrize("harm", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_damaged_model_folder(refuse, tmp_path, harm):
    save_policy(tiny(), tmp_path / "model")
    (tmp_path / "model" / harm).write_text("{")
    line = refuse(f"model.path={tmp_path / 'model'}", "model.shape=null")
    assert "cannot open" in line


def test_a_model_smaller_than_its_tokenizer(refuse, tmp_path):
    policy = tiny()
    policy.model.resize_token_embeddings(50)
    save_policy(policy, tmp_path / "model")
    line = refuse(f"model.path={tmp_path / 'model'}", "model.shape=null")
    assert "the tokenizer knows 100 tokens, the model only 50" in line


# The command itself


def test_recipes_that_are_not_there(refuse, tmp_path):
    assert "no recipe 'quickstrat'; did you mean quickstart?" in refuse(path="quickstrat")
    assert "no recipe file" in refuse(path=tmp_path / "nothing.yaml")
    (tmp_path / "bad.yaml").write_text("lr: [")
    assert "not readable as YAML" in refuse(path=tmp_path / "bad.yaml")


def test_resume_of_no_run_and_of_a_changed_setting(tmp_path, capfd, monkeypatch):
    status, lines, _ = told(capfd, monkeypatch, "resume", tmp_path)
    assert (status, lines) == (2, [f"brorl: {tmp_path} is not a run: it has no config.yaml"])


def test_a_used_or_impossible_run_folder(tmp_path, capfd, monkeypatch):
    made = recipe(tmp_path)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "thesis.txt").write_text("precious")
    for run, message in [
        (tmp_path / "used", "is not empty"),
        (tmp_path / "toy.yaml" / "run", "cannot be written: File exists"),
        (tmp_path / ("x" * 5000), "File name too long"),
        (".", "must name a folder of its own"),
        ("/proc/nowhere/run", "cannot be written"),
    ]:
        status, lines, _ = told(capfd, monkeypatch, "train", made, f"run_dir={run}")
        assert (status, len(lines)) == (2, 1), lines
        assert message in lines[0]
    assert names(tmp_path / "used") == ["thesis.txt"]


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ...")],
)
def test_a_model_that_does_not_fit_memory(refuse, monkeypatch, error):
    """In Python's and in torch's words, before there is a run."""

    def too_large(*args):
        raise error

    monkeypatch.setattr("brorl.train.api.open_policy", too_large)
    assert "do not fit this machine's memory" in refuse()


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ".", "a\nb", "a\\b", "x" * 101])
def test_a_name_is_that_of_a_folder_in_runs(tmp_path, capfd, monkeypatch, name):
    """Attack: a recipe of somebody else's that writes beside the runs."""
    made = recipe(tmp_path, name=name)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    status, lines, _ = told(capfd, monkeypatch, "train", made)
    assert (status, len(lines)) == (2, 1), lines
    assert "name must be that of a folder in runs/" in lines[0]
    assert names(tmp_path / "here") == []


def test_json_prints_one_object_and_progress_goes_to_standard_error(tmp_path, capfd, monkeypatch):
    made = recipe(tmp_path)
    monkeypatch.setattr("sys.argv", ["brorl", "train", str(made), f"run_dir={tmp_path / 'run'}", "steps=1", "--json"])  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capfd.readouterr()
    assert ended.value.code in (0, None)
    found = json.loads(out)
    assert out.count("\n") == 1
    assert (found["run"], found["steps"]) == (str(tmp_path / "run"), 1)
    assert set(found["eval_before"]) == {"pass@1", "low", "high"}
    assert f"run {tmp_path / 'run'}" in err
    assert "held-out pass@1" in err
    assert torch.get_num_threads() >= 1
