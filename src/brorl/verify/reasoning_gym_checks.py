"""Own checks for the data sets of Reasoning Gym whose scorers are not to be trusted.

Each takes a trimmed answer and an item, and says whether the answer is right; None if it cannot
be read. Nothing is evaluated as code, and no size is taken from the answer unbounded.
"""

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from brorl.verify import python_formula
from brorl.verify.math_number import TooLarge, read_number

Check = Callable[[str, Mapping[str, Any]], bool | None]

_DECIMAL = re.compile(r"[+-]?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?")
_SIZE = r"[0-9]{1,40}(?:\.[0-9]{0,40})?"
_COMPLEX = re.compile(
    rf"(?P<real>[+-]?{_SIZE}(?![0-9.i]))?(?:(?P<sign>(?(real)[+-]|[+-]?))(?P<size>{_SIZE})?(?P<i>i))?"
)
_ARITHMETIC = re.compile(r"[0-9+\-*/(). ]{1,200}")
_ITEM = r"(?:'[^']*'|\"[^\"]*\"|[^,\[\]'\"]+)"
_LIST = re.compile(rf"\[\s*{_ITEM}(?:\s*,\s*{_ITEM})*\s*\]")
_PROBABILITY = re.compile(r"[0-9]{1,30}\s*/\s*[0-9]{1,30}")


def same_text(answer: str, item: Mapping[str, Any]) -> bool:
    """The gold, character by character."""
    return bool(answer == item["answer"].strip())


def same_text_any_case(answer: str, item: Mapping[str, Any]) -> bool:
    """The gold, whatever the case."""
    return bool(answer.lower() == item["answer"].strip().lower())


def same_words(answer: str, item: Mapping[str, Any]) -> bool:
    """The gold's list, whatever the space around the commas."""
    words = [[w.strip() for w in text.split(",")] for text in (answer, item["answer"])]
    return words[0] == words[1]


def same_number(answer: str, item: Mapping[str, Any]) -> bool | None:
    """The gold's value; a dollar sign, a percent sign and thousands separators are dropped."""
    value = _number(answer.removeprefix("$").removesuffix("%").replace(",", ""))
    return None if value is None else value == Decimal(item["answer"])


def same_complex(answer: str, item: Mapping[str, Any]) -> bool | None:
    """The gold's real and imaginary part: 4 - 7i, 4.0-7.0j, 6i, -i, 12, in brackets or not."""
    plain = answer.replace(" ", "").lower().replace("j", "i")
    if plain.startswith("(") and plain.endswith(")"):
        plain = plain[1:-1]
    match = _COMPLEX.fullmatch(plain)
    if match is None or not plain or re.search(r"[0-9.]\s+[0-9.]", answer):
        return None
    real = Decimal(match["real"] or 0)
    imaginary = Decimal(0)
    if match["i"]:
        imaginary = Decimal(f"{match['sign'] or ''}{match['size'] or 1}")
    return (real, imaginary) == tuple(Decimal(str(part)) for part in item["metadata"]["result"])


def same_json(answer: str, item: Mapping[str, Any]) -> bool | None:
    """The gold as JSON: nothing missing and nothing added."""
    value = _json(answer)
    return None if value is None else bool(value == json.loads(item["answer"]))


def makes_target(answer: str, item: Mapping[str, Any]) -> bool | None:
    """Arithmetic over exactly the given numbers with exactly the target as its value."""
    if not _ARITHMETIC.fullmatch(answer) or "**" in answer or "//" in answer:
        return None
    try:
        number = read_number(answer)
    except TooLarge:
        return None
    if number is None:
        return None
    used = sorted(map(Fraction, re.findall(r"[0-9.]+", answer)))
    given = sorted(map(Fraction, item["metadata"]["numbers"]))
    return used == given and number.value == item["metadata"].get("target", 24)


def sorted_numbers(answer: str, item: Mapping[str, Any]) -> bool | None:
    """The gold's numbers in the gold's order, each exactly."""
    if not _LIST.fullmatch(answer):
        return None
    values = [_number(part.strip(" '\"")) for part in answer[1:-1].split(",")]
    golds = [Decimal(part.strip(" '\"")) for part in item["answer"].strip()[1:-1].split(",")]
    return None if None in values else values == golds


def probability(answer: str, item: Mapping[str, Any]) -> bool | None:
    """Within a thousandth of the gold and of its complement: 0 and 1 are never close enough."""
    if _PROBABILITY.fullmatch(answer) and int(answer.split("/")[1]):
        value = Fraction(answer.replace(" ", ""))
    elif (number := _number(answer)) is not None:
        value = Fraction(number)
    else:
        return None
    gold = Fraction(Decimal(item["answer"]))
    return abs(value - gold) <= min(gold, 1 - gold) / 1000


def same_grid(answer: str, item: Mapping[str, Any]) -> bool | None:
    """The gold's numbers row by row, right to two decimals."""
    grids = []
    for text in (answer, item["answer"].strip()):
        rows = [[_number(cell) for cell in line.split()] for line in text.split("\n")]
        grids.append(rows)
    if any(cell is None for row in grids[0] for cell in row):
        return None
    if [len(row) for row in grids[0]] != [len(row) for row in grids[1]]:
        return False
    cells = [[cell for row in grid for cell in row if cell is not None] for grid in grids]
    return all(abs(a - b) <= Decimal("0.0051") for a, b in zip(*cells, strict=True))


def one_of_the_boards(answer: str, item: Mapping[str, Any]) -> bool:
    """One of the listed solutions, with any trailing spaces."""
    lines = "\n".join(line.rstrip() for line in answer.split("\n"))
    return lines in {
        "\n".join(line.rstrip() for line in valid.strip().split("\n"))
        for valid in item["metadata"]["valid_answers"]
    }


def lowest_terms(answer: str, item: Mapping[str, Any]) -> bool | None:
    """The simplified fraction, plain or in LaTeX, and nothing else."""
    match = _FRACTION.fullmatch(answer)
    if match is None:
        return None
    upper, lower = int(match[1] or match[3]), int(match[2] or match[4])
    m = item["metadata"]
    return bool((upper, lower) == (m["simplified_numerator"], m["simplified_denominator"]))


_FRACTION = re.compile(
    r"\$?\s*(?:([0-9]{1,30})\s*/\s*([0-9]{1,30})"
    r"|\\[dt]?frac\s*\{\s*([0-9]{1,30})\s*\}\s*\{\s*([0-9]{1,30})\s*\})\s*\$?"
)


def same_roles(answer: str, item: Mapping[str, Any]) -> bool | None:
    """Who is what: "A is a knight, and B is a knave" in any order, each person once."""
    roles = [_roles(text) for text in (answer, item["answer"])]
    return None if roles[0] is None else roles[0] == roles[1]


def _roles(text: str) -> dict[str, str] | None:
    parts = re.split(r"\s*,\s*(?:and\s+)?|\s+and\s+", text.strip().rstrip(".").lower())
    found: dict[str, str] = {}
    for part in parts:
        match = re.fullmatch(r"([a-z]+) is an? ([a-z]+)", part)
        if match is None or match[1] in found:
            return None
        found[match[1]] = match[2]
    return found


def antiderivative(answer: str, item: Mapping[str, Any]) -> bool | None:
    """Its derivative is the integrand; the letter C is a constant."""
    m = item["metadata"]
    tree, integrand = python_formula.parse(answer), python_formula.parse(m["integrand"])
    if tree is None or integrand is None:
        return None
    try:
        return python_formula.is_antiderivative(tree, integrand, m["variable"])
    except TooLarge:
        return None


def expanded_product(answer: str, item: Mapping[str, Any]) -> bool | None:
    """The gold's polynomial, multiplied out: the question repeated is no answer."""
    tree, gold = python_formula.parse(answer), python_formula.parse(item["answer"])
    if tree is None or gold is None:
        return None
    try:
        return python_formula.is_expanded(tree) and python_formula.same_polynomial(tree, gold)
    except (TooLarge, ArithmeticError, ValueError):
        return None


def _number(text: str) -> Decimal | None:
    return Decimal(text) if _DECIMAL.fullmatch(text) else None


def _json(text: str) -> Any:
    """None for what is no JSON; NaN and Infinity are none either."""
    try:
        return json.loads(text, parse_constant=lambda name: _refuse(name))
    except (ValueError, RecursionError):
        return None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
