"""From a recipe's name or path and dotted overrides to settings; one line for any mistake."""

import difflib
import importlib.resources
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from brorl.errors import ConfigError
from brorl.train.settings import TrainSettings
from brorl.train.yaml_values import check_plain, dump, key_text, parse, shown

PEERS_NAMES = {
    "num_generations": "rollout.n",
    "n_samples_per_prompt": "rollout.n",
    "group_size": "rollout.n",
    "num_generations_per_prompt": "rollout.n",
    "train_batch_size": "prompts_per_step",
    "rollout_batch_size": "prompts_per_step",
    "num_prompts_per_step": "prompts_per_step",
    "learning_rate": "lr",
    "beta": "kl_coef",
    "kl_loss_coef": "kl_coef",
    "epsilon": "clip_ratio_low",
    "epsilon_high": "clip_ratio_high",
    "loss_type": "loss_agg_mode",
    "filter_groups": "dynamic_sampling",
    "adv_estimator": "advantage.estimator",
    "max_completion_length": "rollout.max_new_tokens",
}
"""What other systems call a setting: a hint for a key that is not ours (field.md section 2)."""


def shipped() -> list[str]:
    """Names of the recipes inside the package."""
    folder = importlib.resources.files("brorl.recipes")
    return sorted(f.name[:-5] for f in folder.iterdir() if f.name.endswith(".yaml"))


Overrides = Iterable[str | tuple[str, Any]] | Mapping[str, Any]
""""key.sub=value" texts (the value in YAML), pairs, or a mapping of dotted keys."""


def override_pairs(overrides: Overrides) -> list[tuple[str, Any]]:
    """(dotted key, value) of each override, in order. Raises ConfigError."""
    given = overrides.items() if isinstance(overrides, Mapping) else overrides
    pairs = []
    for item in given:
        if isinstance(item, str):
            pairs.append(_override(item))
            continue
        key, value = item
        value = os.fspath(value) if isinstance(value, os.PathLike) else value
        check_plain(value, f"override {shown(key)}")
        pairs.append((str(key), value))
    return pairs


def load_recipe(recipe: str, overrides: Overrides = ()) -> TrainSettings:
    """Settings of a shipped recipe or a YAML file, with overrides on top.

    Args:
        recipe: a shipped name, or a path to a YAML file.
        overrides: see Overrides; later ones win.

    Raises:
        ConfigError: in one line: which key, what was required, what came.
    """
    values = _read(recipe, seen=())
    for dotted, value in override_pairs(overrides):
        _set(values, dotted, value)
    values.setdefault("name", Path(recipe).stem if _is_path(recipe) else recipe)
    return settings_from(values, where=f"recipe {recipe}")


def load_settings(
    config: Path, overrides: Overrides, *, may_change: Iterable[str]
) -> TrainSettings:
    """Settings of a run's config.yaml; only the named ones may be overridden.

    Raises:
        ConfigError: an override of another setting, or a file that is not a run's settings.
    """
    values = _read(str(config), seen=())
    allowed = list(may_change)
    for dotted, value in override_pairs(overrides):
        if dotted.split(".")[0] not in allowed:
            raise ConfigError(
                f"{key_text(dotted)} may not change on resume, only {', '.join(allowed)}; to go on "
                f"from these weights with other settings begin a run with init.from={config.parent}"
            )
        _set(values, dotted, value)
    return settings_from(values, where=str(config))


def settings_from(values: Mapping[str, Any], where: str) -> TrainSettings:
    """Validate plain values. Raises ConfigError in one line that names the key."""
    check_plain(values, where)
    _known(values, TrainSettings, where, ())
    try:
        return TrainSettings.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(f"{where}: {_one_line(error)}") from error


def plain_settings(settings: TrainSettings) -> dict[str, Any]:
    """Every setting as plain JSON values, defaults included."""
    plain: dict[str, Any] = json.loads(settings.model_dump_json(by_alias=True))
    return plain


def dump_settings(settings: TrainSettings) -> str:
    """YAML with everything resolved; `settings_from` of it gives equal settings."""
    plain = plain_settings(settings)
    if settings.lr_scaling == "none":
        plain.pop("lr_base_samples")
    if plain["init"]["from"] is None:
        plain["init"].pop("restore")
    return dump(plain)


def _read(recipe: str, seen: tuple[str, ...]) -> dict[str, Any]:
    """The values of a recipe on top of those of its base."""
    text, place, here = _find(recipe)
    if place in seen:
        raise ConfigError(f"base: {' -> '.join([*seen, place])} goes round in a circle")
    try:
        values = parse(text.decode("utf-8"), f"recipe {recipe}")
    except UnicodeDecodeError as error:
        raise ConfigError(f"recipe {recipe}: needs UTF-8 text: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"recipe {recipe}: needs settings by name, got {shown(values)}")
    base = values.pop("base", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise ConfigError(f"recipe {recipe}: base must be a name or a path, got {shown(base)}")
    return _merged(_read(_beside(here, base), (*seen, place)), values)


def _beside(here: Path | None, base: str) -> str:
    """A base that is a file in the recipe's own folder, by its path; else what was written."""
    try:
        return str(here / base) if here is not None and (here / base).is_file() else base
    except (OSError, ValueError):  # a name that no file can have; `_find` says so
        return base


def _find(recipe: str) -> tuple[bytes, str, Path | None]:
    """(content, what identifies it, its folder or None for a shipped one)."""
    if recipe in shipped():
        path = importlib.resources.files("brorl.recipes") / f"{recipe}.yaml"
        return path.read_bytes(), recipe, None
    near = difflib.get_close_matches(recipe[:80], shipped(), n=1)
    hint = f"; did you mean {near[0]}?" if near else "."
    known = f"{hint} Shipped: {', '.join(shipped())}; or give a .yaml file"
    if not _is_path(recipe):
        raise ConfigError(f"no recipe {shown(recipe)}{known}")
    try:
        file = Path(recipe).resolve()
        if not file.is_file():
            raise ConfigError(f"no recipe file {shown(recipe)}{known}")
        return file.read_bytes(), str(file), file.parent
    except ConfigError:
        raise
    except (OSError, ValueError, RuntimeError) as error:  # no such name, NUL, a circle of links
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"recipe file {shown(recipe)} cannot be read: {reason}") from error


def _is_path(recipe: str) -> bool:
    return recipe.endswith((".yaml", ".yml")) or "/" in recipe


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(below)
    for key, value in above.items():
        old = out.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        out[key] = _merged(old, value) if both and old is not None else value
    for width, other in (("n", "waves"), ("waves", "n")):  # they exclude each other: the new one
        if above.get(width) is not None and other not in above:
            out.pop(other, None)
    if "tasks" in above and "tasks" not in below:
        out = dict(above)  # a mixture has no settings but those of its tasks
    elif above.get("name") not in (None, below.get("name")) and "tasks" not in above:
        out.pop("tasks", None)
    if above.get("path") not in (None, below.get("path")) and "revision" not in above:
        out.pop("revision", None)  # of another model
    return out


def _override(text: str) -> tuple[str, Any]:
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise ConfigError(f"an override reads key.sub=value, got {shown(text)}")
    return key.strip(), parse(value, f"override {shown(key.strip())}")


def _set(values: dict[str, Any], dotted: str, value: Any) -> None:
    """Put a value at a dotted key, in place; a mapping is merged, as a YAML file on its base is."""
    above = value
    for section in reversed(dotted.split(".")):
        above = {section: above}
    merged = _merged(values, above)
    values.clear()
    values.update(merged)


def _known(
    values: Mapping[str, Any], model: type[BaseModel], where: str, path: tuple[str, ...]
) -> None:
    """Refuse an unknown key, with the nearest known one anywhere in the tree."""
    names = {f.alias or name: f for name, f in model.model_fields.items()}
    for key, value in values.items():
        dotted = ".".join([*path, str(key)])
        if key not in names:
            here = [".".join([*path, n]) for n in names]
            hint = PEERS_NAMES.get(str(key)) or _nearest(dotted[:80], here)
            raise ConfigError(f"{where}: unknown setting {key_text(dotted)}; nearest known: {hint}")
        section = _section(names[key].annotation)
        if section is not None and isinstance(value, Mapping):
            _known(value, section, where, (*path, str(key)))


def _nearest(dotted: str, here: list[str]) -> str:
    everything = _all_keys(TrainSettings, ())
    last = dotted.rsplit(".", 1)[-1]
    same = [k for k in everything if k.rsplit(".", 1)[-1] == last]
    if same:
        return same[0]
    for candidates, cutoff in ((here, 0.7), (everything, 0.7), (everything, 0.0)):
        near = difflib.get_close_matches(dotted, candidates, n=1, cutoff=cutoff)
        if near:
            break
    return near[0]


def _all_keys(model: type[BaseModel], path: tuple[str, ...]) -> list[str]:
    keys = []
    for name, field in model.model_fields.items():
        here = (*path, field.alias or name)
        section = _section(field.annotation)
        keys += [".".join(here)] if section is None else _all_keys(section, here)
    return keys


def _section(annotation: Any) -> type[BaseModel] | None:
    options = getattr(annotation, "__args__", (annotation,))
    for option in (annotation, *options):
        if isinstance(option, type) and issubclass(option, BaseModel):
            return option
    return None


def _one_line(error: ValidationError) -> str:
    """The first complaint: which key, what was required, what came."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(p) for p in first["loc"] if not str(p).startswith("function-"))
    message = " ".join(first["msg"].removeprefix("Value error, ").split())
    if not place:
        return message
    if first["type"] == "missing":
        return f"{place} must be set"
    came = first.get("input")
    got = "" if isinstance(came, dict) else f", got {shown(came)}"
    return f"{place}: {message[0].lower() + message[1:]}{got}"
