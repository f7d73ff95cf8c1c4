"""The names in BenchMARL's configuration."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.hydra.config_files import options_in, values_in
from jobs.hydra.spelling import CLASS_ENDING, Vocabulary
from jobs.trainers.benchmarl.configuration.lone_files import instead_of, lone_file
from jobs.trainers.benchmarl.configuration.people import KEYS, NAMES
from jobs.training.time_budget import checked_minutes
from orchestrator.config.trainers.benchmarl import BENCHMARL
from orchestrator.core.machine.package_files import CONF

# How PettingZoo's modules end: multiwalker_v9.
_VERSION = re.compile(r"_?v\d+$", re.IGNORECASE)
_BY_ITSELF = (
    "an algorithm is on-policy or off-policy by itself, there is nothing to set",
    "leave it out: mappo and ippo are on-policy, iql and qmix off-policy",
)


def options(group: str) -> tuple[str, ...]:
    """Return the options of a config group, such as ``vmas/navigation`` for ``task``."""
    return options_in(config_folders(), group)


def task_names() -> list[str]:
    """Return the names of all tasks."""
    return list(options("task"))


def file_values(group: str, option: str) -> Mapping[str, Any]:
    """Return the values in the file of a choice and of its bases, without BenchMARL's types."""
    return values_in(config_folders(), group, option)


def config_folders() -> tuple[Path, ...]:
    """Return the folders of Hydra configs: BenchMARL's, ours, and those of loaded plug-ins."""
    spec = importlib.util.find_spec("benchmarl")
    places = spec.submodule_search_locations if spec is not None else None
    own = (Path(next(iter(places))) / "conf",) if places else ()
    registry = sys.modules.get("jobs.trainers.benchmarl.configuration.registry")
    ours = registry.config_folders() if registry else (CONF,)
    return (*own, *ours)


def _option_hint(vocabulary: Vocabulary, group: str, value: str) -> str | None:
    if (path := lone_file(group, value)) is not None:
        return instead_of(path, group, value, options(group))
    short = _VERSION.sub("", value)
    last = short.rpartition("/")[2].lower()
    if last.startswith("simple") and f"vmas/{last}" in options(group):  # MPE's, which PettingZoo has no more
        return f"did you mean vmas/{last}?"
    hint = vocabulary.nearest_option(group, short)
    if hint is None and group == "task":
        families = ", ".join(dict.fromkeys(name.partition("/")[0] for name in options(group)))
        return f"there are tasks of {families}; docs/tasks.md says how to add one of your own"
    if not CLASS_ENDING.search(value):
        return hint
    python = "A grid has the names of Hydra, not of Python classes"
    return f"{hint}{'' if hint.endswith('?') else '.'} {python}" if hint else python


VOCABULARY = Vocabulary(
    trainer="BenchMARL",
    groups=("experiment", "algorithm", "task", "model", "model/layers"),
    options=options,
    values=file_values,
    required={"algorithm": "mappo", "task": "vmas/navigation"},
    own_keys={BENCHMARL.minutes: checked_minutes},
    hydra=True,
    not_set={"on_policy": _BY_ITSELF, "off_policy": _BY_ITSELF},
    other_groups={"critic_model": "model@critic_model"},  # its place in the config; Hydra wants its group
    other_keys=KEYS,
    other_options=NAMES,
    option_hint=_option_hint,
)
