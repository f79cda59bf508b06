"""Recipes: shipped ones, bases, overrides, and input meant to crash or hang the reader."""

import string

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from brorl.errors import ConfigError
from brorl.train.recipe import (
    PEERS_NAMES,
    dump_settings,
    load_recipe,
    load_settings,
    override_pairs,
    settings_from,
    shipped,
)
from brorl.train.settings import TrainSettings
from brorl.train.yaml_values import MAX_BYTES, parse

from .toys import STEP, merged

MINIMAL = yaml.safe_dump(STEP)


def written(tmp_path, text, name="r.yaml"):
    path = tmp_path / name
    path.write_text(text)
    return str(path)


# Shipped recipes


def test_the_recipes_of_the_contract_are_shipped():
    assert {"quickstart", "prorl", "brorl", "adaptive", "dapo", "grpo"} <= set(shipped())


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_recipe_parses_and_survives_a_round_trip(name):
    made = load_recipe(name)
    again = settings_from(parse(dump_settings(made), "dump"), "dump")
    assert again == made
    assert made.name == name


def test_brorl_is_prorl_with_width():
    """Policy (arXiv:2510.01180, table 1): N from 16 to 512, prompts to a quarter, same updates."""
    narrow, wide = load_recipe("prorl"), load_recipe("brorl")
    assert (narrow.rollout.n, wide.rollout.n) == (16, 512)
    assert wide.prompts_per_step * 4 == narrow.prompts_per_step
    assert wide.num_minibatches == narrow.num_minibatches
    assert wide.lr_scale == pytest.approx(8**0.5)
    changed = {"rollout", "prompts_per_step", "lr_scaling", "lr_base_samples", "steps", "name"}
    a, b = narrow.model_dump(exclude=changed), wide.model_dump(exclude=changed)
    assert a == b


# Bases


def test_a_base_is_extended_key_by_key(tmp_path):
    written(tmp_path, MINIMAL, "low.yaml")
    top = written(tmp_path, "base: low.yaml\nrollout: {temperature: 0.7}\nlr: 0.5\n", "top.yaml")
    made = load_recipe(top)
    assert (made.rollout.temperature, made.rollout.n, made.lr, made.name) == (0.7, 4, 0.5, "top")


def test_bases_chain_across_folders(tmp_path):
    (tmp_path / "sub").mkdir()
    written(tmp_path, MINIMAL, "low.yaml")
    written(tmp_path, "base: ../low.yaml\nlr: 0.25\n", "sub/middle.yaml")
    top = written(tmp_path, "base: sub/middle.yaml\nsteps: 9\n", "top.yaml")
    made = load_recipe(top)
    assert (made.lr, made.steps) == (0.25, 9)


def test_a_base_may_be_a_shipped_name(tmp_path):
    made = load_recipe(written(tmp_path, "base: quickstart\nsteps: 7\n"))
    assert made.steps == 7
    assert made.rollout.n == load_recipe("quickstart").rollout.n


def test_a_file_in_the_working_folder_does_not_replace_a_shipped_base(tmp_path, monkeypatch):
    (tmp_path / "prorl").write_text("lr: 1e9\n")
    monkeypatch.chdir(tmp_path)
    assert load_recipe("brorl").lr == load_recipe("prorl").lr == 1e-6


@pytest.mark.parametrize("loop", [["a"], ["a", "b"], ["a", "b", "c"]])
@pytest.mark.parametrize("style", ["{}.yaml", "./{}.yaml", "x/../{}.yaml"])
def test_a_circle_of_bases_is_named(tmp_path, loop, style):
    (tmp_path / "x").mkdir()
    for name, base in zip(loop, [*loop[1:], loop[0]], strict=True):
        written(tmp_path, f"base: {style.format(base)}\n", f"{name}.yaml")
    with pytest.raises(ConfigError, match="goes round in a circle"):
        load_recipe(str(tmp_path / "a.yaml"))


def test_a_base_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"no recipe 'quickstrat'; did you mean quickstart\?"):
        load_recipe(written(tmp_path, "base: quickstrat\n"))


# Overrides


def test_overrides_are_dotted_and_read_as_yaml():
    made = load_recipe(
        "quickstart", ["rollout.n=128", "lr=1e-3", "logger=[]", "task.train_size=9", "threads=null"]
    )
    assert (made.rollout.n, made.lr, made.logger, made.threads) == (128, 1e-3, (), None)
    assert made.task["train_size"] == 9
    assert made.task["name"] == "spell_backward"


def test_n_and_waves_replace_each_other():
    waves = load_recipe("quickstart", ["rollout.waves=[8, 64]"])
    assert (waves.rollout.n, waves.rollout.waves) == (None, (8, 64))
    back = load_recipe("quickstart", ["rollout.waves=[8, 64]", "rollout.n=32"])
    assert (back.rollout.n, back.rollout.waves) == (32, None)


def test_texts_pairs_and_mappings_are_the_same_overrides(tmp_path):
    want = load_recipe("quickstart", ["rollout.n=128", f"run_dir={tmp_path}"])
    assert load_recipe("quickstart", {"rollout.n": 128, "run_dir": tmp_path}) == want
    assert load_recipe("quickstart", [("rollout.n", 128), f"run_dir={tmp_path}"]) == want


@pytest.mark.parametrize("text", ["rollout.n", "=5", " =5", ""])
def test_an_override_without_a_key_or_a_value_says_what_it_reads(text):
    with pytest.raises(ConfigError, match=r"an override reads key\.sub=value"):
        load_recipe("quickstart", [text])


# Unknown keys


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("rollout.temprature", "rollout.temperature"),
        ("temperature", "rollout.temperature"),
        ("prompt_per_step", "prompts_per_step"),
        ("dynamic_sampling.enabled", "dynamic_sampling.enable"),
        ("optimizer.betas1", "optimizer.beta1"),
        ("lr_warmup", "lr_warmup_updates"),
        *PEERS_NAMES.items(),
    ],
)
def test_an_unknown_key_names_the_nearest_one(key, nearest):
    with pytest.raises(ConfigError, match=f"unknown setting {key}; nearest known: ") as found:
        load_recipe("quickstart", [f"{key}=1"])
    assert str(found.value).endswith(nearest)


def test_peers_names_point_to_settings_that_exist():
    def known(model, path=()):
        for name, field in model.model_fields.items():
            here = (*path, field.alias or name)
            yield ".".join(here)
            if isinstance(field.annotation, type) and hasattr(field.annotation, "model_fields"):
                yield from known(field.annotation, here)

    assert set(PEERS_NAMES.values()) <= set(known(TrainSettings))


@pytest.mark.parametrize("text", ["lr: 1\nlr: 2\n", "rollout: {n: 4, n: 8}\n"])
def test_a_key_written_twice_is_refused(tmp_path, text):
    with pytest.raises(ConfigError, match="is set twice"):
        load_recipe(written(tmp_path, text))


# Resume


def test_resume_may_change_steps_loggers_and_kept_checkpoints_only(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(dump_settings(load_recipe("quickstart")))
    allowed = ("steps", "logger", "keep_checkpoints")
    made = load_settings(config, ["steps=9", "logger=[]"], may_change=allowed)
    assert (made.steps, made.logger) == (9, ())
    for text in ("lr=1", "rollout.n=8", "seed=2", "threads=1", "save_every=1", "nonsense=1"):
        with pytest.raises(ConfigError, match="may not change on resume, only steps, logger"):
            load_settings(config, [text], may_change=allowed)


# Round trip of hostile values


LOOKS_LIKE_A_NUMBER = ["1e3", "1E-3", ".5e1", "0x10", "1_000", "1.", "nan", ".inf", "yes", "null"]


@pytest.mark.parametrize("text", [*LOOKS_LIKE_A_NUMBER, "2026-01-01", "a: b", "'", "=", "<<", "~"])
def test_a_text_that_yaml_reads_as_something_else_stays_a_text(text):
    made = settings_from(merged(STEP, {"name": text, "task": {"prompt": text}}), "test")
    again = settings_from(parse(dump_settings(made), "dump"), "dump")
    assert again == made
    assert again.name == text


plain_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
numbers = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)


@examples(max_examples=60, deadline=None, derandomize=True)
@given(
    name=plain_text,
    lr=st.floats(1e-12, 1e3),
    seed=st.integers(0, 2**63 - 1),
    options=st.recursive(
        plain_text | numbers | st.booleans() | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain_text, inner, max_size=3),
        max_leaves=8,
    ),
)
def test_what_is_written_reads_back_equal(name, lr, seed, options):
    values = {"name": name, "lr": lr, "seed": seed, "reward": {"options": {"any": options}}}
    made = settings_from(merged(STEP, values), "test")
    assert settings_from(parse(dump_settings(made), "dump"), "dump") == made


# Attacks on the reader: one line, never a traceback, never a hang


def refused(call):
    with pytest.raises(ConfigError) as found:
        call()
    line = str(found.value)
    assert "\n" not in line
    assert len(line) < 600
    return line


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
ATTACKS = {
    "nine levels of nine aliases": BOMB,
    "the same as a value": BOMB + "steps: *i\n",
    "a value inside itself": "task: &t {name: *t}\n",
    "500 levels": "task: " + "[" * 500 + "]" * 500,
    "100,000 levels": "task: " + "[" * 100_000,
    "an integer of 10,000 digits": "steps: " + "9" * 10_000,
    "a huge hexadecimal integer": "steps: 0x" + "f" * 9_000,
    "a huge integer in a list": "steps: [0x" + "f" * 9_000 + "]",
    "a huge integer in a free section": "task: {name: 0x" + "f" * 9_000 + "}",
    "nan": "lr: .nan",
    "inf": "lr: -.inf",
    "nan in a free section": "task: {name: .nan}",
    "a date": "task: {name: 2026-01-01}",
    "bytes": "task: {name: !!binary aGk=}",
    "a set": "task: {name: !!set {a, b}}",
    "code": "lr: !!python/object/apply:os.system ['true']",
    "half a surrogate pair": 'name: "\\ud800"',
    "NUL": 'name: "\\0"',
    "a list for a section": "rollout: [1, 2]",
    "text for a section": "model: llama",
    "null for a section": "eval: null",
    "a key that is a list": "? [a, b]\n: 1",
    "a key that is a number": "1: 2",
    "a merge key": "<<: {lr: 1}",
    "two documents": "lr: 1\n---\nlr: 2\n",
    "nothing": "",
    "a list": "[1, 2]",
    "a tab": "\tlr: 1",
    "an empty key": "'': 1",
}


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.timeout(20)
def test_hostile_yaml_is_one_line(tmp_path, name):
    path = tmp_path / "r.yaml"
    path.write_text(ATTACKS[name])
    refused(lambda: load_recipe(str(path)))


@pytest.mark.parametrize(
    "raw", [b"\xff\xfe\x00", b"lr: \x80", b"\x00\x01\x02", b"\xef\xbb\xbf\xff"]
)
def test_bytes_that_are_not_text_are_one_line(tmp_path, raw):
    path = tmp_path / "r.yaml"
    path.write_bytes(raw)
    refused(lambda: load_recipe(str(path)))


TEN_MB = "x" * 10_000_000


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "override",
    [
        f"name={TEN_MB}",
        f"{TEN_MB}=1",
        f"rollout.{TEN_MB}=1",
        f"steps={TEN_MB}",
        TEN_MB,
        "a." * 9**6,
    ],
)
def test_ten_megabytes_are_one_line(override):
    refused(lambda: load_recipe("quickstart", [override]))


def test_ten_megabytes_from_python_and_from_a_file_are_one_line(tmp_path):
    refused(lambda: load_recipe("quickstart", {"name": TEN_MB}))
    refused(lambda: load_recipe("quickstart", {TEN_MB: 1}))
    refused(lambda: load_recipe("quickstart", {"task": {str(i): i for i in range(10**5)}}))
    assert str(MAX_BYTES) in refused(lambda: load_recipe(written(tmp_path, "name: " + TEN_MB)))


@pytest.mark.parametrize("name", ["y" * 5000, "/" * 5000 + "x", "y" * 5000 + ".yaml", "a\0b.yaml"])
def test_names_that_no_file_can_have_are_one_line(tmp_path, name):
    refused(lambda: load_recipe(name))
    refused(lambda: load_recipe(f"{name}/z.yaml"))
    if "\0" not in name:
        refused(lambda: load_recipe(written(tmp_path, f"base: {name}\n")))


def test_a_folder_is_not_a_recipe(tmp_path):
    assert "no recipe file" in refused(lambda: load_recipe(str(tmp_path)))


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x", {1: 2}, 1 << 70, float("inf"), 1j])
def test_values_from_python_must_be_plain(value):
    refused(lambda: override_pairs({"task": value}))


keys = st.sampled_from(["rollout", "lr", "steps", "task", "model", "data", "eval", "n", "shape"])
anything = st.recursive(
    plain_text | numbers | st.booleans() | st.none() | st.sampled_from([float("nan"), 10**40]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(keys | plain_text, inner, max_size=4)
    ),
    max_leaves=20,
)


def outcome(call):
    """What a call gives, or its refusal; anything else it raises fails the test."""
    try:
        return call()
    except ConfigError as error:
        return str(error)


@examples(max_examples=100, deadline=None, derandomize=True)
@given(st.dictionaries(keys | plain_text, anything, max_size=4))
def test_made_up_values_are_settings_or_one_line(values):
    text = yaml.safe_dump(merged(STEP, values), allow_unicode=True)
    found = outcome(lambda: settings_from(parse(text, "t"), "t"))
    assert isinstance(found, TrainSettings) or "\n" not in found


@examples(max_examples=300, deadline=None, derandomize=True)
@given(st.text(string.printable, max_size=200))
def test_made_up_text_is_a_value_or_one_line(text):
    found = outcome(lambda: parse(text, "t: refused"))
    assert not (isinstance(found, str) and found.startswith("t: refused") and "\n" in found)


# A mapping is merged, as a YAML file on its base is


def test_a_section_as_an_override_keeps_the_rest_of_it():
    """tis.cap alone must not switch the correction off, nor rollout.n reset the answer's length."""
    found = load_recipe("prorl", {"tis": {"cap": 3.0}, "data": {"train": "own.jsonl"}})
    assert (found.tis.type, found.tis.min, found.tis.cap) == ("icepop", 0.5, 3.0)
    assert (found.data.train, found.data.verifier) == ("own.jsonl", "math")
    found = load_recipe("quickstart", ["rollout={n: 8}"])
    assert (found.rollout.n, found.rollout.max_new_tokens) == (8, 12)
    found = load_recipe("quickstart", {"rollout": {"waves": [4, 8]}})
    assert (found.rollout.n, found.rollout.waves) == (None, (4, 8))


def test_another_model_has_no_revision_of_the_first():
    assert load_recipe("prorl").model.revision == "v2"
    assert load_recipe("prorl", {"model.path": "own/model"}).model.revision is None
    both = {"model.path": "own/model", "model.revision": "main"}
    assert load_recipe("brorl", both).model.revision == "main"
    assert load_recipe("prorl", {"model": {"path": "own/model"}}).model.revision is None


def test_a_mixture_replaces_a_task_and_a_task_a_mixture():
    """By hand: a mixture has no prompt or size of its own; a single task has no `tasks`."""
    mixture = {"name": "mixture", "tasks": [{"name": "chain_sum"}, {"name": "spell_backward"}]}
    assert load_recipe("quickstart", {"task": mixture}).task == mixture
    back = ["task.name=chain_sum", "task.prompt={question}"]
    found = load_recipe("quickstart", [("task", mixture), *[tuple(x.split("=")) for x in back]])
    assert found.task == {"name": "chain_sum", "prompt": "{question}"}
    more = load_recipe("quickstart", [("task", mixture), ("task.tasks", mixture["tasks"][:1])])
    assert more.task == mixture | {"tasks": mixture["tasks"][:1]}
