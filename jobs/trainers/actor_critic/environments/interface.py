"""Environments as actor-critic trainers step them: many at once, with new episodes by themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from jobs.training.records.video import Frame
from orchestrator.core.errors import OrchestrateError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Step:
    """A step of R rows. ``seen`` (R, *S): for the next action; ``last()`` (R, *S): before an episode began.

    ``rewards``, ``terminated``, ``truncated``: (R). ``team`` (environments): the rewards of all players.
    """

    seen: Tensor
    last: Callable[[], Tensor]
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    team: Tensor | None = None


class Environments(Protocol):
    """``envs`` environments with a row for each of their ``learners``.

    ``shape`` S of an observation: its numbers (W,), or a picture of bytes (height, width, channels).
    ``parts``: choices in each part of an action. ``exactness``: of a training that goes on from their state,
    as in :class:`jobs.training.context.Outcome`.
    """

    @property
    def exactness(self) -> str: ...

    @property
    def envs(self) -> int: ...

    @property
    def learners(self) -> int: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def parts(self) -> tuple[int, ...]: ...

    def film(self, show: Callable[[Frame], None]) -> None:
        """Show the first environment's first episode, which the next reset begins: its start and each step.

        Raises :class:`OrchestrateError` if the environment has no picture.
        """
        ...

    def reset(self) -> Tensor:
        """Begin new episodes; return what is seen (R, *S)."""
        ...

    def step(self, actions: Tensor) -> Step:
        """Play a step with actions (R, parts)."""
        ...

    def measures(self) -> Tensor:
        """Return numbers of the last step (M, environments), to sum over steps for :meth:`figures`."""
        ...

    def figures(self, sums: Tensor, steps: float) -> dict[str, float]:
        """Return finite figures by name, from the sums (M) of :meth:`measures` over so many steps."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all that environments built alike need to continue, bit for bit."""
        ...

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue from ``saved``. What cannot is no longer exact, and begins new episodes next."""
        ...

    def close(self) -> None:
        """Free what they hold beside memory, such as windows and processes. They are not used again."""
        ...


def without_picture(name: str) -> OrchestrateError:
    """Return the error for an environment that cannot be filmed."""
    return OrchestrateError(f"{name} has no picture", hint="leave out --render")
