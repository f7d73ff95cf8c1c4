"""What is said before it is queued: jobs that ask for what they do not use, or for what they never get."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.backends.slurm.concerns import (
    Partitions,
    concerns,
    empty_required_keys,
    node_cores,
    time_limits,
)
from orchestrator.config.profiles import Profile, find_profile
from orchestrator.core.types import Array, Job, Plan, Resources, Sweep

PROFILE = Profile("here", "here.yaml", cpus_per_task=8, time="1:00:00")
SHOWN = """\
PartitionName=cpu AllowGroups=ALL Default=YES MaxTime=00:30:00 State=UP
PartitionName=long AllowGroups=ALL Default=NO MaxTime=2-00:00:00 State=UP
PartitionName=free AllowGroups=ALL Default=NO MaxTime=UNLIMITED State=UP
"""


def plan(needs: Resources, slots: int = 1, gpus: int = 0, time: str = "1:00:00", runs: int = 2) -> Plan:
    """One array of jobs of a run each."""
    jobs = tuple(Job(f"0001-0001.{n}", "speed", "here", (f"{n:016x}",), slots, needs) for n in range(runs))
    array = Array("0001-0001", jobs, Resources(8, gpus, "8G", time))
    return Plan(Sweep("speed", "command", (), ""), "here", (array,), {}, {}, {})


def said(of: Plan, profile: Profile = PROFILE, there: Partitions | None = None, *options: str) -> list[str]:
    return [one.text for one in concerns(of, profile, options, there or Partitions())]


def test_nothing_is_said_of_jobs_that_use_what_they_ask_for() -> None:
    there = Partitions({"long": "2-00:00:00"}, {"long": 8})
    exclusive = replace(PROFILE, options=(("exclusive", None),))
    assert said(plan(Resources(1), slots=8), exclusive, there) == []


def test_runs_without_a_gpu_on_a_profile_with_one() -> None:
    one, four = replace(PROFILE, gpus=1), replace(PROFILE, gpus=4)
    [text] = said(plan(Resources(1), gpus=1), one)
    assert text == "2 runs use no GPU, and each of their jobs asks for a GPU (here)"
    [text] = said(plan(Resources(1), gpus=1, runs=1), one)
    assert text == "1 run uses no GPU, and its job asks for a GPU (here)"
    assert "asks for 4 GPUs" in said(plan(Resources(1), gpus=4), four)[0]
    assert said(plan(Resources(1, gpus=1), gpus=1), one) == []


@pytest.mark.parametrize(
    ("cores", "slots", "text"),
    [
        ({"cpu": 64}, 8, "a node of 64 cores to itself (`exclusive`), and its runs use 8 cores of it"),
        ({"cpu": 64, "fat": 8}, 8, None),
        ({}, 1, "a node to itself (`exclusive`), and its runs use 1 core of it"),
        ({}, 2, None),
    ],
)
def test_nodes_that_jobs_have_to_themselves_and_hardly_use(
    cores: dict[str, int], slots: int, text: str | None
) -> None:
    there, expected = Partitions({}, cores), [] if text is None else [f"each job has {text}"]
    assert (
        said(plan(Resources(1), slots), replace(PROFILE, options=(("exclusive", None),)), there) == expected
    )
    assert said(plan(Resources(1), slots), PROFILE, there, "--exclusive") == expected
    assert said(plan(Resources(1), slots), replace(PROFILE, options=(("exclusive", "user"),)), there) == []


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ("", "jobs ask for 1:00:00, and would wait for ever: cpu ends jobs after 00:30:00"),
        ("cpu", "jobs ask for 1:00:00, and would wait for ever: cpu ends jobs after 00:30:00"),
        ("cpu, long", None),
        ("free", None),
        ("nope", None),
    ],
)
def test_a_time_limit_that_no_partition_allows(named: str, text: str | None) -> None:
    there = Partitions(time_limits(SHOWN, named))
    assert said(plan(Resources(1)), PROFILE, there) == ([] if text is None else [text])


def test_what_a_profile_needs_and_lacks_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SBATCH_ACCOUNT", raising=False)
    profile = replace(PROFILE, require=("account", "setup or modules"))
    assert [one.text.partition(",")[0] for one in empty_required_keys(profile, ())] == [
        "here: account is empty",
        "here: setup or modules is empty",
    ]
    assert all(one.blocks for one in empty_required_keys(profile, ()))
    filled = replace(profile, account="abc", modules=("python",))
    assert list(empty_required_keys(filled, ())) == []
    assert len(list(empty_required_keys(profile, ["--account=abc"]))) == 1
    monkeypatch.setenv("SBATCH_ACCOUNT", "abc")
    assert len(list(empty_required_keys(profile, ()))) == 1


@pytest.mark.parametrize("name", ["jean-zay-v100", "jean-zay-a100"])
def test_profiles_to_be_filled_in_say_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SBATCH_ACCOUNT", raising=False)
    profile = find_profile(name)
    assert len(list(empty_required_keys(profile, ()))) == 2
    assert list(empty_required_keys(replace(profile, account="abc@v100", setup=("source x",)), ())) == []


def test_the_fewest_cores_of_a_partitions_nodes() -> None:
    assert node_cores("cpu|64\ncpu|32+\ngpu|8\n\nbad\n", ["cpu"]) == {"cpu": 32}
