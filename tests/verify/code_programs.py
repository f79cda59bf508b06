"""Programs and tasks for the tests of the code verifier: honest ones, and ones that are told off."""

from brorl.verify.verdict import Kind


def function(*tests, entry_point="f", **more):
    return {"kind": "function", "entry_point": entry_point, "tests": list(tests), **more}


def stdin(*pairs, **more):
    return {"kind": "stdin", "tests": [{"input": i, "output": o} for i, o in pairs], **more}


# (program, task); each would pass when run by hand.
HONEST = {
    "types_are_kept": (
        "def f(x): return x",
        function(
            *(
                f"a = {v}\nb = f(a)\nassert type(a) is type(b) and a == b, (a, b)"
                for v in (
                    "None",
                    "True",
                    "0",
                    "-1",
                    "10**40",
                    "1.5",
                    "'é\\ud800'",
                    "b'\\xff'",
                    "[1, [2]]",
                    "(1, (2,))",
                    "{1, 2}",
                    "{'a': {1: (None,)}}",
                    "1j",
                    "frozenset([1])",
                    "range(3)",
                    "float('inf')",
                    "bytearray(b'a')",
                    "''",
                    "[]",
                    "()",
                    "{}",
                    "set()",
                )
            ),
        ),
    ),
    "result_of_a_subclass": (
        "from collections import Counter, namedtuple\nP = namedtuple('P', 'x y')\n"
        "def f(s): return Counter(s), P(1, 2)",
        function("assert f('aab') == ({'a': 2, 'b': 1}, (1, 2))"),
    ),
    "generator": (
        "def f():\n    n = 0\n    while True:\n        yield n\n        n += 1",
        function("g = f()\nassert [next(g), next(g)] == [0, 1]", "assert next(iter(f())) == 0"),
    ),
    "map_and_views": (
        "def f(x): return map(str, x)\ndef g(d): return d.keys()",
        function(
            "assert list(f([1, 2])) == ['1', '2']", "assert sorted(g({2: 0, 1: 0})) == [1, 2]"
        ),
    ),
    "objects_of_the_program": (
        """
        class Node:
            def __init__(self, value): self.value, self.left, self.right = value, None, None
            def __len__(self): return self.value
            def __str__(self): return f"<{self.value}>"
        def depth(n): return 0 if n is None else 1 + max(depth(n.left), depth(n.right))
        """,
        function(
            "assert depth(root) == 2",
            "assert root.left.value == 2 and root.right is None and len(root) == 1",
            "assert str(root) == '<1>' and root.left == root.left and root != root.left",
            entry_point="depth",
            setup="root = Node(1)\nroot.left = Node(2)",
        ),
    ),
    "methods_of_a_class": (
        "class Stack:\n    def __init__(self): self.x = []\n    def push(self, v): self.x.append(v)\n"
        "    def pop(self): return self.x.pop()",
        function(
            "s = Stack()\ns.push(1)\ns.push([2])\nassert s.pop() == [2] and s.pop() == 1",
            "s = Stack()\ntry:\n    s.pop()\nexcept IndexError:\n    pass\nelse:\n    assert False",
            entry_point="Stack",
        ),
    ),
    "keywords": (
        "def f(a, *, b=2): return a - b",
        function("assert f(a=5, b=1) == 4", "assert f(5) == 3"),
    ),
    "works_in_place": (
        "def f(x, seen):\n    x.sort()\n    seen.add(len(x))",
        function(
            "x, s = [3, 1, 2], set()\nassert f(x, seen=s) is None\nassert x == [1, 2, 3] and s == {3}"
        ),
    ),
    "leaves_its_argument_alone_where_it_returns": (
        "def f(x):\n    x.sort()\n    return x[0]",
        function("x = [3, 1]\nassert f(x) == 1\nassert x == [3, 1]"),
    ),
    "type_as_argument": (
        "def f(xs, t): return [x for x in xs if not isinstance(x, t)]",
        function("assert f([1, 'a', 2.0], str) == [1, 2.0]"),
    ),
    "raises_its_own": (
        "class Mine(Exception): pass\ndef f(): raise Mine('x')",
        function(
            "try:\n    f()\nexcept Exception as e:\n    assert str(e) == 'Mine: x'\nelse:\n    assert 0"
        ),
    ),
    "raises_what_it_should": (
        "def f(x):\n    if x < 0: raise ValueError('negative')\n    return x",
        function(
            "try:\n    f(-1)\nexcept ValueError as e:\n    assert str(e) == 'negative'\nelse:\n    assert 0"
        ),
    ),
    "prints_on_the_way": (
        "import sys\nprint('loading', file=sys.stderr)\ndef f():\n    print('x' * 100_000)\n    return 1",
        function("assert f() == 1"),
    ),
    "main_guard_is_not_entered": (
        "def f(): return 1\nif __name__ == '__main__':\n    print(f(int(input())))",
        function("assert f() == 1"),
    ),
    "future_import_first": (
        "from __future__ import annotations\ndef f(x: Undefined) -> int: return 1",
        function("assert f(0) == 1", preamble="from typing import *"),
    ),
    "preamble_and_helpers": (
        "def f(x): return helper(x) + sqrt(4)",
        function(
            "assert f(1) == near(4)",
            preamble="from math import sqrt\ndef helper(x): return x + 1",
            setup="def near(x): return x",
        ),
    ),
    "entry_point_named_as_a_builtin": (
        "def sum(a, b): return a + b",
        function("assert sum(1, 2) == 3", entry_point="sum"),
    ),
    "dataclass_and_threads": (
        """
        import threading
        from dataclasses import dataclass
        @dataclass
        class P:
            x: int
        def f():
            out = []
            threads = [threading.Thread(target=out.append, args=(i,)) for i in range(8)]
            for t in threads: t.start()
            for t in threads: t.join()
            return sorted(out), P(3).x
        """,
        function("assert f() == ([0, 1, 2, 3, 4, 5, 6, 7], 3)"),
    ),
    "deep_recursion": (
        "import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return 0 if n == 0 else 1 + f(n - 1)",
        function("assert f(50_000) == 50_000"),
    ),
    "reads_lines_until_the_end": (
        "total = 0\ntry:\n    while True: total += int(input())\nexcept EOFError:\n    print(total)",
        stdin(("1\n2\n3", "6\n"), ("", "0")),
    ),
    "reads_and_writes_bytes": (
        "import sys, os\ndata = sys.stdin.buffer.read()\nos.write(1, data[::-1])\n"
        "sys.stdout.buffer.write(b'!')",
        stdin(("ab", "ba!")),
    ),
    "opens_descriptors": (
        "out = open(1, 'w')\nfor line in open(0): out.write(line.upper())",
        stdin(("é\na\n", "É\nA\n")),
    ),
    "stdout_replaced": (
        "import sys, io\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, write_through=False)\nprint(3)",
        stdin(("", "3")),
    ),
    "ends_by_exit": ("import sys\nprint(1)\nexit()\nprint(2)", stdin(("", "1"))),
    "ends_by_sys_exit": ("import sys\nprint(1)\nsys.exit(0)", stdin(("", "1"))),
    "ends_in_a_thread_with_a_big_stack": (
        """
        import sys, threading
        sys.setrecursionlimit(10**6)
        threading.stack_size(1 << 27)
        def main():
            def f(n): return 0 if n == 0 else 1 + f(n - 1)
            print(f(int(input())))
        threading.Thread(target=main).start()
        """,
        stdin(("20000", "20000")),
    ),
    "at_exit": ("import atexit\natexit.register(print, 2)\nprint(1)", stdin(("", "1\n2\n"))),
    "each_run_is_a_new_one": (
        "import os\nprint(os.path.exists('seen') or 'x' in globals())\nx = 1",
        stdin(("", "False"), ("", "False")),
    ),
    "as_main_with_name": (
        "import pickle\nclass A: pass\nprint(__name__, type(pickle.loads(pickle.dumps(A()))).__name__)",
        stdin(("", "__main__ A")),
    ),
    "big_input": (
        "import sys\nprint(len(sys.stdin.read()))",
        stdin(("x" * 3_000_000, "3000000"), ("y" * 300_000, "300000"), ("z", "1")),
    ),
    "big_output": (
        "print('x' * 2_000_000)",
        stdin(("", "x" * 2_000_000)),
    ),
    "processes_of_its_own": (
        "import subprocess, sys\n"
        "print(subprocess.run([sys.executable, '-c', 'print(7)'], capture_output=True).stdout)",
        stdin(("", "b'7\\n'")),
    ),
}


# (program, task, kind, reason)
TOLD = {
    "one_of_three": (
        "def f(x): return x",
        function("assert f(1) == 1", "assert f(2) == 3", "assert f(3) == 3"),
        Kind.WRONG,
        "test 2: assertion failed (of 3)",
    ),
    "number_of_another_type_is_compared_as_python_does": (
        "def f(): return 1.0",
        function("assert f() == 1", "assert type(f()) is int"),
        Kind.WRONG,
        "test 2: assertion failed (of 2)",
    ),
    "no_such_name": (
        "def g(): return 1",
        function("assert f() == 1"),
        Kind.WRONG,
        "the program does not define f (of 1)",
    ),
    "raises": (
        "def f(): return 1 / 0",
        function("assert f() == 1"),
        Kind.WRONG,
        "test 1: ZeroDivisionError: division by zero (of 1)",
    ),
    "fails_while_it_is_loaded": (
        "import nothing",
        function("assert f()"),
        Kind.WRONG,
        "ModuleNotFoundError: No module named 'nothing' (of 1)",
    ),
    "ends_while_it_is_loaded": (
        "import os\nos._exit(0)",
        function("assert f()"),
        Kind.WRONG,
        "the program ended while it was loaded (of 1)",
    ),
    "leaves": (
        "def f(): raise SystemExit(0)",
        function("assert f() is None"),
        Kind.WRONG,
        "test 1: the program raised SystemExit (of 1)",
    ),
    "dies": (
        "import os\ndef f(): os._exit(0)",
        function("assert f() is None"),
        Kind.WRONG,
        "test 1: the other end is gone (of 1)",
    ),
    "answers_what_was_not_asked": (
        "import os\nos.write(3, (9).to_bytes(8, 'little') + bytes(9))\ndef f(): return 1",
        function("assert f() == 1"),
        Kind.WRONG,
        "the program ended while it was loaded (of 1)",
    ),
    "answers_twice": (
        "import os\ndef f():\n    os.write(3, (9).to_bytes(8, 'little') + bytes(9))\n    return 1",
        function("assert f() == 1"),
        Kind.WRONG,
        "test 1: an answer to no question (of 1)",
    ),
    "does_not_compile": (
        "def f(:",
        function("assert f()"),
        Kind.UNGRADABLE,
        "does not compile: SyntaxError: ",
    ),
    "syntax_error_of_its_own_doing": (
        "eval('1 +')",
        function("assert f()"),
        Kind.WRONG,
        "SyntaxError: ",
    ),
    "null_byte": (
        "x = 1\0",
        stdin(("", "")),
        Kind.UNGRADABLE,
        "does not compile: ",
    ),
    "late": (
        "def f():\n    while True: pass",
        function("assert f()", timeout_s=0.5),
        Kind.TIMEOUT,
        "test 1 ran out of its time",
    ),
    "late_while_loading": (
        "while True: pass",
        function("assert f()", timeout_s=0.5),
        Kind.TIMEOUT,
        "test 1 ran out of its time",
    ),
    "late_on_the_second": (
        "n = int(input())\nwhile n: pass\nprint(n)",
        stdin(("0", "0"), ("1", "1"), timeout_s=0.5),
        Kind.TIMEOUT,
        "test 2 ran out of its time",
    ),
    "other_output": (
        "print(4)",
        stdin(("", "4"), ("", "5")),
        Kind.WRONG,
        "test 2: another output (of 2)",
    ),
    "ends_badly": (
        "print(4)\nraise ValueError",
        stdin(("", "4")),
        Kind.WRONG,
        "test 1: the program ended with status 1 (of 1)",
    ),
    "killed": (
        "import os\nprint(4, flush=True)\nos.kill(os.getpid(), 9)",
        stdin(("", "4")),
        Kind.WRONG,
        "test 1: the program ended with status -9 (of 1)",
    ),
    "printed_too_much": (
        "print('4' * 10**6)",
        stdin(("", "4")),
        Kind.WRONG,
        "test 1: the program printed too much (of 1)",
    ),
}
