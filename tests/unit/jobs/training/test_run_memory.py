"""Where kills for want of memory are counted: control groups of both versions, as Linux writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.training.processes import run_memory

EVENTS = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"


@pytest.mark.parametrize(
    ("groups", "files", "kills"),
    [
        ("0::/job/step\n", {"job/step/memory.events": EVENTS}, 2),
        ("0::/\n", {"memory.events": EVENTS}, 2),  # in a container
        ("4:memory:/job\n1:cpu:/\n", {"memory/job/memory.oom_control": CONTROL}, 5),
        ("4:memory:/job\n0::/job\n", {"memory/job/memory.oom_control": CONTROL}, 5),
        (
            "4:cpu,memory:/job\n",
            {"memory/job/memory.oom_control": "under_oom 0\n"},
            None,
        ),  # Linux before 4.13
        ("0::/job\n", {}, None),
    ],
)
def test_kills_are_those_of_the_own_group(
    groups: str, files: dict[str, str], kills: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").write_text(groups)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(run_memory, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(run_memory, "_GROUPS", tmp_path)
    assert run_memory.oom_kills() == kills


def test_without_control_groups_kills_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_memory, "_OWN_GROUPS", tmp_path / "none")
    assert run_memory.oom_kills() is None
