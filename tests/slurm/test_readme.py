"""What the README tells people to type on a login node works on the test cluster."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests import helpers
from tests.slurm.cluster import Cluster
from tests.slurm.lab import Lab

README = (helpers.ROOT / "README.md").read_text()


def block(language: str) -> str:
    """The contents of the README's only fenced block of that language."""
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return str(text)


def test_the_readmes_commands_for_a_cluster(lab: Lab, slurm: Cluster, own_world: Path) -> None:
    """With a profile ``cpu`` of the user's own: nodes here are smaller than those of the one that ships.

    Its jobs are held: that jobs train is for test_doctor.py.
    """
    (lab.folder / "first.yaml").write_text(block("yaml"))
    own = own_world / ".config" / "orchestrate" / "profiles"
    own.mkdir(parents=True)
    (own / "cpu.yaml").write_text("cpus_per_task: 2\nmem: 4G\ntime: 10\noptions: {hold: true}\n")
    for line in block("bash").splitlines():
        program, *arguments = shlex.split(line, comments=True)
        assert program == "orchestrate"
        lab.run(*arguments)
    assert len(lab.job_ids("slurm")) == 3, "five runs, two at once in a job"
    assert lab.states("slurm").count("skipped") == 2
