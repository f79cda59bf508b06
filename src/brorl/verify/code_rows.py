"""Rows of public code benchmarks as tasks of `code_task`: what belongs to whom is decided here.

Helpers that tests call must come from the row and never from the program, or a program could
bring its own `poly` that finds every polynomial to be zero.
"""

import ast
from collections.abc import Mapping
from typing import Any

from brorl.errors import DataError

LEETCODE_PREAMBLE = """\
from typing import *
from collections import *
from functools import *
from itertools import *
from heapq import *
from bisect import *
from math import *
from operator import *
from string import *
import bisect, collections, datetime, functools, heapq, itertools, math, operator, random, re
import string

class ListNode:
    def __init__(self, val=0, next=None):
        self.val, self.next = val, next

class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val, self.left, self.right = val, left, right
"""
LEETCODE_SETUP = """\
def list_node(values):
    node = None
    for value in reversed(values):
        node = ListNode(value, node)
    return node

def is_same_list(a, b):
    while a is not None and b is not None:
        if a.val != b.val:
            return False
        a, b = a.next, b.next
    return a is None and b is None

def tree_node(values):
    if not values:
        return None
    values = iter(values)
    root = TreeNode(next(values))
    row = [root]
    for parent in row:
        for side in ("left", "right"):
            value = next(values, None)
            if value is not None:
                child = TreeNode(value)
                setattr(parent, side, child)
                row.append(child)
    return root

def is_same_tree(a, b):
    if a is None or b is None:
        return a is None and b is None
    return a.val == b.val and is_same_tree(a.left, b.left) and is_same_tree(a.right, b.right)
"""


def humaneval_task(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of HumanEval. Its prompt's imports and helpers go to both sides.

    Raises:
        DataError: the row lacks a field or its prompt cannot be read.
    """
    prompt, entry = _field(row, "prompt"), _field(row, "entry_point")
    try:
        # The prompt ends with the entry point's header and docstring: a body of one "pass" more
        # makes it a whole.
        tree = ast.parse(prompt + "\n    pass\n")
    except SyntaxError as error:
        raise DataError(f"prompt of {row.get('task_id')} is no Python: {error}") from error
    given = [
        ast.unparse(node)
        for node in tree.body
        if not (isinstance(node, ast.FunctionDef) and node.name == entry)
    ]
    helpers = "\n".join(given)
    test = _field(row, "test")
    return {
        "kind": "function",
        "entry_point": entry,
        "preamble": helpers,
        "setup": helpers,
        "tests": [f"{test}\ncheck({entry})\n"],
    }


def mbpp_task(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of MBPP. Which name is called is read off the first test.

    Raises:
        DataError: the row lacks a field or no test calls anything.
    """
    tests = row.get("test_list")
    if not isinstance(tests, list) or not tests:
        raise DataError(f"test_list of {row.get('task_id')} must be a list of tests, got {tests!r}")
    builtin = set(dir(__builtins__)) if not isinstance(__builtins__, dict) else set(__builtins__)
    called = [
        node.func.id
        for node in ast.walk(ast.parse(tests[0]))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    names = [name for name in called if name not in builtin] or called
    if not names:
        raise DataError(f"no test of {row.get('task_id')} calls a function: {tests[0]!r}")
    return {
        "kind": "function",
        "entry_point": names[0],
        "setup": row.get("test_setup_code") or "",
        "tests": [*tests, *(row.get("challenge_test_list") or [])],
    }


def leetcode_task(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with "functional" tests of a method of `Solution`, as LeetCode collections have it.

    Raises:
        DataError: the row lacks a field.
    """
    tests = _literal(row.get("tests"))
    functional = tests.get("functional") if isinstance(tests, Mapping) else None
    if not isinstance(functional, str):
        raise DataError(f"tests must hold 'functional', a string, got {str(tests)[:80]!r}")
    return {
        "kind": "function",
        "entry_point": "Solution",
        "preamble": LEETCODE_PREAMBLE,
        "setup": LEETCODE_SETUP,
        "tests": [functional],
    }


def contest_task(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of inputs and outputs, as collections of contest problems have it.

    Raises:
        DataError: its tests cannot be read.
    """
    return {"kind": "stdin", "tests": _literal(row.get("tests"))}


def _field(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise DataError(f"{name} of {row.get('task_id')} must be a string, got {value!r}")
    return value


def _literal(value: Any) -> Any:
    """Some files hold Python literals as text."""
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError) as error:
        raise DataError(f"tests are no Python literal: {value[:80]!r}") from error
