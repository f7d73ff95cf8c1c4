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
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import torch
import torch.distributed as dist

from jobs.trainers.actor_critic.config import ActorCriticConfig
from jobs.trainers.actor_critic.group import ALONE, FOREVER, ConnectedGroup, DisconnectedError, Group
from jobs.trainers.actor_critic.learner import ActorCriticLearner
from jobs.trainers.actor_critic.parallel import LeadingLearner, end_all, follow
from jobs.training.config_errors import RefusedKeyError
from jobs.training.context import RunContext
from jobs.training.process_tree import die_with_parent
from jobs.training.ranks import RankError, Ranks
from jobs.worker.failures import end_of
from jobs.worker.signals import STOP_SIGNALS
from orchestrator.config.trainers import get_trainer
from orchestrator.core.hardware import interface_to, physical_first
from orchestrator.core.types import Reason
from orchestrator.rundir import RunDir

C = TypeVar("C", bound=ActorCriticConfig)
C_contra = TypeVar("C_contra", bound=ActorCriticConfig, contravariant=True)

# In the environment of this module as a program: the run's folder.
_RUN = "ORCHESTRATE_RUN_FOLDER"
# Seconds for the processes to leave once they are told to, and for the cause of a failure to be known.
_LEAVE_S, _CAUSE_TAKES_S = 10.0, 3.0
_POLL_S = 0.02
_LOOPBACK = "127.0.0.1"


class Build(Protocol[C_contra]):
    """Builds the learner of one process from configuration and seed of the run."""

    def __call__(self, config: C_contra, seed: int, group: Group = ALONE, /) -> ActorCriticLearner: ...


@dataclass(frozen=True)
class _Place:
    """Where a process stands: its node's number, and those of actors on each node, with rank 0's address."""

    node: int
    nodes: int
    actors: int
    address: str
    port: int

    @property
    def per_node(self) -> int:
        return self.actors // self.nodes

    def rank(self, local: int) -> int:
        """Return the rank of a node's process."""
        return self.node * self.per_node + local


@contextmanager
def learner_of_all(config: C, context: RunContext, build: Build[C]) -> Iterator[Callable[[], LeadingLearner]]:
    """Start the other processes of a run; yield what builds the learner, in the name of all.

    Raises :class:`RankError` if one of them ends before the run does, or does not answer.
    """
    nodes = context.ranks.size
    if config.actors % nodes:
        raise RefusedKeyError(
            "actors",
            f"actors: found {config.actors}, expected a multiple of the {nodes} nodes",
            hint=f"write actors: {max(1, config.actors // nodes) * nodes}",
        )
    master = context.ranks.variables()
    address, port = master.get("MASTER_ADDR", _LOOPBACK), int(master.get("MASTER_PORT", 0))
    listener = socket.create_server((address, port), backlog=config.actors)
    place = _Place(0, nodes, config.actors, address, listener.getsockname()[1])
    seed, threads = context.run.seed, context.run.threads
    children = _fork_others(place, config, seed, threads, build, listener)
    try:
        context.ranks.start([sys.executable, "-P", "-m", __name__], {_RUN: str(context.run_dir.path)})
        _bind_to_cores(0, threads)
        store = dist.TCPStore(
            address, place.port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )
        with _named_causes(store, children, context, config):
            group = _connect(place, 0, store, config, lambda: _require(context.ranks))
            yield lambda: LeadingLearner(build(config, seed, group), group)
            end_all(group)
            _reap(children, _LEAVE_S)
            context.ranks.wait(_LEAVE_S)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        _reap(children, _LEAVE_S)
        context.ranks.close()


def _require(ranks: Ranks) -> None:
    """Raise if another node is known to be lost."""
    if ranks.failed:
        raise DisconnectedError


def _connect(
    place: _Place,
    rank: int,
    store: dist.Store,
    config: ActorCriticConfig,
    alive: Callable[[], None] = lambda: None,
) -> ConnectedGroup:
    if interface := interface_to(place.address):  # Gloo alone asks for the address of the host's name
        os.environ["GLOO_SOCKET_IFNAME"] = interface
    backend = "gloo"
    if config.device != "cpu":
        gpus, local = torch.cuda.device_count(), rank % place.per_node
        torch.cuda.set_device(local % gpus)
        if place.per_node <= gpus:  # NCCL refuses two processes on one GPU
            backend = "cpu:gloo,cuda:nccl"
    return ConnectedGroup(rank, place.actors, store, config.actor_timeout, backend, alive)


def _fork_others(
    place: _Place, config: C, seed: int, threads: int, build: Build[C], listener: socket.socket | None = None
) -> dict[int, int]:
    """Start the other processes of this node; return their ranks by process number."""
    sys.stdout.flush()
    sys.stderr.flush()
    children: dict[int, int] = {}
    parent = os.getpid()
    for local in range(1, place.per_node):
        pid = os.fork()
        if pid:
            children[pid] = place.rank(local)
            continue
        code = 1
        try:
            for number in STOP_SIGNALS:  # rank 0 decides
                signal.signal(number, signal.SIG_IGN)
            die_with_parent(parent)
            if listener is not None:
                listener.close()
            code = _follow(place, local, config, seed, threads, build)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return children


def _follow(
    place: _Place,
    local: int,
    config: C,
    seed: int,
    threads: int,
    build: Build[C],
    children: Mapping[int, int] | None = None,
) -> int:
    """Be a process that follows rank 0; return its exit code. ``children``: others that it started."""
    rank = place.rank(local)
    _bind_to_cores(local, threads)
    store = dist.TCPStore(place.address, place.port, wait_for_workers=False, timeout=FOREVER)
    try:
        group = _connect(place, rank, store, config)
        follow(build(config, seed, group), group)
    except DisconnectedError:
        deadline = time.monotonic() + _CAUSE_TAKES_S
        while children and time.monotonic() < deadline:
            _report_killed(store, children)
            time.sleep(_POLL_S)
        return 1
    except Exception as error:
        traceback.print_exc()
        _report(store, rank, end_of(error).message, end_of(error).reason or Reason.CODE_ERROR)
        return 1
    return 0


def _bind_to_cores(local: int, threads: int) -> None:
    """Keep this process on cores of its own, if there are enough for all; its results do not depend on it."""
    cores = physical_first(os.sched_getaffinity(0))
    if own := cores[local * threads : (local + 1) * threads]:
        os.sched_setaffinity(0, own)


@contextmanager
def _named_causes(
    store: dist.Store, children: Mapping[int, int], context: RunContext, config: ActorCriticConfig
) -> Iterator[None]:
    """Turn the loss of a connection into the error that says which process caused it."""
    try:
        yield
    except DisconnectedError as error:
        deadline = time.monotonic() + _CAUSE_TAKES_S
        while time.monotonic() < deadline:
            _report_killed(store, children)
            if cause := _reported(store, config.actors) or context.ranks.error(patience_s=0):
                raise _judged(cause, context) from None
            time.sleep(_POLL_S)
        raise RankError(_silent(error.behind, config), Reason.KILLED) from None


def _silent(behind: Sequence[int], config: ActorCriticConfig) -> str:
    which = ", ".join(map(str, behind)) or "one"
    return (
        f"actor {which} of {config.actors} did not answer within {config.actor_timeout:g} s: "
        "it hangs, or is stopped"
    )


def _judged(cause: RankError, context: RunContext) -> RankError:
    if cause.reason is Reason.KILLED and context.memory.await_verdict():
        return RankError(f"{cause}, for want of memory", Reason.OUT_OF_MEMORY)
    return cause


def _report(store: dist.Store, rank: int, message: str, reason: Reason) -> None:
    store.set(f"error/{rank}", json.dumps([message, reason.value]))


def _report_killed(store: dist.Store, children: Mapping[int, int]) -> None:
    """Report those children that a signal ended."""
    for pid, rank in children.items():
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None and ended.si_code != os.CLD_EXITED:
            name = signal.Signals(ended.si_status).name
            _report(store, rank, f"killed by {name}", Reason.KILLED)


def _reported(store: dist.Store, actors: int) -> RankError | None:
    """Return the first error that a process has reported: one that was killed makes others fail."""
    found = [
        (rank, *json.loads(store.get(key))) for rank in range(actors) if store.check([key := f"error/{rank}"])
    ]
    found.sort(key=lambda one: one[2] != Reason.KILLED.value)
    return next((RankError(f"actor {rank}: {what}", Reason(reason)) for rank, what, reason in found), None)


def _reap(children: dict[int, int], patience: float) -> None:
    """Wait until children have ended, at most so many seconds; forget those that have."""
    deadline = time.monotonic() + patience
    while children and time.monotonic() < deadline:
        for pid in list(children):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del children[pid]
        time.sleep(_POLL_S)


def main() -> int:
    """Be the processes of a run on another node than its first; return the exit code."""
    run = RunDir(Path(os.environ[_RUN])).description()
    trainer = pkgutil.resolve_name(get_trainer(run.trainer).train.rpartition(".")[0])
    torch.set_num_threads(run.threads)
    config = trainer.config.compose(run.overrides)
    node, nodes = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    place = _Place(node, nodes, config.actors, address, port)
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    children = _fork_others(place, config, run.seed, run.threads, trainer.learner)
    code = _follow(place, 0, config, run.seed, run.threads, trainer.learner, children)
    _reap(children, _LEAVE_S)
    return code


if __name__ == "__main__":
    sys.exit(main())
