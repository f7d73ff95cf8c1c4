"""What the doctor says of instances that are up; tests/sky/test_doctor.py asks SkyPilot for real."""

from __future__ import annotations

import time

import pytest

from orchestrator.backends.instances import Instance, RecordedState
from orchestrator.backends.skypilot import client, doctor
from orchestrator.config.profiles import Profile
from orchestrator.core.findings import Verdict


@pytest.mark.parametrize(
    ("hours", "launching", "autodown", "why"),
    [
        (0.5, True, "", None),
        (2, True, "", "the launch takes very long"),
        (0.5, False, "", "the launch died"),
        (2, True, "in 10 minutes", None),
    ],
)
def test_an_instance_that_nothing_stops_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, hours: float, launching: bool, autodown: str, why: str | None
) -> None:
    name, since = "orc-speed-0001-0001-0a1b2c", time.time() - hours * 3600
    one = Instance(name, RecordedState.UP, since, 1.5, "here", "large", False, autodown)
    monkeypatch.setattr(client, "clusters", lambda *_, **__: {name: one})
    monkeypatch.setattr(client, "launching", lambda _: "request" if launching else None)
    found = doctor.instances(Profile("l4", "l4.yaml", backend="skypilot"))
    assert found.verdict is (Verdict.PROBLEM if why else Verdict.WARNING)
    if why:
        assert f"nothing stops {name}: {why}" in found.found
        assert found.fix.startswith("orchestrate cancel SWEEP in the folder of its sweep")
