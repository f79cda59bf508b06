"""Boxes: how they are found, what bounds them, what is left when they or their owners end."""

import contextlib
import os
import shutil
import signal
import textwrap
import threading
import time
from pathlib import Path

import pytest

from brorl.errors import ConfigError, VerifierError
from brorl.verify import sandbox_box, sandbox_cgroup
from brorl.verify.code import CodeVerifier
from brorl.verify.code_runner import runner
from brorl.verify.code_task import read_task
from brorl.verify.pool import GraderPool
from brorl.verify.sandbox import Limits, open_sandbox
from brorl.verify.verdict import Kind

from .boxes import below, needs_bubblewrap

ONE = {"kind": "function", "entry_point": "f", "tests": ["assert f() == 1"]}
SOURCE = str(Path(__file__).parents[2] / "src")


@pytest.fixture
def boxes():
    """Verifiers whose boxes end with the test."""
    made = []

    def make(**settings):
        verifier = CodeVerifier(timeout_s=5.0, total_s=10.0, **settings)
        made.append(runner(verifier.limits, unsafe_local=verifier.unsafe_local))
        return verifier

    yield make
    for one in made:
        one.close()


def grade(verifier, code, task=ONE):
    return verifier.grade(textwrap.dedent(code), gold=None, row={"task": task})


def reports(verifier, code):
    """What f() of the program returns, as text, read off the reason of a test that fails."""
    task = {"kind": "function", "entry_point": "f", "tests": ["raise ValueError(repr(f()))"]}
    reason = grade(verifier, code, task).reason
    assert reason.startswith("test 1: ValueError: "), reason
    return reason.removeprefix("test 1: ValueError: ").removesuffix(" (of 1)")


GREEDY = """
    import os, time
    def f():
        pids = []
        for _ in range(8):
            pid = os.fork()
            if pid == 0:
                x = bytearray(100 << 20)
                for i in range(0, len(x), 4096): x[i] = 1
                time.sleep(1)
                os._exit(0)
            pids.append(pid)
        return sum(os.waitpid(pid, 0)[1] == 0 for pid in pids)
"""


@needs_bubblewrap
def test_a_box_as_a_whole_is_bounded_by_its_group(boxes):
    """Eight processes take 100 MB each, where one may have 256 MB and all together as much."""
    verifier = boxes(limits=Limits(memory_bytes=256 << 20))
    grade(verifier, "def f(): return 1")
    if runner(verifier.limits, unsafe_local=False)._program.cgroup.version == 0:
        pytest.skip("this process may not create control groups here")
    assert int(reports(verifier, GREEDY)) <= 3


@needs_bubblewrap
def test_a_box_as_a_whole_is_bounded_without_a_group(boxes, monkeypatch):
    """The same where the keeper has to watch: it ends the box, so there is no report at all."""
    monkeypatch.setattr(sandbox_box, "enclose", lambda *a, **k: sandbox_cgroup.Cgroup(0, []))
    verifier = boxes(limits=Limits(memory_bytes=256 << 20, files=69))
    assert grade(verifier, "def f(): return 1").kind is Kind.CORRECT
    used = runner(verifier.limits, unsafe_local=False)
    assert used._program.cgroup.folders == []
    verdict = grade(verifier, GREEDY)
    assert (verdict.kind, verdict.reason) == (Kind.WRONG, "test 1: the other end is gone (of 1)")
    assert grade(verifier, "def f(): return 1").kind is Kind.CORRECT


# What bounds a box, seen from inside.


@needs_bubblewrap
def test_bounds_hold_inside(boxes):
    """Processes 8, of which two are the box's own; descriptors 20; files 1 MB; /tmp 3 MB."""
    verifier = boxes(
        limits=Limits(
            processes=8, files=20, file_bytes=1 << 20, tmp_bytes=3 << 20, memory_bytes=1 << 28
        )
    )
    found = reports(
        verifier,
        """
        import os, time
        def count(act):
            n = 0
            try:
                while n < 1000:
                    act(n)
                    n += 1
            except (OSError, MemoryError):
                pass
            return n
        def fork(n):
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
        def megabyte(n):
            with open(f"/tmp/{n}", "wb") as f: f.write(bytes(1 << 20))
        def f():
            held = []
            files = count(lambda n: held.append(os.dup(0)))
            for h in held: os.close(h)
            with open("/tmp/x", "wb", buffering=0) as file:
                written = count(lambda n: file.write(bytes(1 << 16)))
            os.remove("/tmp/x")
            full = count(megabyte)
            eaten = []
            memory = count(lambda n: eaten.append(bytearray(1 << 24)))
            del eaten[:]
            return [count(fork), files, written, full, memory < 16]
        """,
    )
    # Descriptors 0 to 3 are open before; 16 blocks of 64 kB; 3 files of 1 MB; 16 times 16 MB is
    # as much as is allowed, and the interpreter has some of that.
    assert found == "[6, 16, 16, 3, True]"


@needs_bubblewrap
def test_a_fork_bomb_never_gets_beyond_the_bound(boxes):
    """Sampled while it runs: keepers and bubblewrap beside the 24 that a box may have."""
    verifier = boxes()
    grade(verifier, "def f(): return 1")
    before = len(below(os.getpid()))
    peak, done = 0, threading.Event()

    def watch():
        nonlocal peak
        while not done.is_set():
            peak = max(peak, len(below(os.getpid())))
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    bomb = """
        import os, time
        def f():
            end = time.time() + 1
            while time.time() < end:
                try: os.fork()
                except OSError: time.sleep(0.01)
            os._exit(0)
    """
    verdict = grade(verifier, bomb)
    done.set()
    watcher.join()
    assert verdict.kind is Kind.WRONG
    assert before + 10 < peak <= before + 24 + 2 + 1  # the bomb's; bubblewrap's; the tests' own
    assert grade(verifier, "def f(): return 1").kind is Kind.CORRECT


# What happens when a part is missing or dies.


@pytest.fixture
def fresh(monkeypatch):
    open_sandbox.cache_clear()
    yield monkeypatch
    open_sandbox.cache_clear()


def test_refuses_without_bubblewrap_and_says_what_to_install(fresh):
    fresh.setenv("PATH", "/nowhere")
    with pytest.raises(
        ConfigError, match=r"apt-get install bubblewrap.*--unsafe-local.*not on the PATH"
    ):
        CodeVerifier(limits=Limits(files=65)).prepare()


def test_refuses_where_bubblewrap_makes_no_box(fresh, tmp_path):
    script = tmp_path / "bwrap"
    script.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    script.chmod(0o755)
    tmp_path.chmod(0o755)
    fresh.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"makes no box: .*No permissions to create new namespace"
    ):
        CodeVerifier(limits=Limits(files=66)).prepare()


def test_unsafe_local_is_the_way_round(fresh, boxes):
    """It has no box, but limits, deadlines and an end of all processes all the same."""
    fresh.setenv("PATH", "/nowhere")
    verifier = boxes(limits=Limits(files=67), unsafe_local=True)
    assert not open_sandbox(verifier.limits, unsafe_local=True).isolated
    assert grade(verifier, "def f(): return 1").kind is Kind.CORRECT
    stdin = {"kind": "stdin", "tests": [{"input": "2", "output": "2"}]}
    assert grade(verifier, "print(input())", stdin).kind is Kind.CORRECT
    before = settled()
    daemon = """
        import os, time
        def f():
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0: time.sleep(60)
                os._exit(0)
            while True: pass
    """
    late = grade(verifier, daemon, ONE | {"timeout_s": 0.5})
    assert late.kind is Kind.TIMEOUT
    assert settled() == before


@needs_bubblewrap
@pytest.mark.parametrize("which", ["_program", "_tests"])
def test_a_lost_keeper_is_replaced_and_costs_no_verdict(boxes, which):
    verifier = boxes()
    assert grade(verifier, "def f(): return 1").kind is Kind.CORRECT
    used = runner(verifier.limits, unsafe_local=False)
    lost = getattr(used, which)
    lost._keeper.kill()
    assert grade(verifier, "def f(): return 1").kind is Kind.CORRECT
    assert getattr(used, which) is not lost


@needs_bubblewrap
def test_a_box_that_died_while_it_waited_costs_no_verdict(boxes):
    verifier = boxes()
    assert grade(verifier, "def f(): return 1").kind is Kind.CORRECT
    keeper = runner(verifier.limits, unsafe_local=False)._program._keeper.pid
    waiting = settled_below(keeper)
    assert waiting
    for pid in waiting:
        with contextlib.suppress(ProcessLookupError):  # it went with one of the others
            os.kill(pid, signal.SIGKILL)
    assert left_of(waiting) == []  # dying, one still answers
    assert grade(verifier, "def f(): return 1").kind is Kind.CORRECT


@needs_bubblewrap
@pytest.mark.parametrize(
    ("running", "waiting", "ours"),
    [(0.5, 0.0, False), (0.0, 0.0, False), (0.3, 0.4, False), (0.05, 0.4, True)],
)
def test_a_program_that_got_no_processor_is_not_blamed(boxes, monkeypatch, running, waiting, ours):
    """By hand, of 0.5 s: a loop; a sleeper; one of two that shared; one that waited nearly always."""
    verifier = boxes()
    monkeypatch.setattr(sandbox_box.Box, "used", lambda box: (running, waiting))
    loop = ("def f():\n    while True: pass", ONE | {"timeout_s": 0.5})
    if ours:
        with pytest.raises(VerifierError, match="too busy"):
            grade(verifier, *loop)
    else:
        assert grade(verifier, *loop).kind is Kind.TIMEOUT


@needs_bubblewrap
def test_what_a_box_has_used(boxes, monkeypatch):
    """A program that loops for 0.3 s of processor time has used that, to a clock tick or two."""
    verifier = boxes()
    seen = []
    real = sandbox_box.Box.used
    monkeypatch.setattr(sandbox_box.Box, "used", lambda box: seen.append(real(box)) or seen[-1])
    busy = "import time\ndef f():\n    while time.process_time() < 0.3: pass\n    time.sleep(60)"
    assert grade(verifier, busy, ONE | {"timeout_s": 4.0}).kind is Kind.TIMEOUT
    ((running, waiting),) = seen
    assert 0.27 <= running < 0.5
    assert waiting >= 0.0


@needs_bubblewrap
def test_nothing_is_left_when_the_grader_is_killed():
    """kill -9 to the grader process while a program and its children are at work."""
    sleepy = "import os, time\ndef f():\n    for _ in range(3): os.fork()\n    time.sleep(60)"
    others = below(os.getpid())  # of other tests: Reasoning Gym keeps a process
    with GraderPool(workers=1, deadline_s=1.0, retries=0) as pool:
        ticket = pool.submit(
            CodeVerifier(timeout_s=30.0), problem_id="p", text=sleepy, gold=None, row={"task": ONE}
        )
        end = time.monotonic() + 60
        while len(started := below(os.getpid()) - others) < 12 and time.monotonic() < end:
            time.sleep(0.02)
        assert len(started) >= 12
        born = {p: born_at(p) for p in started}  # a number may be given out again
        graders = [p for p in started if b"pool_worker" in command_of(p)]
        os.kill(graders[0], signal.SIGKILL)
        assert pool.gather([ticket])[0].reason == "the grader process died: signal 9"
    assert [p for p in left_of(started) if born_at(p) == born[p]] == []


def settled():
    """How many processes there are below this one, when two looks agree."""
    counts = [-1, len(below(os.getpid()))]
    while counts[-1] != counts[-2] and len(counts) < 100:
        time.sleep(0.2)
        counts.append(len(below(os.getpid())))
    return counts[-1]


def left_of(pids, within_s=10.0):
    end = time.monotonic() + within_s
    while (left := [p for p in pids if alive(p)]) and time.monotonic() < end:
        time.sleep(0.02)
    return left


def settled_below(pid, quiet_s=1.0, within_s=20.0):
    """Processes below one, once they have stayed the same for a while: all that start, did."""
    end = time.monotonic() + within_s
    found, since = below(pid), time.monotonic()
    while time.monotonic() - since < quiet_s and time.monotonic() < end:
        time.sleep(0.05)
        if (now := below(pid)) != found:
            found, since = now, time.monotonic()
    return found


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def born_at(pid):
    """Clock tick at which a process began; None where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_no_code_of_a_box_needs_the_package_or_much_time():
    """Policy: what runs inside imports only what every Python has built in or beside it."""
    allowed = {
        "__future__",
        "_ctypes",
        "_signal",
        "_socket",
        "_struct",
        "builtins",
        "gc",
        "posix",
        "resource",
        "sys",
        "time",
    }
    import ast

    folder = Path(SOURCE) / "brorl" / "verify"
    names = (
        "sandbox_guard",
        "code_codec",
        "code_wire",
        "code_program",
        "code_remote",
        "code_tests",
    )
    for name in names:
        tree = ast.parse((folder / f"{name}.py").read_text())
        for node in tree.body:  # at import; what a value needs is imported when it comes
            if isinstance(node, ast.Import):
                assert {a.name for a in node.names} <= allowed, name
            elif isinstance(node, ast.ImportFrom):
                assert node.module in allowed or node.module.removeprefix("brorl.verify.") in names


def usage():
    """(descriptors, processes, resident kB), once the number of processes has settled."""
    processes = settled()
    rss = int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0])
    return len(os.listdir("/proc/self/fd")), processes, rss


def churn(verifier, rounds):
    programs = [
        ("def f(): return 1", ONE),
        ("import os\ndef f(): os._exit(0)", ONE),
        ("def f(:", ONE),
        ("print(input())", {"kind": "stdin", "tests": [{"input": "2", "output": "2"}]}),
    ]
    for i in range(rounds):
        code, task = programs[i % 4]
        verdict = grade(verifier, code, task)
        assert (verdict.kind is Kind.CORRECT) == (i % 4 in (0, 3))


@needs_bubblewrap
@pytest.mark.parametrize("rounds", [40, pytest.param(2000, marks=pytest.mark.slow)])
def test_boxes_leak_neither_descriptors_nor_processes(boxes, rounds):
    verifier = boxes()
    churn(verifier, 8)
    files, processes, memory = usage()
    churn(verifier, rounds)
    after = usage()
    assert after[:2] == (files, processes)
    assert after[2] - memory < 20_000  # kB


@needs_bubblewrap
def test_closing_leaves_nothing(boxes):
    before = below(os.getpid())
    verifier = boxes()
    grade(verifier, "def f(): return 1")
    used = runner(verifier.limits, unsafe_local=False)
    folders = [f for box in (used._program, used._tests) for f in box.cgroup.folders]
    used.close()
    assert left_of(below(os.getpid()) - before) == []
    assert [f for f in folders if f.exists()] == []


@needs_bubblewrap
def test_a_box_whose_start_fails_shows_as_lost(boxes):
    """The command of the program's boxes is replaced by one that does nothing."""
    verifier = boxes(limits=Limits(files=68))
    grade(verifier, "def f(): return 1")
    used = runner(verifier.limits, unsafe_local=False)
    used._program.close()
    used._program = None
    real = used.sandbox
    used.sandbox = type(real)(
        **{f: getattr(real, f) for f in real.__slots__} | {"command": (shutil.which("true"),)}
    )
    task = read_task({"task": ONE})
    with pytest.raises(VerifierError, match=r"did not start|without an outcome"):
        used.run("def f(): return 1", task, test_s=1.0, total_s=2.0, stop_early=True)
    used.sandbox = real
    assert grade(verifier, "def f(): return 1").kind is Kind.CORRECT
