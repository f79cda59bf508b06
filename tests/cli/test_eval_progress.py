"""What `brorl eval` says on standard error while it samples."""

from brorl.cli.eval_progress import EvalProgress


def test_notes_are_printed_as_they_are(capsys):
    """Attack: a suite named like rich markup or an emoji."""
    with EvalProgress() as progress:
        progress.note("suite [bold]x[/bold] :key:")
    assert capsys.readouterr().err == "suite [bold]x[/bold] :key:\n"


def test_a_line_every_half_minute_without_a_terminal(capsys, monkeypatch):
    """By hand, with a clock of our own: 100 samples in 31 s are 3.2 a second, 900 left."""
    now = iter([0.0, 10.0, 31.0, 32.0])
    monkeypatch.setattr("brorl.cli.eval_progress.time.monotonic", lambda: next(now))
    progress = EvalProgress()
    for done in (500, 540, 600, 610):
        progress.sampled(done, 1500)
    assert capsys.readouterr().err == "sampled 600 of 1500, 3.2 samples/s, about 279 s left\n"
