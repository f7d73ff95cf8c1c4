"""Secrets in grids, profiles and overrides: refused by name, and never repeated."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from jobs.hydra.overrides import runs_of
from orchestrator.config.grid import parse_grid
from orchestrator.config.profiles import parse_profile
from orchestrator.config.trainers import get_trainer
from orchestrator.core.errors import GridError, OrchestrateError, ProfileError
from orchestrator.core.secret_detection import secret_in

HIDDEN = "hunter2hunter2"
SECRET: list[tuple[str, Any, str]] = [
    ("api_token", HIDDEN, "api_token"),
    ("password", HIDDEN, "password"),
    ("password", 12345678, "password"),
    ("api_token", 123456789012, "api_token"),
    ("api_key", 98765432109876, "api_key"),
    ("pwd", "hunter2", "pwd"),
    ("db_pwd", 12345678, "db_pwd"),
    ("auth", "aB3dE6gH9jK2mN5pQ8sT1v", "auth"),
    ("apiKey", HIDDEN, "apiKey"),
    ("+model.hf_token", HIDDEN, "+model.hf_token"),
    ("token", HIDDEN, "token"),
    ("wandb_key", "0123456789abcdef" * 2 + "01234567", "wandb_key"),
    ("aws.secret_access_key", HIDDEN, "aws.secret_access_key"),
    ("experiment.wandb_extra_kwargs", {"api_key": HIDDEN}, "api_key"),
    ("env", {"deep": [{"DB_PASSWORD": HIDDEN}]}, "DB_PASSWORD"),
    ("command", ["python", "x.py", f"--token={HIDDEN}"], "token"),
    ("command", ["python", "x.py", "--api-key", HIDDEN], "api-key"),
    ("command", ["env", f"API_TOKEN={HIDDEN}", "python", "x.py"], "API_TOKEN"),
    ("command", ["bash", "-c", f"train --password {HIDDEN}"], "password"),
    ("args", f"--lr 0.1 --auth-token={HIDDEN}", "auth-token"),
    ("url", f"postgres://me:{HIDDEN}@host/db", "a password in an address"),
    ("note", "ghp_" + HIDDEN * 3, "ghp_…"),
    ("note", "sk-" + HIDDEN * 2, "sk-h…"),
]
PLAIN: list[tuple[str, Any]] = [
    ("max_tokens", 1024),
    ("n_tokens", 100_000_000),
    ("id_token", 50256),
    ("seed", 123456789012),
    ("pin_memory", True),
    ("pwd", "/home/me"),
    ("auth", "kerberos"),
    ("n_tokens", "1_000"),
    ("pad_token", "<pad>"),
    ("mask_token", "[MASK]"),
    ("key", 0),
    ("sort_key", "episode_reward_mean"),
    ("experiment.secret", 3),
    ("use_password", False),
    ("api_key", None),
    ("api_key", ""),
    ("api_key", "$WANDB_API_KEY"),
    ("api_key", "${oc.env:WANDB_API_KEY}"),
    ("api_key_file", HIDDEN),
    ("ssh_private_key", "~/.ssh/id_ed25519"),
    ("tokenizer", "gpt2"),
    ("passes", 3),
    ("command", ["python", "x.py", "--token={token_name}", "--seed", "{seed}"]),
    ("command", ["python", "x.py", "--api-key", "--fast"]),
    ("command", ["python", "x.py", "--keys", "obs"]),
    ("task", "vmas/navigation"),
    ("url", "https://example.org:8080/path@2"),
]


@pytest.mark.parametrize(("key", "value", "named"), SECRET)
def test_what_looks_like_a_secret_is_named(key: str, value: Any, named: str) -> None:
    assert secret_in(key, value) == named


@pytest.mark.parametrize(("key", "value"), PLAIN)
def test_what_machine_learning_calls_so_is_none(key: str, value: Any) -> None:
    assert secret_in(key, value) is None


def grid_with(section: str, key: str, value: Any) -> str:
    points: dict[str, Any] = {"base": {key: value}, "matrix": {key: [value]}, "zip": {key: [value]}}
    points["include"] = [{key: value, "seed": 0}]
    other = {} if section == "matrix" else {"matrix": {"seed": [1]}}
    return yaml.safe_dump(
        {"name": "s", "trainer": "command", **other, section: points[section]}, sort_keys=False
    )


@pytest.mark.parametrize("section", ["base", "matrix", "zip", "include"])
@pytest.mark.parametrize(("key", "value", "named"), SECRET)
def test_a_grid_with_one_is_refused_with_its_place(section: str, key: str, value: Any, named: str) -> None:
    with pytest.raises(GridError) as caught:
        parse_grid(grid_with(section, key, value), "grid.yaml")
    error = caught.value
    assert "which looks like a secret: grids, results and reports stay on disk" in str(error)
    assert named in str(error)
    assert error.line
    assert HIDDEN not in f"{error}{error.hint}"
    assert "export it as a variable" in (error.hint or "")


@pytest.mark.parametrize(
    "text",
    ["api_token=hunter2hunter2", "experiment.wandb_extra_kwargs={api_key:hunter2hunter2}", "password=a1,b2"],
)
def test_overrides_by_hand_with_one_are_refused(text: str) -> None:
    with pytest.raises(OrchestrateError, match="looks like a secret") as caught:
        runs_of(get_trainer("benchmarl"), [text])
    assert HIDDEN not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize(
    "text",
    [
        "environment: {WANDB_API_KEY: abc}",
        f'environment: {{EXTRA: "--token={HIDDEN}"}}',
        f'environment: {{DATABASE: "postgres://me:{HIDDEN}@host/db"}}',
        f"setup: [wandb login --api-key {HIDDEN}]",
        f"setup: ['curl -H \"Authorization: Bearer {HIDDEN}\" https://example.org']",
        f"python: env HF_TOKEN={HIDDEN} python",
    ],
)
def test_a_profile_with_one_is_refused(text: str) -> None:
    with pytest.raises(ProfileError, match="looks like a secret") as caught:
        parse_profile(text, "lab", "lab.yaml")
    assert HIDDEN not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize(
    "text", ["setup: [export HF_TOKEN=$(cat ~/token)]", "environment: {TOKENIZERS_PARALLELISM: no}"]
)
def test_a_profile_without_one_is_taken(text: str) -> None:
    parse_profile(text, "lab", "lab.yaml")
