"""The value of a formula at a point, by a walk over its tree with mpmath.

Any size that could take long is refused before it is worked out. Symbols stand at pseudo-random
points that depend on their names only; unknown functions are fixed smooth functions by name.
"""

import functools
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from brorl.verify.math_number import TooLarge

PRECISIONS = (60, 160, 400)  # decimal digits
SCALES = (1.7, 5.3, 47.0, 9000.0)  # how large a symbol may be at the points
POINTS = 2 * len(SCALES)  # the first half positive, the second negative
MAX_EXPONENT = 10**6  # of a power, and argument of a factorial or gamma function
_MAX_NODES = 2_000


_CONSTANTS = {"Pi": "pi", "Exp1": "e", "GoldenRatio": "phi", "EulerGamma": "euler"}
_FUNCTIONS = {
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "asin": "asin",
    "acos": "acos",
    "atan": "atan",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
    "asinh": "asinh",
    "acosh": "acosh",
    "atanh": "atanh",
    "exp": "exp",
    "log": "log",
    "Abs": "fabs",
    "floor": "floor",
    "ceiling": "ceil",
    "factorial": "factorial",
    "gamma": "gamma",
    "binomial": "binomial",
    "sign": "sign",
    "conjugate": "conj",
    "re": "re",
    "im": "im",
    "arg": "arg",
}
_BOUNDED = frozenset({"factorial", "gamma", "binomial"})
_PICK: dict[str, Callable[[list[Any]], Any]] = {"Max": max, "Min": min}


class Undefined(Exception):
    """A division by zero, an overflow, or a function that is not defined at a point."""


def is_real(value: Any) -> bool:
    """Whether an mpmath number has no imaginary part."""
    return bool(getattr(value, "imag", 0) == 0)


@functools.lru_cache(maxsize=1)
def _contexts() -> dict[int, Any]:
    """One mpmath context per precision: the library's global one stays as it is."""
    import mpmath  # type: ignore[import-untyped]

    contexts = {}
    for digits in PRECISIONS:
        contexts[digits] = mpmath.MPContext()
        contexts[digits].dps = digits
    return contexts


class Walk:
    """Works out one tree at one point to one precision."""

    def __init__(self, digits: int, point: int, rename: Mapping[str, str]) -> None:
        self.mp = _contexts()[digits]
        self.point = point
        self.rename = rename
        self.steps = 0

    def value(self, tree: Any) -> Any:
        self.steps += 1
        if self.steps > _MAX_NODES:
            raise TooLarge
        if isinstance(tree, str) or not hasattr(tree, "func"):
            raise Undefined
        name = tree.func.__name__
        if tree.is_Symbol:
            return self._symbol(tree.name)
        if tree.is_Float:
            return self.mp.mpf(str(tree))
        if tree.is_Rational:
            return self.mp.mpf(int(tree.p)) / int(tree.q)
        if name in _CONSTANTS:
            return getattr(self.mp, _CONSTANTS[name]) + 0
        if name == "Derivative" or not tree.args:
            return self._opaque(str(tree), ())
        arguments = [self.value(arg) for arg in tree.args]
        try:
            if name == "Pow" and tree.args[1].is_Rational and tree.args[1].q % 2 == 1:
                return self._odd_root(arguments[0], int(tree.args[1].p), int(tree.args[1].q))
            result = self._apply(name, arguments)
        except (ZeroDivisionError, ValueError, OverflowError, TypeError) as error:
            raise Undefined from error
        if not self.mp.isfinite(result):
            raise Undefined
        return result

    def _apply(self, name: str, arguments: list[Any]) -> Any:
        mp = self.mp
        if name == "Add":
            return mp.fsum(arguments)
        if name == "Mul":
            return functools.reduce(lambda a, b: a * b, arguments)
        if name == "Pow":
            return self._power(*arguments)
        if name in _BOUNDED and any(abs(a) > MAX_EXPONENT for a in arguments):
            raise TooLarge
        if name in _FUNCTIONS:
            if name in ("exp", "sinh", "cosh", "tanh") and abs(arguments[0]) > MAX_EXPONENT:
                raise TooLarge
            return getattr(mp, _FUNCTIONS[name])(*arguments)
        if name in _PICK:
            return _PICK[name](arguments)
        if name == "UnevaluatedExpr":
            return arguments[0]
        if name in ("sec", "csc", "cot", "asec", "acsc", "acot"):
            return getattr(mp, name)(*arguments)
        return self._opaque(name, tuple(arguments))

    def _odd_root(self, base: Any, upper: int, lower: int) -> Any:
        """base ** (upper / lower) with the real root of a negative base, as in school."""
        if not is_real(base) or base >= 0 or lower == 1:
            return self._power(base, self.mp.mpf(upper) / lower)
        root = self._power(-base, self.mp.mpf(upper) / lower)
        return -root if upper % 2 else root

    def _power(self, base: Any, exponent: Any) -> Any:
        if base == 0:
            if exponent == 0 or getattr(exponent, "real", exponent) < 0:
                raise Undefined
            return base
        if abs(exponent) > MAX_EXPONENT:
            raise TooLarge
        if abs(exponent * self.mp.log(abs(base) if abs(base) != 0 else 1)) > 4 * MAX_EXPONENT:
            raise TooLarge
        return self.mp.power(base, exponent)

    def _symbol(self, name: str) -> Any:
        if name == "i":
            return self.mp.mpc(0, 1)
        name = self.rename.get(name, name)
        share = _hashed(f"{name}/{self.point}")
        value = self.mp.mpf(share) * SCALES[self.point % len(SCALES)] + self.mp.mpf(1) / 7
        return value if self.point < len(SCALES) else -value

    def _opaque(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """An unknown function: some fixed smooth function of its arguments, by name."""
        total = self.mp.mpf(_hashed(name)) * 10
        for position, argument in enumerate(arguments):
            total += argument * (position + 1) * self.mp.mpf(_hashed(f"{name}#{position}"))
        return self.mp.sin(total) + 2


def _hashed(text: str) -> int | float:
    """A fixed number in [0, 1) with 53 bits for every text."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return (int.from_bytes(digest) >> 11) * 2.0**-53
