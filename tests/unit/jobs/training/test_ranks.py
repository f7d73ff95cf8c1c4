"""What rank 0 makes of the others' ends, and of their silence."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from jobs.training.processes import ranks as module
from jobs.training.processes.connection import Connection
from jobs.training.processes.ranks import Ranks
from orchestrator.core.types import Reason
from tests.helpers import wait_for
from tests.unit.jobs.training.test_log_reason import summary

CRASHED, DONE = {"code": 1, "out_of_memory": False}, {"code": 0, "out_of_memory": False}
KILLED, STARVED = {"code": -9, "out_of_memory": False}, {"code": -9, "out_of_memory": True}
# torchrun as the program there, one of whose own processes was killed.
TORCHRUN = {"code": 1, "out_of_memory": False, "by": "torchrun"}
BANNER = summary(root=-9).splitlines()


@pytest.fixture
def agents() -> Iterator[list[Connection]]:
    """The agents' ends of two connections."""
    ends: list[Connection] = []
    yield ends
    for end in ends:
        end.close()


@pytest.fixture
def ranks(agents: list[Connection], monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    monkeypatch.setattr(module, "BEAT_S", 0.01)
    members = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        for host in ("node2", "node3"):
            agents.append(Connection(socket.create_connection(server.getsockname())))
            members.append((host, Connection(server.accept()[0])))
    ranks = Ranks(members)
    ranks.start(["program"], {})
    yield ranks
    ranks.close()


@pytest.mark.parametrize(
    ("first", "second", "message", "reason"),
    [
        (DONE, DONE, None, None),
        (DONE, CRASHED, "rank 2 on node3 left with exit code 1: last words", Reason.CODE_ERROR),
        (CRASHED, KILLED, "rank 2 on node3 was killed by SIGKILL", Reason.KILLED),
        (CRASHED, STARVED, "rank 2 on node3 was killed for want of memory", Reason.OUT_OF_MEMORY),
        (CRASHED, TORCHRUN, "rank 2 on node3: rank 1 was killed by SIGKILL", Reason.KILLED),
        (CRASHED, None, "rank 2 on node3 was lost: no connection to its node", Reason.KILLED),
    ],
)
def test_the_cause_is_who_was_killed_or_lost(
    ranks: Ranks,
    agents: list[Connection],
    first: dict[str, object],
    second: dict[str, object] | None,
    message: str | None,
    reason: Reason | None,
) -> None:
    agents[0].send(first)
    if second is None:
        agents[1].hang_up()
    else:
        agents[1].send({"output": BANNER if second is TORCHRUN else ["words", "last words"]})
        agents[1].send(second)
    ranks.wait(60)
    error = ranks.error(patience_s=0.1)
    assert ranks.failed is (error is not None)
    assert (error and str(error), error and error.reason) == (message, reason)


def test_a_silent_node_is_lost(
    ranks: Ranks, agents: list[Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine may have no power, and closes no connection."""
    monkeypatch.setattr(module, "MOST_SILENT", 3)
    agents[0].send(DONE)
    wait_for(lambda: ranks.failed)
    assert str(ranks.error()) == "rank 2 on node3 was lost: no connection to its node"


def test_on_one_node_nothing_is_said_and_nothing_awaited() -> None:
    alone = Ranks()
    alone.start(["program"], {})
    alone.wait(60)
    assert (alone.variables(), alone.error(patience_s=60), alone.failed) == ({}, None, False)
    alone.close()
