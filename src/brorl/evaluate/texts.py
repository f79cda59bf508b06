"""What the sampled texts of one problem show, measured once and kept with the evaluation."""

import math
import re
from collections.abc import Sequence

from brorl.evaluate.results import TextStats
from brorl.stats.diversity import distinct_n, self_similarity

_MOST_PAIRS = 256
_WORDS_PER_GRAM = 3

# A name and the pattern of a text that shows it. Surface forms only: they say that a text reads
# as if it checked or gave up, never that it did.
BEHAVIOURS = {
    "boxed answer": re.compile(r"\\boxed\s*\{"),
    "answer tags": re.compile(r"<answer>.*?</answer>", re.DOTALL),
    "code block": re.compile(r"```.*?```", re.DOTALL),
    "ends its thinking": re.compile(r"</think>"),
    "reconsiders": re.compile(
        r"\b(wait|hmm|actually|hold on|on second thought)\b|\bi made (a|an) (mistake|error)\b",
        re.IGNORECASE,
    ),
    "checks": re.compile(
        r"\b(let me|let's|we|i'll|i will|i should|to) (double[- ]?check|verify|check|confirm)\b",
        re.IGNORECASE,
    ),
    "tries another way": re.compile(
        r"\b(alternatively|another (way|approach|method)|try (a )?different)\b", re.IGNORECASE
    ),
    "splits into cases": re.compile(r"\bcase (1|i|one|a)\b", re.IGNORECASE),
    "guesses": re.compile(r"\b(i('ll| will| would)? guess|best guess|just guess)", re.IGNORECASE),
}


def text_stats(texts: Sequence[str], *, seed: int) -> TextStats:
    """Diversity and behaviours of the n texts of one problem.

    Self-similarity is over 3-word sets and, with more than 256 pairs, over 256 drawn pairs.

    Args:
        texts: of the samples that could be graded, at least one.
        seed: of the drawn pairs.
    """
    return TextStats(
        distinct_1=_known(distinct_n(texts, n=1)),
        distinct_2=_known(distinct_n(texts, n=2)),
        self_similarity=_known(
            self_similarity(texts, n=_WORDS_PER_GRAM, most_pairs=_MOST_PAIRS, seed=seed)
        ),
        behaviours={
            name: sum(pattern.search(text) is not None for text in texts)
            for name, pattern in BEHAVIOURS.items()
        },
    )


def _known(x: float) -> float | None:
    return None if math.isnan(x) else x
