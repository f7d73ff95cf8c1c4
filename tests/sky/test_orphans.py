"""A laptop that dies in mid-launch: the command and SkyPilot's server at once, when AWS says that it runs."""

from __future__ import annotations

import base64
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.backends.skypilot import client as skypilot
from tests.helpers import kill, wait_for
from tests.sky.bed import Bed
from tests.sky.reaper import belonging
from tests.sky.test_sweep import CloudLab, lab_in, labs

__all__ = ["labs"]


@pytest.fixture
def ec2(bed: Bed) -> Iterator[Any]:
    """AWS's own word on what is up; nothing is afterwards."""
    import boto3

    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    client = boto3.client("ec2", region_name="us-east-1", endpoint_url=f"http://127.0.0.1:{bed.moto}", **keys)
    yield client
    if left := up(client):
        client.terminate_instances(InstanceIds=left)


def up(ec2: Any) -> list[str]:
    found = [one for group in ec2.describe_instances()["Reservations"] for one in group["Instances"]]
    return [one["InstanceId"] for one in found if one["State"]["Name"] in ("pending", "running", "stopped")]


def die(bed: Bed) -> None:
    """End SkyPilot's server and what it is at, as a power cut does."""
    for pid in belonging(str(bed.folder)):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"sky.server" in line or b"SkyPilot" in line or b"multiprocessing" in line:
            kill(pid, signal.SIGKILL)


def cut_off(lab: CloudLab, bed: Bed, ec2: Any) -> str:
    """Launch, and die when AWS says that the instance runs; its id."""
    before = set(up(ec2))
    command = lab.start("sweep", "--grid", "tiny.yaml", "--on", "profile.yaml")
    try:
        wait_for(lambda: set(up(ec2)) - before, what="an instance of AWS")
    except AssertionError as error:
        command.kill()
        raise AssertionError(f"{error}:\n{command.communicate()}") from None
    command.kill()
    die(bed)
    command.communicate()
    (instance,) = set(up(ec2)) - before
    return instance


@pytest.mark.nightly
def test_what_a_dead_laptop_left_is_told_replaced_and_taken_down(
    bed: Bed, ec2: Any, tmp_path: Path, labs: list[CloudLab]
) -> None:
    skypilot.close()
    lab = lab_in(tmp_path / "cloud", labs, infra="aws/us-east-1", instance_type="m6i.large")
    lab.write_grid("tiny", "command", {"command": ["true"]}, {"seed": [0]})
    first = cut_off(lab, bed, ec2)
    word = ec2.describe_instance_attribute(InstanceId=first, Attribute="userData")["UserData"]["Value"]
    assert "systemd-run --on-active=3600 sh -c 'test -e" in base64.b64decode(word).decode()

    said = lab.run("status", "tiny")
    assert "WARNING: nothing stops it" in said
    assert up(ec2) == [first]
    second = cut_off(lab, bed, ec2)  # the sweep command took the first one down
    assert up(ec2) == [second]

    assert "1 run cancelled" in lab.run("cancel", "tiny")
    assert up(ec2) == []
    assert "instance" not in lab.run("status", "tiny")
    assert os.listdir(lab.results / "tiny" / "parcels") == []
