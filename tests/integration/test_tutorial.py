"""docs/tutorial.md, typed from its first command to its last in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import warm
from tests.helpers import PATIENCE_S, ROOT

STEP = re.compile(r"^```console\n(?P<typed>.*?)^```\n\n```text\n(?P<said>.*?)^```$", re.DOTALL | re.MULTILINE)
PAGE = (ROOT / "docs" / "tutorial.md").read_text()


@dataclass(frozen=True)
class Step:
    typed: str
    said: tuple[str, ...]
    output: str


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Step]]:
    """Every step as it went, and the folder that it went in."""
    folder = tmp_path_factory.mktemp("empty")
    environment = {
        **os.environ,
        **warm.COMMANDS,
        **warm.WORKERS,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CUDA_VISIBLE_DEVICES": "",
        "HOME": str(tmp_path_factory.mktemp("home")),
    }
    done = []
    for found in STEP.finditer(PAGE):
        ran = subprocess.run(
            ["bash", "-ec", found["typed"]],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert ran.returncode == 0, (found["typed"], ran.stdout, ran.stderr)
        done.append(Step(found["typed"], tuple(found["said"].splitlines()), ran.stdout))
    return folder, done


def shape(line: str) -> re.Pattern[str]:
    """What a line looks like whatever its ids, figures and column widths."""
    words = (re.escape(word) for word in line.split())
    figures = (re.sub(r"\\?[-]?\d[\w.\\,:*]*|[0-9a-f]{8}(?=$)", r"\\S+", word) for word in words)
    return re.compile(r"\s+".join(figures))


def test_every_command_of_the_page_was_typed(steps: tuple[Path, list[Step]]) -> None:
    blocks = re.findall(r"^```console\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert [step.typed for step in steps[1]] == blocks
    assert len(blocks) >= 9


def test_every_command_says_what_the_page_says(steps: tuple[Path, list[Step]]) -> None:
    for step in steps[1]:
        missing = [line for line in step.said if not shape(line).search(step.output)]
        assert missing == [], step.output


def test_shapes_are_no_blank_cheques() -> None:
    line = shape("d158872f  mappo seed=0  done   100% of 400      71.9  0.0989")
    assert line.search("16a64898 mappo seed=1 done 100% of 400 7 -1")
    assert not line.search("16a64898 iql seed=1 done 100% of 400 7 1")
    assert not line.search("16a64898 mappo seed=1 failed 100% of 400 7 1")


def test_what_the_page_speaks_of_was_made(steps: tuple[Path, list[Step]]) -> None:
    folder = steps[0]
    for name in ("results.csv", "metrics.parquet", "report/index.html", "compare-algorithm/compare-1.png"):
        assert (folder / "results" / "first" / name).is_file()
    assert len(list((folder / "results" / "first" / "runs").glob("*/result.json"))) == 4
    assert not (folder / "elsewhere").exists()
