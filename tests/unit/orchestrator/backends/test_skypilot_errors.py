"""SkyPilot's failures in our words; the same with SkyPilot itself is in tests/sky/test_cloud.py."""

from __future__ import annotations

import pytest

from orchestrator.backends.skypilot.errors import failure_of, not_installed, unanswered
from orchestrator.core.errors import RefusedError

PLACES = (
    "\x1b[31mFailed to provision all possible launchable resources.\x1b[0m\n"
    "Provision failures (tried 2 infra):\n\n✗ AWS (us-east-1) — (gpus=L4:1, [Spot])\n  Failed.\n"
    "✗ GCP (us-west1)\n  Failed.\n"
)
LOG = (
    "W An error occurred ({code}) when calling the RunInstances operation (reached max retries: 0): {text}\n"
)


def named(name: str, *bases: type[BaseException]) -> type[BaseException]:
    """An error of SkyPilot's by its name alone."""
    return type(name, bases or (Exception,), {})


@pytest.mark.parametrize(
    ("code", "said", "hint"),
    [
        ("InsufficientInstanceCapacity", "no machine available now", "`spot: false`"),
        ("MaxSpotInstanceCountExceeded", "your quota is exceeded", "quota"),
        ("VcpuLimitExceeded", "your quota is exceeded", "quota"),
        ("UnauthorizedOperation", "lacks a permission", "permission"),
        ("AuthFailure", "refuses your credentials", "aws configure"),
        ("RequestLimitExceeded", "none could be started", "sky logs --provision"),
    ],
)
def test_the_clouds_own_word_decides(code: str, said: str, hint: str) -> None:
    error = named("ResourcesUnavailableError")(PLACES)
    found = failure_of(error, "launch a", log=2 * LOG.format(code=code, text="so it is: no"))
    assert said in found.message
    assert f"{code}: so it is: no" in found.message
    assert "\x1b" not in found.message
    assert hint in found.hint
    assert isinstance(found.error(), RefusedError)


def test_what_was_tried_is_named() -> None:
    error = named("ResourcesUnavailableError")(PLACES)
    found = failure_of(error, "launch a", log=LOG.format(code="InsufficientInstanceCapacity", text="x"))
    assert "(tried AWS (us-east-1) gpus=L4:1, [Spot]; GCP (us-west1))" in found.message


def test_a_reason_among_those_of_the_places() -> None:
    error = named("ResourcesUnavailableError")("Failed.")
    error.failover_history = [named("NotSupportedError")("stopping spot instances")]  # type: ignore[attr-defined]
    assert "spot: false" in failure_of(error, "launch a").hint


@pytest.mark.parametrize(
    ("name", "said", "found", "refused"),
    [
        ("NoCloudAccessError", "", "no suitable cloud is enabled", True),
        ("ApiServerConnectionError", "Could not connect", "API server does not answer", False),
        ("ConnectionError", "Max retries exceeded with url: /skypilot-catalog/x", "prices cannot be", False),
        ("ClusterStatusFetchingError", "Failed to query", "the cloud does not answer", False),
        ("CloudUserIdentityError", "no", "refuses your credentials", True),
        ("PermissionDeniedError", "not yours", "lacks a permission", True),
        ("ResourcesMismatchError", "other", "of that name is in use", True),
        ("ClusterDoesNotExist", "Cluster 'a'", "no such instance", True),
        ("NotSupportedError", "Stopping is not supported", "cannot be stopped", True),
        ("NotSupportedError", "ports", "not supported by the cloud: ports", True),
        ("InvalidSkyPilotConfigError", "bad", "SkyPilot refuses the task: bad", True),
        ("CommandError", "rsync failed", "could not be set up: rsync failed", True),
        ("SomethingNew", "of the next version", "of the next version", False),
    ],
)
def test_kinds(name: str, said: str, found: str, refused: bool) -> None:
    failure = failure_of(named(name)(said), "launch a")
    assert failure.message.startswith("launch a: ")
    assert found in failure.message
    assert (failure.refused, isinstance(failure.error(), RefusedError)) == (refused, refused)
    assert failure.error().hint == failure.hint != ""


def test_no_secret_is_told() -> None:
    error = ValueError("curl -H 'key: abcdef' with abcdef123")
    found = failure_of(
        error, "launch a", secrets=["abcdef", "abcdef123", ""], log=LOG.format(code="abcdef", text="y")
    )
    assert "abcdef" not in found.message
    assert "123" not in found.message


def test_endless_texts_are_cut() -> None:
    assert len(failure_of(ValueError("x " * 10_000), "launch a").message) < 600


def test_without_it() -> None:
    assert "pip install" in not_installed(ModuleNotFoundError("No module named 'sky'")).hint
    assert "within 120 s" in unanswered("launch a", 120.0).message


def test_a_launch_that_broke_down_may_be_tried_again() -> None:
    """As SkyPilot's server answers where a machine was taken away under it; or its own set-up failed."""
    trace = 'Failed to get request 9f: 500\nTraceback:\n  File "x.py"\nOSError: it is gone'
    found = failure_of(named("RuntimeError")(trace), "launch a")
    assert (found.message, found.refused) == ("launch a: OSError: it is gone", False)
    assert failure_of(named("CommandError")("rsync failed"), "launch a").obtained
    assert not failure_of(named("ResourcesUnavailableError")(PLACES), "launch a").obtained
