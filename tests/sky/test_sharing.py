"""One sweep over this machine and an instance of a cloud."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.audit import check_finished
from tests.helpers import COMMANDS
from tests.sky.bed import Bed
from tests.sky.test_sweep import CloudLab, lab_in, labs, nothing_is_left
from tests.slurm.lab import STEPS

__all__ = ["labs"]


@pytest.mark.nightly
def test_this_machine_and_an_instance_share_a_sweep(bed: Bed, tmp_path: Path, labs: list[CloudLab]) -> None:
    """This machine works while the instance is made; what the instance was dealt waits for it."""
    lab = lab_in(tmp_path / "cloud", labs, pack=1, instances=1)
    argv = [sys.executable, str(COMMANDS / "count.py"), str(lab.folder / "audit"), str(STEPS), "0.05"]
    lab.write_grid("tiny", "command", {"command": argv}, {"seed": list(range(6))})
    following = lab.start("sweep", "--grid", "tiny.yaml", "--on", "local,profile.yaml", "--slots", "1")
    lab.done(following)
    (sweep,) = json.loads(lab.run("status", "tiny", "--json"))
    assert {run["target"] for run in sweep["runs"]} == {"local", "profile"}
    check_finished(lab.dir(), lab.descriptions(), lab.folder / "audit", STEPS)
    assert nothing_is_left(bed)
