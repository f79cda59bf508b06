"""Benchmarks by name: where each file comes from, and how its rows become problems.

Left out: GPQA (its authors ask not to repost it), HumanEval+, LiveCodeBench, APPS and TACO, whose
files come from hubs only; a user who has one evaluates it as an own file.
"""

import hashlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from brorl.errors import ConfigError, DataError
from brorl.evaluate import suite_rows as rows
from brorl.tasks.build import build_verifier
from brorl.tasks.files import FileTask, plain
from brorl.tasks.names import unknown_name
from brorl.tasks.problem import Problem
from brorl.tasks.tables import read_table

BOXED = "{prompt}\n\nThink step by step. Put the final answer in \\boxed{{}}."
PROGRAM = "{prompt}\n\nAnswer with one complete Python program in a ```python block."
PLAIN = "{prompt}"


class Part(NamedTuple):
    """Problems that one verifier judges."""

    verifier: str  # a name that brorl.tasks.build knows, or a user's module:function
    options: Mapping[str, Any]  # of the verifier
    problems: tuple[Problem, ...]


class LoadedSuite(NamedTuple):
    """A suite with its problems, ready to be sampled."""

    name: str
    source: str
    source_sha256: str | None
    prompt: str
    parts: tuple[Part, ...]
    categories: Mapping[str, str]  # of each problem id
    notes: tuple[str, ...] = ()
    set_aside: int = 0  # rows already left out because their gold cannot be read


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark file.

    Attributes:
        file: inside the data folder.
        origin: repository and path that the file was copied from, for whoever lacks it.
        verifier: kind of verifier that judges its answers.
        prompt: `{prompt}` where the problem goes.
        row: from one data row and its number (from 0) to a problem; None leaves the row out.
        hub: "OWNER/NAME@SPLIT" of a data set with the same fields, where one is known
            (unverified: the hub was not reachable when this was written).
    """

    file: str
    origin: str
    verifier: str
    prompt: str
    row: Callable[[Mapping[str, Any], int], rows.SuiteRow | None]
    hub: str | None = None


BENCHMARKS = {
    "aime24": Benchmark(
        "aime24/test.jsonl",
        "QwenLM/Qwen2.5-Math evaluation/data/aime24/test.jsonl",
        "math",
        BOXED,
        rows.aime24,
        "HuggingFaceH4/aime_2024@train",
    ),
    "aime25": Benchmark(
        "aime25/test.jsonl",
        "NVIDIA-NeMo/Skills nemo_skills/dataset/aime25/test.txt",
        "math",
        BOXED,
        rows.aime25,
    ),
    "amc": Benchmark(
        "amc_rllm/amc.json",
        "agentica-project/rllm rllm/data/test/math/amc.json",
        "math",
        BOXED,
        rows.amc,
    ),
    "math500": Benchmark(
        "math500/test.jsonl",
        "hkust-nlp/simpleRL-reason examples/simplelr_math_eval/data/math500/test.jsonl",
        "math",
        BOXED,
        rows.math500,
        "HuggingFaceH4/MATH-500@test",
    ),
    "minerva": Benchmark(
        "minerva_math/test.jsonl",
        "QwenLM/Qwen2.5-Math evaluation/data/minerva_math/test.jsonl",
        "math",
        BOXED,
        rows.minerva,
    ),
    "olympiadbench": Benchmark(
        "olympiadbench/test.jsonl",
        "QwenLM/Qwen2.5-Math evaluation/data/olympiadbench/test.jsonl",
        "math",
        BOXED,
        rows.olympiadbench,
    ),
    "humaneval": Benchmark(
        "humaneval/HumanEval.jsonl.gz",
        "openai/human-eval data/HumanEval.jsonl.gz",
        "code",
        PROGRAM,
        rows.humaneval,
        "openai/openai_humaneval@test",
    ),
    "mbpp": Benchmark(
        "mbpp/mbpp.jsonl",
        "deepseek-ai/DeepSeek-Coder Evaluation/MBPP/data/mbpp.jsonl",
        "code",
        PROGRAM,
        rows.mbpp,
    ),
    "leetcode": Benchmark(
        "leetcode/test.json",
        "agentica-project/rllm rllm/data/test/code/leetcode.json",
        "code",
        PLAIN,
        rows.leetcode,
    ),
    "codecontests": Benchmark(
        "code_contests/test.json",
        "agentica-project/rllm rllm/data/test/code/code_contests.json",
        "code",
        PROGRAM,
        rows.contest,
    ),
    "codeforces": Benchmark(
        "codeforces/test.json",
        "agentica-project/rllm rllm/data/test/code/codeforces.json",
        "code",
        PROGRAM,
        rows.contest,
    ),
    "ifeval": Benchmark(
        "ifeval/ifeval_original.jsonl",
        "google-research/google-research instruction_following_eval/data/input_data.jsonl",
        "instructions",
        PLAIN,
        rows.ifeval,
        "google/IFEval@train",
    ),
}
NAMES = (*BENCHMARKS, "reasoning_gym")


def load_benchmark(name: str, *, folder: Path, hub: bool) -> LoadedSuite:
    """Read one benchmark of BENCHMARKS.

    Args:
        name: a key of BENCHMARKS.
        folder: the data folder that holds the files.
        hub: fetch the hub's copy where the file is absent.

    Raises:
        ConfigError: an unknown name.
        DataError: the file is absent (the message names it and where it comes from), a row that
            cannot be used (with its line), ids that repeat, or no problem at all.
    """
    if name not in BENCHMARKS:
        raise ConfigError(unknown_name("suite", name, NAMES))
    benchmark = BENCHMARKS[name]
    path = folder / benchmark.file
    if path.is_file():
        source, table = benchmark.file, str(path)
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    elif hub and benchmark.hub:
        source = table = f"hub:{benchmark.hub}"
        sha256 = None
    else:
        other = f"; or fetch {benchmark.hub} with --hub" if benchmark.hub else ""
        raise DataError(f"suite {name} needs {path}, from {benchmark.origin}{other}")
    problems: dict[str, Problem] = {}
    categories = {}
    for number, (where, values) in enumerate(read_table(table)):
        row = _row(benchmark, plain(values), number, where)
        if row is None:
            continue
        if row.id in problems:
            raise DataError(f"{where}: id {row.id} appears twice; ids name data rows")
        problems[row.id] = Problem(
            id=row.id,
            prompt=benchmark.prompt.format(prompt=row.question),
            gold=row.gold,
            row=row.row,
            task=row.task or name,
        )
        categories[row.id] = row.category
    if not problems:
        raise DataError(f"{source}: an empty suite, no row of it is a problem")
    part = Part(benchmark.verifier, {}, tuple(problems.values()))
    return LoadedSuite(name, source, sha256, benchmark.prompt, (part,), categories)


def load_own(path: str, *, prompt: str, answer: str, verifier: str) -> LoadedSuite:
    """A user's own rows as a suite, named after the file; each row is a problem.

    Args:
        path: .jsonl, .json or .parquet, or "hub:OWNER/NAME@SPLIT".
        prompt, answer: fields of the prompt and of the gold.
        verifier: a name that brorl.tasks.build knows, or module:function or file.py:function.

    Raises:
        ConfigError, DataError: as brorl.tasks.files.FileTask.
    """
    name = Path(path.removeprefix("hub:").partition("@")[0]).stem
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        task = FileTask(
            name,
            train=None,
            evaluation=path,
            held_out=0.0,
            prompt=prompt,
            answer=answer,
            verifier=build_verifier(verifier),
        )
    problems = tuple(task.problems("eval"))
    file = Path(path)
    return LoadedSuite(
        name,
        path,
        hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None,
        PLAIN,
        (Part(verifier, {}, problems),),
        dict.fromkeys((p.id for p in problems), name),
        tuple(str(w.message) for w in caught),
        task.counts.set_aside,
    )


def _row(
    benchmark: Benchmark, values: Mapping[str, Any], number: int, where: str
) -> rows.SuiteRow | None:
    try:
        return benchmark.row(values, number)
    except KeyError as error:
        raise DataError(f"{where}: no field {error}; it has {', '.join(sorted(values))}") from error
    except (ValueError, TypeError, IndexError) as error:
        raise DataError(f"{where}: not a row of {benchmark.file}: {error}") from error
