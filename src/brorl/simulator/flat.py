"""Settings from flat names, as the command line and sweeps give them: eps=1e-20, init=zipf."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from brorl.errors import ConfigError
from brorl.simulator.settings import SimulatorSettings

DEFAULT_KIND = {"initial": "seeded", "optimizer": "adamw", "loss": "linear"}

NAMES: dict[str, tuple[str, ...]] = {
    **{
        name: (name,)
        for name in (
            *("vocab", "correct", "steps", "seed", "seeds", "reward_correct", "reward_wrong"),
            *("baseline", "counting", "epochs", "dtype"),
        )
    },
    "n": ("widths",),
    "init": ("initial", "kind"),
    "correct_logit": ("initial", "correct_logit"),
    "anchor_logit": ("initial", "anchor_logit"),
    "anchor_correct": ("initial", "anchor_correct"),
    "zipf_exponent": ("initial", "exponent"),
    "zipf_order": ("initial", "order"),
    "init_file": ("initial", "path"),
    "init_values": ("initial", "values"),
    "optimizer": ("optimizer", "kind"),
    **{name: ("optimizer", name) for name in ("lr", "beta1", "beta2", "eps", "decay")},
    "loss": ("loss", "kind"),
    "clip_low": ("loss", "clip_low"),
    "clip_high": ("loss", "clip_high"),
}
"""Flat name -> where it goes in SimulatorSettings."""

SWEEPABLE = tuple(name for name in NAMES if name not in ("n", "seeds"))


class Cell(NamedTuple):
    """One combination of a sweep."""

    axes: dict[str, str]  # flat name -> value, as given
    settings: SimulatorSettings


def make_settings(flat: Mapping[str, Any]) -> SimulatorSettings:
    """Checked settings from flat names; what is not named keeps its default.

    Raises:
        ConfigError: an unknown name, an impossible value, or a name that does not apply to the
            chosen optimiser, loss or initial distribution.
    """
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        if name not in NAMES:
            raise ConfigError(f"need one of {', '.join(NAMES)}, got {name!r}")
        *group, key = NAMES[name]
        (nested.setdefault(group[0], {}) if group else nested)[key] = value
    for group_name, kind in DEFAULT_KIND.items():
        if group_name in nested:
            nested[group_name].setdefault("kind", kind)
    try:
        return SimulatorSettings.model_validate(nested)
    except ValidationError as error:
        raise ConfigError(_message(error.errors()[0], nested)) from error


def sweep_cells(flat: Mapping[str, Any], axes: Sequence[str]) -> list[Cell]:
    """Every combination of the axes, the last one turning fastest.

    Args:
        flat: the settings that all cells share.
        axes: texts such as "eps=1e-8,1e-20".

    Raises:
        ConfigError: no axis, a malformed or repeated one, or a value that is refused.
    """
    values: dict[str, list[str]] = {}
    for text in axes:
        name, _, listed = text.partition("=")
        name = name.replace("-", "_")
        if name not in SWEEPABLE or not listed:
            raise ConfigError(
                f"need a sweep axis NAME=VALUE,VALUE such as eps=1e-8,1e-20, got {text!r}"
            )
        if name in values:
            raise ConfigError(f"need every sweep axis once, got {name} twice")
        values[name] = listed.split(",")
        if len(set(values[name])) < len(values[name]):
            raise ConfigError(f"need different values on sweep axis {name}, got {listed}")
    if not values:
        raise ConfigError("need at least one sweep axis such as eps=1e-8,1e-20, got none")
    cells = []
    for combination in itertools.product(*values.values()):
        chosen = dict(zip(values, combination, strict=True))
        cells.append(Cell(chosen, make_settings({**flat, **chosen})))
    return cells


def _message(error: ErrorDetails, nested: Mapping[str, Any]) -> str:
    """One line in the words of the flat names."""
    location = [part for part in error["loc"] if isinstance(part, str)]
    if not location:
        return error["msg"].removeprefix("Value error, ")
    group = location[0] if location[0] in DEFAULT_KIND else None
    kind = f"{group.removesuffix('ial')} {nested[group]['kind']}" if group else ""
    where = (
        (location[0], location[-1] if len(location) > 1 else "kind") if group else (location[0],)
    )
    name = next(flat for flat, place in NAMES.items() if place == where)
    if error["type"] == "extra_forbidden":
        return f"{name} does not apply to {kind}"
    if error["type"] == "missing":
        return f"{name} is required with {kind}"
    if error["type"] == "union_tag_invalid":
        context = error["ctx"]
        return f"need {name} to be one of {context['expected_tags']}, got {context['tag']!r}"
    reason = error["msg"][0].lower() + error["msg"][1:]
    return f"{name}: {reason}, got {error['input']!r}"
