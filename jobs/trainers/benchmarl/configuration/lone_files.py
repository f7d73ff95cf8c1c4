"""Files of a Hydra config group that lie beside a grid, such as ``algorithm/my.yaml``: nothing reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from orchestrator.core.types import Value

_PLUGIN = "a plug-in has such files: docs/tasks.md#your-own"
# Keys of a file that are no values.
_OF_HYDRA = ("defaults", "name")


def lone_file(group: str, option: str) -> Path | None:
    """Return the file of an option in this folder, or in one directly below it; None without one."""
    for folder in _folders():
        path = folder / group / f"{option}.yaml"
        try:
            if path.is_file():
                return path
        except (OSError, ValueError):  # a name too long, or with a null byte
            continue
    return None


def instead_of(path: Path, group: str, option: str, known: Sequence[str]) -> str:
    """Say how a grid has the values in the file of this option; ``known``: the options of the group."""
    values = _values(path)
    base = _base(values, known)
    if base is None:
        return (
            f"{path} is not read: move it to my_marl/conf/{group}/{option}.yaml, name its class in "
            f"my_marl/__init__.py, and write plugins: ./my_marl in the grid; {_PLUGIN}"
        )
    keys = [f"{group}.{key}: {_text(value)}" for key, value in values.items() if key not in _OF_HYDRA]
    return (
        f"{path} is not read: write its values as keys, {', '.join([f'{group}: {base}', *keys])} (in `zip` "
        f"beside other variants); {_PLUGIN}"
    )


def _folders() -> Iterator[Path]:
    here = Path()
    yield here
    yield from sorted(path for path in here.iterdir() if path.is_dir() and not path.name.startswith("."))


def _values(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_bytes())
    except (OSError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}


def _base(values: dict[str, Any], known: Sequence[str]) -> str | None:
    """Return the option on which a file builds: by its defaults, the class in these, or its name."""
    below = values.get("defaults")
    named = [*(below if isinstance(below, list) else []), values.get("name")]
    others = {f"{option.replace('/', '_')}_config": option for option in known}
    others |= {option.rpartition("/")[2]: option for option in known}
    found = (others.get(one, one) for one in named if isinstance(one, str))
    return next((one for one in found if one in known), None)


def _text(value: Value) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()
