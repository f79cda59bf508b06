"""Which scorers of Reasoning Gym are not to be trusted with a model's text, and what stands in.

Read from and tried on reasoning-gym 0.1.25. Four kinds of fault: scorers that evaluate the answer
as Python (`eval`, or sympy's `parse_expr`, which is `eval` too); scorers that pay the right answer
with anything after it; scorers that compare the wrong thing; and sizes taken from the answer.
"""

import re
from typing import NamedTuple

from brorl.verify.reasoning_gym_checks import (
    Check,
    antiderivative,
    expanded_product,
    lowest_terms,
    makes_target,
    one_of_the_boards,
    probability,
    same_complex,
    same_grid,
    same_json,
    same_number,
    same_roles,
    same_text,
    same_text_any_case,
    same_words,
    sorted_numbers,
)


class Own(NamedTuple):
    """A check that replaces the library's scorer, and the fault that made it necessary."""

    check: Check
    fault: str


class Form(NamedTuple):
    """What an answer must look like before the library's scorer may see it."""

    pattern: re.Pattern[str]
    fault: str


# Not offered as tasks: no check of ours could make their score mean something.
REFUSED = {
    "propositional_logic": "a premise repeated word for word is paid in full",
}

# Generators that iterate over sets of strings: other items in every process.
HASH_DEPENDENT = frozenset(
    {"isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note"}
    | {"word_ladder"}
)

OWN = {
    "binary_matrix": Own(same_text, "evaluates the answer as Python"),
    "coin_flip": Own(probability, "pays 0 for every probability below 1e-4"),
    "complex_arithmetic": Own(same_complex, "pays nan in full"),
    "countdown": Own(makes_target, "evaluates the answer as Python"),
    "figlet_font": Own(same_text_any_case, "pays any word with ten letters in the right place"),
    "fraction_simplification": Own(lowest_terms, "pays text that goes on after the fraction"),
    "game_of_life": Own(same_json, "pays boards with rows and cells added"),
    "game_of_life_halting": Own(same_text, "pays any text: compares bool(text) with bool(text)"),
    "gsm_symbolic": Own(same_number, "pays the first number anywhere in the text"),
    "intermediate_integration": Own(
        antiderivative, "evaluates the answer as Python, pays the unevaluated Integral(f, x)"
    ),
    "knights_knaves": Own(same_roles, "pays text that goes on after the roles"),
    "letter_jumble": Own(same_text_any_case, "pays text that goes on after the sentence"),
    "n_queens": Own(one_of_the_boards, "evaluates the answer as Python"),
    "number_sorting": Own(sorted_numbers, "pays [NaN, NaN, ...] and numbers off by one"),
    "polynomial_multiplication": Own(expanded_product, "evaluates the answer as Python"),
    "pool_matrix": Own(same_grid, "pays numbers off by one percent, and comments after them"),
    "puzzle24": Own(makes_target, "evaluates the answer as Python, pays other numbers' 24"),
    "simple_integration": Own(
        antiderivative, "evaluates the answer as Python, pays the unevaluated Integral(f, x)"
    ),
    "spell_backward": Own(same_text, "pays text that goes on after the word"),
    "spiral_matrix": Own(same_text, "evaluates the answer as Python"),
    "string_insertion": Own(same_text, "evaluates the answer as Python"),
    "word_sorting": Own(same_words, "pays words that go on after the list"),
}

_FLOAT = r"[+-]?[0-9]{1,40}(?:\.[0-9]{1,40})?"

FORM = {
    name: Form(re.compile(pattern, re.DOTALL), fault)
    for name, (pattern, fault) in {
        "advanced_geometry": (
            rf"\(?\s*{_FLOAT}\s*,\s*{_FLOAT}\s*\)?|{_FLOAT}\s*°?",
            "skips what stands after two coordinates",
        ),
        "boxnet": (
            r'[\[\]{},\s]*(?:"[^"\n]{1,60}"\s*:\s*'
            r'"move\(box_\w{1,20}, [^"\n]{1,40}\)"[\[\]{},\s]*)+',
            "lets targets be moved to the boxes",
        ),
        "decimal_arithmetic": (_FLOAT, "reads exponents of any size"),
        "graph_color": (r"\{.{0,20000}\}", "takes lists for maps"),
        "kakurasu": (r"[01]+(?: [01]+)*(?:\s*\n[01]+(?: [01]+)*)*", "skips other characters"),
        "polynomial_equations": (rf"{_FLOAT}(?:\s*,\s*{_FLOAT})*", "skips what is no number"),
        "prime_factorization": (r"[0-9]{1,30}(?:\s*×\s*[0-9]{1,30}){0,60}", "raises on junk"),
        "quantum_lock": (r"[ABC](?:\s*(?:→|->|,)?\s*[ABC]){0,200}", "skips other characters"),
        "rubiks_cube": (r"[A-Za-z]{1,2}'?2?(?: [A-Za-z]{1,2}'?2?){0,400}", "repeats moves as told"),
        "rush_hour": (r"[A-Z][+-][0-9](?:[ ,]+[A-Z][+-][0-9]){0,400}", "skips what is no move"),
        "sokoban": (r"[LRUD]{1,2000}", "skips other characters"),
        "survo": (
            r"[0-9]{1,9}(?: +[0-9]{1,9})*(?:\s*\n *[0-9]{1,9}(?: +[0-9]{1,9})*)*",
            "skips words",
        ),
        "time_intervals": (
            r"-?[0-9]{1,6} days?(?:, [0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)?"
            r"|[0-9]{1,4}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{3})?)?",
            "pays text that goes on after the days",
        ),
    }.items()
}
