"""One real SkyPilot for all tests that need one, found as any is: by HOME and PATH."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.backends.skypilot import client
from tests.sky.bed import Bed
from tests.slurm.daemons import ClusterError


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test below this folder, whether it says so or not; they come early: they take long."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.sky)
    items.sort(key=lambda item: item.get_closest_marker("sky") is None)


@pytest.fixture(scope="session")
def running_bed() -> Iterator[Bed]:
    try:
        bed = Bed()
        bed.start()
    except ClusterError as error:
        pytest.fail(str(error), pytrace=False)
    yield bed
    client.close()
    bed.stop()


@pytest.fixture
def bed(running_bed: Bed, own_world: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    """SkyPilot without an instance, on a Slurm cluster with idle nodes; this test's programs find it."""
    for name, value in running_bed.env.items():
        monkeypatch.setenv(name, value)
    yield running_bed
    running_bed.clean()
