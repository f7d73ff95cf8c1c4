"""Typing errors in grids of actor-critic trainers are found before PyTorch is loaded."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.helpers import ROOT
from tests.warm import FRESH

_LOOK = """
import json, sys
from jobs.check import _check
from orchestrator.config.trainers import get_trainer
from orchestrator.core.types import Run
trainer, overrides = json.loads(sys.argv[1])
run = Run("0" * 16, trainer, overrides, 0, 1, None)
(found,) = _check(get_trainer(trainer), [run])
print(json.dumps([found.key, found.hint, found.early, "torch" in sys.modules]))
"""


@pytest.mark.parametrize(
    ("trainer", "overrides", "key", "hint"),
    [
        ("ppo", {"task": "procgen/coinrun", "dicsount": 0.9}, "dicsount", "did you mean discount?"),
        ("ppo", {"task": "gymnasium/CartPol-v1"}, "task", "did you mean gymnasium/CartPole-v1?"),
        ("impala", {"task": "procgen/coinrum"}, "task", "did you mean procgen/coinrun?"),
        ("a2c", {"task": "bucket_brigade/hard", "envs": "many"}, "envs", None),
    ],
)
def test_what_is_misspelt_is_said_before_anything_heavy_is_imported(
    trainer: str, overrides: dict[str, object], key: str, hint: str | None
) -> None:
    asked = json.dumps([trainer, overrides])
    done = subprocess.run([FRESH, "-c", _LOOK, asked], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [key, hint, True, False]
