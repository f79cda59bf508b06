"""Small evaluations for the tests of this folder."""

from brorl.evaluate.results import (
    Evaluation,
    ModelSource,
    ProblemResult,
    Protocol,
    SuiteResult,
    Votes,
)
from brorl.verify.verdict import Kind


def problem(id, c, n=4, *, task="t", category="cat", wrong=0.0, tokens=5):
    """c of n right; the rest score `wrong`. One right answer, one wrong answer."""
    votes = [Votes(c, True), Votes(n - c, False)]
    return ProblemResult(
        id=id,
        task=task,
        category=category,
        n=n,
        c=c,
        scores=(1.0,) * c + (wrong,) * (n - c),
        tokens=(tokens,) * n,
        truncated=0,
        verdicts={k: m for k, m in ((Kind.CORRECT, c), (Kind.WRONG, n - c)) if m},
        answers=tuple(v for v in votes if v.samples),
    )


def suite(problems, *, verifier="exact 1", prompt="{prompt}"):
    return SuiteResult(
        source="own.jsonl",
        source_sha256="00",
        verifier=verifier,
        prompt=prompt,
        set_aside=0,
        problems=tuple(problems),
    )


def evaluation(suites, *, model="m", seed=0, temperature=0.6, samples=4):
    return Evaluation(
        model=ModelSource(source=model),
        protocol=Protocol(
            samples=samples,
            temperature=temperature,
            top_p=0.95,
            top_k=0,
            max_new_tokens=64,
            chat_template=None,
            engine="scripted",
            seed=seed,
        ),
        versions={"brorl": "0"},
        suites=suites,
    )
