"""docs/tutorial.md, typed from its first command to its last in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.helpers import PATIENCE_S, ROOT

STEP = re.compile(r"^```console\n(?P<typed>.*?)^```\n\n```text\n(?P<said>.*?)^```$", re.DOTALL | re.MULTILINE)
PAGE = (ROOT / "docs" / "tutorial.md").read_text()


def shape(line: str) -> re.Pattern[str]:
    """What a line looks like whatever its ids, figures and column widths."""
    words = (re.escape(word) for word in line.split())
    figures = (re.sub(r"\\?[-]?\d[\w.\\,:*]*|[0-9a-f]{8}(?=$)", r"\\S+", word) for word in words)
    return re.compile(r"\s+".join(figures))


def test_shapes_are_no_blank_cheques() -> None:
    line = shape("d158872f  mappo seed=0  done   100% of 400      71.9  0.0989")
    assert line.search("16a64898 mappo seed=1 done 100% of 400 7 -1")
    assert not line.search("16a64898 iql seed=1 done 100% of 400 7 1")
    assert not line.search("16a64898 mappo seed=1 failed 100% of 400 7 1")


@pytest.mark.nightly
def test_every_command_says_what_the_page_says(tmp_path: Path) -> None:
    steps = list(STEP.finditer(PAGE))
    blocks = re.findall(r"^```console\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert [step["typed"] for step in steps] == blocks
    assert len(blocks) >= 9
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for step in steps:
        ran = subprocess.run(
            ["bash", "-ec", step["typed"]],
            cwd=tmp_path,
            env={**os.environ, **warm.WORKERS, "PATH": path, "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert ran.returncode == 0, (step["typed"], ran.stdout, ran.stderr)
        missing = [line for line in step["said"].splitlines() if not shape(line).search(ran.stdout)]
        assert missing == [], ran.stdout
    made = tmp_path / "results" / "first"
    for name in ("results.csv", "metrics.parquet", "report/index.html", "compare-algorithm/compare-1.png"):
        assert (made / name).is_file()
    assert len(list((made / "runs").glob("*/result.json"))) == 4
    assert not (tmp_path / "elsewhere").exists()
