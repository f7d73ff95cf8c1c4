"""The processes of a run in mode parallel: start them, connect them, find out which one failed, end them.

Processes on the run's own node are forked; on another node one program, this module, forks the others there.
"""

from __future__ import annotations

import json
import os
import pkgutil
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
import torch.distributed as dist

from jobs.trainers.actor_critic.config import ActorCriticConfig
from jobs.trainers.actor_critic.group import (
    ALONE,
    FOREVER,
    ConnectedGroup,
    DisconnectedError,
    Group,
    Member,
    seed_of_attempt,
)
from jobs.trainers.actor_critic.learner import ActorCriticLearner
from jobs.trainers.actor_critic.processes.actors import Exchange, RolloutsOfActors, play_for_learners
from jobs.trainers.actor_critic.processes.children import LOST_THE_OTHERS, Children, bind_to_cores
from jobs.trainers.actor_critic.processes.parallel import LeadingLearner, end_all, follow
from jobs.training.context import BadConfigError, RunContext
from jobs.training.plugins import load_plugins
from jobs.training.processes.ranks import RankError, Ranks
from jobs.worker.failures import end_of
from jobs.worker.signals import STOP_SIGNALS
from orchestrator.config.trainers import get_trainer
from orchestrator.core.machine.hardware import interface_to
from orchestrator.core.types import PluginSource, Reason
from orchestrator.rundir import RunDir

C = TypeVar("C", bound=ActorCriticConfig)
C_contra = TypeVar("C_contra", bound=ActorCriticConfig, contravariant=True)

# In the environment of this module as a program: the run's folder, the attempt, the plug-ins of its sweep.
_RUN, _ATTEMPT, _PLUGINS = "ORCHESTRATE_RUN_FOLDER", "ORCHESTRATE_RUN_ATTEMPT", "ORCHESTRATE_PLUGINS"
# Seconds for the processes to leave once they are told to, and for the cause of a failure to be known.
LEAVE_S, _CAUSE_TAKES_S = 10.0, 3.0
_POLL_S, _LOOK_S = 0.02, 0.5
_LOOPBACK = "127.0.0.1"


class Build(Protocol[C_contra]):
    """Builds the learner of one process from configuration and seed of the run.

    ``games``: in place of environments of its own.
    """

    def __call__(
        self, config: C_contra, seed: int, group: Group = ALONE, games: Any = None, /
    ) -> ActorCriticLearner: ...


@dataclass(frozen=True)
class _Place:
    """Where a process stands: its node's number, and those that learn on each node, with rank 0's address."""

    node: int
    nodes: int
    processes: int
    address: str
    port: int

    @property
    def per_node(self) -> int:
        return self.processes // self.nodes

    def rank(self, local: int) -> int:
        """Return the rank of a node's process."""
        return self.node * self.per_node + local


@dataclass(frozen=True)
class _Team(Generic[C]):
    """The processes of a run on one node. ``exchange``: with those that only play, if there are any."""

    place: _Place
    config: C
    seed: int
    attempt: int
    threads: int
    build: Build[C]
    exchange: Exchange | None = None

    @property
    def kind(self) -> str:
        """The kind of processes that learn, in messages."""
        return "actor" if self.exchange is None else "learner"

    def start(self, children: Children, listener: socket.socket | None = None) -> None:
        """Fork all processes but this one."""

        works = [
            (f"{self.kind} {self.place.rank(local)}", partial(self.follow, local))
            for local in range(1, self.place.per_node)
        ]
        if self.exchange is not None:
            works += [(f"actor {one}", partial(self.play, one)) for one in self.exchange.actors]
        for name, work in works:
            children.fork(name, work, listener)

    def bind(self, number: int) -> None:
        """Keep this process on cores of its own; ``number``: of those on its node, actors that play last."""
        players = len(self.exchange.actors) if self.exchange is not None else 0
        if self.place.node and len(os.sched_getaffinity(0)) > (self.place.per_node + players) * self.threads:
            return  # which of them other jobs have is known on the first node alone
        bind_to_cores(number * self.threads, self.threads)

    def learner(self, group: Group) -> ActorCriticLearner:
        """Build the learner of this process."""
        if self.exchange is None:
            return self.build(self.config, self.seed, group)
        games = RolloutsOfActors(self.config, self.seed, group, self.exchange)
        return self.build(self.config, self.seed, group, games)

    def connect(
        self, rank: int, store: dist.Store, alive: Callable[[], None] = lambda: None
    ) -> ConnectedGroup:
        """Connect this process with the others that learn."""
        interface = interface_to(self.place.address)
        if interface is not None:  # Gloo by itself asks for the address of the host's name
            os.environ["GLOO_SOCKET_IFNAME"] = interface
        gpu = ""
        if self.config.device != "cpu":
            number = gpu_of(self.config.device, rank % self.place.per_node, torch.cuda.device_count())
            torch.cuda.set_device(number)
            gpu = f"{self.place.node}/{number}"
        own = Member(rank, self.place.processes, gpu, self.kind)
        return ConnectedGroup(own, store, self.config.actor_timeout, alive)

    def store(self) -> dist.TCPStore:
        """Return a connection to rank 0's store."""
        return dist.TCPStore(self.place.address, self.place.port, wait_for_workers=False, timeout=FOREVER)

    def play(self, actor: int) -> int:
        """Be an actor that only plays, until it is killed or fails."""
        assert self.exchange is not None
        self.bind(self.place.per_node + actor - self.exchange.actors.start)
        with self.exchange.connections.of_actor(actor) as connection:
            seed = seed_of_attempt(self.seed, self.attempt)
            play_for_learners(self.config, seed, self.exchange, actor, connection)
        return 1

    def follow(self, local: int, children: Children | None = None) -> int:
        """Be a process that follows rank 0; return its exit code. ``children``: others that it started."""
        if self.exchange is not None:
            connections = self.exchange.connections
            connections.lead() if children else connections.close()
        self.bind(local)
        name = f"{self.kind} {self.place.rank(local)}"
        store = self.store()
        if children:
            threading.Thread(target=_report_killed, args=(children, self.store()), daemon=True).start()
        try:
            group = self.connect(self.place.rank(local), store)
            follow(self.learner(group), group)
        except DisconnectedError as error:
            if children and error.behind:
                _report(store, name, _silent(error, children, self.config), Reason.KILLED)
            time.sleep(_CAUSE_TAKES_S if children else 0.0)  # for a child that was killed to be reported
            return LOST_THE_OTHERS
        except RankError as error:  # of an actor, which has said the rest
            _report(store, name, str(error), error.reason)
            return 1
        except Exception as error:
            traceback.print_exc()
            end = end_of(error)
            _report(store, name, f"{name}: {end.message}", end.reason or Reason.CODE_ERROR)
            return 1
        return 0


def gpu_of(device: str, local: int, gpus: int) -> int:
    """Return the number of the GPU for a node's process: the one in ``device``, or one after the other.

    ``gpus``: how many the node has. Raises :class:`BadConfigError`.
    """
    asked = torch.device(device).index
    if gpus <= (asked or 0):
        has = f"GPUs cuda:0 to cuda:{gpus - 1}" if gpus > 1 else "one GPU, cuda:0" if gpus else "no GPU"
        raise BadConfigError(f"device: found {device}, and the node {socket.gethostname()} has {has}")
    return local % gpus if asked is None else asked


@contextmanager
def learner_of_all(config: C, context: RunContext, build: Build[C]) -> Iterator[Callable[[], LeadingLearner]]:
    """Start the other processes of a run; yield what builds the learner, in the name of all.

    Raises :class:`RankError` if one of them ends before the run does, or does not answer.
    """
    nodes, processes = context.ranks.size, config.learning
    master = context.ranks.variables()
    address, port = master.get("MASTER_ADDR", _LOOPBACK), int(master.get("MASTER_PORT", 0))
    listener = socket.create_server((address, port), backlog=processes)
    place = _Place(0, nodes, processes, address, listener.getsockname()[1])
    exchange = Exchange(config, config.players, 0, nodes) if config.players else None
    run, attempt = context.run, context.attempt.number
    team = _Team(place, config, run.seed, attempt, run.threads, build, exchange)
    children = Children()
    try:
        team.start(children, listener)
        if exchange is not None:
            exchange.connections.lead()
        plugins = json.dumps([asdict(one) for one in context.plugins])
        variables = {_RUN: str(context.run_dir.path), _ATTEMPT: str(attempt), _PLUGINS: plugins}
        context.ranks.start([sys.executable, "-P", "-m", __name__], variables)
        team.bind(0)
        store = dist.TCPStore(
            address, place.port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )
        names = [f"{team.kind} {rank}" for rank in range(processes)]
        if config.players is not None:
            names += [f"actor {actor}" for actor in range(config.players.number)]
        with named_causes(children, context, config, lambda: _reported(store, names)):
            group = team.connect(
                0, store, lambda: _require_all(children, context.ranks, _reported(store, names))
            )
            yield lambda: LeadingLearner(team.learner(group), group)
            end_all(group)
            if exchange is None:
                children.reap(LEAVE_S)
            context.ranks.wait(LEAVE_S)
    finally:
        children.end(LEAVE_S)
        context.ranks.close()
        if dist.is_initialized():  # it waits for collectives until the others are gone
            dist.destroy_process_group()
        if exchange is not None:
            exchange.close()


def _require_all(children: Children, ranks: Ranks, reported: RankError | None) -> None:
    """Raise if a process is known to be lost."""
    if ranks.failed or children.ended() or reported is not None:
        raise DisconnectedError


@contextmanager
def named_causes(
    children: Children,
    context: RunContext,
    config: ActorCriticConfig,
    reported: Callable[[], RankError | None] = lambda: None,
) -> Iterator[None]:
    """Turn the loss of a connection into the error that says which process caused it."""
    try:
        yield
    except DisconnectedError as error:
        deadline = time.monotonic() + _CAUSE_TAKES_S
        while time.monotonic() < deadline:
            if cause := _killed(children) or reported() or context.ranks.cause:
                raise _judged(cause, context) from None
            time.sleep(_POLL_S)
        found = _failed(children) or context.ranks.error()
        raise found or RankError(_silent(error, children, config), Reason.KILLED) from None


def _killed(children: Children) -> RankError | None:
    found = (RankError(f"{name}: {how}", Reason.KILLED) for name, how in children.killed().items())
    return next(found, None)


def _failed(children: Children) -> RankError | None:
    """Return the error of a child that left by itself, without a word."""
    found = (
        RankError(f"{name} left with exit code {code}", Reason.CODE_ERROR)
        for name, code in children.ended().items()
        if code not in (0, LOST_THE_OTHERS)
    )
    return next(found, None)


def _silent(error: DisconnectedError, children: Children, config: ActorCriticConfig) -> str:
    # Those that wait for one that is stopped are behind as well.
    names = children.stopped() or [f"{error.kind} {number}" for number in error.behind or ("one",)]
    kind = names[0].partition(" ")[0]
    which = ", ".join(name.partition(" ")[2] for name in names)
    number = config.learning if kind == "learner" else config.actors
    return (
        f"{kind} {which} of {number} did not answer within {config.actor_timeout:g} s: "
        "it hangs, or is stopped"
    )


def _judged(cause: RankError, context: RunContext) -> RankError:
    if cause.reason is not Reason.KILLED:
        return cause
    if context.memory.await_verdict():
        return RankError(f"{cause}, for want of memory", Reason.OUT_OF_MEMORY)
    other = context.ranks.error()  # an agent learns a moment later why the kernel killed a process there
    return other if other is not None and other.reason is Reason.OUT_OF_MEMORY else cause


def _report(store: dist.Store, name: str, message: str, reason: Reason) -> None:
    store.set(f"error/{name}", json.dumps([message, reason.value]))


def _report_killed(children: Children, store: dist.Store) -> None:
    """Report children that are killed, as long as this process lives."""
    while True:
        for name, message in children.killed().items():
            _report(store, name, f"{name}: {message}", Reason.KILLED)
        time.sleep(_LOOK_S)


def _reported(store: dist.Store, names: list[str]) -> RankError | None:
    """Return the first error that a process has reported: one that was killed makes others fail."""
    found = [json.loads(store.get(key)) for name in names if store.check([key := f"error/{name}"])]
    found.sort(key=lambda one: one[1] != Reason.KILLED.value)
    return next((RankError(message, Reason(reason)) for message, reason in found), None)


def main() -> int:
    """Be the processes of a run on another node than its first; return the exit code."""
    run = RunDir(Path(os.environ[_RUN])).description()
    plugins = [PluginSource(**one) for one in json.loads(os.environ[_PLUGINS])]
    spec = get_trainer(run.trainer).with_plugins(plugins)
    load_plugins(spec)
    trainer = pkgutil.resolve_name(spec.train.rpartition(".")[0])
    torch.set_num_threads(run.threads)
    config = trainer.config.compose(run.overrides)
    node, nodes = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    place = _Place(node, nodes, config.learning, address, port)
    exchange = Exchange(config, config.players, node, nodes) if config.players else None
    attempt = int(os.environ[_ATTEMPT])
    team = _Team(place, config, run.seed, attempt, run.threads, trainer.learner, exchange)
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    children = Children()
    team.start(children)
    code = team.follow(0, children)
    if exchange is None:
        children.reap(LEAVE_S)
    return code  # actors that play end with this process


if __name__ == "__main__":
    sys.exit(main())
