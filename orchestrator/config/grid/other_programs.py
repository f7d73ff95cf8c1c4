"""Hints for what users of other programs write: their names of sections and keys, and their sweep files."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from orchestrator.config.backends import RESOURCE_SYNTAX
from orchestrator.config.command_line.command import COMMAND_KEY, OTHER_COMMAND_KEYS, PROGRAM_OF_ONES_OWN

_NAMES_ITS_RUNS = "`name:` at the top of the grid names the sweep; its runs are named by their keys"
# Keys that no trainer has, also in `base` and `matrix`, with what to write.
KEY_HINTS: Mapping[str, str] = {
    **dict.fromkeys(
        ("run_name", "exp_name", "experiment_name", "sweep_name", "job_name", "wandb_name"), _NAMES_ITS_RUNS
    ),
    "defaults": (
        "the choices of Hydra's defaults list are keys: base: {task: vmas/navigation, algorithm: mappo}; "
        "another grid is taken in by extends: other.yaml"
    ),
    **dict.fromkeys(
        ("output_dir", "log_dir", "save_dir", "results_dir"),
        "the option --results DIR of the commands names the folder of results",
    ),
}
# Other programs' names of a section.
_OTHER_SECTIONS: Mapping[str, str] = {
    "seeds": "matrix: {seed: range(5)}",
    "seed": "base: {seed: 0}, or matrix: {seed: range(5)}",
    "n_seeds": "matrix: {seed: range(5)}",
    "num_seeds": "matrix: {seed: range(5)}",
    **dict.fromkeys(
        ("grid", "params", "parameters", "sweep", "sweeps", "strategy", "search_space"), "matrix"
    ),
    **dict.fromkeys(("inherit", "inherits", "include_file", "import", "from"), "extends: other.yaml"),
    **dict.fromkeys(("when", "if", "rules", "per_algorithm", "only"), "for: [{algorithm: mappo, set: {…}}]"),
    **dict.fromkeys(("x-common", "definitions", "templates", "aliases"), "anchors"),
    **dict.fromkeys(("common", "config", "overrides", "fixed", "hyperparameters"), "base"),
    **dict.fromkeys((COMMAND_KEY, *OTHER_COMMAND_KEYS), PROGRAM_OF_ONES_OWN),
    "method": "matrix: every combination is a run",
    **dict.fromkeys(("logger", "log", "wandb", "tensorboard"), "loggers: [tensorboard, wandb]"),
    **dict.fromkeys(("backend", "cluster", "profile"), "targets: [local]"),
    **dict.fromkeys(
        ("env", "env_id", "env_name", "scenario", "scenario_name"), "base: {task: vmas/navigation}"
    ),
}
_OF_A_PROFILE = ("partition", "account", "environment", RESOURCE_SYNTAX.lower())
_TABLE = "docs/coming-from.md has a table"


def section_hint(key: str, within: Collection[str], sections: Collection[str]) -> str | None:
    """Suggest what to write for a section with these keys, in a file with these sections; None if unknown."""
    if hint := _file_hint(within, sections):
        return hint
    if key in _OF_A_PROFILE:
        return "write it into a profile: docs/profiles.md"
    if key in KEY_HINTS:
        return KEY_HINTS[key]
    return f"did you mean {_OTHER_SECTIONS[key]}?" if key in _OTHER_SECTIONS else None


def _file_hint(within: Collection[str], sections: Collection[str]) -> str | None:
    """Say how a sweep file of another program is written here."""
    if "parameters" in sections or {"method", "program"} <= set(sections):
        return (
            'a sweep file of W&B is written here as base: {command: [python, train.py, "--lr={lr}"]} with '
            "trainer: command, and matrix: {lr: [0.1, 0.01]} for parameters: {lr: {values: [0.1, 0.01]}}; "
            + _TABLE
        )
    if "seml" in sections or ("grid" in sections and {"fixed", "random"} & set(sections)):
        return (
            'an experiment file of SEML is written here as base: {command: [python, train.py, "--lr={lr}"]} '
            "with trainer: command for seml and fixed, matrix: {lr: [0.1, 0.01]} for grid, and a profile for "
            f"{RESOURCE_SYNTAX.lower()}; {_TABLE}"
        )
    if "hydra" in sections:
        return (
            "a sweep of Hydra is written here as base: {algorithm: mappo} for defaults: [{algorithm: mappo}] "
            "and for other keys, and matrix: {lr: [0.1, 0.01]} for "
            f'hydra: {{sweeper: {{params: {{lr: "0.1,0.01"}}}}}}; {_TABLE}'
        )
    if "run" in within and {"config", "env", "stop"} & set(within):
        return (
            'an experiment of Ray is written here as base: {command: [python, train.py, "--lr={lr}"]} with '
            "trainer: command for run, env and stop, and matrix: {lr: [0.1, 0.01]} for "
            f"config: {{lr: {{grid_search: [0.1, 0.01]}}}}; {_TABLE}"
        )
    return None


# Keys of other programs' mappings for the values of one key.
_OF_VALUES = frozenset(
    ("values", "value", "type", "options", "choices", "distribution", "min", "max", "num", "step", "q")
) | {"grid_search", "choice", "uniform", "quniform", "loguniform", "randint", "low", "high", "log"}


def values_hint(keys: Collection[str]) -> str | None:
    """Say how values that are a mapping in other programs' files are written here."""
    if not keys or not set(keys) <= _OF_VALUES:
        return None
    return "write the values themselves, as in [0.1, 0.01] or range(5); one value goes into base"
