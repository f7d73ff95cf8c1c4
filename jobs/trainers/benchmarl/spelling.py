"""Explain a refused override in one line, with the nearest right spelling."""

from __future__ import annotations

import difflib
import importlib.util
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

import jobs
from jobs.hydra.override_text import override_text
from jobs.trainers.benchmarl.people import KEYS, NAMES
from jobs.training.config_errors import RefusedKeyError, bare_key, unexpected
from jobs.training.context import BadConfigError
from orchestrator.config.command import COMMAND_KEY, OTHER_COMMAND_KEYS, PROGRAM_OF_ONES_OWN
from orchestrator.config.grid.resources import OTHER_NAMES, RESOURCES
from orchestrator.config.trainers import BENCHMARL
from orchestrator.core.types import Value

# Nothing here loads PyTorch before :func:`explain`: most typing errors need none.
_REQUIRED = {"algorithm": "mappo", "task": "vmas/navigation"}
_GROUPS = ("experiment", "algorithm", "task", "model", "model/layers")
# People write a model's place in the config; Hydra wants its group.
_ALIASES = {"critic_model": "model@critic_model"}
_NEAR = 0.7
_MOST_NAMED = 15
# How BenchMARL's Python classes end: VmasTask.NAVIGATION, IqlConfig.
_CLASS = re.compile(r"_?(Task|Config)(?=$|\.)", re.IGNORECASE)
# How PettingZoo's modules end: multiwalker_v9.
_VERSION = re.compile(r"_?v\d+$", re.IGNORECASE)
# OmegaConf's names of types, in words.
_TYPES = {"Integer": "a whole number", "Float": "a number", "Boolean": "true or false", "String": "text"}


def require_choices(overrides: Mapping[str, Value]) -> None:
    """Refuse a run without algorithm or task, for which BenchMARL has no default."""
    for group, example in _REQUIRED.items():
        if group not in {bare_key(key) for key in overrides}:
            near = [key for key in overrides if group in KEYS.get(bare_key(key).lower(), ())]
            near = near or difflib.get_close_matches(group, [bare_key(key) for key in overrides], 1, 0.7)
            hint = f"{near[0]} → {group}" if near else f"add it to base or matrix, such as {group}: {example}"
            raise RefusedKeyError(near[0] if near else None, f"the run names no {group}", hint=hint)
    for key, value in overrides.items():
        if group_of(key) is not None and not isinstance(value, str) and not key.startswith("~"):
            raise RefusedKeyError(
                key, f"{key}: found {_brief(value)}, expected one name", hint=_dotted(key, value)
            )
        if key in _ALIASES and isinstance(value, str):
            raise RefusedKeyError(key, f"BenchMARL has no key {key!r}", hint=f"did you mean {_ALIASES[key]}?")


def wrong_choices(overrides: Mapping[str, Value]) -> list[BadConfigError]:
    """Return an error for each unknown option of a config group."""
    choices = {key: value for key, value in overrides.items() if group_of(key) is not None}
    found = (_wrong_choice(key, value) for key, value in choices.items() if isinstance(value, str))
    return [problem for problem in found if problem is not None]


def group_of(key: str) -> str | None:
    """Return the config group of an override's key, if any: ``model@critic_model`` → ``model``."""
    group = bare_key(key).split("@")[0]
    return group if group in _GROUPS else None


def explain(overrides: Mapping[str, Value], error: BaseException) -> BadConfigError:
    """Return the error to show, with the override at fault if one can be found."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from jobs.trainers.benchmarl.hydra_search import first_line

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
            problem = unknown_key(cfg, key, groups) or _refused_value(groups, key, value)
            if problem is not None:
                return problem
    return BadConfigError(f"Hydra cannot compose {_listed(overrides)}: {first_line(error)}")


def nearest(found: str, known: Sequence[str]) -> str | None:
    """Return the known name most like ``found``: same letters, a last part, or close spelling."""
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
    """Return the options of a config group, such as ``vmas/navigation`` for ``task``."""
    return tuple(dict.fromkeys(name for folder in conf_folders() for name in _files(folder / group)))


def conf_folders() -> tuple[Path, ...]:
    """Return the folders of Hydra configs: BenchMARL's, ours, and those of loaded plug-ins."""
    spec = importlib.util.find_spec("benchmarl")
    places = spec.submodule_search_locations if spec is not None else None
    own = (Path(next(iter(places))) / "conf",) if places else ()
    registry = sys.modules.get("jobs.trainers.benchmarl.registry")
    assert jobs.__file__ is not None
    ours = registry.config_folders() if registry else (Path(jobs.__file__).parent / "conf",)
    return (*own, *ours)


def keys_of(cfg: DictConfig) -> list[str]:
    """Return every dotted key of a composed config that an override may set."""
    plain = OmegaConf.to_container(cfg, resolve=False)
    assert isinstance(plain, dict)
    return [key for key in _flatten(plain, "") if key.split(".")[0] != "hydra"]


def _wrong_choice(key: str, value: Value) -> BadConfigError | None:
    group = group_of(key)
    assert group is not None
    known = options(group)
    if value in known or key.startswith("~"):
        return None
    shown = ", ".join(known)
    if len(known) > _MOST_NAMED:
        shown = f"{len(known)} names, such as {_REQUIRED.get(group, known[0])}"
    return unexpected(key, repr(value), f"one of: {shown}", hint=_meant(group, str(value), known))


def _meant(group: str, value: str, known: Sequence[str]) -> str | None:
    """Suggest an option, or name those of its family: VmasTask and vmas are all of VMAS's tasks."""
    python = _CLASS.search(value) is not None
    told = " A grid has the names of Hydra, not of Python classes" if python else ""
    short = _VERSION.sub("", value)
    meant = NAMES.get(group, {}).get(short.lower().rpartition("/")[2])
    if meant:
        return f"did you mean {meant}?"
    last = short.rpartition("/")[2].lower()
    if last.startswith("simple") and f"vmas/{last}" in known:  # MPE's, which PettingZoo has no more
        return f"did you mean vmas/{last}?"
    if near := nearest(short, known):
        return f"did you mean {near}?{told}"
    family = [name for name in known if name.partition("/")[0] == _letters(value).strip("/")]
    if not family and group == "task":
        families = ", ".join(dict.fromkeys(name.partition("/")[0] for name in known))
        return f"there are tasks of {families}; docs/tasks.md says how to add one of your own"
    if not family:
        return told.strip() or None
    family.sort(key=lambda name: name != _REQUIRED.get(group))
    more = f" and {len(family) - 3} more" if len(family) > 3 else ""
    return f"name one of that family: {', '.join(family[:3])}{more}.{told}".removesuffix(".")


def _brief(value: Value) -> str:
    """Shorten a value for a message: of a mapping the keys are enough."""
    if isinstance(value, Mapping):
        return f"a mapping of {', '.join(map(str, value))}" if value else "an empty mapping"
    return repr(value)


def _dotted(key: str, value: Value) -> str | None:
    """Show how the keys of a nested mapping are written."""
    if not isinstance(value, Mapping) or not value:
        return "a list of names goes into matrix" if isinstance(value, list) else None
    lines = [f"{bare_key(key)}.{name}: {_plain(inner)}" for name, inner in value.items()]
    return f"nested keys take dots, each on a line of its own: {', '.join(lines)}"


def _plain(value: Value) -> str:
    return "…" if isinstance(value, Mapping | list) else str(value)


def unknown_key(cfg: DictConfig, key: str, choices: Mapping[str, Value]) -> RefusedKeyError | None:
    """Return an error for a key that the composed config of these choices lacks; ``None`` if it has it."""
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
    if inside and (elsewhere := _elsewhere(key, name, head, choices)):
        return elsewhere
    near = _meant_key(name, known) or nearest(
        name, inside or [*_GROUPS, *_ALIASES.values(), BENCHMARL.minutes, *known]
    )
    hint = f"did you mean {near}?" if near else None
    if name in (COMMAND_KEY, *OTHER_COMMAND_KEYS):
        hint = f"a program of your own is {PROGRAM_OF_ONES_OWN}"
    if name in RESOURCES or name in OTHER_NAMES:
        hint = f"did you mean resources: {{{OTHER_NAMES.get(name, name)}: …}}, at the top of the grid?"
    where = f" with this choice of {head}" if inside else ""
    return RefusedKeyError(key, f"BenchMARL has no key {name!r}{where}", hint=hint)


def _elsewhere(key: str, name: str, head: str, choices: Mapping[str, Value]) -> RefusedKeyError | None:
    """Return an error for a key of another choice: ``algorithm.clip_epsilon`` beside iql."""
    chosen = next((value for other, value in choices.items() if bare_key(other) == head), None)
    if head not in ("algorithm", "task") or not isinstance(chosen, str):
        return None
    family = f"{chosen.partition('/')[0]}/" if "/" in chosen else ""
    others = [option for option in options(head) if option.startswith(family) and option != chosen]
    having = [option for option in others if _has(head, option, name.partition(".")[2])]
    if not having:
        return None
    some = f"{', '.join(having[:4])}{', …' if len(having) > 4 else ''}"
    return RefusedKeyError(
        key,
        f"{name}: {chosen} has no such key; {some} {'has' if len(having) == 1 else 'have'} it",
        hint=f"leave it out for {chosen}: by a grid of its own, or by naming the key in points of include",
    )


def _has(group: str, option: str, field: str) -> bool:
    found: Any = file_values(group, option)
    for part in field.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return False
        found = found[part]
    return True


@cache
def file_values(group: str, option: str) -> Mapping[str, Any]:
    """Return the values in the file of a choice and of its bases, without BenchMARL's types."""
    import yaml

    for folder in conf_folders():
        path = folder / group / f"{option}.yaml"
        if not path.is_file():
            continue
        own = yaml.safe_load(path.read_bytes()) or {}
        below = own.pop("defaults", [])
        bases = [one for one in below if isinstance(one, str) and one in options(group)]
        merged: dict[str, Any] = {}
        for base in bases:
            merged.update(file_values(group, base))
        return {**merged, **own}
    return {}


def _meant_key(name: str, known: Sequence[str]) -> str | None:
    """Return the key that people and other libraries call by this name: ``learning_rate``."""
    head, _, last = name.rpartition(".")
    for meant in KEYS.get(last.lower(), ()):
        here = f"{head}.{meant}" if head else meant
        if meant in known or here in known:
            return here if here in known else meant
    return None


def _not_to_be_set(key: str) -> RefusedKeyError:
    """Build the error for a key that would make an algorithm on-policy or off-policy."""
    told = f"{bare_key(key)}: an algorithm is on-policy or off-policy by itself, there is nothing to set"
    hint = "leave it out: mappo and ippo are on-policy, iql and qmix off-policy"
    return RefusedKeyError(key, told, hint=hint)


def _refused_value(groups: Mapping[str, Value], key: str, value: Value) -> BadConfigError | None:
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        _compose({**groups, key: value})
    except (HydraException, OmegaConfBaseException) as error:
        return wrong_type(key, value, error)
    return None


def wrong_type(key: str, value: Value, error: BaseException) -> RefusedKeyError:
    """Build the error for a value that OmegaConf cannot convert to its field's type."""
    from jobs.trainers.benchmarl.hydra_search import first_line

    why = first_line(error)
    wanted = re.search(r"could not be converted to (\w+)|is not a subclass of (\w+)", why)
    name = next(filter(None, wanted.groups())) if wanted else ""
    name = "Boolean" if "not a valid bool" in why else name
    expected = f", expected {_TYPES[name]}" if name in _TYPES else f": {why}"
    if " not in '" in why:
        return RefusedKeyError(key, f"BenchMARL has no key {bare_key(key)!r}", hint="leave it out")
    if "not Optional" in why:
        return RefusedKeyError(key, f"{bare_key(key)}: found nothing, expected a value", hint="leave it out")
    if "not a ListConfig" in why or "list or tuple" in why:
        return wants_list(key, value)
    return RefusedKeyError(key, f"{bare_key(key)}: found {value!r}{expected}")


def wants_list(key: str, value: Value) -> RefusedKeyError:
    """Build the error for a single value in place of a list; in ``matrix`` a list holds one value per run."""
    name = bare_key(key)
    example = "csv, wandb" if name.endswith("loggers") else "64, 64"
    written = f"[{value}]" if isinstance(value, str) or type(value) in (int, float) else f"[{example}]"
    hint = f"write {name}: {written} in base; in matrix, where a list holds one value a run, [{written}]"
    return unexpected(key, _brief(value), "a list", hint=hint)


def _compose(overrides: Mapping[str, Value]) -> DictConfig:
    from hydra import compose as hydra_compose

    from jobs.trainers.benchmarl.hydra_search import hydra_ready, search_path

    lines = [override_text(key, value) for key, value in overrides.items()]
    with hydra_ready():
        return hydra_compose("config", overrides=[*lines, search_path()])


def _files(folder: Path) -> Iterable[str]:
    """Yield the configs below a folder, as choices name them."""
    return (path.relative_to(folder).with_suffix("").as_posix() for path in sorted(folder.rglob("*.yaml")))


def _flatten(node: Mapping[Any, Any], prefix: str) -> Iterable[str]:
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")


def _letters(name: str) -> str:
    """Reduce a name so that ``VmasTask.NAVIGATION`` and ``vmas/navigation`` compare equal."""
    name = _CLASS.sub("", name)
    return re.sub(r"[^a-z0-9/]", "", name.lower().replace(".", "/"))


def _likeness(found: str, name: str) -> float:
    """Return the likeness of the last parts, 0 to 1; a common first part breaks ties."""
    tail, other = (re.split(r"[/.]", text)[-1].lower() for text in (found, name))
    same_head = re.split(r"[/.]", found)[:-1] == re.split(r"[/.]", name)[:-1]
    return difflib.SequenceMatcher(None, tail, other).ratio() - (0 if same_head else 0.05)


def _listed(overrides: Mapping[str, Value]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in overrides.items()) or "the run"
