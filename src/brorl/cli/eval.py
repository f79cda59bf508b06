"""`brorl eval`: parse, call, print."""

import json
import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from brorl.evaluate.results import Evaluation, Protocol
    from brorl.evaluate.suites import LoadedSuite
    from brorl.verify.reasoning_gym import Score

GIBIBYTE = 1 << 30
AT_ONCE = 1024  # samples asked of the engine in one batch


def evaluate(
    model: Annotated[str, typer.Argument(help="A checkpoint folder, a hub name, or a run.")],
    suite: Annotated[
        list[str],
        typer.Option(
            help="A benchmark (aime24, aime25, amc, math500, minerva, olympiadbench, humaneval, "
            "mbpp, leetcode, codecontests, codeforces, ifeval), reasoning_gym, or an own file. "
            "May be given several times."
        ),
    ],
    samples: Annotated[int, typer.Option(help="Answers a problem.")] = 16,
    temperature: Annotated[float, typer.Option(help="0 is greedy: one sample only.")] = 0.6,
    top_p: Annotated[float, typer.Option()] = 0.95,
    top_k: Annotated[int, typer.Option(help="0: no limit.")] = 0,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Default: what a context of 32,768 leaves.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the samples.")] = 0,
    problems: Annotated[
        int | None, typer.Option(help="Only the first so many problems of each suite.")
    ] = None,
    data: Annotated[
        Path, typer.Option(envvar="BRORL_DATA", help="Folder with the benchmark files.")
    ] = Path("data"),
    hub: Annotated[
        bool, typer.Option("--hub", help="Fetch a benchmark from the hub where its file is absent.")
    ] = False,
    task: Annotated[
        list[str] | None, typer.Option(help="A Reasoning Gym task; default: all but held-out ones.")
    ] = None,
    per_task: Annotated[int, typer.Option(help="Items of each Reasoning Gym task.")] = 100,
    score: Annotated[
        str, typer.Option(help="Of Reasoning Gym: threshold, or continuous part credit.")
    ] = "threshold",
    prompt: Annotated[str, typer.Option(help="Field with the prompt, in own files.")] = "prompt",
    answer: Annotated[str, typer.Option(help="Field with the gold, in own files.")] = "answer",
    verifier: Annotated[
        str, typer.Option(help="Of own files: a name, module:function or file.py:function.")
    ] = "math",
    plain: Annotated[
        bool, typer.Option("--plain", help="Send prompts as they are, without chat template.")
    ] = False,
    engine: Annotated[
        str, typer.Option(help="embedded, vllm, or openai: a server that has the model.")
    ] = "embedded",
    base_url: Annotated[
        str | None, typer.Option(help="Of the server, e.g. http://127.0.0.1:8000/v1.")
    ] = None,
    engine_option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Of vllm or openai, e.g. concurrency=64."),
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    memory: Annotated[float, typer.Option(help="GiB that one wave of answers may add.")] = 4.0,
    workers: Annotated[int | None, typer.Option(help="Grader processes; default: cores.")] = None,
    level: Annotated[float, typer.Option(help="Of every interval.")] = 0.95,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; default: evals/MODEL.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on standard output.")
    ] = False,
) -> None:
    """Evaluate a model on benchmarks: avg@n, pass@k, maj@k and pass^k with intervals.

    A call that was stopped goes on when given again. OUT holds evaluation.json (for compare),
    report.html, report.md, samples.jsonl and verdicts.jsonl.

    With --engine openai the server answers, and MODEL says whose tokenizer and chat template it
    has. See docs/engines.md.

    Example: brorl eval runs/quickstart --suite math500 --data ~/benchmarks --problems 50
    """
    from brorl.cli.eval_engine import answering_policy, answering_server, engine_name
    from brorl.cli.eval_progress import EvalProgress
    from brorl.errors import ConfigError, Interrupted
    from brorl.evaluate.results import write_evaluation
    from brorl.evaluate.sample import evaluate as run
    from brorl.record.rundir import RunLock
    from brorl.verify.pool import GraderPool

    _check(samples, temperature, problems, level, memory)
    named = _suites(suite, data, hub, task, per_task, score, prompt, answer, verifier)
    loaded = [_first(s, problems) for s in named]
    name, own = engine_name(engine, base_url, temperature), engine_option or []
    where: dict[str, Any] = {"revision": revision, "dtype": dtype, "device": device, "plain": plain}
    if base_url is not None:
        answerer = answering_server(model, own, base_url=base_url, **where)
    else:
        budget = int(memory * GIBIBYTE)
        answerer = answering_policy(model, name, own, memory_budget=budget, **where)
    _check_template(loaded, answerer.template, model, plain)
    texts = [p.prompt for s in loaded for part in s.parts for p in part.problems]
    settings = _settings(
        samples=samples,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        max_new_tokens=answerer.max_new_tokens(texts, max_new_tokens),
        chat_template=answerer.template,
        engine=name,
        seed=seed,
    )
    folder = out or Path("evals") / _own_name(Path(model))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {folder} cannot be made: {error.strerror}") from error
    count = (os.cpu_count() or 1) if workers is None else workers
    longest = max(len(answerer.speech.encode(text)) for text in texts)
    with (
        RunLock(folder),
        EvalProgress() as progress,
        GraderPool(count, 10.0) as pool,
        closing(answerer.engine(longest + settings.max_new_tokens)) as sampler,
    ):
        for s in loaded:
            for note in s.notes:
                progress.note(f"{s.name}: {note}")
        try:
            found = run(
                answerer.speech,
                sampler,
                loaded,
                pool,
                model=answerer.source,
                settings=settings,
                versions=_versions(name),
                folder=folder,
                at_once=AT_ONCE,
                watcher=progress,
            )
        except KeyboardInterrupt as error:
            raise Interrupted(
                f"stopped; what was sampled is in {folder}, and the same command goes on"
            ) from error
    write_evaluation(found, folder / "evaluation.json")
    _report(found, folder, level, as_json)


def _own_name(model: Path) -> str:
    """MODEL, or RUN-step-N for a checkpoint of a run: two runs have checkpoints of one name."""
    if model.parent.name == "checkpoints" and model.parent.parent.name:
        return f"{model.parent.parent.name}-{model.name}"
    return model.name


def _check(
    samples: int, temperature: float, problems: int | None, level: float, memory: float
) -> None:
    from brorl.errors import ConfigError

    if samples < 1:
        raise ConfigError(f"need --samples >= 1, got {samples}")
    if temperature == 0 and samples > 1:
        raise ConfigError(
            f"--temperature 0 is greedy: {samples} samples would be equal; add --samples 1"
        )
    if problems is not None and problems < 1:
        raise ConfigError(f"need --problems >= 1, got {problems}")
    if not 0 < level < 1 or not memory > 0:
        raise ConfigError(f"need 0 < --level < 1 and --memory > 0, got {level} and {memory}")


def _suites(
    names: list[str],
    data: Path,
    hub: bool,
    tasks: list[str] | None,
    per_task: int,
    score: str,
    prompt: str,
    answer: str,
    verifier: str,
) -> list["LoadedSuite"]:
    from brorl.errors import ConfigError
    from brorl.evaluate.suite_gym import default_tasks, load_reasoning_gym
    from brorl.evaluate.suites import BENCHMARKS, load_benchmark, load_own

    if score not in ("threshold", "continuous"):
        raise ConfigError(f"need --score threshold or continuous, got {score!r}")
    loaded = []
    for name in names:
        if name == "reasoning_gym":
            chosen = tasks or default_tasks()
            kind: Score = "threshold" if score == "threshold" else "continuous"
            loaded.append(load_reasoning_gym(tasks=chosen, per_task=per_task, seed=0, score=kind))
        elif name in BENCHMARKS or not (":" in name or Path(name).suffix):
            loaded.append(load_benchmark(name, folder=data.expanduser(), hub=hub))
        else:
            loaded.append(load_own(name, prompt=prompt, answer=answer, verifier=verifier))
    return loaded


def _first(suite: "LoadedSuite", problems: int | None) -> "LoadedSuite":
    """The first `problems` of every part, so that each task of a suite keeps some."""
    if problems is None:
        return suite
    parts = tuple(part._replace(problems=part.problems[:problems]) for part in suite.parts)
    return suite._replace(parts=parts, source=f"{suite.source}, first {problems}")


def _check_template(
    suites: list["LoadedSuite"], template: str | None, model: str, plain: bool
) -> None:
    from brorl.errors import ConfigError
    from brorl.evaluate.suites import BENCHMARKS

    asked = [s.name for s in suites if s.name in BENCHMARKS]
    if asked and template is None and not plain:
        raise ConfigError(
            f"suite {asked[0]} asks in words and needs a chat template, {model} has none; "
            "--plain sends prompts as they are"
        )


def _settings(**values: object) -> "Protocol":
    from pydantic import ValidationError

    from brorl.errors import ConfigError
    from brorl.evaluate.results import Protocol

    try:
        return Protocol.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]).replace("_", "-") if first["loc"] else "settings"
        raise ConfigError(f"--{name}: {first['msg']}, got {first['input']!r:.60}") from error


def _versions(engine: str) -> dict[str, str]:
    import importlib.metadata
    import platform

    import brorl

    names = ("torch", "transformers", "tokenizers", "numpy", "math-verify", "reasoning-gym")
    found = {name: importlib.metadata.version(name) for name in names}
    if engine == "vllm":
        from brorl.rollout.vllm_process import version

        found["vllm"] = version() or "unknown"
    return {"brorl": brorl.__version__, "python": platform.python_version(), **found}


def _report(found: "Evaluation", folder: Path, level: float, as_json: bool) -> None:
    from brorl.evaluate.figures import curves_svg, pass_curve
    from brorl.evaluate.render import page_html, page_markdown, page_text
    from brorl.evaluate.tables import as_json as summary
    from brorl.evaluate.tables import report

    curves = [
        pass_curve(name, suite.problems, level=level, resamples=2000, seed=0)
        for name, suite in found.suites.items()
    ]
    page = report(found, level=level, figures=[curves_svg(curves, level=level)])
    (folder / "report.html").write_text(page_html(page), encoding="utf-8")
    (folder / "report.md").write_text(page_markdown(page), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(summary(found, level=level) | {"out": str(folder)}))
    else:
        typer.echo(f"{page_text(page)}\n\nwritten to {folder}")
