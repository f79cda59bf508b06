"""When two questions are the same question."""

import unicodedata


def question_key(text: str) -> str:
    """Two prompts with equal keys are the same question: NFC, runs of white space made one space.

    Case stays, and so does every other character: "rev Ab=" and "rev ab=" have other answers.
    """
    return " ".join(unicodedata.normalize("NFC", text).split())
