"""Try a configuration small: build environments, networks and losses, train nothing."""

from __future__ import annotations

import contextlib
import importlib.util
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarl.experiment import Experiment

from jobs.trainers.benchmarl.configuration.config import Composed, Outline
from jobs.trainers.benchmarl.configuration.rules import can_prioritize
from jobs.training.config_errors import RefusedKeyError
from jobs.training.records.error_chain import first_line
from jobs.training.records.headless_rendering import obstacle
from orchestrator.core.machine import hardware

# Of each environment family, those of plug-ins apart: the package that is imported when one is made.
_PACKAGES = {
    "vmas": "vmas",
    "pettingzoo": "pettingzoo",
    "smacv2": "smacv2",
    "meltingpot": "meltingpot",
    "magent": "magent2",
    "multiwalker": "pettingzoo",
    "kaz": "pettingzoo",
}
_LAST_PETTINGZOO_WITH_ALL = "1.25.0"
_FRAMES = 20
_MESSAGE = 300


def try_build(composed: Composed, *, render: bool) -> None:
    """Build the experiment with a handful of environments on the CPU.

    Raises :class:`RefusedKeyError` if BenchMARL cannot, or if it is to render and this machine cannot draw.
    """
    with tempfile.TemporaryDirectory(prefix="check-") as folder:
        config = replace(composed.experiment, **_small(folder))
        try:
            experiment = Experiment(**composed.parts, config=config)
        except Exception as error:  # any error of a library here would end every such run
            raise _refusal(composed, error) from error
        with _closed(experiment):
            if render:
                _try_drawing(experiment)


def require_possible(outline: Outline) -> None:
    """Refuse, without building, a missing package and actions that do not fit."""
    _require_environment(outline.task_name)
    if outline.task_name.startswith("pettingzoo/"):
        _require_pettingzoo(outline)
    _require_actions(outline)


def _small(folder: str) -> dict[str, Any]:
    return {
        "sampling_device": "cpu",
        "train_device": "cpu",
        "buffer_device": "cpu",
        "parallel_collection": False,
        "on_policy_collected_frames_per_batch": _FRAMES,
        "on_policy_n_envs_per_worker": 1,
        "on_policy_minibatch_size": _FRAMES,
        "off_policy_collected_frames_per_batch": _FRAMES,
        "off_policy_n_envs_per_worker": 1,
        "off_policy_train_batch_size": _FRAMES,
        "off_policy_memory_size": _FRAMES,
        "off_policy_init_random_frames": 0,
        "max_n_frames": _FRAMES,
        "max_n_iters": None,
        "evaluation": True,
        "evaluation_interval": _FRAMES,
        "evaluation_episodes": 1,
        "loggers": [],
        "create_json": False,
        "checkpoint_interval": 0,
        "checkpoint_at_end": False,
        "save_folder": folder,
        "restore_file": None,
        **({} if can_prioritize() else {"off_policy_use_prioritized_replay_buffer": False}),  # see rules
    }


def _require_environment(task_name: str) -> None:
    family = task_name.split("/")[0]
    package = _PACKAGES.get(family)
    if package is not None and importlib.util.find_spec(package) is None:
        raise RefusedKeyError(
            "task",
            f"task: {task_name} needs the Python package {package}, which is not installed here",
            hint=f"install {package} into the environment that runs the workers, or choose another task",
        )
    game = hardware.starcraft() if family == "smacv2" else None
    if game is not None and game.lack:
        raise RefusedKeyError("task", f"task: {task_name} needs StarCraft II: {game.lack}", hint=game.fix)


def _require_pettingzoo(outline: Outline) -> None:
    """Refuse tasks that PettingZoo has given away: TorchRL looks for them there only."""
    if _is_in_pettingzoo(outline.task.config["task"]):
        return
    name = outline.task_name.partition("/")[2]
    particle = name.startswith("simple_")
    where = ", then it went to the package mpe2, where TorchRL does not look" if particle else ""
    raise RefusedKeyError(
        "task",
        f"task: {outline.task_name} is not in PettingZoo {version('pettingzoo')}, which is installed here: "
        f"the last to have it is {_LAST_PETTINGZOO_WITH_ALL}{where}",
        hint=f"vmas/{name} is VMAS's version of it" if particle else "pettingzoo/multiwalker is still there",
    )


def _is_in_pettingzoo(module: str) -> bool:
    spec = importlib.util.find_spec("pettingzoo")
    folders = spec.submodule_search_locations if spec is not None else None
    return any(any(Path(folder).glob(f"*/{module}.py")) for folder in folders or ())


def _require_actions(outline: Outline) -> None:
    task, algorithm = outline.task, outline.algorithm
    continuous = task.supports_continuous_actions(), algorithm.supports_continuous_actions()
    discrete = task.supports_discrete_actions(), algorithm.supports_discrete_actions()
    if all(continuous) or all(discrete):
        return
    name = outline.choices["algorithm"]
    needs, has = ("discrete", "continuous") if continuous[0] else ("continuous", "discrete")
    raise RefusedKeyError(
        "algorithm",
        f"algorithm: {name} needs {needs} actions, and {outline.task_name} has only {has} ones",
        hint=f"exclude {name} with this task",
    )


def _try_drawing(experiment: Any) -> None:
    environment = experiment.test_env
    if not experiment.task.has_render(environment):
        return
    try:
        environment.reset()
        experiment.task.render_callback(experiment, environment, None)
    except Exception as error:  # no display, no OpenGL, no pyglet: each has an error of its own
        why = obstacle(error)
        raise RefusedKeyError(
            "experiment.render",
            f"experiment.render: found true, but this machine cannot draw: {why.found}",
            hint=f"leave it out, or: {why.fix}",
        ) from error


@contextlib.contextmanager
def _closed(experiment: Any) -> Iterator[None]:
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # what cannot be closed ends with this process
            experiment.close()


def _named(composed: Composed) -> str:
    choices = composed.choices
    return f"{choices['algorithm']} with {choices['model']} on {composed.task_name}"


def _refusal(composed: Composed, error: Exception) -> RefusedKeyError:
    """Turn a library's error into one in the words of a grid, where it is a known one."""
    model, task = composed.choices["model"], composed.task_name
    if "CNN input value" in str(error) or "no image inputs" in str(error):
        images = "; kaz/image has images" if task.startswith("kaz/") else ""
        return RefusedKeyError(
            "model",
            f"model: {model} takes images, and {task} has rows of numbers",
            hint=f"layers/mlp takes one row, layers/extra_mlp several{images}",
        )
    if isinstance(error, ValueError) and "more feature dimensions" in str(error):  # BenchMARL's mlp
        return RefusedKeyError(
            "model",
            f"model: {model} takes one row of numbers for each agent, and {task} has several, or images",
            hint="layers/extra_mlp takes several rows, and layers/cnn images",
        )
    return RefusedKeyError(None, f"{_named(composed)} cannot be built: {_reason(error)}")


def _reason(error: BaseException) -> str:
    kind, line = type(error).__name__, first_line(error)
    if line.endswith(("(", ":")):  # the rest is on the next lines
        line = " ".join(str(error).split())
    text = kind if line == kind else f"{kind}: {line}"
    if line == kind and (frames := traceback.extract_tb(error.__traceback__)):
        # An error without a message, such as an assertion: show its line of code.
        last = frames[-1]
        text += f" in {Path(last.filename).name}:{last.lineno}{last.line and f': {last.line}'}"
    return text if len(text) <= _MESSAGE else f"{text[: _MESSAGE - 1]}…"
