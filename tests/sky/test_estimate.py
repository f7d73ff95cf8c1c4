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

# The shipped figure of MAPPO on a GPU is 51.6 s for 6,000 frames: 1,000,000 take 2.39 h.
GRID = """
name: gpu
trainer: benchmarl
base:
  {task: vmas/navigation, algorithm: mappo, experiment.train_device: cuda, experiment.max_n_frames: 1_000_000}
matrix: {seed: [0, 1]}
resources: {cpus_per_task: 8, gpus: 1}
"""


def estimate(bed: Bed, folder: Path, **profiles: str) -> dict[str, Any]:
    """What is said of each profile, by name."""
    for name, text in profiles.items():
        (folder / f"{name}.yaml").write_text(
            f"backend: skypilot\ninfra: aws\ncpus_per_task: 8\nmem: 16G\n{text}\n"
        )
    (folder / "grid.yaml").write_text(GRID)
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


def test_the_cost_of_a_run_at_the_list_price(bed: Bed, tmp_path: Path) -> None:
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
    dollars = [run["dollars"]["expected"] for run in demand["runs"]]
    assert dollars == pytest.approx([0.9776 * 51.6 / 6_000 * 1_000_000 / 3600] * 2, abs=0.01)

    assert spot["price_per_hour"] == pytest.approx(0.36)
    assert "spot, by SkyPilot's price list (on demand $0.98/h)" in spot["price"]
    assert any("spot instance may be preempted" in note for note in spot["notes"])
    assert own["price"] == "by the profile's price_per_hour"
    assert own["price_per_hour"] == 0.5

    assert none["dollars"] is None
    assert any("price lookup failed" in note for note in none["notes"])
