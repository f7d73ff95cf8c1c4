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


@pytest.fixture(scope="module")
def bucket_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BucketServer]:
    """A server for the tests of a file."""
    server = BucketServer(tmp_path_factory.mktemp("moto"))
    yield server
    server.stop()


@pytest.fixture
def bucket(bucket_server: BucketServer, own_world: Path, monkeypatch: pytest.MonkeyPatch) -> BucketServer:
    """The server with one empty bucket, known to this process and all that it starts."""
    for name, value in bucket_server.env.items():
        monkeypatch.setenv(name, value)
    bucket_server.start()
    bucket_server.client().create_bucket(Bucket=BUCKET)
    return bucket_server
