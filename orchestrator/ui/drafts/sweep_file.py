"""Draft a grid from a sweep file of W&B or an experiment file of SEML."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.config.backends import RESOURCE_SYNTAX
from orchestrator.config.program.options import Option
from orchestrator.config.yaml_files.nodes import YamlFile, plain_value, read_nodes
from orchestrator.config.yaml_files.text import read_text
from orchestrator.core.errors import PlacedError
from orchestrator.core.types import Value
from orchestrator.ui.drafts.job_script import resources_of
from orchestrator.ui.drafts.text import Draft

_MOST_VALUES = 1000
_Mapping = Mapping[str, Any]
# Placeholders of `command` in W&B, each with the argument for a key.
_ARGUMENTS: Mapping[str, Callable[[str], str]] = {
    "${args}": "--{0}={{{0}}}".format,
    "${args_no_boolean_flags}": "--{0}={{{0}}}".format,
    "${args_no_hyphens}": "{0}={{{0}}}".format,
}
_CLUSTER = RESOURCE_SYNTAX.lower()
# Settings of the section `random` of SEML that are no parameters.
_OF_RANDOM = ("samples", "seed")
_SEML_SECTIONS = {"seml", _CLUSTER, "fixed", "grid", "random"}


def draft_of_sweep_file(file: Path, spelled: str) -> Draft:
    """Read a sweep file. Raises :class:`PlacedError`."""
    source = YamlFile(str(file), noun="sweep file")
    content = plain_value(read_nodes(read_text(file, source, lambda _: ""), source))
    if isinstance(content, dict) and isinstance(content.get("parameters"), dict):
        return _of_wandb(content, file, spelled)
    if isinstance(content, dict) and isinstance(content.get("seml"), dict):
        return _of_seml(content, file, spelled)
    raise PlacedError(
        "found neither `parameters` (a sweep file of W&B) nor `seml` (an experiment file of SEML)",
        file=file,
        hint="for Hydra name the program: orchestrate init --from train.py",
    )


def _of_wandb(content: _Mapping, file: Path, spelled: str) -> Draft:
    fixed, varied, notes = _sorted(_wandb_parameters(content["parameters"], ""), file)
    command: list[str] = []
    spell = _ARGUMENTS["${args}"]
    program = str(content.get("program", "train.py"))
    for item in content.get("command") or ("${env}", "${interpreter}", "${program}", "${args}"):
        if item in _ARGUMENTS:
            spell = _ARGUMENTS[item]
        elif str(item).startswith("${args"):
            raise PlacedError(f"command: found {item}, expected {', '.join(_ARGUMENTS)}", file=file)
        elif item != "${env}":
            command.append({"${interpreter}": "python", "${program}": program}.get(item, str(item)))
    metric = content.get("metric") or {}
    name = metric.get("name") if isinstance(metric, dict) else None
    later = [f"metrics: {{from: wandb, return: {name}}}" if name else "metrics: {from: wandb}"]
    if name and metric.get("goal") == "minimize":
        later.append(f"# lower is better: orchestrate report NAME --metric {name}:min")
    if content.get("method") not in (None, "grid"):
        notes.append(f"method {content['method']}: here every combination is a run")
    return Draft(spelled, command, _options(fixed, varied, spell), varied, notes=notes, later=later)


def _of_seml(content: _Mapping, file: Path, spelled: str) -> Draft:
    if more := sorted(content.keys() - _SEML_SECTIONS):
        raise PlacedError(
            f"found the section {more[0]}, which is a part of several grids",
            file=file,
            hint="copy the file once for each such section, with its fixed, grid and random at the top",
        )
    found = [(key, {"value": value}) for key, value in _flat(content.get("fixed") or {})]
    drawn = {key: one for key, one in (content.get("random") or {}).items() if key not in _OF_RANDOM}
    found += [*_flat(content.get("grid") or {}), *_flat(drawn)]
    told = [(key, one if isinstance(one, dict) else {"value": one}) for key, one in found]
    fixed, varied, notes = _sorted(iter(told), file)
    together = {key: one.get("zip_id") for key, one in told if one.get("zip_id") is not None}
    if len(set(together.values())) > 1:
        raise PlacedError("grid: found several values of zip_id, expected one", file=file)
    executable = str(content["seml"].get("executable", "main.py"))
    jobs = content.get(_CLUSTER)
    options = (jobs[0] if isinstance(jobs, list) and jobs else jobs) or {}
    sbatch = options.get("sbatch_options") if isinstance(options, dict) else None
    return Draft(
        spelled,
        ["python", executable, "with"],
        _options(fixed, varied, "{0}={{{0}}}".format),
        {key: values for key, values in varied.items() if key not in together},
        {key: varied[key] for key in together if key in varied},
        resources_of({str(key): str(value) for key, value in (sbatch or {}).items()}),
        notes=notes,
    )


def _options(
    fixed: Mapping[str, Value], varied: Mapping[str, Sequence[Value]], spell: Callable[[str], str]
) -> list[Option]:
    names = [*fixed, *(key for key in varied if key not in fixed)]
    return [Option(key, (spell(key),), fixed.get(key)) for key in names]


def _wandb_parameters(parameters: _Mapping, above: str) -> Iterator[tuple[str, _Mapping]]:
    """Yield each parameter with its description, nested ones by names with dots."""
    for key, about in parameters.items():
        if isinstance(about, dict) and isinstance(about.get("parameters"), dict):
            yield from _wandb_parameters(about["parameters"], f"{above}{key}.")
        else:
            yield f"{above}{key}", about if isinstance(about, dict) else {"value": about}


def _flat(values: _Mapping, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield values by names with dots, down to a mapping that describes values by its `type`."""
    for key, value in values.items():
        if isinstance(value, dict) and "type" not in value and value:
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _sorted(
    parameters: Iterator[tuple[str, _Mapping]], file: Path
) -> tuple[dict[str, Value], dict[str, list[Value]], list[str]]:
    """Return fixed values, lists of values, and notes. Raises :class:`PlacedError`."""
    fixed: dict[str, Value] = {}
    varied: dict[str, list[Value]] = {}
    notes: list[str] = []
    for key, about in parameters:
        try:
            values, drawn = _values(about)
        except (TypeError, ValueError, KeyError, OverflowError, ZeroDivisionError):
            message = f"{key}: found {str(about)[:80]}, expected values, a value, or numbers min and max"
            raise PlacedError(message, file=file) from None
        if len(values) == 1 and key != "seed":
            fixed[key] = values[0]
        else:
            varied[key] = values
        if drawn:
            notes.append(f"{key} is a distribution there: three points of it are in matrix")
    return fixed, varied, notes


def _values(about: _Mapping) -> tuple[list[Value], bool]:
    """Return the values of a description, and whether it is a distribution."""
    for name in ("values", "options"):
        if isinstance(about.get(name), list) and about[name]:
            return about[name], False
    if "value" in about:
        return [about["value"]], False
    kind = str(about.get("distribution", about.get("type", "")))
    if "normal" in kind:
        middle, spread = float(about.get("mu", 0)), float(about.get("sigma", 1))
        points = [middle - spread, middle, middle + spread]
        return ([math.exp(one) for one in points] if "log" in kind else points), True
    low, high = about["min"], about["max"]
    if kind == "range":
        step = about.get("step", 1)
        number = math.ceil((high - low) / step)
        return [low + step * position for position in range(min(number, _MOST_VALUES))], False
    if kind in ("log_uniform", "q_log_uniform"):
        low, high = math.exp(low), math.exp(high)
    number = min(int(about.get("num", 3)), _MOST_VALUES)
    shares = [position / max(1, number - 1) for position in range(number)]
    if "log" in kind:
        found: list[Value] = [float(f"{low * (high / low) ** share:.6g}") for share in shares]
    elif isinstance(low, int) and isinstance(high, int):
        found = list(dict.fromkeys(round(low + (high - low) * share) for share in shares))
    else:
        found = [float(f"{low + (high - low) * share:.6g}") for share in shares]
    return found, "num" not in about
