"""Attacks on the code verifier: every shared one, and more of our own. The host stays unharmed."""

import dataclasses
import json
import os
import textwrap
from pathlib import Path

import pytest

from brorl.verify.code import CodeVerifier
from brorl.verify.code_runner import runner
from brorl.verify.sandbox_guard import landlock_version
from brorl.verify.sandbox_seccomp import seccomp_filter
from brorl.verify.verdict import Kind

from .boxes import Host, needs_bubblewrap

pytestmark = needs_bubblewrap
VERIFIER = CodeVerifier(timeout_s=2.0, total_s=8.0)
ADD = {
    "kind": "function",
    "entry_point": "add",
    "tests": [
        "assert add(1, 2) == 3",
        "assert add(-4, 9) == 5",
        "assert add(10**12, 1) == 10**12 + 1",
    ],
}
SUM = {
    "kind": "stdin",
    "tests": [
        {"input": "1 2\n", "output": "3\n"},
        {"input": "-4 9\n", "output": "5\n"},
        {"input": "7 7\n", "output": "14\n"},
    ],
}


def shared_rows():
    folder = os.environ.get("BRORL_SHARED")
    if not folder:
        return [pytest.param(None, marks=pytest.mark.skip(reason="BRORL_SHARED is not set"))]
    lines = (Path(folder) / "truth" / "code_abuse.jsonl").read_text().splitlines()
    return [pytest.param(row, id=row["name"]) for row in map(json.loads, lines)]


@pytest.fixture(scope="module")
def host():
    grade("def add(a, b): return a + b", ADD)  # the keepers and the tests' box are running now
    host = Host()
    yield host
    host.listener.close()
    runner(VERIFIER.limits, unsafe_local=False).close()


def grade(text, task, verifier=VERIFIER):
    row = {"task": task}
    return verifier.grade(verifier.extract(text, row), gold=None, row=row)


@pytest.mark.parametrize("row", shared_rows())
def test_shared_attacks_and_controls(row, host):
    """ "pass" must be correct, "fail" anything else, "policy" anything; all in time: limit + 1 s."""
    verdict = host.check(lambda: grade(row["code"], row["task"]), within_s=VERIFIER.timeout_s + 1)
    assert verdict.kind is not Kind.GRADER_ERROR
    expected = row["expected_verdict"]
    if not expected.startswith("policy"):
        assert (verdict.kind is Kind.CORRECT) == (expected == "pass"), verdict


# Each is (task, program). The tasks' tests are such as would be fooled if the attack reached them.
NEAR = {"kind": "function", "entry_point": "f", "tests": ["assert abs(f(1) - 5) < 1e-6"]}
ATTACKS = {
    "equal_to_everything_inside_a_list": (
        {"kind": "function", "entry_point": "f", "tests": ["assert f() == [3, 4]"]},
        """
        class Lie:
            def __eq__(self, other): return True
            def __hash__(self): return 3
        def f(): return [Lie(), Lie()]
        """,
    ),
    "subclass_of_int_that_lies": (
        ADD,
        """
        class Lie(int):
            def __eq__(self, other): return True
            def __index__(self): return 3
            def __reduce__(self): return (int, (3,))
        def add(a, b): return Lie(0)
        """,
    ),
    "builtin_replaced_for_the_tests": (
        NEAR,
        """
        import builtins
        builtins.abs = lambda x: 0
        def f(x): return 0
        """,
    ),
    "own_abs_for_the_tests": (NEAR, "def abs(x): return 0\ndef f(x): return 0\n"),
    "own_math_for_the_tests": (
        {"kind": "function", "entry_point": "f", "tests": ["assert math.isclose(f(1), 5)"]},
        """
        class math:
            isclose = staticmethod(lambda a, b: True)
        def f(x): return 0
        """,
    ),
    "own_check_for_the_tests": (
        {
            "kind": "function",
            "entry_point": "f",
            "tests": ["def check(g):\n    assert g(1) == 5\ncheck(f)"],
        },
        "def check(g): return None\ndef f(x): return 0\n",
    ),
    "object_that_contains_everything": (
        {"kind": "function", "entry_point": "f", "tests": ["assert 5 in f()", "assert 6 in f()"]},
        """
        class All:
            def __contains__(self, x): return True
            def __iter__(self): return iter(())
        def f(): return All()
        """,
    ),
    "object_ordered_as_wished": (
        {"kind": "function", "entry_point": "f", "tests": ["assert f() < 3", "assert f() > 3"]},
        """
        class Any:
            def __lt__(self, x): return True
            def __gt__(self, x): return True
        def f(): return Any()
        """,
    ),
    "argument_emptied_before_it_is_compared": (
        {"kind": "function", "entry_point": "f", "tests": ["x = [2, 1]\nassert f(x) == sorted(x)"]},
        "def f(x):\n    x.clear()\n    return []\n",
    ),
    "frames_and_locals": (
        ADD,
        """
        import sys
        def add(a, b):
            frame = sys._getframe()
            while frame:
                for space in (frame.f_locals, frame.f_globals):
                    for v in list(space.values()):
                        if isinstance(v, dict) and "expected" in v: return v["expected"]
                frame = frame.f_back
            return 0
        """,
    ),
    "memory_of_other_processes": (
        ADD,
        r"""
        import glob, re
        def add(a, b):
            for path in glob.glob("/proc/[0-9]*/"):
                for name in ("environ", "cmdline", "mem", "maps"):
                    try: text = open(path + name, "rb").read(1 << 20)
                    except OSError: continue
                    found = re.search(rb"add\(%d, %d\) == (\d+)" % (a, b), text)
                    if found: return int(found[1])
            return 0
        """,
    ),
    "answers_before_the_question": (
        ADD,
        """
        import os, struct
        def say(body): os.write(3, struct.pack("<Q", 8 + len(body)) + bytes(8) + body)
        three = b"t" + struct.pack("<Q", 3) + b"s" + struct.pack("<Q", 5) + b"value"
        for _ in range(9): say(three + b"i" + struct.pack("<Q", 1) + bytes([3]) + b"N")
        def add(a, b): return 0
        """,
    ),
    "says_that_it_passed_on_every_descriptor": (
        ADD,
        """
        import os, sys
        codec = sys.modules["brorl.verify.code_codec"]
        won = codec.encode(("done", [True, True, True], ""))
        for fd in range(64):
            try: os.write(fd, len(won).to_bytes(8, "little") + won)
            except OSError: pass
        def add(a, b): return 0
        """,
    ),
    "codec_replaced": (
        ADD,
        """
        import sys
        codec = sys.modules["brorl.verify.code_codec"]
        for module in list(sys.modules.values()):
            if hasattr(module, "encode") and hasattr(module, "decode"):
                old = module.encode
                module.encode = lambda value, handle=None: old(("value", 3, None))
        def add(a, b): return 0
        """,
    ),
    "message_of_a_billion_gigabytes": (
        ADD,
        """
        import os
        def add(a, b):
            os.write(3, (1 << 60).to_bytes(8, "little") + bytes(1 << 20))
            return 0
        """,
    ),
    "value_nested_a_hundred_thousand_deep": (
        ADD,
        """
        def add(a, b):
            x = []
            for _ in range(100_000): x = [x]
            return x
        """,
    ),
    "value_that_contains_itself": (
        ADD,
        "def add(a, b):\n    x = []\n    x.append(x)\n    return x\n",
    ),
    "value_of_a_gigabyte": (ADD, "def add(a, b): return 'x' * (1 << 29)\n"),
    "keys_that_all_collide": (
        ADD,
        "def add(a, b): return {i * (2**61 - 1): None for i in range(30_000)}\n",
    ),
    "iterator_without_end": (
        {"kind": "function", "entry_point": "f", "tests": ["assert list(f()) == [1]"]},
        """
        def f():
            while True: yield 1
        """,
    ),
    "value_that_cannot_be_sent_on": (
        {"kind": "function", "entry_point": "f", "tests": ["assert f([[f(1)]]) == 2"]},
        """
        def f(x):
            for _ in range(195): x = [x]
            return x
        """,
    ),
    "exception_that_looks_like_a_broken_grader": (
        ADD,
        """
        class BrokenTests(Exception): pass
        class ProgramLost(BaseException): pass
        n = 0
        def add(a, b):
            global n
            n += 1
            if n == 1: raise ImportError("No module named 'numpy'")
            if n == 2: raise BrokenTests("an argument cannot be sent")
            raise ProgramLost("the box was lost")
        """,
    ),
    "exception_that_the_test_wants": (
        {
            "kind": "function",
            "entry_point": "f",
            "tests": ["try:\n    f()\nexcept ValueError:\n    pass\nelse:\n    assert False"],
        },
        """
        class ValueError(Exception): pass
        def f(): raise KeyError("ValueError")
        """,
    ),
    "ends_inside_a_test_that_forgives_everything": (
        {
            "kind": "function",
            "entry_point": "f",
            "tests": ["try:\n    f()\nexcept BaseException:\n    pass"],
        },
        "import os\ndef f(): os._exit(0)\n",
    ),
    "kills_all_it_can": (
        ADD,
        """
        import os, signal
        def add(a, b):
            for pid in (os.getppid(), 1, 2, -1):
                try: os.kill(pid, signal.SIGKILL)
                except OSError: pass
            return 0
        """,
    ),
    "daemon_of_a_daemon": (
        SUM,
        """
        import os, time
        a, b = map(int, input().split())
        for _ in range(2):
            if os.fork(): os._exit(0)
            os.setsid()
        time.sleep(60)
        """,
    ),
    "prints_every_number": (SUM, "for i in range(2000): print(i)\n"),
    "right_but_ends_in_failure": (
        SUM,
        "print(sum(map(int, input().split())))\nraise SystemExit(3)\n",
    ),
    "first_sample_by_heart": (SUM, "print(3)\n"),
    "output_without_end": (SUM, "while True: print(3)\n"),
    "writes_where_it_may_not": (
        ADD,
        """
        import os
        kept = []
        for folder in ("/", "/dev", "/usr/lib", "/usr/lib/python3/dist-packages", "/proc", "/etc"):
            try:
                os.makedirs(folder, exist_ok=True)
                open(folder + "/pwned_marker", "w").write("x")
                kept.append(folder)
            except OSError:
                pass
        def add(a, b): return a + b if kept else 0
        """,
    ),
    "descriptors_and_threads_without_end": (
        ADD,
        """
        import os, threading, time
        def add(a, b):
            held = []
            try:
                while True: held.append(os.dup(0))
            except OSError: pass
            try:
                while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
            except RuntimeError: pass
            return 0
        """,
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_own_attacks(name, host):
    task, code = ATTACKS[name]
    verdict = host.check(
        lambda: grade(textwrap.dedent(code), task), within_s=VERIFIER.timeout_s + 1
    )
    assert verdict.kind in (Kind.WRONG, Kind.TIMEOUT, Kind.UNGRADABLE), verdict
    assert verdict.score == 0.0


PROBES = {
    "no_environment": "import os\ndef f(): return dict(os.environ)",
    "no_capability": "def f(): return [l for l in open('/proc/self/status') if l.startswith('CapEff')]",
    "no_network": (
        "import os\ndef f(): return sorted(n for n in os.listdir('/sys/class/net'))"
        " if os.path.exists('/sys') else ['lo']"
    ),
    "no_root_user": "import os\ndef f(): return [os.getuid(), os.getgid()]",
    "nothing_of_the_host": "import os\ndef f(): return sorted(set(os.listdir('/')) - {'lib', 'lib32', 'libx32'})",
    "few_processes": "import os\ndef f(): return len([p for p in os.listdir('/proc') if p.isdigit()])",
    "no_descriptor_but_its_own": "import os\ndef f(): return sorted(os.listdir('/proc/self/fd'), key=int)[:-1]",
    "no_write_to_proc": (
        "def f():\n    try: open('/proc/self/comm', 'w')\n    except OSError as e: return e.errno"
    ),
    "filtered_calls": "def f(): return [l for l in open('/proc/self/status') if l.startswith('Seccomp:')]",
    "no_packages": "import os\ndef f(): return os.listdir('/usr/lib/python3/dist-packages') if os.path.exists('/usr/lib/python3/dist-packages') else []",
    "refused_calls": r"""
import ctypes, os
def f():
    libc = ctypes.CDLL(None, use_errno=True)
    said = {}
    for name, args in {
        "unshare": (0x10000000,), "mount": (0, b"/tmp", 0, 4096, 0), "ptrace": (0, 0, 0, 0),
        "setns": (0, 0), "chroot": (b"/tmp",), "socket": (2, 1, 0),
    }.items():
        said[name] = getattr(libc, name)(*args)
    return said
""",
}
FOUND = {
    "no_environment": {},
    "no_capability": ["CapEff:\t0000000000000000\n"],
    "no_network": ["lo"],
    "no_root_user": [65534, 65534],
    "nothing_of_the_host": ["dev", "lib64", "proc", "tmp", "usr"],
    "few_processes": 2,
    "no_descriptor_but_its_own": ["0", "1", "2", "3"],
    "no_packages": [],
    "no_write_to_proc": 13 if landlock_version() else None,
    "filtered_calls": ["Seccomp:\t2\n"] if seccomp_filter() else ["Seccomp:\t0\n"],
    "refused_calls": dict.fromkeys(["unshare", "mount", "ptrace", "setns", "chroot", "socket"], -1),
}


@pytest.mark.parametrize("name", PROBES)
def test_what_a_program_finds_in_its_box(name, host):
    """A program that reports on the box; the test knows what is right."""
    test = f"found = f()\nassert found == {FOUND[name]!r}, found"
    task = {"kind": "function", "entry_point": "f", "tests": [test]}
    verdict = host.check(lambda: grade(PROBES[name], task), within_s=VERIFIER.timeout_s + 1)
    assert verdict.kind is Kind.CORRECT, verdict


def test_no_message_to_the_program_holds_an_expected_result(host):
    """The program records all that it is sent. Of 1, 2, 3 it may have seen 1 and 2 only."""
    code = textwrap.dedent("""
        import posix
        seen = b""
        old = posix.read
        def read(*args):
            global seen
            data = old(*args)
            seen += data
            return data
        posix.read = read
        def spy(a, b): return seen
        """)
    numbers = [111222333, 444555666, 777888999]
    little = [n.to_bytes(4, "little") for n in numbers]
    test = (
        f"seen = spy({numbers[0]}, {numbers[1]})\nassert seen != {numbers[2]}\n"
        f"assert {little[0]!r} in seen and {little[1]!r} in seen\n"
        f"assert {little[2]!r} not in seen and b'assert' not in seen"
    )
    task = {"kind": "function", "entry_point": "spy", "tests": [test]}
    assert host.check(lambda: grade(code, task), within_s=3).kind is Kind.CORRECT


def test_the_mounts_alone_keep_writes_in(host, monkeypatch):
    """The attack on the file system once more, with Landlock left out."""
    used = runner(VERIFIER.limits, unsafe_local=False)
    used.close()
    monkeypatch.setattr(used, "sandbox", dataclasses.replace(used.sandbox, landlock=0))
    probe = {"kind": "function", "entry_point": "f", "tests": ["assert f() is None"]}
    assert grade(PROBES["no_write_to_proc"], probe).kind is Kind.CORRECT  # Landlock is out
    task, code = ATTACKS["writes_where_it_may_not"]
    assert grade(textwrap.dedent(code), task).kind is Kind.WRONG
    used.close()
