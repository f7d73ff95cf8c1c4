"""What a person meant: turns Hydra's refusal of an override into one line and the nearest right spelling."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from jobs.context import BadConfigError
from jobs.trainers.benchmarl.hydra_search import first_line, hydra_ready, search_path
from jobs.trainers.benchmarl.hydra_text import RefusedKeyError, bare_key, override_text
from jobs.trainers.benchmarl.registry import config_folders
from orchestrator.trainers import BENCHMARL
from orchestrator.types import Value

_REQUIRED = {"algorithm": "mappo", "task": "vmas/navigation"}
_GROUPS = ("experiment", "algorithm", "task", "model", "model/layers")
# People write a model's place in the config; Hydra wants its group.
_ALIASES = {"critic_model": "model@critic_model"}
_NEAR = 0.7
# How BenchMARL's Python classes end: VmasTask.NAVIGATION, IqlConfig.
_CLASS = re.compile(r"_?(Task|Config)(?=$|\.)", re.IGNORECASE)
# OmegaConf's names of types, in words.
_TYPES = {"Integer": "a whole number", "Float": "a number", "Boolean": "true or false", "String": "text"}


def require_choices(overrides: Mapping[str, Value]) -> None:
    """BenchMARL has no default algorithm and no default task."""
    for group, example in _REQUIRED.items():
        if group not in {bare_key(key) for key in overrides}:
            near = difflib.get_close_matches(group, [bare_key(key) for key in overrides], 1, 0.7)
            hint = f"{near[0]} → {group}" if near else f"add it to base or matrix, such as {group}: {example}"
            raise RefusedKeyError(near[0] if near else None, f"the run names no {group}", hint=hint)
    for key, value in overrides.items():
        if group_of(key) is not None and not isinstance(value, str) and not key.startswith("~"):
            raise RefusedKeyError(key, f"{key}: found {value!r}, expected one name")
        if key in _ALIASES and isinstance(value, str):
            raise RefusedKeyError(key, f"BenchMARL has no key {key!r}", hint=f"did you mean {_ALIASES[key]}?")


def wrong_choices(overrides: Mapping[str, Value]) -> list[BadConfigError]:
    """Everything that is chosen for a group of configs, and is none of it."""
    choices = {key: value for key, value in overrides.items() if group_of(key) is not None}
    found = (_wrong_choice(key, value) for key, value in choices.items() if isinstance(value, str))
    return [problem for problem in found if problem is not None]


def group_of(key: str) -> str | None:
    """The config group an override of ``key`` chooses from, if any: ``model@critic_model`` → ``model``."""
    group = bare_key(key).split("@")[0]
    return group if group in _GROUPS else None


def explain(overrides: Mapping[str, Value], error: BaseException) -> BadConfigError:
    """The error to show: names the override at fault, if one can be told."""
    groups = {key: value for key, value in overrides.items() if group_of(key) is not None}
    for key, value in groups.items():
        problem = _wrong_choice(key, value)
        if problem is not None:
            return problem
    try:
        cfg = _compose(groups)
    except (HydraException, OmegaConfBaseException) as group_error:
        return BadConfigError(f"Hydra cannot compose {_listed(groups)}: {first_line(group_error)}")
    for key, value in overrides.items():
        if key not in groups:
            problem = unknown_key(cfg, key) or _refused_value(groups, key, value)
            if problem is not None:
                return problem
    return BadConfigError(f"Hydra cannot compose {_listed(overrides)}: {first_line(error)}")


def nearest(found: str, known: Sequence[str]) -> str | None:
    """The known name that ``found`` most likely means: same letters, a last part, or close spelling."""
    wanted = _letters(found)
    for name in known:
        if _letters(name) == wanted:
            return name
    for name in known:
        if _letters(re.split(r"[/.]", name)[-1]) == wanted:
            return name
    best = max(known, key=lambda name: _likeness(found, name), default=None)
    return best if best is not None and _likeness(found, best) >= _NEAR else None


@cache
def options(group: str) -> tuple[str, ...]:
    """What a config group can be set to, such as ``vmas/navigation`` for ``task``."""
    with hydra_ready():
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        loader = hydra.config_loader
        loader.load_configuration("config", [*_example_choices()], _run_mode())
        names = tuple(_walk(loader, group, ""))
    ours = (name for folder in config_folders() for name in _files(folder / group))
    return (*(name for name in names if not name.endswith("_config")), *ours)


def keys_of(cfg: DictConfig) -> list[str]:
    """Every dotted key of a composed config that an override may set."""
    plain = OmegaConf.to_container(cfg, resolve=False)
    assert isinstance(plain, dict)
    return [key for key in _flatten(plain, "") if key.split(".")[0] != "hydra"]


def _wrong_choice(key: str, value: Value) -> BadConfigError | None:
    group = group_of(key)
    assert group is not None
    known = options(group)
    if value in known or key.startswith("~"):
        return None
    near = nearest(value, known) if isinstance(value, str) else None
    shown = ", ".join(known) if len(known) <= 15 else f"{len(known)} names, such as {known[0]}"
    return RefusedKeyError(
        key,
        f"{bare_key(key)}: found {value!r}, expected one of: {shown}",
        hint=_meant(near, value),
    )


def _meant(near: str | None, value: Value) -> str | None:
    if near is None:
        return None
    python = _CLASS.search(str(value)) is not None
    return f"did you mean {near}?{' A grid has the names of Hydra, not of Python classes' if python else ''}"


def unknown_key(cfg: DictConfig, key: str) -> RefusedKeyError | None:
    """What is wrong with a key that is not in the composed config, or ``None`` if it is."""
    if key.startswith("+"):
        return None
    name = bare_key(key)
    known = keys_of(cfg)
    if name in known:
        return None
    if OmegaConf.select(cfg, name.rpartition(".")[0]) == {}:
        return RefusedKeyError(key, f"{name} is not there yet", hint=f"Hydra adds keys with +: write +{name}")
    if name.rpartition(".")[2] in ("on_policy", "off_policy"):
        return _not_to_be_set(key)
    head = name.partition(".")[0]
    inside = [other for other in known if other.startswith(f"{head}.")]
    near = nearest(name, inside or [*_GROUPS, *_ALIASES.values(), BENCHMARL.minutes, *known])
    hint = f"did you mean {near}?" if near else None
    where = f" with this choice of {head}" if inside else ""
    return RefusedKeyError(key, f"BenchMARL has no key {name!r}{where}", hint=hint)


def _not_to_be_set(key: str) -> RefusedKeyError:
    """For a key that would make an algorithm on-policy, or off-policy."""
    told = f"{bare_key(key)}: an algorithm is on-policy or off-policy by itself, there is nothing to set"
    hint = "leave it out: mappo and ippo are on-policy, iql and qmix off-policy"
    return RefusedKeyError(key, told, hint=hint)


def _refused_value(groups: Mapping[str, Value], key: str, value: Value) -> BadConfigError | None:
    try:
        _compose({**groups, key: value})
    except (HydraException, OmegaConfBaseException) as error:
        return wrong_type(key, value, error)
    return None


def wrong_type(key: str, value: Value, error: BaseException) -> RefusedKeyError:
    """For a value that OmegaConf cannot make into its field's type."""
    why = first_line(error)
    wanted = re.search(r"could not be converted to (\w+)|is not a subclass of (\w+)", why)
    name = next(filter(None, wanted.groups())) if wanted else ""
    expected = f", expected {_TYPES[name]}" if name in _TYPES else f": {why}"
    return RefusedKeyError(key, f"{bare_key(key)}: found {value!r}{expected}")


def _compose(overrides: Mapping[str, Value]) -> DictConfig:
    lines = [override_text(key, value) for key, value in overrides.items()]
    with hydra_ready():
        return hydra_compose("config", overrides=[*lines, search_path()])


def _example_choices() -> list[str]:
    return [override_text(group, choice) for group, choice in _REQUIRED.items()]


def _run_mode() -> Any:
    from hydra.types import RunMode

    return RunMode.RUN


def _walk(loader: Any, group: str, prefix: str) -> Iterable[str]:
    for name in loader.get_group_options(group, results_filter=ObjectType.CONFIG):
        yield prefix + name
    for name in loader.get_group_options(group, results_filter=ObjectType.GROUP):
        yield from _walk(loader, f"{group}/{name}", f"{prefix}{name}/")


def _files(folder: Path) -> Iterable[str]:
    """The configs below a folder, as choices name them."""
    return (path.relative_to(folder).with_suffix("").as_posix() for path in sorted(folder.rglob("*.yaml")))


def _flatten(node: Mapping[Any, Any], prefix: str) -> Iterable[str]:
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")


def _letters(name: str) -> str:
    """``VmasTask.NAVIGATION``, ``IqlConfig`` and ``vmas/navigation``, ``iql`` compare equal."""
    name = _CLASS.sub("", name)
    return re.sub(r"[^a-z0-9/]", "", name.lower().replace(".", "/"))


def _likeness(found: str, name: str) -> float:
    """0 to 1: how alike the last parts are, a common first part as the tie-break."""
    tail, other = (re.split(r"[/.]", text)[-1].lower() for text in (found, name))
    same_head = re.split(r"[/.]", found)[:-1] == re.split(r"[/.]", name)[:-1]
    return difflib.SequenceMatcher(None, tail, other).ratio() - (0 if same_head else 0.05)


def _listed(overrides: Mapping[str, Value]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in overrides.items()) or "the run"
