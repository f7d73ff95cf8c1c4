"""The SkyPilot that the other tests stand on leaves nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import PATIENCE_S, wait_for
from tests.sky.reaper import belonging


@pytest.mark.nightly
def test_it_ends_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, signal; from tests.sky.bed import Laptop; laptop = Laptop(); laptop.guard(); "
        "laptop.sky('api', 'start'); print(laptop.folder, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    folder = done.stdout.strip()
    assert folder.startswith("/tmp/sky-")
    wait_for(lambda: not Path(folder).exists() and not belonging(folder), what=f"the end of {folder}")
