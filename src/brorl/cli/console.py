"""A run on the terminal: a progress bar with the time left, and one line a step, on stderr."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.progress import TaskID, TimeElapsedColumn

from brorl.cli.bar import Terminal

if TYPE_CHECKING:
    from brorl.evaluate.heldout import Heldout

_HEAD = (
    f"{'step':>5} {'reward':>6} {'none':>5} {'some':>5} {'all':>5} {'pass':>5} {'entropy':>7} "
    f"{'lr':>8} {'smpl/s':>7} {'generate':>8} {'grade':>7} {'update':>7} {'eval':>7} {'left':>7}"
)


class Console(Terminal):
    """Implements brorl.train.progress.Progress."""

    def __init__(self) -> None:
        super().__init__(TimeElapsedColumn())
        self._task: TaskID | None = None
        self._lines = 0
        self._total = 0
        self._began = (0, 0.0)  # steps done and the clock, when the steps began

    def warmstart(self, step: int, total: int, loss: float, pass_rate: float | None) -> None:
        self._open("warm start", total, step)
        if pass_rate is not None:
            self.note(f"warm start {step:>4}  loss {loss:.3f}  right {pass_rate:.3f}")

    def begin(self, done: int, total: int) -> None:
        self._close()
        self._open("training", total, done)
        self._total, self._began = total, (done, time.monotonic())

    def step(self, metrics: Mapping[str, Any]) -> None:
        step = int(metrics["step"])
        if step == 0:
            return
        if self._lines % 20 == 0:
            self.note(_HEAD)
        self._lines += 1
        self.note(f"{step_line(metrics)} {self._left(step):>7}")
        if self._task is not None:
            self.bar.update(self._task, completed=step)

    def evaluated(self, step: int, result: "Heldout") -> None:
        one = result.pass_at_1
        widest = max(result.pass_at_k)
        self.note(
            f"{step:>5} held-out pass@1 {one.value:.3f} [{one.low:.3f}, {one.high:.3f}]  "
            f"pass@{widest} {result.pass_at_k[widest].value:.3f}  ({len(result.problems)} problems)"
        )

    def _left(self, step: int) -> str:
        """Time left at the mean pace of this session, e.g. 4m05s."""
        done, clock = self._began
        seconds = (time.monotonic() - clock) / max(step - done, 1) * (self._total - step)
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"

    def _open(self, name: str, total: int, done: int) -> None:
        if self._task is None:
            self._task = self.bar.add_task(name, total=total)
        self.bar.update(self._task, completed=done)

    def _close(self) -> None:
        if self._task is not None:
            self.bar.remove_task(self._task)
            self._task = None


def step_line(m: Mapping[str, Any]) -> str:
    """One line: reward, groups solved by none, some, all, pass rate, entropy, lr, time."""
    times = [m.get(f"time/{phase}") or 0.0 for phase in ("generate", "grade", "update", "eval")]
    whole = sum(times) + (m.get("time/other") or 0.0)
    rate = m["samples/generated"] / whole if whole else 0.0
    split = f"{times[0]:>7.2f}s " + " ".join(f"{t:>6.2f}s" for t in times[1:])
    return (
        f"{m['step']:>5} {_num(m['reward/mean'], 6, 3)} {_num(m['groups/solved_none'], 5, 2)} "
        f"{_num(m['groups/solved_some'], 5, 2)} {_num(m['groups/solved_all'], 5, 2)} "
        f"{_num(m['dynamic_sampling/pass_rate'], 5, 2)} {_num(m.get('policy/entropy'), 7, 3)} "
        f"{_exp(m.get('policy/lr'))} {rate:>7.0f} {split}"
    )


def _num(value: float | None, width: int, digits: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:>{width}.{digits}f}"


def _exp(value: float | None) -> str:
    return f"{'-':>8}" if value is None else f"{value:>8.1e}"
