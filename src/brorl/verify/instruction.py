"""The verifier for checkable instructions (IFEval)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from brorl.errors import DataError
from brorl.verify.extract import MAX_TEXT, final_part
from brorl.verify.instruction_kinds import KINDS, RELATIONS
from brorl.verify.verdict import Verdict, correct, grader_error, no_answer, ungradable, wrong


class Instruction(NamedTuple):
    """One instruction of a row: its kind and the arguments that kind takes."""

    kind: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class InstructionVerifier:
    """Judges whether a response follows every instruction of its row.

    The row's `instruction_id_list` and `kwargs` say what to check, as in IFEval; there is no gold.
    "strict" looks at the response as it is. "loose" also accepts it with its first or last line
    or its asterisks removed, so that "Sure, here it is:" does not cost a point.

    Attributes:
        profile: see above.
        score: "all" (1 if every instruction is followed, else 0) or "share" (part credit).
    """

    profile: Literal["strict", "loose"]
    score: Literal["all", "share"]
    needs_gold = False

    def prepare(self) -> None:
        """Load the language models of langdetect, outside of any deadline."""
        from brorl.verify.instruction_text import language

        language("This is English.")

    def extract(self, text: str, row: Mapping[str, Any]) -> str | None:
        part = final_part(text)
        return part if part is not None and part.strip() else None

    def grade(self, extracted: str, *, gold: str | None, row: Mapping[str, Any]) -> Verdict:
        if not extracted.strip():
            return no_answer("instructions: empty response")
        if len(extracted) > MAX_TEXT:
            return ungradable(None, f"instructions: over {MAX_TEXT} characters")
        try:
            instructions = read_instructions(row)
        except DataError as error:
            return grader_error(f"instructions: {error}")
        texts = list(variants(extracted)) if self.profile == "loose" else [extracted]
        broken = [
            each.kind
            for each in instructions
            if not any(text.strip() and KINDS[each.kind][0](text, each.arguments) for text in texts)
        ]
        if not broken:
            return correct(extracted, f"instructions: all {len(instructions)} followed")
        share = 1.0 - len(broken) / len(instructions)
        reason = f"instructions: not followed: {', '.join(broken)}"
        return wrong(extracted, reason, share if self.score == "share" else 0.0)

    def unreadable(self, gold: str | None, row: Mapping[str, Any]) -> str | None:
        """Why a row cannot be checked, None if it can."""
        try:
            read_instructions(row)
        except DataError as error:
            return str(error)
        return None


def read_instructions(row: Mapping[str, Any]) -> list[Instruction]:
    """The instructions of a row, checked. Arguments that are None are left out.

    Raises:
        DataError: no instructions, an unknown kind, an argument missing or of the wrong type.
    """
    kinds, arguments = row.get("instruction_id_list"), row.get("kwargs")
    if not isinstance(kinds, list) or not isinstance(arguments, list) or not kinds:
        raise DataError("need lists instruction_id_list and kwargs with at least one entry")
    if len(kinds) != len(arguments):
        raise DataError(f"{len(kinds)} instructions but {len(arguments)} kwargs")
    found = []
    for kind, given in zip(kinds, arguments, strict=True):
        if kind not in KINDS:
            raise DataError(f"unknown instruction {kind!r}")
        wanted = KINDS[kind][1]
        values = {k: v for k, v in (given or {}).items() if v is not None}
        for name, expected in wanted.items():
            value = values.get(name)
            if isinstance(value, float) and expected is int and value.is_integer():
                value = values[name] = int(value)  # Parquet turns optional integers into floats
            if not isinstance(value, expected) or isinstance(value, bool) or value in ("", []):
                raise DataError(f"{kind}: {name} must be {expected.__name__}, got {value!r:.60}")
            if name.endswith("relation") and value not in RELATIONS:
                raise DataError(f"{kind}: {name} must be in {list(RELATIONS)}, got {value!r}")
        found.append(Instruction(kind, values))
    return found


def variants(text: str) -> Iterator[str]:
    """The response, then without its first, last, first and last line; each also without "*"."""
    lines = text.split("\n")
    for lower, upper in ((0, 0), (1, 0), (0, 1), (1, 1)):
        kept = "\n".join(lines[lower : len(lines) - upper]).strip() if lower + upper else text
        yield kept
        yield kept.replace("*", "")
