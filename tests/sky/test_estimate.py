"""`orchestrate estimate` at the prices of SkyPilot's own list, by its own choice of machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import PATIENCE_S, ROOT
from tests.sky.bed import Bed
from tests.unit.orchestrator.planning.test_estimate import on_one_gpu


def estimate(bed: Bed, folder: Path, **profiles: str) -> dict[str, Any]:
    """What is said of each profile, by name."""
    for name, text in profiles.items():
        (folder / f"{name}.yaml").write_text(
            f"backend: skypilot\ninfra: aws\ncpus_per_task: 8\nmem: 16G\n{text}\n"
        )
    (folder / "grid.yaml").write_text(on_one_gpu())
    names = ",".join(f"./{name}.yaml" for name in profiles)
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.ui.cli", "estimate", "grid.yaml", "--on", names, "--json"],
        cwd=folder,
        env={**os.environ, **bed.env, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return {target["target"]: target for target in json.loads(done.stdout)["targets"]}


def test_the_cost_table_of_the_bucket_brigade_set_up_at_the_list_price(bed: Bed, tmp_path: Path) -> None:
    found = estimate(
        bed,
        tmp_path,
        demand="accelerators: L4:1",
        spot="accelerators: L4:1\nspot: true",
        own="accelerators: L4:1\nprice_per_hour: 0.5",
        none="instance_type: g6.2xlarge\naccelerators: A100:1",
    )
    demand, spot, own, none = (found[name] for name in ("demand", "spot", "own", "none"))
    assert demand["price_per_hour"] == pytest.approx(0.9776)
    assert "g6.2xlarge of" in demand["price"]
    assert "on demand, by SkyPilot's price list" in demand["price"]
    nine = [run["dollars"]["expected"] for run in demand["runs"] if run["frames"] == 10_000_000]
    (short,) = [run["dollars"]["expected"] for run in demand["runs"] if run["frames"] == 1_000_000]
    assert short == pytest.approx(0.25, abs=0.01)
    assert nine == pytest.approx([2.5] * 9, abs=0.06)
    assert sum(nine) == pytest.approx(22, abs=0.1)

    assert spot["price_per_hour"] == pytest.approx(0.36)
    assert "spot, by SkyPilot's price list (on demand $0.98/h)" in spot["price"]
    assert any("spot instance may be preempted" in note for note in spot["notes"])
    assert own["price"] == "by the profile's price_per_hour"
    assert own["price_per_hour"] == 0.5

    assert none["dollars"] is None
    assert any("price lookup failed" in note for note in none["notes"])
