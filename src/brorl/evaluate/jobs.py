"""What an evaluation has to do: every problem of its suites, and who judges it."""

import hashlib
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import brorl
from brorl.errors import ConfigError, DataError
from brorl.evaluate.suites import LoadedSuite, Part
from brorl.tasks.build import build_verifier
from brorl.tasks.files import GoldReader
from brorl.tasks.problem import Problem
from brorl.verify.code import CodeVerifier
from brorl.verify.protocol import Verifier
from brorl.verify.reasoning_gym import ReasoningGymVerifier

# What a verifier's judgement hangs on beside our own code.
_LIBRARIES = {
    "math": "math-verify",
    "reasoning_gym": "reasoning-gym",
    "instructions": "langdetect",
}


class Job(NamedTuple):
    """One problem to evaluate."""

    suite: str
    category: str
    problem: Problem
    verifier: Verifier


def jobs_of(suites: Sequence[LoadedSuite]) -> tuple[list[Job], dict[str, int]]:
    """Every problem with its verifier, and per suite how many rows were set aside.

    Raises:
        ConfigError: a suite twice, or an unknown verifier.
        DataError: a suite of which no gold can be read.
    """
    names = [suite.name for suite in suites]
    if len(set(names)) < len(names):
        raise ConfigError(f"a suite is named twice: {', '.join(names)}")
    jobs: list[Job] = []
    aside = {}
    for suite in suites:
        found = [job for part in suite.parts for job in _part_jobs(suite, part)]
        aside[suite.name] = suite.set_aside + sum(len(p.problems) for p in suite.parts) - len(found)
        if not found:
            raise DataError(f"{suite.source}: an empty suite, no gold of it can be read")
        jobs += found
    return jobs, aside


def _part_jobs(suite: LoadedSuite, part: Part) -> Iterator[Job]:
    verifier = verifier_of(part)
    for problem in part.problems:
        unreadable = isinstance(verifier, GoldReader) and verifier.unreadable(
            problem.gold, problem.row
        )
        if not unreadable:
            yield Job(suite.name, suite.categories[problem.id], problem, verifier)


def verifier_of(part: Part) -> Verifier:
    """The verifier that a part names, ready to judge.

    Raises:
        ConfigError: an unknown name, or a sandbox that this machine cannot make.
    """
    if part.verifier == "reasoning_gym":
        return ReasoningGymVerifier(
            part.options["name"], config={}, tagged=True, score=part.options["score"]
        )
    if part.verifier == "code":
        verifier = CodeVerifier()
        verifier.prepare()  # before hours of sampling, not after
        return verifier
    return build_verifier(part.verifier)


def verifier_text(part: Part) -> str:
    """Name, options and version of what judges: evaluations judged by others do not compare.

    A verifier of a user's own is named with the hash of its file, where it is a file.
    """
    name = part.verifier
    if library := _LIBRARIES.get(name.partition("-")[0]):
        made_by = f"{library} {version(library)}"
    elif (file := Path(name.rpartition(":")[0])).is_file():
        made_by = f"sha256 {hashlib.sha256(file.read_bytes()).hexdigest()[:16]}"
    else:
        made_by = f"brorl {brorl.__version__}"
    options = "".join(f" {v}" for k, v in part.options.items() if k != "name")
    return f"{name}{options} ({made_by})"
