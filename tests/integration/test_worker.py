"""A worker as a process: what it runs, writes, refuses and leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from jobs.worker.scheduler_job import MAILBOX_VARIABLE
from orchestrator.core.types import Resources, Run
from orchestrator.rundir import RunDir, SweepDir
from tests import helpers
from tests.helpers import end_record, enter

SHELL = ["/bin/sh", "-c"]
# What a program has to do to be done.
METRIC = """echo '{"frames": 1}' >> $ORCHESTRATE_METRICS"""
PYTHON_METRIC = """open(os.environ['ORCHESTRATE_METRICS'], 'a').write('{"frames": 1}\\n')"""
ANEW = ("failed", "code error", "open it for appending")
OOM = "RuntimeError: CUDA out of memory"


def shell_run(text: str, seed: int = 0) -> Run:
    """A program of one shell line. The shell is the program here, named by the list like any other."""
    from orchestrator.config.trainers import get_trainer

    return get_trainer("command").identify({"command": [*SHELL, text]}, seed, threads=1)


def only(sweep: SweepDir) -> RunDir:
    (run_id,) = sweep.run_ids()
    return sweep.run(run_id)


def end_of(run: RunDir) -> dict[str, object]:
    return end_record(run.attempts()[-1])


def test_runs_become_results(results: Path, tmp_path: Path) -> None:
    sweep = helpers.make_sweep(results, helpers.count_runs(tmp_path / "audit", 3))
    assert helpers.work(sweep, slots=2) == 0
    for run_id in sweep.run_ids():
        run = sweep.run(run_id)
        result = run.result()
        assert result is not None
        run.verify(result, checksums=True)
        assert (result.frames, result.fields["iterations"], result.attempts) == (2000, 20, 1)
        assert result.final_return == run.history()[-1].metrics["return"]
        assert (result.speed.end_to_end_fps or 0) > 0
        assert result.fields["peak_memory_mb"] > 5
        assert end_of(run)["outcome"] == "done"
    assert not sweep.worker_output("0001-0001").exists()


def test_the_journal_tells_a_run_from_claim_to_summary(results: Path, tmp_path: Path) -> None:
    sweep = helpers.make_sweep(results, helpers.count_runs(tmp_path / "audit", 1))
    helpers.work(sweep)
    told = helpers.events(sweep)
    assert [kind for kind, _, _ in told if kind != "progress"] == ["started", "claimed", "ended", "exited"]
    ended = next(data for kind, _, data in told if kind == "ended")
    assert ended["outcome"] == "done"
    assert ended["frames"] == 2000
    assert set(ended["summary"]) == {
        "training_fps",
        "end_to_end_fps",
        "final_return",
        "seconds_per_iteration",
        "wall_time",
    }


def test_a_finished_run_keeps_few_files(results: Path, tmp_path: Path) -> None:
    sweep = helpers.make_sweep(results, helpers.count_runs(tmp_path / "audit", 1))
    helpers.work(sweep)
    assert helpers.inodes(only(sweep).path) <= 12


def test_progress_is_written_at_most_once_a_second(results: Path, tmp_path: Path) -> None:
    sweep = helpers.make_sweep(results, helpers.count_runs(tmp_path / "audit", 1, steps=150, seconds=0.01))
    helpers.work(sweep)
    (log,) = sweep.read_journals()
    progress = [event for event in log.events if event.kind == "progress"]
    assert progress[-1].data["total"] == 15000
    assert all(after.time - before.time > 0.9 for before, after in pairwise(progress))


def test_a_token_is_used_once(results: Path, tmp_path: Path) -> None:
    sweep = helpers.make_sweep(results, helpers.count_runs(tmp_path / "audit", 1))
    job = helpers.submit(sweep)
    assert helpers.finish(helpers.start_worker(sweep, job)) == 0
    assert helpers.finish(helpers.start_worker(sweep, job)) == 0
    assert "taken by another worker" in sweep.worker_output(job.token).read_text()
    assert len(helpers.events(sweep)) == len(set(map(str, helpers.events(sweep))))


def test_an_unknown_job_is_bad_input(results: Path, tmp_path: Path) -> None:
    sweep = helpers.make_sweep(results, helpers.count_runs(tmp_path / "audit", 1))
    job = helpers.submit(sweep)
    other = type(job)(**{**job.__dict__, "token": "0099-0001"})
    assert helpers.finish(helpers.start_worker(sweep, other)) == 2
    assert "0099-0001" in sweep.worker_output(other.token).read_text()


def test_slots_have_cores_and_threads_of_their_own(results: Path, tmp_path: Path) -> None:
    """Both runs wait for each other, so both slots are at work; each says where it may run."""
    text = (
        f"touch {tmp_path}/$$; while [ $(ls {tmp_path} | grep -c '^[0-9]*$') -lt 2 ]; do sleep 0.01; done; "
        "taskset -pc $$; echo threads $OMP_NUM_THREADS"
    )
    sweep = helpers.make_sweep(results, [shell_run(text, seed) for seed in range(2)])
    helpers.work(sweep, slots=2)
    logs = [sweep.run(run_id).attempt(1).log.read_text() for run_id in sweep.run_ids()]
    cores = [log.split("list: ")[1].split("\n")[0] for log in logs]
    assert all("threads 1" in log for log in logs)
    if len(os.sched_getaffinity(0)) >= 2:
        assert cores[0] != cores[1]
        assert all(core.isdigit() for core in cores)


def test_gpus_are_dealt_out_by_slot(results: Path, tmp_path: Path) -> None:
    text = (
        f"touch {tmp_path}/$$; while [ $(ls {tmp_path} | grep -c '^[0-9]*$') -lt 2 ]; do sleep 0.01; done; "
    )
    runs = [shell_run(text + "echo devices $CUDA_VISIBLE_DEVICES; " + METRIC, seed) for seed in range(2)]
    sweep = helpers.make_sweep(results, runs)
    job = helpers.submit(sweep, slots=2, resources=Resources(gpus=2))
    helpers.finish(helpers.start_worker(sweep, job, env={"CUDA_VISIBLE_DEVICES": "4,5,6,7"}))
    logs = {sweep.run(run_id).attempt(1).log.read_text().strip() for run_id in sweep.run_ids()}
    assert logs == {"devices 4,5", "devices 6,7"}


@pytest.mark.parametrize(
    ("text", "outcome", "reason", "message"),
    [
        ("echo boom >&2; exit 5", "failed", "code error", "left with exit code 5: boom"),
        ("exit 78", "failed", "bad config", "refused its configuration"),
        ("kill -SEGV $$", "failed", "code error", "crashed with SIGSEGV"),
        ("exit 75", "interrupted", "stopped", "exit code 75"),
        ("seq 20 >> $ORCHESTRATE_METRICS", "failed", "code error", "none of the first 10 lines of metrics"),
        ("for f in 10 2; do echo '{\"frames\": '$f'}' > $ORCHESTRATE_METRICS; sleep 0.3; done", *ANEW),
        (f"echo {OOM!r} >&2; echo 'wandb: Synced 5 file(s)'; exit 1", "failed", "out of memory", OOM),
        ("echo 'MemoryError: no' >&2; exit 1", "failed", "out of memory", "MemoryError: no"),
    ],
)
def test_how_a_program_leaves_is_classified(
    results: Path, text: str, outcome: str, reason: str, message: str
) -> None:
    sweep = helpers.make_sweep(results, [shell_run(text)])
    assert helpers.work(sweep) == (1 if outcome == "failed" else 0)
    end = end_of(only(sweep))
    assert (end["outcome"], end["reason"]) == (outcome, reason)
    assert message in str(end["message"])
    assert "\n" not in str(end["message"])
    ended = [data for kind, _, data in helpers.events(sweep) if kind == "ended"]
    assert [data["message"] for data in ended] == [end["message"]]


def test_a_missing_program_is_bad_config(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run("0" * 16, "command", {"command": ["no-such-program-anywhere"]})
    sweep = helpers.make_sweep(results, [run])
    mailbox = results / "mailbox"
    monkeypatch.setenv(MAILBOX_VARIABLE, str(mailbox))
    assert helpers.work(sweep) == 1
    assert mailbox.exists(), "the job's script takes the failed run for a failed set-up"
    assert end_of(only(sweep))["reason"] == "bad config"
    assert "no-such-program-anywhere" in str(end_of(only(sweep))["message"])


def test_an_unknown_trainer_fails_its_runs_only(results: Path, tmp_path: Path) -> None:
    good = helpers.count_runs(tmp_path / "audit", 1)
    sweep = helpers.make_sweep(results, [Run("0" * 16, "nowhere", {}), *good])
    assert helpers.work(sweep) == 1
    assert sweep.run(good[0].run_id).result() is not None
    failed = [data for kind, _, data in helpers.events(sweep, sweep.run("0" * 16)) if kind == "ended"]
    assert "no trainer named 'nowhere'" in failed[0]["message"]


def test_of_all_attempts_together_two_checkpoints_are_kept(results: Path) -> None:
    """Killed after every checkpoint; the last time it leaves by itself."""
    text = (
        "n=$(cat $ORCHESTRATE_RESUME 2>/dev/null || echo 0); n=$((n + 1)); "
        'echo "{\\"frames\\": $n}" >> $ORCHESTRATE_METRICS; '
        "cd $ORCHESTRATE_CHECKPOINT_DIR; echo $n > t; mv t $n; "
        "[ $n -lt 5 ] || exit 75; kill -9 $$"
    )
    sweep = helpers.make_sweep(results, [shell_run(text)])
    assert helpers.work(sweep) == 0
    assert [file.frames for file in only(sweep).checkpoints()] == [5, 4]


def test_a_program_that_starts_over_instead_of_resuming_is_found_out(results: Path, tmp_path: Path) -> None:
    text = (
        "for n in 50 100; do echo '{\"frames\": '$n'}' >> $ORCHESTRATE_METRICS; done; "
        "echo x > $ORCHESTRATE_CHECKPOINT_DIR/t; "
        f"mv $ORCHESTRATE_CHECKPOINT_DIR/t $ORCHESTRATE_CHECKPOINT_DIR/100; touch {tmp_path}/ready; "
        f"[ -e {tmp_path}/second ] || sleep 60"
    )
    sweep = helpers.make_sweep(results, [shell_run(text)])
    worker = helpers.start_worker(sweep, helpers.submit(sweep))
    run = only(sweep)
    helpers.wait_for(lambda: run.checkpoints())
    (tmp_path / "second").touch()
    worker.terminate()
    helpers.finish(worker)
    assert helpers.work(sweep) == 1
    assert "must continue from ORCHESTRATE_RESUME" in str(end_of(run)["message"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT])
def test_asked_to_leave_runs_save_and_go_on_later(results: Path, tmp_path: Path, number: int) -> None:
    audit = tmp_path / "audit"
    sweep = helpers.make_sweep(results, helpers.count_runs(audit, 1, steps=200, every=1000))
    worker = helpers.start_worker(sweep, helpers.submit(sweep))
    helpers.wait_for(lambda: audit.exists() and " 20\n" in audit.read_text())
    worker.send_signal(number)
    assert helpers.finish(worker) == 130
    end = end_of(only(sweep))
    assert (end["outcome"], end["reason"]) == ("interrupted", "stopped")
    assert end["checkpointed"] == end["frames"]
    why = [data["why"] for kind, _, data in helpers.events(sweep) if kind == "exited"]
    assert why == [f"received {signal.Signals(number).name}"]
    assert helpers.work(sweep) == 0
    steps = [line.split()[3] for line in audit.read_text().splitlines() if line.startswith("step ")]
    assert steps == [str(step) for step in range(1, 201)]  # not one of them twice


def deaf_run(ready: Path) -> Run:
    """A program that ignores SIGTERM from the moment that ``ready`` exists."""
    return shell_run(f"trap '' TERM; touch {ready}; while :; do sleep 0.1; done")


def test_a_program_that_does_not_leave_is_killed_within_the_grace(results: Path, tmp_path: Path) -> None:
    sweep = helpers.make_sweep(results, [deaf_run(tmp_path / "ready")])
    worker = helpers.start_worker(sweep, helpers.submit(sweep), env={"ORCHESTRATE_GRACE": "2"})
    helpers.wait_for((tmp_path / "ready").exists)
    began = time.monotonic()
    worker.terminate()
    assert helpers.finish(worker) == 130
    assert time.monotonic() - began > 1.5
    end = end_of(only(sweep))
    assert (end["reason"], end["message"]) == ("stopped", "received SIGTERM")


def test_a_run_that_hangs_is_killed_after_the_grace(results: Path, tmp_path: Path) -> None:
    sweep = helpers.make_sweep(results, [deaf_run(tmp_path / "ready")])
    worker = helpers.start_worker(sweep, helpers.submit(sweep), env={"ORCHESTRATE_GRACE": "1"})
    helpers.wait_for((tmp_path / "ready").exists)
    (supervisor,) = helpers.run_processes(worker.pid)
    os.kill(supervisor, signal.SIGSTOP)
    worker.terminate()
    assert helpers.finish(worker) == 130
    end = end_of(only(sweep))
    assert end["reason"] == "stopped"
    assert "did not leave within its grace" in str(end["message"])


def test_asked_twice_the_worker_leaves_at_once(results: Path, tmp_path: Path) -> None:
    sweep = helpers.make_sweep(results, [deaf_run(tmp_path / "ready")])
    worker = helpers.start_worker(sweep, helpers.submit(sweep), env={"ORCHESTRATE_GRACE": "600"})
    helpers.wait_for((tmp_path / "ready").exists)
    worker.terminate()
    helpers.wait_for(lambda: not helpers.signals_pending(worker.pid))  # of one kind, two waiting are one
    worker.terminate()
    assert helpers.finish(worker) == 130
    assert end_of(only(sweep))["reason"] == "stopped"


def test_cancelled_runs_are_left_and_the_others_go_on(results: Path, tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    long, waiting = helpers.count_runs(audit, 2, steps=2000)
    short = helpers.count_runs(audit, 1, steps=5)[0]
    sweep = helpers.make_sweep(results, [long, waiting, short])
    job = helpers.submit(sweep, [long.run_id, waiting.run_id, short.run_id])
    worker = helpers.start_worker(sweep, job)
    helpers.wait_for(lambda: audit.exists() and "step" in audit.read_text())
    enter(sweep, "cancel", {"time": time.time(), "runs": {long.run_id: 1, waiting.run_id: 0}})
    assert helpers.finish(worker) == 0
    ended = {
        event.run_id: event.data["outcome"]
        for log in sweep.read_journals()
        for event in log.events
        if event.kind == "ended"
    }
    assert ended == {long.run_id: "cancelled", short.run_id: "done"}
    assert not sweep.run(waiting.run_id).attempts()
    enter(sweep, "retry", {"time": time.time(), "runs": {long.run_id: 1}})
    again = helpers.start_worker(sweep, helpers.submit(sweep, [long.run_id]))
    helpers.wait_for(lambda: len(sweep.run(long.run_id).attempts()) == 2)
    again.terminate()
    helpers.finish(again)


def test_a_failed_run_waits_for_retry(results: Path, tmp_path: Path) -> None:
    sweep = helpers.make_sweep(results, [shell_run(f"[ -e {tmp_path}/good ] && {METRIC}")])
    assert helpers.work(sweep) == 1
    (tmp_path / "good").touch()
    assert helpers.work(sweep) == 0
    assert len(only(sweep).attempts()) == 1
    enter(sweep, "retry", {"time": time.time(), "runs": {only(sweep).run_id: 1}})
    assert helpers.work(sweep) == 0
    assert only(sweep).result() is not None


def test_a_run_killed_again_and_again_is_given_up(results: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    sweep = helpers.make_sweep(
        results, [shell_run(f"[ -e {again} ] && kill -9 $$; touch {again}; kill -TERM $$")]
    )
    assert helpers.work(sweep) == 1
    run = only(sweep)
    assert [end_record(attempt)["reason"] for attempt in run.attempts()] == ["killed", "killed", "crash loop"]
    assert end_record(run.attempt(1))["message"] == "the program was killed by SIGTERM"
    told = [(kind, number) for kind, number, _ in helpers.events(sweep, run) if kind != "progress"]
    assert told == [(kind, number) for number in (1, 2, 3) for kind in ("claimed", "ended")]
    assert helpers.work(sweep) == 0  # nothing more to do until somebody retries it
    enter(sweep, "retry", {"time": time.time(), "runs": {run.run_id: 3}})
    assert helpers.work(sweep) == 1
    assert len(run.attempts()) == 6


def test_a_rank_killed_under_torchrun_interrupts_the_run(results: Path, tmp_path: Path) -> None:
    """Once; the run goes on from its checkpoint. torchrun itself leaves with 1."""
    program, saved = tmp_path / "rank.sh", tmp_path / "saved"
    program.write_text(
        'if [ -n "$ORCHESTRATE_RESUME" ]; then\n'
        "  [ $RANK = 1 ] || echo '{\"frames\": 2}' >> $ORCHESTRATE_METRICS\n"
        "elif [ $RANK = 1 ]; then\n"
        f"  until [ -e {saved} ]; do sleep 0.1; done; kill -9 $$\n"
        "else\n"
        f"  {METRIC}; cd $ORCHESTRATE_CHECKPOINT_DIR; echo 1 > t; mv t 1\n"
        f"  while [ -e 1 ]; do sleep 0.1; done; touch {saved}; sleep 600\n"
        "fi\n"
    )
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "0"]
    torchrun += ["--master-port", str(helpers.free_port()), "--no-python", "bash", program]
    sweep = helpers.make_sweep(results, [helpers.command_run(torchrun)])
    assert helpers.work(sweep) == 0
    first, second = (end_record(attempt) for attempt in only(sweep).attempts())
    assert (first["outcome"], first["reason"]) == ("interrupted", "killed")
    assert first["message"] == "rank 1 was killed by SIGKILL"
    assert second["outcome"] == "done"


def test_a_run_that_no_job_has_time_for_is_given_up(results: Path) -> None:
    """Each job is warned of its end before the run reaches a checkpoint; all but the third want to go on."""
    sweep = helpers.make_sweep(results, [shell_run("sleep 100")])
    run, codes = only(sweep), []
    for attempt in (1, 2, 3):
        job = {"SLURM_JOB_ID": str(attempt), "SLURM_JOB_END_TIME": str(time.time() + 60)}
        worker = helpers.start_worker(sweep, helpers.submit(sweep), job)
        helpers.wait_for(lambda number=attempt: len(run.attempts()) == number, what="the next attempt")
        worker.send_signal(signal.SIGUSR1)
        codes.append(helpers.finish(worker))
    assert codes == [75, 75, 1]
    assert {end_record(attempt)["reason"] for attempt in run.attempts()} == {"time limit"}
    assert [end_record(attempt)["outcome"] for attempt in run.attempts()] == ["interrupted"] * 2 + ["failed"]
    assert "more time" in end_of(run)["message"]


def test_a_run_that_advances_is_never_given_up(results: Path, tmp_path: Path) -> None:
    """Killed after every checkpoint, six times."""
    text = (
        "n=$(cat $ORCHESTRATE_RESUME 2>/dev/null || echo 0); n=$((n + 1)); "
        'echo "{\\"frames\\": $n}" >> $ORCHESTRATE_METRICS; '
        "cd $ORCHESTRATE_CHECKPOINT_DIR; echo $n > t; mv t $n; "
        "[ $n -ge 6 ] || kill -9 $$"
    )
    sweep = helpers.make_sweep(results, [shell_run(text)])
    assert helpers.work(sweep) == 0
    run = only(sweep)
    assert [end_record(attempt)["checkpointed"] for attempt in run.attempts()] == [1, 2, 3, 4, 5, 6]
    assert [row.frames for row in run.history()] == [1, 2, 3, 4, 5, 6]
    assert helpers.inodes(run.path) <= 12 + 5 * 5


def test_what_a_program_leaves_behind_is_killed(results: Path, tmp_path: Path) -> None:
    sweep = helpers.make_sweep(results, [shell_run(f"sleep 300 & echo $! > {tmp_path}/left; {METRIC}")])
    assert helpers.work(sweep) == 0
    left = int((tmp_path / "left").read_text())
    helpers.wait_for(lambda: not Path(f"/proc/{left}").exists())


def test_hostile_values_reach_the_program_as_they_are(results: Path) -> None:
    hostile = 'a b\'; rm -rf /\n$(id) `id` "ü" {x} ../' + "z" * 300
    program = f"import os, sys; print(ascii(sys.argv[1:])); {PYTHON_METRIC}"
    argv = ["-c", program, "{evil}", "x{seed}-{list}"]
    run = helpers.command_run(argv, seed=7, evil=hostile, list=[1, "b"])
    sweep = helpers.make_sweep(results, [run])
    assert helpers.work(sweep) == 0
    assert only(sweep).attempt(1).log.read_text().strip() == ascii([hostile, 'x7-[1, "b"]'])


@pytest.mark.nightly(but=["benchmarl"])
@pytest.mark.parametrize("trainer", ["benchmarl", "ppo"])
def test_the_warm_parent_stays_fit_to_fork(trainer: str) -> None:
    """One thread, no W&B, no GPU touched; and torch works in a forked process with threads of its own."""
    script = """
import os, sys
from jobs.worker.runs.preload import preload
preload(sys.argv[1])
import torch
assert "torch._dynamo" in sys.modules, "each run's optimizer would load it"
assert len(os.listdir("/proc/self/task")) == 1, "threads beside a fork"
assert "wandb" not in sys.modules
assert not torch.cuda.is_initialized()
pid = os.fork()
if pid == 0:
    torch.set_num_threads(2)
    (torch.ones(300, 300) @ torch.ones(300, 300)).sum()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", script, trainer], cwd=helpers.ROOT, check=True, timeout=600)


def test_the_page_on_the_run_protocol_holds(results: Path, tmp_path: Path) -> None:
    """Its first program runs as printed, without a line for this program."""
    page = (helpers.ROOT / "docs" / "run-protocol.md").read_text()
    program = tmp_path / "train.py"
    program.write_text(page.split("```python\n")[1].split("```")[0])
    sweep = helpers.make_sweep(results, [helpers.command_run([program, "--lr", "0.3"], seed=1)])
    assert helpers.work(sweep) == 0
    rows = [(row.frames, 0 < row.metrics["return"] < 1) for row in only(sweep).history()]
    assert rows == [(frames, True) for frames in range(1, 101)]


def test_the_description_reaches_the_program(results: Path) -> None:
    argv = ["-c", f"import os; print(open(os.environ['ORCHESTRATE_RUN']).read()); {PYTHON_METRIC}"]
    sweep = helpers.make_sweep(results, [helpers.command_run(argv, seed=3)])
    assert helpers.work(sweep) == 0
    assert json.loads(only(sweep).attempt(1).log.read_text())["seed"] == 3
