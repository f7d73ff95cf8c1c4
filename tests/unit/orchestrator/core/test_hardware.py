"""Facts about this machine, read from files of a made-up one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from orchestrator.core.machine.hardware import cpu_capability, interface_to, physical_cores, physical_first


def test_cores_that_share_no_physical_core_come_first(tmp_path: Path) -> None:
    for core, siblings in enumerate(["0,4", "1,5", "2,6", "3,7"] * 2):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{core}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    assert physical_first({5, 1, 0, 4, 6}, tmp_path) == [0, 1, 6, 4, 5]
    assert physical_first({9, 8}, tmp_path) == [8, 9]  # a machine that does not say
    assert physical_cores({5, 1, 0, 4, 6}, tmp_path) == 3
    assert physical_cores({9, 8}, tmp_path) == 2


def test_the_way_to_this_machine_is_its_own_interface() -> None:
    assert interface_to("127.0.0.1") == "lo"
    assert interface_to("no address") is None


def test_the_capability_is_the_one_that_pytorch_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cpu_capability() == torch.backends.cpu.get_cpu_capability()
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text("model name: old\nflags\t\t: fpu sse avx avx2 fma\n")
    assert cpu_capability(tmp_path) == "AVX2"
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    assert cpu_capability(tmp_path) == "DEFAULT"
    assert cpu_capability(tmp_path / "proc") is None
