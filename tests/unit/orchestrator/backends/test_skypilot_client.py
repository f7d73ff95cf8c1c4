"""Asking SkyPilot by its process, without SkyPilot."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from orchestrator.backends.skypilot import client
from orchestrator.backends.waiting import SlowLog
from tests.helpers import wait_for


def test_what_takes_long_is_said_as_long_as_it_does_and_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[int] = []

    class Helper:
        alive = True

        def send(self, request: Mapping[str, Any]) -> None:
            pass

        def receive(self, patience: float) -> Any:
            """Answer when the person was told, or could have been."""
            wait_for(lambda: caplog.messages)
            told.append(len(caplog.messages))
            return {"value": None}

    monkeypatch.setattr(client, "_helper", Helper())
    monkeypatch.setattr(client, "_slow_log", SlowLog(logging.getLogger(client.__name__), 0.0))
    client.down("one")
    client.down("one")
    assert told == [1, 1]
    assert caplog.messages == ["waiting for SkyPilot, for up to 900 s: terminate one"]
