"""Episodes of a network: their returns, and what is played without learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from jobs.trainers.actor_critic.environments.interface import Environments, Step
from jobs.trainers.actor_critic.networks import ActorCritic
from jobs.training.games.bucket_brigade.baselines import TEAM_REWARD
from jobs.training.records.video import Film

# How many episodes of an evaluation had not ended when they were cut.
CUT_EPISODES = "cut_episodes"


@dataclass(frozen=True)
class Episodes:
    """Episodes that ended: ``returns`` (E) are means over learners, ``lengths`` (E) are steps.

    ``figures``: further ones, by name.
    """

    returns: Tensor
    lengths: Tensor
    figures: Mapping[str, float]


def pooled(many: Sequence[Episodes]) -> Episodes:
    """Return the episodes of several, with figures per step of all."""
    if len(many) == 1:
        return many[0]
    steps = [float(one.lengths.sum()) for one in many]
    figures = {
        name: sum(one.figures.get(name, 0.0) * share for one, share in zip(many, steps, strict=True))
        / sum(share for one, share in zip(many, steps, strict=True) if name in one.figures)
        for name in dict.fromkeys(name for one in many for name in one.figures)
    }
    returns, lengths = ([getattr(one, name) for one in many] for name in ("returns", "lengths"))
    return Episodes(torch.cat(returns), torch.cat(lengths), figures)


class EpisodeSums:
    """Sums over the episodes that go on, and those that ended since the last :meth:`take`."""

    def __init__(self, environments: Environments, device: str) -> None:
        self._learners = environments.learners
        # A row each for returns, lengths and rewards of the team.
        self._open = torch.zeros(3, environments.envs, device=device)
        self._ended: list[tuple[Tensor, Tensor]] = []
        self._has_team = False

    def add(self, step: Step) -> None:
        """Add a step. Copies nothing to the host."""
        self._has_team = step.team is not None
        self._open = self._open + _numbers(step, self._learners)
        over = _ended(step, self._learners)
        self._ended.append((over, self._open))
        self._open = torch.where(over, 0.0, self._open)

    def take(self) -> Episodes:
        """Return the episodes that ended since the last call."""
        over, sums = (torch.cat(parts, -1) for parts in zip(*self._ended, strict=True))
        self._ended.clear()
        returns, lengths, team = sums[:, over].cpu()
        figures = {TEAM_REWARD: float(team.sum() / lengths.sum())} if self._has_team and len(team) else {}
        return Episodes(returns, lengths, figures)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the sums over the episodes that go on."""
        return {"open": self._open}

    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """Restore :meth:`state_dict`."""
        self._open = saved["open"].to(self._open.device, copy=True)


def play(
    environments: Environments,
    network: ActorCritic,
    generator: torch.Generator | None,
    longest: int,
    film: Film | None = None,
) -> Episodes:
    """Play an episode in each environment, with the most likely actions if there is no generator.

    Cut episodes after ``longest`` steps. Film the first environment's.
    """
    if film is not None:
        environments.film(film.add)
    seen = environments.reset()
    over = torch.zeros(environments.envs, dtype=torch.bool, device=seen.device)
    sums, measured = torch.zeros(3, environments.envs, device=seen.device), torch.zeros(())
    for _ in range(longest):
        step = environments.step(network.act(seen, generator)[0])
        sums += torch.where(over, 0.0, _numbers(step, environments.learners))
        measured = (
            measured + torch.where(over, 0.0, environments.measures()).sum(1, dtype=torch.float64).cpu()
        )
        over |= _ended(step, environments.learners)
        if over.all():
            break
        seen = step.seen
    returns, lengths, _ = sums.cpu()
    figures = environments.figures(measured, float(lengths.sum()))
    if cut := int((~over).sum()):
        figures = {**figures, CUT_EPISODES: float(cut)}
    return Episodes(returns, lengths, figures)


def _numbers(step: Step, learners: int) -> Tensor:
    """Return a row each for returns, lengths and rewards of the team of a step (3, environments)."""
    rewards = step.rewards.unflatten(0, (-1, learners)).mean(1)
    team = torch.zeros_like(rewards) if step.team is None else step.team
    return torch.stack((rewards, torch.ones_like(rewards), team))


def _ended(step: Step, learners: int) -> Tensor:
    """Whether each environment's episode ended (environments)."""
    return (step.terminated | step.truncated)[::learners]
