"""From text to prompt ids and back: one template, one BOS, no EOS, no second tokenisation."""

import numpy as np
import pytest

from brorl.errors import PolicyError
from brorl.policy.tiny import ALPHABET

from .small_models import policy_of, tokenizer_of

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def policy_with(**habits):
    return policy_of("llama", tokenizer=tokenizer_of(**habits))


def ids(text):
    """By hand: <pad>, <eos>, <unk>, then the alphabet in its order."""
    return tuple(3 + ALPHABET.index(c) for c in text)


def test_plain_text_is_one_token_a_character():
    """By hand: no BOS, no EOS, spaces and newlines kept."""
    policy = policy_with()
    assert policy.encode("rev a b\n=") == ids("rev a b\n=")


def test_bos_of_the_tokenizer_stays_once():
    policy = policy_with(bos="<bos>")
    assert policy.encode("ab") == (policy.tokenizer.bos_token_id, *ids("ab"))


@pytest.mark.parametrize("bos", ["<bos>", "<eos>", None], ids=["BOS", "BOS = EOS", "no BOS"])
def test_eos_that_a_tokenizer_appends_is_taken_off(bos):
    """Attack: a prompt that ends in EOS tells the policy that the answer is over."""
    policy = policy_with(bos=bos, closes=True)
    want = ids("ab") if bos is None else (policy.tokenizer.bos_token_id, *ids("ab"))
    assert policy.encode("ab") == want


@pytest.mark.parametrize("habits", [{}, {"closes": True}, {"bos": "<bos>"}])
def test_eos_of_the_text_itself_stays(habits):
    """By hand: only what the tokenizer added is taken off; the user's own text is theirs."""
    policy = policy_with(**habits)
    before = (policy.tokenizer.bos_token_id,) if "bos" in habits else ()
    want = (*before, *ids("ab"), policy.tokenizer.eos_token_id)
    assert policy.encode("ab<eos>") == want


def test_chat_template_is_applied_exactly_once():
    """By hand: one BOS (the template's, although the tokenizer would add one), the text once as
    the user's turn, then the opening of the assistant's."""
    policy = policy_with(bos="<bos>", template=TEMPLATE)
    want = (policy.tokenizer.bos_token_id, *ids("[user]2+2?[assistant]"))
    assert policy.encode("2+2?") == want


@pytest.mark.parametrize(
    ("habits", "text"),
    [
        ({"bos": "<bos>"}, "<bos>ab"),
        ({"bos": "<bos>", "template": "{{ bos_token }}" + TEMPLATE}, "ab"),
    ],
    ids=["BOS in the text", "BOS twice in the template"],
)
def test_doubled_bos_is_refused(habits, text):
    """Attack: two BOS tokens shift every position, and nothing else tells of it."""
    with pytest.raises(PolicyError, match="two BOS tokens"):
        policy_with(**habits).encode(text)


@pytest.mark.parametrize("habits", [{}, {"bos": "<bos>"}, {"closes": True}, {"template": TEMPLATE}])
def test_empty_prompt_is_refused(habits):
    with pytest.raises(PolicyError, match="at least one token"):
        policy_with(**habits).encode("")


def test_decode_is_for_people():
    """By hand: special tokens do not show, all else does."""
    policy = policy_with()
    eos = policy.tokenizer.eos_token_id
    assert policy.decode([*ids("a b"), eos]) == "a b"


def test_decode_all_is_decode_of_each():
    """Oracle: one by one. Equal answers are decoded once, and a prefix is another answer."""
    policy = policy_with()
    wanted = ["ab", "a", "ab", "b a", "ab"]
    answers = [np.array(ids(t), dtype=np.int32) for t in wanted]
    decoded = []
    decode = policy.tokenizer.decode
    policy.tokenizer.decode = lambda *a, **k: decoded.append(a) or decode(*a, **k)
    assert policy.decode_all(answers) == wanted
    assert len(decoded) == 3
