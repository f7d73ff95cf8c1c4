"""A budget on a cluster: jobs leave by themselves when their share is used up, and are not given back."""

from __future__ import annotations

import json

from orchestrator.planning.predictions import bills
from tests.helpers import end_record
from tests.slurm.cluster import Cluster
from tests.slurm.lab import STEPS, Lab


def test_jobs_stop_at_their_share_and_do_not_come_back(lab: Lab, slurm: Cluster) -> None:
    lab.profile(pack=1, cpus_per_task=1, mem="500M", price_per_hour=3600)  # a dollar a second
    lab.count_grid(runs=2, pace=1.0)
    said = lab.sweep("tiny", "--budget", "8", "--follow", code=4)
    assert "the job's share of the budget paid for 4 s" in said
    assert "larger --budget" in said
    assert lab.left_queue("tiny", slurm)
    (told,) = json.loads(lab.run("status", "tiny", "--json"))
    words = {(run["state"], run["reason"]) for run in told["runs"]}
    assert words == {("interrupted", "budget reached")}, "not in the words of a job that failed"
    (bill,) = bills(lab.dir())
    assert bill.dollars is not None
    assert 6 < bill.dollars < 12  # a worker looks at its time once a second
    ends = [end_record(one) for run_id in lab.dir().run_ids() for one in lab.dir().run(run_id).attempts()]
    assert all(end.get("checkpointed") for end in ends)

    lab.pace(0.0)
    steps = lab.steps()
    lab.sweep("tiny", "--budget", "inf", "--follow")
    assert lab.states() == ["done"] * 2
    assert lab.steps() - steps <= 2 * STEPS - 2, "they went on from where they had been"
