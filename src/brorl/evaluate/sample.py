"""Evaluate a policy on suites: sample what is missing, grade, count. Resumable at any instant."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from brorl.errors import DataError
from brorl.evaluate.jobs import Job, jobs_of, verifier_text
from brorl.evaluate.results import (
    Evaluation,
    ModelSource,
    ProblemResult,
    SuiteResult,
    problem_result,
)
from brorl.evaluate.results import Protocol as Settings
from brorl.evaluate.sample_file import Sample, SampleFile
from brorl.evaluate.suites import LoadedSuite
from brorl.evaluate.texts import text_stats
from brorl.policy.model import Policy
from brorl.policy.speech import Speech
from brorl.rollout.engine import Completion, Engine, Request, Sampling, Stop
from brorl.seeds import derive_seed
from brorl.verify.pool import GraderPool
from brorl.verify.pool_ledger import Ticket

SAMPLES, VERDICTS = "samples.jsonl", "verdicts.jsonl"


class Watcher(Protocol):
    """Told how far an evaluation is."""

    def sampled(self, done: int, total: int) -> None:
        """Samples on disk, of all that are wanted."""
        ...

    def note(self, text: str) -> None:
        """One line for the user."""
        ...


class _Graded(NamedTuple):
    job: Job
    samples: list[Sample]
    tickets: list[Ticket]


def evaluate(
    policy: Policy | Speech,
    engine: Engine,
    suites: Sequence[LoadedSuite],
    pool: GraderPool,
    *,
    model: ModelSource,
    settings: Settings,
    versions: dict[str, str],
    folder: Path,
    at_once: int,
    watcher: Watcher,
) -> Evaluation:
    """Evaluate `policy` on all suites, going on where an earlier call on the folder stopped.

    Sample i of a problem depends on (seed, suite, problem id, i) alone, so what an earlier call
    sampled is kept and only the rest is sampled. Grading is done anew: it costs little, and a
    mended verifier judges old samples. While one batch is graded the next is sampled.

    Args:
        policy: encodes prompts and decodes answers; for a server's model its tokenizer does.
        engine: samples; its encoded prompts are dropped after every batch.
        suites: at least one problem each.
        pool: grader processes.
        model, settings, versions: for the result; the first two must not differ from those of
            the samples that the folder holds.
        folder: holds SAMPLES (what was sampled) and VERDICTS (a line a sample).
        at_once: samples asked of the engine in one batch, >= 1; at least one problem's.
        watcher: told after every part that the engine finishes.

    Raises:
        ConfigError, DataError: see jobs_of and SampleFile.
        EngineError, VerifierError: the engine or the pool failed; calling again goes on.
    """
    jobs, aside = jobs_of(suites)
    n = settings.samples
    sampling = Sampling(
        settings.temperature, settings.top_p, settings.top_k, settings.max_new_tokens
    )
    header = {
        "protocol": settings.model_dump(),
        "model": model.model_dump(),
        "suites": {s.name: {"prompt": s.prompt, "sha256": s.source_sha256} for s in suites},
    }
    results: dict[str, list[ProblemResult]] = {suite.name: [] for suite in suites}
    with (
        SampleFile(folder / SAMPLES, header) as file,
        (folder / VERDICTS).open("w", encoding="utf-8") as verdicts,
    ):
        progress = _Progress(file, jobs, n, watcher)
        waiting: list[_Graded] = []
        size = max(1, at_once // n)
        for start in range(0, len(jobs), size):
            batch = jobs[start : start + size]
            _sample(policy, engine, batch, sampling, settings, file, progress)
            submitted = [
                _submit(job, file.read(job.suite, job.problem.id, n), pool) for job in batch
            ]
            _collect(waiting, pool, settings.seed, results, verdicts)
            waiting = submitted
        _collect(waiting, pool, settings.seed, results, verdicts)
    return _evaluation(suites, results, aside, model, settings, versions, watcher)


class _Progress:
    """Counts samples on disk."""

    def __init__(self, file: SampleFile, jobs: Sequence[Job], n: int, watcher: Watcher) -> None:
        missing = sum(c for j in jobs for _, c in file.missing(j.suite, j.problem.id, n))
        self._done, self._total, self._watcher = len(jobs) * n - missing, len(jobs) * n, watcher
        if self._done:
            watcher.note(f"{self._done} of {self._total} samples are there already")
        watcher.sampled(self._done, self._total)

    def add(self, count: int) -> None:
        self._done += count
        self._watcher.sampled(self._done, self._total)


def _sample(
    policy: Policy | Speech,
    engine: Engine,
    batch: Sequence[Job],
    sampling: Sampling,
    settings: Settings,
    file: SampleFile,
    progress: _Progress,
) -> None:
    """Sample what the file lacks of these problems; each part is on disk as it finishes."""
    wanted = [
        (job, Request(f"{job.suite}/{job.problem.id}", job.problem.id, prompt, first, count, seed))
        for job in batch
        if (runs := file.missing(job.suite, job.problem.id, settings.samples))
        for prompt in (policy.encode(job.problem.prompt),)
        for seed in (derive_seed(settings.seed, "eval", job.suite, job.problem.id),)
        for first, count in runs
    ]
    if not wanted:
        return

    def finished(index: int, offset: int, completions: list[Completion]) -> None:
        job, request = wanted[index]
        texts = policy.decode_all([c.tokens for c in completions])
        samples = [
            Sample(text, len(c.tokens), c.stop is Stop.LENGTH)
            for text, c in zip(texts, completions, strict=True)
        ]
        file.append(job.suite, job.problem.id, request.first + offset, samples)
        progress.add(len(samples))

    engine.sample([request for _, request in wanted], sampling, finished)
    engine.forget()
    file.sync()


def _submit(job: Job, samples: list[Sample], pool: GraderPool) -> _Graded:
    tickets = pool.submit_many(
        job.verifier,
        problem_id=f"{job.suite}/{job.problem.id}",
        texts=[s.text for s in samples],
        gold=job.problem.gold,
        row=job.problem.row,
    )
    return _Graded(job, samples, tickets)


def _collect(
    graded: Sequence[_Graded],
    pool: GraderPool,
    seed: int,
    results: dict[str, list[ProblemResult]],
    file: IO[str],
) -> None:
    for (suite, category, problem, _), samples, tickets in graded:
        verdicts = pool.gather(tickets)
        for i, v in enumerate(verdicts):
            line = {"suite": suite, "id": problem.id, "sample": i, "verdict": v.kind}
            line |= {"score": v.score, "extracted": v.extracted, "reason": v.reason}
            file.write(json.dumps(line) + "\n")
        judged = [s.text for s, v in zip(samples, verdicts, strict=True) if v.counts]
        if not judged:
            continue
        results[suite].append(
            problem_result(
                problem.id,
                task=problem.task,
                category=category,
                verdicts=verdicts,
                tokens=[s.tokens for s in samples],
                truncated=[s.truncated for s in samples],
                texts=text_stats(judged, seed=derive_seed(seed, "texts", suite, problem.id)),
            )
        )


def _evaluation(
    suites: Sequence[LoadedSuite],
    results: dict[str, list[ProblemResult]],
    aside: dict[str, int],
    model: ModelSource,
    settings: Settings,
    versions: dict[str, str],
    watcher: Watcher,
) -> Evaluation:
    found = {}
    for suite in suites:
        problems = results[suite.name]
        sampled = sum(len(p.problems) for p in suite.parts) + suite.set_aside - aside[suite.name]
        if not problems:
            raise DataError(f"suite {suite.name}: not one sample could be graded; see {VERDICTS}")
        if lost := sampled - len(problems):
            watcher.note(f"{suite.name}: {lost} problems left out, grading failed on our side")
        if aside[suite.name]:
            watcher.note(f"{suite.name}: {aside[suite.name]} rows set aside, gold unreadable")
        found[suite.name] = SuiteResult(
            source=suite.source,
            source_sha256=suite.source_sha256,
            verifier=", ".join(dict.fromkeys(verifier_text(p) for p in suite.parts)),
            prompt=suite.prompt,
            set_aside=aside[suite.name] + lost,
            problems=tuple(problems),
        )
    return Evaluation(model=model, protocol=settings, versions=versions, suites=found)
