"""Checkpoints of plain data: what they hold comes back the same, and no code comes with it."""

from __future__ import annotations

import pickle
import random
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.training.plain_data import read_plain_data, write_plain_data

STATE = {1: (None, True, 2.5), "text": [b"bytes", {"a", "b"}], "random": random.Random(0).getstate()}


def test_plain_data_comes_back_the_same(tmp_path: Path) -> None:
    write_plain_data(tmp_path / "state", STATE)
    assert read_plain_data(tmp_path / "state") == STATE


@pytest.mark.parametrize(
    "value", [np.float64(1.0), np.zeros(2), OrderedDict(), print, object(), random.Random]
)
def test_all_else_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(TypeError, match="expected None, numbers, text"):
        write_plain_data(tmp_path / "state", {"value": [value]})


def test_a_file_runs_no_code(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(pickle.dumps(print))
    with pytest.raises(pickle.UnpicklingError, match="print"):
        read_plain_data(tmp_path / "state")
