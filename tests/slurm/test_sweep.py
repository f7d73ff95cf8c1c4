"""Sweeps on a real cluster where nothing goes wrong, by the commands that a person types."""

from __future__ import annotations

import sys
from pathlib import Path

from tests import helpers
from tests.slurm.cluster import Cluster
from tests.slurm.lab import STEPS, Lab, judge, judge_runs


def test_a_sweep_over_two_nodes(lab: Lab, undisturbed: Lab, slurm: Cluster) -> None:
    lab.count_grid(runs=8, pace=0.05)
    assert "8 runs to do" in lab.sweep()
    assert judge(lab, undisturbed, slurm) == [1] * 8
    assert set(lab.hosts()) == {"cpu1", "cpu2"}
    assert len(lab.job_ids()) == 4


def test_runs_of_different_sizes_share_the_cores_of_jobs(lab: Lab, slurm: Cluster) -> None:
    argv = [sys.executable, str(helpers.COMMANDS / "count.py"), "audit", str(STEPS), "pace"]
    lab.write_grid("tiny", "command", {"command": argv}, {"threads": [1, 2], "seed": [0, 1]})
    lab.pace(0.01)
    lab.sweep()
    assert judge_runs(lab, slurm) == [1] * 4
    assert len(lab.job_ids()) == 3, "both runs of one core share a job"
    results = [(run.threads, lab.dir().run(run.run_id).result()) for run in lab.descriptions()]
    assert [(threads, result and result.fields["cores"]) for threads, result in results] == [
        (threads, threads) for threads, _ in results
    ]


def test_cancel_retry_and_logs(lab: Lab, slurm: Cluster) -> None:
    """One run in each job: two of the four are at work, the others wait."""
    count = [str(helpers.COMMANDS / "count.py"), "audit", str(STEPS), "pace"]
    talking = ["sh", "-c", 'echo "this is run $ORCHESTRATE_SEED"; exec "$@"', "sh", sys.executable, *count]
    lab.write_grid("tiny", "command", {"command": talking}, {"seed": list(range(4))})
    lab.pace(0.1, last=6)
    lab.profile(pack=1)
    lab.sweep()
    lab.at_work(4)
    following = lab.start("logs", "tiny", "seed=1", "--follow")
    lab.run("cancel", "tiny", "seed=0")
    assert lab.states()[0] == "cancelled"
    helpers.wait_for(lambda: len(lab.hosts()) == 3, what="the next job in the place of the cancelled run's")
    lab.run("cancel", "tiny", "seed=3")
    lab.run("cancel", "tiny")
    assert lab.states() == ["cancelled"] * 4
    helpers.wait_for(lambda: lab.left_queue("tiny", slurm), what="an empty queue")
    assert len(lab.hosts()) == 3, "a cancelled run's job began"
    output, _ = following.communicate(timeout=helpers.PATIENCE_S)
    assert output.splitlines()[0] == "this is run 1"
    lab.pace(0.01)
    assert "4 runs to do again" in lab.run("retry", "tiny")
    unbegun, first, second, third = sorted(judge_runs(lab, slurm))
    assert unbegun == 1
    assert first >= 2, (second, third)  # on a busy machine one may begin once more
    assert lab.states() == ["done"] * 4


def test_any_path_and_any_word(slurm: Cluster, tmp_path: Path) -> None:
    lab = Lab(tmp_path / "über 100% 'quoted' \"twice\" $HOME `id` %A_%a #")
    lab.profile(environment={"WORDS": "a b%c'd\"e\\"})
    lab.count_grid(runs=1)
    lab.sweep()
    assert judge_runs(lab, slurm) == [1]
    assert lab.states() == ["done"]
    refused = Lab(tmp_path / "a\\b")
    refused.count_grid(runs=1)
    assert "found a backslash" in refused.run("sweep", "--grid", "tiny.yaml", "--on", "profile.yaml", code=2)
