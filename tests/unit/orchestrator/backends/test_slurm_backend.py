"""The backend against commands that answer what the test says."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.backends.script import Script, Setting
from orchestrator.backends.slurm import SlurmBackend
from orchestrator.backends.slurm.finished_jobs import FinishedJobs
from orchestrator.config.profiles import Profile
from orchestrator.core.errors import BackendUnavailableError, QueueFullError, RefusedError
from orchestrator.core.types import Array, CommandAnswer, Job, JobState, Reason, Resources
from orchestrator.rundir import FrozenCode, SweepDir

TIMED_OUT = CommandAnswer(
    1, "", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
)
SILENT = CommandAnswer(None, "", "no answer within 60 s")
EMPTY = CommandAnswer(0, "")


class Cluster:
    """Answers by the name of the command, the last one again and again; ``asked`` keeps what was asked."""

    def __init__(self, **answers: CommandAnswer | list[CommandAnswer]) -> None:
        self.answers = {name: said if isinstance(said, list) else [said] for name, said in answers.items()}
        self.asked: list[list[str]] = []

    def __call__(self, argv: Sequence[str]) -> CommandAnswer:
        self.asked.append(list(argv))
        left = self.answers.get(argv[0], [EMPTY])
        return left.pop(0) if len(left) > 1 else left[0]

    def count(self, name: str) -> int:
        return sum(argv[0] == name for argv in self.asked)


def backend(cluster: Cluster, profile: Profile | None = None) -> SlurmBackend:
    return SlurmBackend(profile or Profile("here", "here.yaml"), runner=cluster, pauses=())


def script(folder: Path, count: int = 2) -> Script:
    jobs = tuple(
        Job(f"0001-0001.{index}", "speed", "here", (f"{index:016x}",), 1, Resources())
        for index in range(count)
    )
    code = FrozenCode("0", folder, (folder,), folder, folder)
    return Script(
        Array("0001-0001", jobs, Resources()), "#!/bin/bash\n", Setting(SweepDir(folder, "speed"), code)
    )


def listed(cluster: Cluster, of: Script, job_id: str = "77") -> CommandAnswer:
    """A queue that holds the script's array, whose comment is what the backend renders."""
    text = backend(cluster).render(of.array, of.setting)
    found = re.search(r'--comment="(.*)"', text)
    assert found is not None
    return CommandAnswer(
        0, f"{job_id}_0|PENDING||{found[1]}|Resources\n{job_id}_1|PENDING||{found[1]}|Resources\n"
    )


@pytest.mark.parametrize(
    "answer", [SILENT, TIMED_OUT, CommandAnswer(-15, ""), CommandAnswer(0, "Welcome!\n")]
)
def test_a_submission_without_a_clear_answer_is_looked_for(tmp_path: Path, answer: CommandAnswer) -> None:
    ours, cluster = script(tmp_path), Cluster(sbatch=answer)
    cluster.answers["squeue"] = [listed(cluster, ours)]
    assert backend(cluster).submit(ours) == {"0001-0001.0": "slurm:77_0", "0001-0001.1": "slurm:77_1"}


@pytest.mark.parametrize("queue", [EMPTY, SILENT, CommandAnswer(1, "", "squeue: error: Invalid user")])
def test_what_shows_nowhere_may_still_come(tmp_path: Path, queue: CommandAnswer) -> None:
    with pytest.raises(BackendUnavailableError) as caught:
        backend(Cluster(sbatch=TIMED_OUT, squeue=queue)).submit(script(tmp_path))
    assert not isinstance(caught.value, RefusedError)


def test_a_clear_no_is_one(tmp_path: Path) -> None:
    cluster = Cluster(sbatch=CommandAnswer(1, "", "sbatch: error: Invalid qos specification"))
    with pytest.raises(RefusedError, match="Invalid qos") as caught:
        backend(cluster).submit(script(tmp_path))
    assert not isinstance(caught.value, QueueFullError)


@pytest.mark.parametrize("said", ["Invalid qos specification", "the site's own checks", ""])
def test_a_submission_that_failed_in_words_only_is_found(tmp_path: Path, said: str) -> None:
    ours, cluster = script(tmp_path), Cluster(sbatch=CommandAnswer(1, "77\n", f"sbatch: error: {said}"))
    cluster.answers["squeue"] = [listed(cluster, ours)]
    assert backend(cluster).submit(ours) == {"0001-0001.0": "slurm:77_0", "0001-0001.1": "slurm:77_1"}


@pytest.mark.parametrize(("said", "certain"), [("Batch job submission failed: x", True), ("x", False)])
def test_a_no_is_believed_without_a_look_where_the_controller_said_it(
    tmp_path: Path, said: str, certain: bool
) -> None:
    cluster = Cluster(
        sbatch=CommandAnswer(1, "", f"sbatch: error: {said}"), squeue=CommandAnswer(1, "", "squeue: error: y")
    )
    with pytest.raises(BackendUnavailableError) as caught:
        backend(cluster).submit(script(tmp_path))
    assert isinstance(caught.value, RefusedError) is certain


def test_a_queue_that_fails_once_is_asked_again() -> None:
    timed_out = CommandAnswer(1, "", "slurm_load_jobs error: Socket timed out on send/recv operation")
    running = CommandAnswer(0, "77_0|RUNNING|cpu1||None\n")
    cluster = Cluster(squeue=[timed_out, timed_out, running])
    ours = SlurmBackend(Profile("here", "here.yaml"), runner=cluster, pauses=(0.01, 0.01))
    assert ours.poll(["slurm:77_0"])["slurm:77_0"].state is JobState.RUNNING


def test_a_queue_that_goes_on_failing_is_asked_three_times_and_says_so() -> None:
    cluster = Cluster(squeue=CommandAnswer(1, "", "slurm_load_jobs error: Socket timed out"))
    ours = SlurmBackend(Profile("here", "here.yaml"), runner=cluster, pauses=(0.01, 0.01))
    said = ours.poll(["slurm:77_0"])["slurm:77_0"]
    assert said.state is JobState.UNKNOWN
    assert said.text == "squeue: Socket timed out (asked 3 times in 0 s)"
    assert cluster.count("squeue") == 3


@pytest.mark.parametrize("said", ["squeue: unrecognized option '--x'", "Invalid user id: x"])
def test_what_is_certain_is_asked_once(said: str) -> None:
    cluster = Cluster(squeue=CommandAnswer(1, "", said))
    ours = SlurmBackend(Profile("here", "here.yaml"), runner=cluster, pauses=(60.0, 60.0))
    assert ours.poll(["slurm:77_0"])["slurm:77_0"].state is JobState.UNKNOWN


def test_without_a_queue_there_is_no_room() -> None:
    """What is in it counts, so a whole limit would be wrong, and sbatch is not going to answer either."""
    cluster = Cluster(squeue=CommandAnswer(1, "", "squeue: error: Unable to contact slurm controller"))
    for profile in (Profile("here", "here.yaml", max_jobs=5), Profile("here", "here.yaml")):
        with pytest.raises(BackendUnavailableError, match="squeue: Unable to contact"):
            backend(cluster, profile).capacity()


def test_an_array_is_cancelled_by_one_request() -> None:
    cluster = Cluster()
    backend(cluster).cancel([f"slurm:77_{index}" for index in (0, 1, 2, 5)])
    assert cluster.asked == [["scancel", "77_[0-2,5]"]]


class Time:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_end_is_asked_for_until_it_is_known_and_never_again() -> None:
    clock, cluster = Time(), Cluster(sacct=[EMPTY, EMPTY, CommandAnswer(0, "77_0|OUT_OF_MEMORY|cpu1\n")])
    departed = FinishedJobs(cluster, clock)
    for _ in range(60):
        said = departed.statuses({"77_0"})["77_0"]
        assert said.state is JobState.ENDED
        clock.now += 1.0
    assert said.reason is Reason.OUT_OF_MEMORY
    assert cluster.count("sacct") == 3
    assert departed.settled == {"77_0"}
    departed.statuses({"77_0", "77_1"})
    assert cluster.asked[-2][-2:] == ["77", "--format=JobID,State,NodeList"], "another one's end is asked for"


def test_an_end_that_accounting_does_not_know_is_asked_for_ever_more_seldom() -> None:
    clock, cluster = Time(), Cluster()
    departed = FinishedJobs(cluster, clock)
    for _ in range(600):
        assert departed.statuses({"77_0"})["77_0"].text == "left the queue"
        clock.now += 1.0
    assert cluster.count("sacct") < 25


def test_accounting_that_hangs_costs_its_patience_once_in_a_while() -> None:
    clock = Time()

    def hangs(argv: Sequence[str]) -> CommandAnswer:
        if argv[0] == "sacct":
            clock.now += 60.0
            return SILENT
        return CommandAnswer(1, "", "slurm_load_jobs error: Invalid job id specified")

    departed, lost = FinishedJobs(hangs, clock), 0.0
    for _ in range(600):
        before = clock.now
        assert departed.statuses({"77_0"})["77_0"].state is JobState.ENDED
        lost += clock.now - before
        clock.now += 1.0
    assert lost <= 120.0


def test_a_controller_that_does_not_answer_ends_no_job() -> None:
    departed = FinishedJobs(Cluster(squeue=CommandAnswer(1, "", "squeue: error: Socket timed out")), Time())
    assert departed.statuses({"77_0"})["77_0"].state is JobState.UNKNOWN


def test_the_queue_beats_accounts_and_what_is_missing_is_looked_up(tmp_path: Path) -> None:
    queue = CommandAnswer(0, "77_0|PENDING||ours|BeginTime\n")
    cluster = Cluster(squeue=queue, sacct=CommandAnswer(0, "77_0|PREEMPTED|cpu1\n77_1|TIMEOUT|cpu1\n"))
    said = backend(cluster).poll(["slurm:77_0", "slurm:77_1"])
    assert said["slurm:77_0"].state is JobState.QUEUED
    assert said["slurm:77_1"].reason is Reason.TIME_LIMIT


def test_a_queue_that_knows_no_me() -> None:
    old = CommandAnswer(
        1, "", "squeue: unrecognized option '--me'\nTry \"squeue --help\" for more information\n"
    )
    cluster = Cluster(squeue=[old, CommandAnswer(0, "77_0|RUNNING|cpu1||None\n")])
    ours = backend(cluster)
    assert ours.poll(["slurm:77_0"])["slurm:77_0"].state is JobState.RUNNING
    assert [argv[-1] for argv in cluster.asked] == ["--me", f"--user={os.getuid()}"]


CONFIG = "ClusterName = east\nMaxArraySize = 10\nMaxJobCount = 10000\n"
LIMITS = {"lab": CommandAnswer(0, "lab|20\n"), None: CommandAnswer(0, "lab|20\nclosed|0\n")}


@pytest.mark.parametrize(
    ("profile", "options", "exported", "account"),
    [
        (None, [], None, None),
        ("lab", [], "other", "lab"),
        (None, [], "lab", "lab"),
        ("other", ["--account=lab"], None, "lab"),
    ],
)
def test_room_is_what_the_association_on_this_cluster_leaves(
    monkeypatch: pytest.MonkeyPatch,
    profile: str | None,
    options: list[str],
    exported: str | None,
    account: str | None,
) -> None:
    monkeypatch.delenv("SBATCH_ACCOUNT", raising=False)
    if exported:
        monkeypatch.setenv("SBATCH_ACCOUNT", exported)
    cluster = Cluster(
        scontrol=CommandAnswer(0, CONFIG),
        sacctmgr=LIMITS[account],
        squeue=CommandAnswer(0, "7_0|PENDING||x|None\n7_1|COMPLETED|cpu1|x|None\n"),
    )
    ours = SlurmBackend(Profile("here", "here.yaml", account=profile), options, cluster, pauses=())
    assert ours.capacity().room == 19
    [asked] = [argv for argv in cluster.asked if argv[:5] == ["sacctmgr", "-n", "-P", "show", "assoc"]]
    assert "cluster=east" in asked
    assert [part for part in asked if part.startswith("account=")] == (
        [f"account={account}"] if account else []
    )


def test_jobs_that_name_no_account_have_the_limit_of_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SBATCH_ACCOUNT", raising=False)
    cluster = Cluster(
        scontrol=CommandAnswer(0, CONFIG),
        sacctmgr=[CommandAnswer(0, "root|\nlab|5\n"), CommandAnswer(0, "lab\n")],
    )
    assert backend(cluster).capacity().room == 5


def test_a_job_counts_until_it_has_left() -> None:
    """Also one that is through with its work, and submits others as it leaves."""
    queue = CommandAnswer(
        0, "7_0|RUNNING|cpu1|x|None\n7_1|COMPLETING|cpu1|x|None\n7_2|COMPLETED|cpu1|x|None\n"
    )
    cluster = Cluster(scontrol=CommandAnswer(0, CONFIG), sacctmgr=CommandAnswer(0, "lab|5\n"), squeue=queue)
    assert backend(cluster, Profile("here", "here.yaml", account="lab")).capacity().room == 3


ASSOC, QOS = "lab||short|normal,short", "short|2|\nnormal||\nlong|4|3"
PARTITIONS = "PartitionName=cpu Default=YES QoS=N/A\nPartitionName=big Default=NO QoS=Long\n"
QUEUED = "PENDING|short|cpu\nRUNNING|normal|big\nPENDING|normal|cpu,big\nCOMPLETED|short|cpu\n"


@pytest.mark.parametrize(
    ("assoc", "profile", "options", "room"),
    [
        (ASSOC, {}, [], 1),  # the account's default QOS
        ("lab||short|short\nlab||short|short", {}, [], 1),
        ("lab|||short", {}, [], 1),  # the only one
        ("lab|||normal,short", {}, [], None),  # normal
        (ASSOC, {"qos": "normal"}, [], None),
        (ASSOC, {"qos": "Short"}, [], 1),
        (ASSOC, {"qos": "normal"}, ["--qos=short"], 1),
        (ASSOC, {"qos": "normal", "partition": "big"}, [], 1),  # 3 for the account there, and 2 are there
        (ASSOC, {"partition": "big"}, [], 1),
        (ASSOC, {"qos": "normal", "partition": "cpu,big"}, [], None),  # it may go to either
        ("lab|1|short|short", {}, [], 1),  # what a QOS allows a user replaces what the account does
        ("lab|5||normal", {}, [], 2),
        ("", {}, [], None),
    ],
)
def test_room_is_what_the_qos_of_jobs_leaves(
    monkeypatch: pytest.MonkeyPatch, assoc: str, profile: dict[str, str], options: list[str], room: int | None
) -> None:
    for name in ("SBATCH_ACCOUNT", "SBATCH_QOS", "SBATCH_PARTITION"):
        monkeypatch.delenv(name, raising=False)
    answers = {
        "show config": "ClusterName = east\n",
        "show partition": PARTITIONS,
        "show assoc": assoc,
        "show qos": QOS,
        "%T|%q|%P": QUEUED,
        "squeue": "7|PENDING||x|None\n8|RUNNING|a|x|None\n9|PENDING||x|None\n",
    }

    def ask(argv: Sequence[str]) -> CommandAnswer:
        return CommandAnswer(
            0, next((said for words, said in answers.items() if words in " ".join(argv)), "")
        )

    ours = SlurmBackend(Profile("here", "here.yaml", **profile), options, ask, pauses=())  # type: ignore[arg-type]
    assert ours.capacity().room == room


@pytest.mark.parametrize(
    ("limit", "feed", "why"),
    [(1, True, "your limit there is one job"), (2, True, ""), (2, False, "feed: false")],
)
def test_whether_jobs_that_end_can_submit_others(limit: int, feed: bool, why: str) -> None:
    cluster = Cluster(scontrol=CommandAnswer(0, CONFIG), sacctmgr=CommandAnswer(0, f"lab|{limit}\n"))
    said = backend(cluster, Profile("here", "here.yaml", account="lab", feed=feed)).capacity().no_feed
    assert why in (said or "")
    assert bool(said) == bool(why)


def test_a_site_without_job_arrays() -> None:
    with pytest.raises(BackendUnavailableError, match="job arrays switched off"):
        backend(Cluster(scontrol=CommandAnswer(0, "MaxArraySize = 0\n"))).capacity()
