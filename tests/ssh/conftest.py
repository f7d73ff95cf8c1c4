"""A laptop and the way to its cluster, for every test below."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.buckets import BUCKET, BucketServer
from tests.ssh.server import Server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test below this folder, whether it says so or not."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.ssh)


@pytest.fixture
def server(tmp_path: Path, own_world: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A cluster that is up; this process, and all that it starts, is the laptop."""
    server = Server(tmp_path / "ssh")
    server.start()
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    yield server
    server.stop()


@pytest.fixture
def bucket(tmp_path: Path, own_world: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BucketServer]:
    """A server with one bucket, known to this process and all that it starts."""
    server = BucketServer(tmp_path)
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    server.start()
    server.client().create_bucket(Bucket=BUCKET)
    yield server
    server.stop()
