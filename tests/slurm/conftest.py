"""One real Slurm cluster for all tests that need one, found as any cluster is: by SLURM_CONF and PATH."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.daemons import ClusterError, search_path
from tests.slurm.lab import Lab


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test below this folder, whether it says so or not; they come first: they take longest."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slurm)
    items.sort(key=lambda item: item.get_closest_marker("slurm") is None)


@pytest.fixture(scope="session")
def running_cluster() -> Iterator[Cluster]:
    try:
        cluster = Cluster.in_temporary_folder()
        cluster.start()
    except ClusterError as error:
        pytest.fail(str(error), pytrace=False)
    yield cluster
    cluster.stop()


@pytest.fixture
def slurm(running_cluster: Cluster, own_world: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The cluster with idle nodes, an empty queue and default options; this test's commands find it."""
    running_cluster.clean()
    monkeypatch.setenv("PATH", search_path())
    for name, value in running_cluster.env.items():
        monkeypatch.setenv(name, value)
    yield running_cluster
    running_cluster.clean()  # here, so that what cannot be cleaned is told of the test that left it


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A folder to submit from."""
    lab = Lab(tmp_path / "lab")
    yield lab
    for process in lab.started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """What the counting runs of all labs come to where nothing happens: worked through on this machine."""
    lab = Lab(tmp_path_factory.mktemp("undisturbed"))
    lab.count_grid(runs=12)
    lab.sweep_here("tiny")
    return lab
