"""Explain a refused key or value in one line, with the nearest right spelling."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig, OmegaConf

from jobs.training.config_errors import RefusedKeyError, bare_key, unexpected
from jobs.training.context import BadConfigError
from jobs.training.records.error_chain import first_line
from orchestrator.config.command_line.command import COMMAND_KEY, OTHER_COMMAND_KEYS, PROGRAM_OF_ONES_OWN
from orchestrator.config.grid.other_programs import KEY_HINTS
from orchestrator.config.grid.resources import OTHER_NAMES, RESOURCES
from orchestrator.core.types import Value

# Nothing here loads PyTorch: most typing errors need none.
_NEAR = 0.7
_MOST_NAMED = 15
# How the Python classes of options end: VmasTask.NAVIGATION, IqlConfig.
CLASS_ENDING = re.compile(r"_?(Task|Config)(?=$|\.)", re.IGNORECASE)
# OmegaConf's names of types, in words.
_TYPES = {"Integer": "a whole number", "Float": "a number", "Boolean": "true or false", "String": "text"}


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The names in a trainer's configuration, and other names that people use for them.

    ``trainer``: its name in messages. ``groups``: the keys that choose an option; ``options`` returns those
    of a group, ``takes`` whether another name is one, too, and ``values`` the keys and values that an option
    brings. ``required``: groups without a default → an example of an option. ``own_keys``: keys beside the
    configuration → a function that returns the value or raises :class:`BadConfigError`. ``hydra``: whether
    keys have Hydra's ``+``, ``~`` and ``@``. ``not_set``: last parts of keys that look right and cannot be
    set → the fault and the hint.

    ``other_groups``: another name of a group → the key to write. ``other_keys``: the last part of another
    name of a key → the trainer's keys, the likeliest first. ``other_options``: group → the last part of
    another name, in small letters → the options to name; another key → a word for a value → the value.
    ``option_hint``: return the hint for a group and an unknown option of it, in place of
    :func:`Vocabulary.nearest_option`.
    """

    trainer: str
    groups: tuple[str, ...]
    options: Callable[[str], Sequence[str]]
    values: Callable[[str, str], Mapping[str, Any]]
    takes: Callable[[str, str], bool] = lambda *_: False
    required: Mapping[str, str] = field(default_factory=dict)
    own_keys: Mapping[str, Callable[[str, Value], Value]] = field(default_factory=dict)
    hydra: bool = False
    not_set: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    other_groups: Mapping[str, str] = field(default_factory=dict)
    other_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    other_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    option_hint: Callable[[Vocabulary, str, str], str | None] | None = None

    def group_of(self, key: str) -> str | None:
        """Return the group of an override's key, if any: ``model@critic_model`` → ``model``."""
        group = bare_key(key).split("@")[0] if self.hydra else key
        return group if group in self.groups else None

    def choices(self, overrides: Mapping[str, Value]) -> dict[str, Value]:
        """Return the overrides that choose an option."""
        return {key: value for key, value in overrides.items() if self.group_of(key) is not None}

    def require_choices(self, overrides: Mapping[str, Value]) -> None:
        """Refuse a run without an option of a group that has no default."""
        for group, example in self.required.items():
            names = [bare_key(key) if self.hydra else key for key in overrides]
            if group not in names:
                near = [key for key in overrides if group in self.other_keys.get(bare_key(key).lower(), ())]
                near = near or difflib.get_close_matches(group, names, 1, 0.7)
                add = f"add it to base or matrix, such as {group}: {example}"
                hint = f"{near[0]} → {group}" if near else add
                raise RefusedKeyError(near[0] if near else None, f"the run names no {group}", hint=hint)
        for key, value in overrides.items():
            if self.group_of(key) is not None and not isinstance(value, str) and not key.startswith("~"):
                raise RefusedKeyError(
                    key, f"{key}: found {_brief(value)}, expected one name", hint=_dotted(key, value)
                )
            if key in self.other_groups and isinstance(value, str):
                raise self._no_key(key, hint=f"did you mean {self.other_groups[key]}?")

    def wrong_choices(self, overrides: Mapping[str, Value]) -> list[RefusedKeyError]:
        """Return an error for each unknown option of a group."""
        found = (
            self._wrong_choice(key, value)
            for key, value in self.choices(overrides).items()
            if isinstance(value, str)
        )
        return [problem for problem in found if problem is not None]

    def _wrong_choice(self, key: str, value: Value) -> RefusedKeyError | None:
        group = self.group_of(key)
        assert group is not None
        known = self.options(group)
        if value in known or key.startswith("~") or self.takes(group, value):
            return None
        shown = ", ".join(known)
        if len(known) > _MOST_NAMED:
            shown = f"{len(known)} names, such as {self.required.get(group, known[0])}"
        hint = (self.option_hint or Vocabulary.nearest_option)(self, group, str(value))
        return unexpected(key, repr(value), f"one of: {shown}", hint=hint)

    def nearest_option(self, group: str, value: str) -> str | None:
        """Suggest an option, or name those of its family: ``vmas`` is the family of all of VMAS's tasks."""
        known = self.options(group)
        meant = self.other_options.get(group, {}).get(value.lower().rpartition("/")[2])
        if meant := meant or nearest(value, known):
            return f"did you mean {meant}?"
        wanted = _letters(value).strip("/")
        family = [name for name in known if _letters(name.partition("/")[0]) == wanted]
        if not family:
            return None
        family.sort(key=lambda name: name != self.required.get(group))
        more = f" and {len(family) - 3} more" if len(family) > 3 else ""
        return f"name one of that family: {', '.join(family[:3])}{more}"

    def unknown_key(self, cfg: DictConfig, key: str, choices: Mapping[str, Value]) -> RefusedKeyError | None:
        """Return an error for a key that the composed config of these choices lacks."""
        name = bare_key(key)
        if not self.hydra and name != key:
            return RefusedKeyError(
                key, f"{self.trainer} takes no key with + or ~: {key}", hint=f"write {name}, or leave it out"
            )
        if key.startswith("+"):
            return None
        known = keys_of(cfg)
        if name in known:
            return None
        head, last = name.partition(".")[0], name.rpartition(".")[2]
        if self.hydra and OmegaConf.select(cfg, name.rpartition(".")[0]) == {}:
            hint = f"Hydra adds keys with +: write +{name}"
            return RefusedKeyError(key, f"{name} is not there yet", hint=hint)
        if last in self.not_set:
            fault, hint = self.not_set[last]
            return RefusedKeyError(key, f"{name}: {fault}", hint=hint)
        inside = [other for other in known if other.startswith(f"{head}.")]
        if inside and (elsewhere := self._elsewhere(key, choices)):
            return elsewhere
        where = f" with this choice of {head}" if inside else ""
        return self._no_key(key, where, hint=self._key_hint(name, known, inside))

    def _key_hint(self, name: str, known: Sequence[str], inside: Sequence[str]) -> str | None:
        if name in (COMMAND_KEY, *OTHER_COMMAND_KEYS):
            return f"a program of your own is {PROGRAM_OF_ONES_OWN}"
        if name.rpartition(".")[2] in KEY_HINTS:
            return KEY_HINTS[name.rpartition(".")[2]]
        near = self._meant_key(name, known)
        if near is None and (name in RESOURCES or name in OTHER_NAMES):
            return f"did you mean resources: {{{OTHER_NAMES.get(name, name)}: …}}, at the top of the grid?"
        everywhere = [*self.groups, *self.other_groups.values(), *self.own_keys, *known]
        near = near or nearest(name, inside or everywhere)
        return f"did you mean {near}?" if near else None

    def _meant_key(self, name: str, known: Sequence[str]) -> str | None:
        """Return the key that people and other libraries call by this name: ``learning_rate``."""
        head, _, last = name.rpartition(".")
        for meant in self.other_keys.get(last.lower(), ()):
            here = f"{head}.{meant}" if head else meant
            if meant in known or here in known:
                return here if here in known else meant
        return None

    def _elsewhere(self, key: str, choices: Mapping[str, Value]) -> RefusedKeyError | None:
        """Return an error for a key of another choice: ``algorithm.clip_epsilon`` beside iql."""
        name = bare_key(key)
        group, _, inner = name.partition(".")
        chosen = next((value for other, value in choices.items() if bare_key(other) == group), None)
        if group not in self.required or not isinstance(chosen, str):
            return None
        family = f"{chosen.partition('/')[0]}/" if "/" in chosen else ""
        others = [option for option in self.options(group) if option.startswith(family) and option != chosen]
        having = [option for option in others if _has(self.values(group, option), inner)]
        if not having:
            return None
        some = f"{', '.join(having[:4])}{', …' if len(having) > 4 else ''}"
        return RefusedKeyError(
            key,
            f"{name}: {chosen} has no such key; {some} {'has' if len(having) == 1 else 'have'} it",
            hint=f"leave it out for {chosen}: by a grid of its own, "
            "or by naming the key in points of include",
        )

    def wrong_type(self, key: str, value: Value, error: BaseException) -> RefusedKeyError:
        """Build the error for a value that OmegaConf cannot convert to its field's type."""
        why = first_line(error)
        wanted = re.search(r"could not be converted to (\w+)|is not a subclass of (\w+)", why)
        name = next(filter(None, wanted.groups())) if wanted else ""
        name = "Boolean" if "not a valid bool" in why else name
        expected = f", expected {_TYPES[name]}" if name in _TYPES else f": {why}"
        if " not in '" in why:
            return self._no_key(key, hint="leave it out")
        if "not Optional" in why:
            fault = f"{bare_key(key)}: found nothing, expected a value"
            return RefusedKeyError(key, fault, hint="leave it out")
        if options := re.search(r"expected one of \[(.*)\]", why):
            near = nearest(str(value), options[1].split(", "))
            return unexpected(key, repr(value), f"one of: {options[1]}", meant=near)
        if "not a ListConfig" in why or "list or tuple" in why:
            return wants_list(key, value)
        meant = self.other_options.get(bare_key(key), {}).get(str(value).lower())
        hint = f"did you mean {meant}?" if meant else None
        return RefusedKeyError(key, f"{bare_key(key)}: found {value!r}{expected}", hint=hint)

    def explain(
        self,
        overrides: Mapping[str, Value],
        error: BaseException,
        compose: Callable[[Mapping[str, Value]], DictConfig],
    ) -> BadConfigError:
        """Return the error to show for overrides that Hydra refused, with the one at fault if it is found.

        ``compose`` returns the configuration of some of them.
        """
        from hydra.errors import HydraException
        from omegaconf.errors import OmegaConfBaseException

        groups = self.choices(overrides)
        for key, value in groups.items():
            if (problem := self._wrong_choice(key, value)) is not None:
                return problem
        try:
            cfg = compose(groups)
        except (HydraException, OmegaConfBaseException) as group_error:
            return BadConfigError(f"Hydra cannot compose {_listed(groups)}: {first_line(group_error)}")
        for key, value in overrides.items():
            if key in groups:
                continue
            if (problem := self.unknown_key(cfg, key, groups)) is not None:
                return problem
            try:
                compose({**groups, key: value})
            except (HydraException, OmegaConfBaseException) as value_error:
                return self.wrong_type(key, value, value_error)
        return BadConfigError(f"Hydra cannot compose {_listed(overrides)}: {first_line(error)}")

    def _no_key(self, key: str, where: str = "", *, hint: str | None) -> RefusedKeyError:
        return RefusedKeyError(key, f"{self.trainer} has no key {bare_key(key)!r}{where}", hint=hint)


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


def keys_of(cfg: DictConfig) -> list[str]:
    """Return every dotted key of a composed config that an override may set."""
    plain = OmegaConf.to_container(cfg, resolve=False)
    assert isinstance(plain, dict)
    return [key for key in _flatten(plain, "") if key.split(".")[0] != "hydra"]


def wants_dots(key: str, value: Mapping[str, Value]) -> RefusedKeyError:
    """Build the error for a mapping in place of the keys below ``key``."""
    return unexpected(key, _brief(value), "keys with dots", hint=_dotted(key, value))


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


def wants_list(key: str, value: Value) -> RefusedKeyError:
    """Build the error for a single value in place of a list; in ``matrix`` a list holds one value per run."""
    name = bare_key(key)
    example = "csv, wandb" if name.endswith("loggers") else "64, 64"
    written = f"[{value}]" if isinstance(value, str) or type(value) in (int, float) else f"[{example}]"
    hint = f"write {name}: {written} in base; in matrix, where a list holds one value a run, [{written}]"
    return unexpected(key, _brief(value), "a list", hint=hint)


def _flatten(node: Mapping[Any, Any], prefix: str) -> Iterable[str]:
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")


def _letters(name: str) -> str:
    """Reduce a name so that ``VmasTask.NAVIGATION`` and ``vmas/navigation`` compare equal."""
    name = CLASS_ENDING.sub("", name)
    return re.sub(r"[^a-z0-9/]", "", name.lower().replace(".", "/"))


def _likeness(found: str, name: str) -> float:
    """Return the likeness of the last parts, 0 to 1; a common first part breaks ties."""
    tail, other = (re.split(r"[/.]", text)[-1].lower() for text in (found, name))
    same_head = re.split(r"[/.]", found)[:-1] == re.split(r"[/.]", name)[:-1]
    return difflib.SequenceMatcher(None, tail, other).ratio() - (0 if same_head else 0.05)


def _listed(overrides: Mapping[str, Value]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in overrides.items()) or "the run"


def _has(values: Mapping[str, Any], name: str) -> bool:
    found: Any = values
    for part in name.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return False
        found = found[part]
    return True
