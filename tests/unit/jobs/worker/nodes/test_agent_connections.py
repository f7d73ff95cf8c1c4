"""Only agents that know the job's secret take part in a run on several nodes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from jobs.training.processes import connection
from jobs.training.processes.connection import Connection, greet
from jobs.worker.nodes import agent_connections as module
from jobs.worker.nodes.agent_connections import Agents
from orchestrator.core.errors import OrchestrateError
from tests.helpers import PATIENCE_S, wait_for


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agents]:
    """Two are awaited."""
    monkeypatch.setenv("ORCHESTRATE_AGENTS", str(tmp_path / "address"))
    agents = Agents(2)
    yield agents
    agents.close()


@pytest.fixture
def port(agents: Agents, tmp_path: Path) -> int:
    return int((tmp_path / "address").read_text().split(":")[1])


@pytest.fixture
def connect(agents: Agents, tmp_path: Path) -> Iterator[Callable[..., Connection | None]]:
    """Connect as the agent of a node, while the worker attends."""
    ends: list[Connection] = []
    _, port, secret = (tmp_path / "address").read_text().rsplit(":", 2)

    def attended(future: Future[Connection | None]) -> bool:
        agents.attend()
        return future.done()

    def begin(host: str, secret: str = secret) -> Connection | None:
        peer = socket.create_connection(("127.0.0.1", int(port)))
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(greet, peer, secret, host, PATIENCE_S)
            wait_for(lambda: attended(future))
        end = future.result()
        ends.extend([end] if end else [])
        return end

    yield begin
    for end in ends:
        end.close()


def test_those_who_know_the_secret_are_taken_in_the_order_of_names(
    agents: Agents, connect: Callable[..., Connection | None]
) -> None:
    ends = [connect("node3"), connect("node2")]
    assert all(ends)
    assert agents.complete
    taken = agents.take()
    assert [name for name, _ in taken] == ["node2", "node3"]
    taken[0][1].send({"signal": 15})
    assert ends[1] is not None
    assert ends[1].wait_for_message() == {"signal": 15}
    assert not agents.complete
    close(taken)


def test_a_stranger_learns_nothing_and_does_not_count(
    agents: Agents, connect: Callable[..., Connection | None]
) -> None:
    assert connect("node2", "another secret") is None
    connect("node2")
    assert not agents.complete
    connect("node3")
    taken = agents.take()
    assert [name for name, _ in taken] == ["node2", "node3"]
    close(taken)


@pytest.mark.parametrize(
    "said",
    [
        b"[" * 900 + b"\n",
        b"[" * 3000 + b"\n",
        b'{"a":' * 100_000,
        b"\n" * 5000,
        b"\xff\0 " * 20 + b"\n",
        b"a b c\n",
        b'{"nonce": "0", "host": "h", "proof": "0"}\n',
        b"",
    ],
)
def test_what_strangers_say_ends_only_their_connection(
    agents: Agents, connect: Callable[..., Connection | None], port: int, said: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as stranger:
        with suppress(OSError):
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
        wait_for(lambda: agents.attend() or is_ended(stranger))  # type: ignore[func-returns-value]
        assert connect("node2")
        assert connect("node3")
        close(agents.take())


def test_silent_and_slow_strangers_are_few_and_have_little_time(
    agents: Agents, connect: Callable[..., Connection | None], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        strangers = []
        for _ in range(200):
            strangers.append(stack.enter_context(socket.create_connection(("127.0.0.1", port))))
            agents.attend()
        assert connect("node2")
        held = [one for one in strangers if not is_ended(one)]
        assert 0 < len(held) <= 2 + 16
        held[-1].sendall(b"a")
        monkeypatch.setattr(connection, "_GREETING_S", -1.0)
        late = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        wait_for(lambda: agents.attend() or is_ended(late))  # type: ignore[func-returns-value]


def test_a_stranger_in_the_worker_s_place_learns_nothing_and_ends_no_agent() -> None:
    for said in (b"[" * 3000 + b"\n", b"0\n0\n", b""):
        with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
            peer = socket.create_connection(server.getsockname())
            future = pool.submit(greet, peer, "secret", "node2", PATIENCE_S)
            with server.accept()[0] as stranger:
                stranger.sendall(said)
                stranger.shutdown(socket.SHUT_WR)
                assert future.result() is None


def is_ended(peer: socket.socket) -> bool:
    """Whether the other end has closed the connection."""
    try:
        while peer.recv(1 << 16, socket.MSG_DONTWAIT):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def test_an_agent_that_left_is_missing(
    agents: Agents, connect: Callable[..., Connection | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [connect("node2"), connect("node3")]
    assert ends[0] is not None
    ends[0].hang_up()
    wait_for(lambda: agents.attend() or not agents.complete)  # type: ignore[func-returns-value]
    assert agents.missing is None
    monkeypatch.setattr(module, "_PATIENCE_S", 0.0)
    agents.wait_again()
    assert agents.missing == "no agent answers on 1 of the job's nodes (there: node3)"


def test_a_node_where_no_agent_can_start_is_named_at_once(agents: Agents, tmp_path: Path) -> None:
    assert agents.missing is None
    (tmp_path / "address.failed").write_text("node2: exit code 127\n")
    assert agents.missing == "no agent could start on node2: exit code 127; the job's output says more"


def test_without_anyone_who_starts_agents_no_job_on_several_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORCHESTRATE_AGENTS", raising=False)
    with pytest.raises(OrchestrateError, match="nothing here starts one"):
        Agents(1)
    assert Agents(0).complete


def close(taken: Iterable[tuple[str, Connection]]) -> None:
    for _, end in taken:
        end.close()
