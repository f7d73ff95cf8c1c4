"""What the program knows of a trainer, without imports of the trainer's code."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, Self

from orchestrator.config.command_line.command import COMMAND_KEY
from orchestrator.config.command_line.placeholders import keys_asked_for
from orchestrator.config.returns import EPISODE_RETURN, EVALUATION_RETURN, EVALUATIONS
from orchestrator.config.task_packages import TaskPackages, fitting, registering_module, task_of
from orchestrator.config.trainers.identity import run_identity
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import PluginSource, Resources, Run, Value

PRESET_KEY = "preset"
# The least and the largest value of keys that every trainer has; NumPy accepts no larger seed.
LIMITS: Mapping[str, tuple[int, int]] = {"seed": (0, 2**32 - 1), "threads": (1, 1024)}
# Minutes beyond any training.
_FOREVER = 1e9


@dataclass(frozen=True)
class SilenceLimit:
    """The most ``seconds`` without a sign of life; ``who``: the run's own process, in messages."""

    who: str
    seconds: float


def core_per_thread(run: Run) -> Resources:
    """Return the resources of a run in one process."""
    return Resources(cpus_per_task=run.threads)


@dataclass(frozen=True)
class TrainerSpec:
    """A trainer's specification. What few trainers have is overridden in a subclass.

    - ``train``, ``check`` and ``evaluate``: "module:function" on the worker's side; ``evaluate`` is empty if
      policies cannot be evaluated.
    - ``first_look``: as ``check``, but of names, keys and single values, without PyTorch. Optional.
    - ``preload``: modules that a worker imports before it forks.
    - ``packages``: distributions that decide a result by their versions.
    - ``task_packages``: patterns of tasks, and what these tasks need beside ``packages``: ``install`` on
      rented machines, ``decide`` in results, ``libraries`` of the system.
    - ``source``: modules, and packages with their YAML files, that decide a result and that ``train`` does
      not import.
    - ``returns``: the metrics that are the return, best first. Names that begin with eval/ are evaluations.
    - ``frames`` and ``minutes``: keys for a run's frames, of which the first present one decides, and the
      key for its training time.
    - ``devices``: keys that request a GPU when their value begins with cuda or gpu.
    - ``owned``: keys that a grid may not set, with the reason. ``inert``: keys that are no part of a run's
      id. Both are shell-style patterns.
    - ``resources``: returns what a run occupies; by default one core for each thread. A grid's ``resources``
      take precedence.
    - ``presets``: the keys that the key ``preset`` stands for, by its value.
    - ``silence``: returns the ``SilenceLimit`` after which an attempt is ended: its seconds without metrics,
      checkpoints and processor time; ``None`` for no limit.
    - ``x_axis``: the x axis of W&B and TensorBoard, "frames" or "iteration".
    - ``plugins``: the plug-ins of one sweep.

    Attributes of a subclass:

    - ``runs_program``: whether the trainer starts a user's program, as ``command`` does.
    - ``several_nodes``: whether a run can be trained on several nodes.
    - ``takes_plugins`` and ``tasks``: "module:function" that registers a plug-in, and that returns the names
      of all tasks, for patterns such as vmas/*.
    - ``iterations``: keys for a number of iterations, of unknown length.
    - ``fixed_by_start``: keys, as shell-style patterns, that a run has from the one that it forks from.
    """

    name: str
    train: str
    check: str
    preload: tuple[str, ...] = ()
    owned: Mapping[str, str] = field(default_factory=dict, hash=False)
    inert: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    task_packages: Mapping[str, TaskPackages] = field(default_factory=dict, hash=False)
    source: tuple[str, ...] = ()
    returns: tuple[str, ...] = (f"{EVALUATIONS}return", EVALUATION_RETURN, "return")
    devices: tuple[str, ...] = ()
    plugins: tuple[PluginSource, ...] = ()
    frames: tuple[str, ...] = ()
    minutes: str = ""
    evaluate: str = ""
    first_look: str = ""
    resources: Callable[[Run], Resources] = core_per_thread
    presets: Mapping[str, Mapping[str, Value]] = field(default_factory=dict, hash=False)
    silence: Callable[[Run], SilenceLimit | None] = lambda _run: None
    x_axis: str = "frames"

    runs_program: ClassVar[bool] = False
    several_nodes: ClassVar[bool] = False
    takes_plugins: ClassVar[str] = ""
    tasks: ClassVar[str] = ""
    iterations: ClassVar[tuple[str, ...]] = ()
    fixed_by_start: ClassVar[tuple[str, ...]] = ()

    @property
    def length_keys(self) -> tuple[str, ...]:
        """Keys that say when a run ends. Runs that differ in one of them alone can begin alike."""
        return (*self.frames, *self.iterations)

    def bound_to_length(self, run: Run) -> str:  # noqa: ARG002
        """Return why the run cannot go on as a longer one, which begins in another way; empty if it can."""
        return ""

    def refuses_fork(self, before: Mapping[str, Value], after: Mapping[str, Value]) -> str:
        """Return why a run of the point ``before`` cannot go on as ``after``; empty if nothing is known."""
        for key in sorted(before.keys() | after.keys()):
            if _fits(key.lstrip("+~"), self.fixed_by_start) and before.get(key) != after.get(key):
                was, now = (one.get(key, "its default") for one in (before, after))
                return f"found {key}: {was} before the fork and {now} after it, where it has to stay"
        return ""

    def usual_frames(self, run: Run) -> int | None:  # noqa: ARG002
        """Return the number of frames of a run without a key for it; None if it is unknown."""
        return None

    def refuses_nodes(self, run: Run, nodes: int) -> str:  # noqa: ARG002
        """Return why a trainer for several nodes cannot train the run on so many; empty if it can."""
        return ""

    def resources_of_node(self, run: Run, nodes: int) -> Resources:  # noqa: ARG002
        """Return what the run occupies on each of so many nodes."""
        return self.resources(run)

    def with_preset(self, name: str, own: Mapping[str, Value]) -> Mapping[str, Value]:
        """Return the keys of a preset and a point's ``own`` ones, which come first."""
        return {**self.presets[name], **own}

    def hint_of_preset(self, name: str) -> str:  # noqa: ARG002
        """Return what to write in place of an unknown preset."""
        return "or leave it out, and write its keys"

    @property
    def keys(self) -> Mapping[str, str]:
        """The meanings of the trainer's own keys in Markdown, for the reference."""
        return {}

    @classmethod
    def of_learner(cls, name: str, trainer: str, **others: Any) -> Self:
        """Describe a trainer that is a ``LearnerTrainer`` (``jobs.trainers``) at "module:object"."""
        return cls(
            name=name,
            **{
                "train": f"{trainer}.train",
                "check": f"{trainer}.check",
                "evaluate": f"{trainer}.evaluate",
                # An optimizer of PyTorch loads the second: almost two seconds, and 75 MB in every run.
                "preload": (trainer.partition(":")[0], "torch._dynamo"),
                "returns": (EVALUATION_RETURN, EPISODE_RETURN),
                **others,
            },
        )

    def resources_of(self, run: Run, nodes: int = 1) -> Resources:
        """Return what a run occupies on each of its nodes: at least one core for each of its threads.

        Raises :class:`OrchestrateError` if the trainer cannot say it of this run, or not train it on several.
        """
        try:
            if nodes > 1 and (why := self.refuses_nodes(run, nodes)):
                raise OrchestrateError(f"resources.nodes: found {nodes}, and {why}", hint="or remove nodes")
            occupied = self.resources_of_node(run, nodes)
            return replace(occupied, cpus_per_task=max(occupied.cpus_per_task, run.threads))
        except OrchestrateError:
            raise
        except Exception as error:  # the code of any package
            what = f"trainer {self.name} cannot say what the run {run.point} occupies"
            raise OrchestrateError(f"{what}: {type(error).__name__}: {error}") from error

    def packages_of(self, run: Run) -> tuple[str, ...]:
        """Return the distributions that decide the run's result by their versions, if they are installed."""
        of_task = [package for needs in fitting(run, self.task_packages) for package in needs.decide]
        module = registering_module(task_of(run)) if self.task_packages else ""
        return tuple(dict.fromkeys([*self.packages, *of_task, *([module] if module else [])]))

    def needs_of_tasks(self, runs: Iterable[Run]) -> tuple[TaskPackages, ...]:
        """Return what the tasks of these runs need beside the trainer's own packages, each once."""
        return tuple(dict.fromkeys(needs for run in runs for needs in fitting(run, self.task_packages)))

    def with_plugins(self, plugins: Iterable[PluginSource]) -> Self:
        """Return the same trainer with these plug-ins; their code counts as its own."""
        return replace(self, plugins=tuple(plugins))

    def owned_because(self, key: str) -> str | None:
        """Return why a grid may not set ``key``; None if it may."""
        for pattern, why in self.owned.items():
            if fnmatch.fnmatchcase(key.lstrip("+~"), pattern):
                return why
        return None

    def decides(self, key: str) -> bool:
        """Return whether ``key`` can change a result."""
        return not _fits(key.lstrip("+~"), self.inert)

    def identify(
        self,
        overrides: Mapping[str, Value],
        seed: int,
        threads: int,
        target: str | None = None,
        **origin: str,
    ) -> Run:
        """Make the run of this point, with its id; ``origin`` as of :func:`run_identity`.

        Raises :class:`OrchestrateError` for an unknown preset.
        """
        ordered = dict(sorted(self._without_preset(overrides).items()))
        deciding = {key: value for key, value in ordered.items() if self.decides(key)}
        run_id = run_identity(self.name, deciding, seed, threads, target, **origin)
        return Run(run_id, self.name, ordered, seed, threads, target, origin="".join(origin.values()))

    def frames_of(self, run: Run) -> int | None:
        """Return the run's number of frames; None if its overrides do not fix it."""
        for key in self.frames:
            if key in run.overrides:
                asked = run.overrides[key]
                return int(asked) if isinstance(asked, int | float) and 1 <= asked < math.inf else None
        if any(run.overrides.get(key) is not None for key in self.iterations) or self.minutes_of(run):
            return None
        return self.usual_frames(run)

    def impossible_lengths(self, run: Run) -> dict[str, str]:
        """Return error messages for impossible numbers of frames, by key."""
        return {
            key: f"{key}: found {value}, expected a number from 1"
            for key in self.frames
            if isinstance(value := run.overrides.get(key), int | float)
            and not isinstance(value, bool)
            and not 1 <= value < math.inf
        }

    def minutes_key(self, run: Run) -> str:
        """Return the key for the run's training time; empty without one.

        A key that a program takes as an argument, as in ``--minutes={minutes}``, is the program's own.
        """
        own = self.runs_program and self.minutes in keys_asked_for(run.overrides.get(COMMAND_KEY))
        return "" if own else self.minutes

    def minutes_of(self, run: Run) -> float | None:
        """Return the run's training time in minutes; None without one."""
        asked = run.overrides.get(self.minutes_key(run))
        return float(asked) if isinstance(asked, int | float) and 0 < asked < _FOREVER else None

    def keys_of(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Return the keys of a grid as its runs have them: those of all presets in the place of `preset`."""
        stood_for = tuple(dict.fromkeys(key for preset in self.presets.values() for key in preset))
        parted = ((stood_for if key == PRESET_KEY and stood_for else (key,)) for key in keys)
        return tuple(dict.fromkeys(key for part in parted for key in part))

    def _without_preset(self, point: Mapping[str, Value]) -> Mapping[str, Value]:
        """Return a point with the keys that its `preset` stands for; its own values of them remain."""
        if not self.presets or PRESET_KEY not in point:
            return point
        name = point[PRESET_KEY]
        if name not in self.presets:
            raise OrchestrateError(
                f"{PRESET_KEY}: found {name!r}, expected one of {', '.join(self.presets)}",
                hint=self.hint_of_preset(str(name)),
            )
        return self.with_preset(str(name), {key: value for key, value in point.items() if key != PRESET_KEY})

    def needs_gpu(self, run: Run) -> bool:
        """Return whether the run requests a GPU, by a device or by a choice such as ``experiment: gpu``."""
        return any(
            key.lstrip("+~") in self.devices and str(value).startswith(("cuda", "gpu"))
            for key, value in run.overrides.items()
        )


@cache
def _fits(key: str, patterns: tuple[str, ...]) -> bool:
    """Return whether the key fits a pattern; every point of a grid has the same keys."""
    return any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)
