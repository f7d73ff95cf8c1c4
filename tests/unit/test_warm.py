"""What tests start by a warm Python is what it would be by another."""

from __future__ import annotations

import subprocess
import sys


def test_code_of_pip_is_no_fork_of_what_collected_the_tests() -> None:
    """Both start as the processes of pytest-xdist do; with setuptools loaded, a wheel cannot be built."""
    code = "import sys; print('pytest' in sys.modules)"
    said = subprocess.run([sys.executable, "-u", "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"
