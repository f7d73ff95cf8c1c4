"""The doctor asks SkyPilot for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.backends.skypilot import client
from orchestrator.config.profiles import parse_profile
from orchestrator.ui.doctor import Finding, Verdict, diagnose
from tests.libraries import well
from tests.sky.bed import Bed


def findings(tmp_path: Path, profile: str) -> dict[str, Finding]:
    parsed = parse_profile(f"backend: skypilot\n{profile}", "l4.yaml", "l4")
    return {finding.name: finding for finding in diagnose(tmp_path / "results", parsed, probe=well)}


def test_all_is_well(bed: Bed, tmp_path: Path) -> None:
    found = findings(tmp_path, "infra: aws\naccelerators: L4\nstore: /mnt/store\n")
    assert {name for name, one in found.items() if one.verdict is Verdict.PROBLEM} == set()
    assert found["SkyPilot"].found == "0.14.1"
    assert found["Cloud"].found == "aws is enabled"
    assert found["Machine"].found == "g6.xlarge of AWS us-east-1, 0.8048 $/h on demand (spot 0.3 $/h)"
    assert found["Instances"].found == "none is up"


@pytest.mark.parametrize(
    ("profile", "name", "said", "fix"),
    [
        ("infra: gcp\naccelerators: L4", "Cloud", "GCP", "sky check gcp"),
        ("infra: aws\naccelerators: L5", "Machine", "no such accelerator", "is one of L4 (l4.yaml)"),
        ("infra: slurm/test\nspot: true", "Machine", "no spot machines", "spot: false (l4.yaml)"),
        ("infra: slurm/test", "Store", "none: an instance waits", "`store:` in l4.yaml"),
        ("infra: slurm/test\nstore: s3://nobodys/x", "Store", "no such bucket", "`store:` in l4.yaml"),
    ],
)
def test_what_is_amiss(bed: Bed, tmp_path: Path, profile: str, name: str, said: str, fix: str) -> None:
    finding = findings(tmp_path, profile)[name]
    assert finding.verdict in (Verdict.PROBLEM, Verdict.WARNING)
    assert said in finding.found
    assert finding.fix is not None
    assert fix in finding.fix


def test_no_way_to_the_server(bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client.close()
    monkeypatch.setenv("SKYPILOT_API_SERVER_ENDPOINT", "http://127.0.0.1:9")
    found = findings(tmp_path, "infra: aws")
    client.close()
    assert "does not answer" in found["API server"].found
    assert found["All other checks"].verdict is Verdict.NOT_HERE
    assert "Machine" not in found
