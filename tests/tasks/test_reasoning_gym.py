"""Splits of Reasoning Gym tasks: disjoint by construction, by text, and counted."""

import pickle

import pytest

from brorl.errors import ConfigError
from brorl.tasks.prompt import fill
from brorl.tasks.reasoning_gym import ReasoningGymTask
from brorl.tasks.text import question_key
from brorl.verify.reasoning_gym import generate_item
from brorl.verify.verdict import Kind

SPLITS = ("eval", "train", "warmstart")


def task(name="spell_backward", **changes):
    values = {
        "config": {},
        "seed": 1,
        "train_size": 30,
        "eval_size": 20,
        "warmstart_size": 60,
        "prompt": "rev {word}=" if name == "spell_backward" else "{question}",
        "tagged": False,
        "score": "threshold",
        "cascade": False,
    }
    return ReasoningGymTask(name, **(values | changes))


def prompts(task, split):
    return [p.prompt for p in task.problems(split)]


def test_compact_prompts_and_worked_answers():
    for split in SPLITS:
        for problem in task().problems(split):
            word = problem.prompt.removeprefix("rev ").removesuffix("=")
            assert problem.gold == problem.worked == word[::-1]
            assert problem.task == "spell_backward"


def test_no_question_is_in_two_splits_even_where_questions_are_few():
    """Words of three letters are few, so that blocks of one stream do repeat each other."""
    few = task(config={"max_word_len": 3}, train_size=200, eval_size=100, warmstart_size=300)
    seen = [question_key(p) for split in SPLITS for p in prompts(few, split)]
    assert len(seen) == len(set(seen)) == 600
    counts = few.counts
    assert counts["train"].equal_to_eval > 0
    assert counts["warmstart"].equal_to_train > 0
    for c in counts.values():
        assert (
            c.drawn == c.kept + c.without_gold + c.duplicates + c.equal_to_eval + c.equal_to_train
        )


def test_a_larger_split_begins_like_a_smaller_one():
    """So that evaluating on more problems later never reaches into the training block."""
    small, large = task(), task(eval_size=40, train_size=50)
    assert prompts(large, "eval")[:20] == prompts(small, "eval")
    assert not set(prompts(large, "eval")) & set(prompts(small, "train"))


def test_neighbouring_seeds_share_nothing():
    """Attack: item i of the library's seed s is item 0 of seed s + i."""
    raw = {generate_item("chain_sum", "{}", 42, i)["question"] for i in range(1, 10)}
    assert raw & {generate_item("chain_sum", "{}", 43, i)["question"] for i in range(9)} == raw
    a, b = (task("chain_sum", seed=s, warmstart_size=0) for s in (42, 43))
    assert not set(prompts(a, "train")) & (set(prompts(b, "train")) | set(prompts(b, "eval")))


def test_same_settings_same_problems():
    first, second = task("gcd"), task("gcd")
    assert all(first.problems(s) == second.problems(s) for s in SPLITS)


def test_ids_are_unique_and_rows_are_small_and_plain():
    problems = [
        p
        for s in SPLITS
        for p in task(
            "polynomial_multiplication", train_size=3, eval_size=2, warmstart_size=1
        ).problems(s)
    ]
    assert len({p.id for p in problems}) == len(problems)
    plain = [p for s in SPLITS for p in task().problems(s)]
    assert all(len(pickle.dumps(p.row)) < 200 for p in plain)
    assert problems[0].row["item"]["question"] == problems[0].prompt  # depends on the hash seed


def test_the_verifier_takes_every_gold_and_the_tag_is_required():
    tagged = task("gcd", tagged=True)
    for problem in tagged.problems("eval"):
        v = tagged.verifier
        assert problem.worked == f"<answer>{problem.gold}</answer>"
        extracted = v.extract(problem.worked, problem.row)
        assert v.grade(extracted, gold=problem.gold, row=problem.row).kind is Kind.CORRECT
        assert v.extract(problem.gold, problem.row) is None


def test_items_without_a_usable_gold_are_left_out():
    """`ab` has items whose right answer is the empty text: nothing could ever be paid for them."""
    ab = task("ab", train_size=12, eval_size=0, warmstart_size=0, config={"length": 2})
    assert all(p.gold.strip() for p in ab.problems("train"))
    assert ab.counts["train"].without_gold > 0


def test_scorer_only_tasks_have_no_worked_answer():
    problems = task("graph_color", train_size=2, eval_size=1, warmstart_size=1).problems("train")
    assert [(p.gold, p.worked) for p in problems] == [(None, None)] * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "spel_backward"}, "nearest: spell_backward"),
        ({"name": "propositional_logic"}, "is refused: a premise repeated"),
        ({"train_size": -1}, "task.train_size must be >= 0, got -1"),
        ({"config": {"seed": 3}}, r"must not set \['seed'\]"),
        ({"score": "soft"}, "must be threshold or continuous, got 'soft'"),
    ],
)
def test_refused_at_once(changes, message):
    with pytest.raises(ConfigError, match=message):
        task(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": {"max_word_len": 0}}, "config .* is refused"),
        ({"config": {"colour": 1}}, "config .* is refused"),
        ({"prompt": "rev {wrod}="}, "field in task.prompt 'wrod'; nearest: word"),
        ({"prompt": "{answer}"}, "unknown field in task.prompt 'answer'"),
        ({"prompt": "rev {word.upper}="}, "unknown field"),
        ({"prompt": "{"}, "task.prompt '{'"),
        ({"prompt": "{word!r}"}, "takes no format"),
        ({"config": {"max_word_len": 3}, "eval_size": 1500}, "hold only .* lower it"),
    ],
)
def test_refused_when_items_are_needed(changes, message):
    with pytest.raises(ConfigError, match=message):
        task(**changes).problems("eval")


def test_braces_in_templates_are_text():
    assert fill("{{{n}}} {question}", {"n": 3, "question": "q {n}"}) == "{3} q {n}"
