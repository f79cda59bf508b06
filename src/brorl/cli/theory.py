"""`brorl theory mass` and `brorl theory width`: parse, call, print."""

import json
from pathlib import Path
from typing import Annotated

import typer

from brorl.cli.run import Json

_SIDES = f" {'correct':>12} {'wrong':>12}"

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The paper's one-step theory (arXiv:2510.01180) on a distribution of yours.",
    epilog="Begin with: brorl theory width --zipf 1000,1.1",
)

Probs = Annotated[
    str | None,
    typer.Option(help="Probabilities: 0.5,0.3,0.2, or a .npy or text file of them."),
]
Zipf = Annotated[str | None, typer.Option(metavar="V,EXPONENT", help="A Zipf distribution.")]
Plot = Annotated[Path | None, typer.Option(help="Write a figure here (.png, .svg, .pdf).")]


@app.command("mass", epilog="Example: brorl theory mass --zipf 1000,1.1 --correct 0-99 --n 16")
def mass(
    correct: Annotated[str, typer.Option(help="Numbers of the correct tokens: 0,3,10-19.")],
    probs: Probs = None,
    zipf: Zipf = None,
    sampled: Annotated[
        str | None, typer.Option(help="The draws, e.g. 0,0,2: N of them, each token once.")
    ] = None,
    n: Annotated[int | None, typer.Option(help="Draw N tokens instead.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the draws of --n. Default: 0.")] = None,
    reward_correct: Annotated[float, typer.Option(help="R_c.")] = 1.0,
    reward_wrong: Annotated[float, typer.Option(help="R_w.")] = -1.0,
    eta: Annotated[float, typer.Option(help="Size of the gradient step.")] = 1.0,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Change of the correct mass in one step: the three terms of Theorem 1, and the exact change.

    Set semantics and no baseline, as in the theorem: every drawn token counts once.
    """
    import numpy as np

    from brorl.cli.theory_inputs import distribution, draws, tokens
    from brorl.errors import ConfigError
    from brorl.theory.correct_mass import exact_mass_change, mass_change, surrogate_logit_step

    p_V = distribution(probs, zipf)
    correct_V = tokens("correct", correct, p_V.size)
    drawn, count = draws(p_V, sampled, n, seed)
    if not np.isfinite([reward_correct, reward_wrong, eta]).all():
        raise ConfigError("need finite --reward-correct, --reward-wrong and --eta")
    terms = mass_change(
        p_V, correct_V, drawn, reward_correct=reward_correct, reward_wrong=reward_wrong
    ).scaled(eta / count)
    weight_V = np.where(drawn, np.where(correct_V, reward_correct, reward_wrong), 0.0)
    step_V = eta / count * surrogate_logit_step(p_V, weight_V)
    numbers = {
        "n": count,
        "eta": eta,
        "q_pos": float(p_V[correct_V].sum()),
        "q_neg": float(p_V[~correct_V].sum()),
        "s_r": float(weight_V @ p_V),
        "sampled_correct": terms.sampled_correct,
        "sampled_wrong": terms.sampled_wrong,
        "unsampled": terms.unsampled,
        "first_order": terms.total,
        "exact": exact_mass_change(p_V, correct_V, step_V),
    }
    if plot is not None:
        from brorl.cli.theory_plot import plot_mass

        plot_mass(numbers, plot)
    if as_json:
        typer.echo(json.dumps(numbers))
        return
    typer.echo(f"N = {count}, eta = {eta:g}: change of the correct mass in one step")
    for name, label in (
        ("q_pos", "correct mass before"),
        ("s_r", "S_R, mean reward"),
        ("sampled_correct", "sampled correct"),
        ("sampled_wrong", "sampled wrong"),
        ("unsampled", "unsampled"),
        ("first_order", "sum of the three"),
        ("exact", "exact, by softmax"),
    ):
        typer.echo(f"  {label:<20} {numbers[name]:+.9g}")


@app.command("width", epilog="Example: brorl theory width --zipf 1000,1.1 --correct 0-99")
def width(
    probs: Probs = None,
    zipf: Zipf = None,
    correct: Annotated[
        str | None, typer.Option(help="Numbers of the correct tokens, to split by side.")
    ] = None,
    n: Annotated[
        str | None, typer.Option(help="Widths, e.g. 4,16,512. Default: powers of 4 to 99 %.")
    ] = None,
    gone: Annotated[str, typer.Option(help="Percentages to give the width for.")] = "50,90,99",
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Expected unsampled second moment E[U2(N)] by width, and the N at which most of it is gone.

    Lemma 2: the sum over tokens of p squared times (1 - p) to the N.
    """
    import numpy as np

    from brorl.cli.theory_inputs import distribution, percentages, powers_of_4, tokens, widths
    from brorl.theory.coverage import expected_unsampled_second_moment, width_for_share

    p_V = distribution(probs, zipf)
    all_V = np.ones(p_V.size, dtype=np.bool_)
    correct_V = all_V if correct is None else tokens("correct", correct, p_V.size)
    needed = {
        f"{percent:g}": width_for_share(p_V, share=1 - percent / 100)
        for percent in percentages(gone)
    }
    at = widths(n) if n else [0, *powers_of_4(max(needed.values()))]
    moment = expected_unsampled_second_moment(p_V, correct_V, [0, *at])
    start = moment.total_W[0]
    rows = [
        {"n": k, "total": float(total), "left": float(total / start)}
        | ({} if correct is None else {"correct": float(right), "wrong": float(wrong)})
        for k, total, right, wrong in zip(
            at, moment.total_W[1:], moment.correct_W[1:], moment.wrong_W[1:], strict=True
        )
    ]
    if plot is not None:
        from brorl.cli.theory_plot import plot_width

        plot_width(p_V, None if correct is None else correct_V, needed, plot)
    if as_json:
        typer.echo(json.dumps({"rows": rows, "widths": needed}))
        return
    typer.echo(f"{'N':>12} {'E[U2]':>12} {'left':>8}" + ("" if correct is None else _SIDES))
    for row in rows:
        sides = "" if correct is None else f" {row['correct']:>12.5g} {row['wrong']:>12.5g}"
        typer.echo(f"{row['n']:>12,} {row['total']:>12.5g} {row['left']:>8.2%}{sides}")
    for percent, k in needed.items():
        typer.echo(f"{percent} % is gone from N = {k:,}")
