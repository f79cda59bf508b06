"""Verifiers that the tests of the pool send to its processes: one good, the others broken."""

import os
import signal
import time
from pathlib import Path

from brorl.verify.verdict import correct, wrong


class Last:
    """The last word of the text against the gold."""

    def extract(self, text, row):
        return text.split()[-1] if text.split() else None

    def grade(self, extracted, *, gold, row):
        return correct(extracted, "equal") if extracted == gold else wrong(extracted, "not equal")


class Logged(Last):
    """Writes down what it does, one line each, in the file that the row names."""

    def extract(self, text, row):
        self.note(row, "extract")
        return super().extract(text, row)

    def grade(self, extracted, *, gold, row):
        self.note(row, f"grade {extracted}")
        return super().grade(extracted, gold=gold, row=row)

    def note(self, row, line):
        with Path(row["log"]).open("a") as file:  # O_APPEND: whole lines, whoever writes
            file.write(line + "\n")


class Acting(Logged):
    """Does what the answer says, as a broken verifier or a hostile answer would have it."""

    def grade(self, extracted, *, gold, row):
        if "log" in row:
            self.note(row, f"grade {extracted}")
        match extracted:
            case "spin":
                while True:
                    pass
            case "sleep":
                time.sleep(600)
            case "bigint":
                return pow(7, 10**9) % 10  # one call of C code: no signal handler runs in it
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "leave":
                os._exit(0)
            case "raise":
                raise KeyError("no such unit")
            case "exit":
                raise SystemExit(0)
            case "number":
                return 1.0
            case "eat":
                return len([bytearray(1 << 26) for _ in range(1 << 10)])
            case "pid":
                return wrong(extracted, str(os.getpid()))
            case "torch":
                import sys

                return wrong(extracted, str("torch" in sys.modules))
            case "orphan":
                pid = os.fork()
                if pid == 0:
                    time.sleep(600)
                return wrong(extracted, str(pid))
            case "print":
                print("noise")
        return Last.grade(self, extracted, gold=gold, row=row)

    def extract(self, text, row):
        if text.startswith("extract:"):
            return self.grade(text.removeprefix("extract:"), gold="", row={})
        return Last.extract(self, text, row)


class SlowToPrepare(Last):
    """Gets ready for longer than any deadline of the tests."""

    ready = False

    def prepare(self):
        time.sleep(1.0)
        self.ready = True

    def grade(self, extracted, *, gold, row):
        return super().grade(extracted if self.ready else "not ready", gold=gold, row=row)


class Patient(Last):
    """Needs more time than the pool gives by default, and says so."""

    deadline_s = 20.0

    def grade(self, extracted, *, gold, row):
        end = time.process_time() + 1.0
        while time.process_time() < end:
            pass
        return super().grade(extracted, gold=gold, row=row)


class Unloadable(Last):
    """Pickles, but does not come back."""

    def __setstate__(self, state):
        raise RuntimeError("made elsewhere")

    def __getstate__(self):
        return {"a": 1}


class Unpicklable(Last):
    def __init__(self):
        self.hook = lambda: None
