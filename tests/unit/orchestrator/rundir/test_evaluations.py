"""Records of evaluations: named by what was asked, whole or not there."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.rundir import Evaluation, SweepDir
from tests.helpers import ROOT, make_sweep

RUN = "0123456789abcdef"
ONE = Evaluation(
    run_id=RUN,
    frames=1200,
    best=True,
    checkpoint="fedcba9876543210",
    task="vmas/navigation",
    episodes=2,
    seed=0,
    deterministic=True,
    returns=(1.5, -0.25),
    lengths=(20, 17),
    time=1000.0,
)


def test_what_is_written_is_read_oldest_first(tmp_path: Path) -> None:
    log = SweepDir(tmp_path, "s").evaluations
    (tmp_path / "s").mkdir()
    later = replace(ONE, seed=1, time=2000.0)
    for one in (later, ONE):
        log.add(one)
    assert log.read() == [ONE, later]


def test_the_same_again_replaces_itself_and_anything_else_is_beside_it(tmp_path: Path) -> None:
    log = SweepDir(tmp_path, "s").evaluations
    (tmp_path / "s").mkdir()
    again = replace(ONE, time=3000.0)
    assert log.add(ONE) == log.add(again)
    others = {
        "frames": 600,
        "best": False,
        "checkpoint": "0" * 16,
        "task": "vmas/balance",
        "seed": 7,
        "deterministic": False,
    }
    for name, value in others.items():
        log.add(replace(ONE, **{name: value}))
    assert len(log.read()) == 1 + len(others)
    assert again in log.read()


def test_those_of_further_sources_are_read_too(tmp_path: Path) -> None:
    sweep = SweepDir(tmp_path, "s")
    source = SweepDir(tmp_path / "s" / "sources", "cluster")
    source.path.mkdir(parents=True)
    source.evaluations.add(ONE)
    assert sweep.evaluations.read() == [ONE]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "null",
        lambda text: "[" * 100_000,
        lambda text: _with(text, episodes=3),
        lambda text: _with(text, frames="many"),
        lambda text: _with(text, seed=True),
        lambda text: _with(text, returns="ab"),
        lambda text: _with(text, lengths=[float("inf"), 1]),
        lambda text: _with(text, seed=5),  # not what its name says
    ],
)
def test_a_record_that_cannot_be_read_is_left_out_and_made_again(tmp_path: Path, spoil: Any) -> None:
    log = SweepDir(tmp_path, "s").evaluations
    (tmp_path / "s").mkdir()
    path = log.add(ONE)
    path.write_text(spoil(path.read_text()))
    (path.parent / "notes.txt").write_text("mine")
    assert log.read() == []
    log.add(ONE)
    assert log.read() == [ONE]


def _with(text: str, **changed: Any) -> str:
    return json.dumps({**json.loads(text), **changed})


def test_they_come_home_with_their_sweep(tmp_path: Path) -> None:
    there = make_sweep(tmp_path / "there", [])
    there.evaluations.add(ONE)
    here = tmp_path / "here"
    assert sync_results([str(there.results), str(here)]) == 0
    assert SweepDir.existing(here, there.name).evaluations.read() == [ONE]


def test_they_come_home_beside_those_made_here(tmp_path: Path) -> None:
    there, here = (make_sweep(tmp_path / name, []) for name in ("there", "here"))
    there.evaluations.add(ONE)
    own = replace(ONE, seed=1, time=2000.0)
    here.evaluations.add(own)
    assert sync_results([str(there.results), str(here.results)]) == 0
    assert here.evaluations.read() == [ONE, own]


def sync_results(arguments: list[str]) -> int:
    argv = [sys.executable, "-m", "orchestrator.ui.cli", "sync", *arguments]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=600).returncode
