r"""The verifier for mathematics: extraction, then exact rules, then formulas by value."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from brorl.verify.extract import boxed_answer, closing_answer, final_part
from brorl.verify.math_compare import Outcome, compare
from brorl.verify.math_number import TooLarge
from brorl.verify.math_parse import readings
from brorl.verify.math_structure import is_name
from brorl.verify.math_symbolic import readable, same_function
from brorl.verify.math_text import clean, squeeze
from brorl.verify.math_value import Bracket, Expr, Many, Matrix, Relation, Union, Value
from brorl.verify.verdict import Verdict, correct, grader_error, no_answer, ungradable, wrong

Profile = Literal["lenient", "strict"]


@dataclass(frozen=True, slots=True)
class MathVerifier:
    r"""Judges an answer to a question of mathematics against its gold.

    "lenient", the default elsewhere, takes a closing line ("The final answer is 7") where there is
    no box, drops a unit that only one side has, lets 28\% and 28 agree, and takes a decimal with
    at least six digits for an irrational number or a fraction that does not terminate. "strict"
    does none of this: a box, and exactly the gold's value with its unit.
    """

    profile: Profile

    def prepare(self) -> None:
        """Load the formula parser, outside of any deadline."""
        same_function(r"\frac{x}{2}", r"x\cdot\frac{1}{2}")

    def extract(self, text: str, row: Mapping[str, Any]) -> str | None:
        part = final_part(text)
        if part is None:
            return None
        if "\\boxed" in part or "\\fbox" in part:
            return boxed_answer(part)
        return closing_answer(part) if self.profile == "lenient" else None

    def grade(self, extracted: str, *, gold: str | None, row: Mapping[str, Any]) -> Verdict:
        if gold is None or not gold.strip():
            return grader_error("math: the gold is empty")
        reference = _gold(gold)
        answer = clean(extracted)
        if not answer:
            return no_answer("math: empty answer")
        if squeeze(answer) == squeeze(reference):
            return correct(extracted, "math: equal text")
        try:
            outcome = _best(reference, answer, self.profile == "strict")
        except TooLarge:
            return ungradable(extracted, "math: too large to be worked out")
        if outcome.equal is None:
            return ungradable(extracted, f"math: {outcome.rule}")
        judge = correct if outcome.equal else wrong
        return judge(extracted, f"math: {outcome.rule}")

    def write(self, gold: str, row: Mapping[str, Any]) -> str:
        """The gold as a policy should write it."""
        return rf"\boxed{{{gold.strip()}}}"

    def unreadable(self, gold: str | None, row: Mapping[str, Any]) -> str | None:
        """Why this gold cannot be used, None if it can."""
        if gold is None or not clean(gold):
            return "the gold is empty"
        return None

    def text_only(self, gold: str) -> bool:
        """Whether no rule understands the gold, so that only the same text is right."""
        values = _readings_of_gold(_gold(gold))
        return not values or not all(_understood(value) for value in values)


@functools.lru_cache(maxsize=4096)
def _gold(gold: str) -> str:
    return clean(gold)


def _best(gold: str, answer: str, strict: bool) -> Outcome:
    """The best outcome over what both may denote: "100,200" is a number or a list."""
    best = Outcome(None, "cannot be read")
    for reference in _readings_of_gold(gold):
        for value in readings(answer):
            outcome = compare(reference, value, strict=strict)
            if outcome.equal:
                return outcome
            if best.equal is None:
                best = outcome
    return best


@functools.lru_cache(maxsize=4096)
def _readings_of_gold(gold: str) -> tuple[Value, ...]:
    try:
        return readings(gold)
    except TooLarge:  # only an equal text can be right
        return ()


def _understood(value: Value) -> bool:
    """Whether every leaf is a number, words, or a formula that can be worked out."""
    if isinstance(value, Many | Bracket):
        return all(_understood(item) for item in value.items)
    if isinstance(value, Union):
        return all(_understood(part) for part in value.parts)
    if isinstance(value, Matrix):
        return all(_understood(cell) for row in value.rows for cell in row)
    if isinstance(value, Relation):
        pairs = zip(value.texts, value.members, strict=True)
        return all(is_name(text) or _understood(member) for text, member in pairs)
    return not isinstance(value, Expr) or (not value.opaque and readable(value.latex))
