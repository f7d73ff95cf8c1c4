from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from orchestrator.rundir import Holder
from orchestrator.rundir.attempts import holder as process


def test_this_process_is_alive_and_another_with_its_number_is_not() -> None:
    me = Holder.current()
    assert me.alive() is True
    assert replace(me, started=me.started + 1).alive() is False


def test_a_process_that_ended_is_dead_even_before_it_is_reaped() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    holder = Holder.of(child.pid)
    assert holder.alive() is True
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert holder.alive() is False
    child.communicate()
    assert holder.alive() is False


def test_nothing_is_proved_about_other_machines_and_containers() -> None:
    me = Holder.current()
    assert replace(me, boot_id="other", host="other").alive() is None
    assert replace(me, pid_namespace="pid:[1]").alive() is None
    assert replace(me, boot_id="other", machine="").alive() is None


def test_a_reboot_ended_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_machine_id", lambda: "an-installation")
    monkeypatch.setattr(process, "_pid_namespace", lambda: "pid:[4026531836]")
    me = Holder.current()
    assert replace(me, boot_id="earlier").alive() is False
    assert replace(me, boot_id="earlier", machine="another").alive() is None
    assert replace(me, boot_id="earlier", pid_namespace="pid:[4026532000]").alive() is None


def test_containers_of_one_image_prove_nothing_about_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """On two machines they can have the same hostname, machine id and number of their namespace."""
    monkeypatch.setattr(process, "_machine_id", lambda: "an-image")
    monkeypatch.setattr(process, "_pid_namespace", lambda: "pid:[4026532000]")
    assert replace(Holder.current(), boot_id="of another machine").alive() is None
