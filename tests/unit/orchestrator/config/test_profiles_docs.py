"""docs/profiles.md and the keys' reference: complete tables, an example that loads, true error messages."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from docs.code_reference import profile_keys
from orchestrator.config.backends import owner_of
from orchestrator.config.profiles import Profile, parse_profile, profile_names
from orchestrator.core.errors import ProfileError

ROOT = Path(__file__).parents[4]
DOCS = ROOT / "docs" / "profiles.md"
ERRORS = ROOT / "tests" / "golden" / "profile_errors.md"
ERROR = re.compile(r"```yaml\n(?P<profile>(?:(?!```).)*)```\n\n```text\n(?P<message>.*?)```", re.DOTALL)


def told(text: str) -> list[tuple[str, str]]:
    """The first two cells of every row in the tables of a text."""
    return re.findall(r"^\| `(\S+)` \| (.*?) ?\|", text, re.MULTILINE)


def shown(default: object) -> str:
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if isinstance(default, int | str) else ""


def message(profile: str) -> str:
    with pytest.raises(ProfileError) as caught:
        parse_profile(profile, "marvin.yaml", "marvin")
    hint = f"  {caught.value.hint}\n" if caught.value.hint else ""
    return f"{caught.value}\n{hint}"


def test_every_key_is_told_with_its_default() -> None:
    fields = {field.name: field.default for field in dataclasses.fields(Profile)}
    for not_written in ("name", "source", "gpu_type", "own"):
        del fields[not_written]
    assert told(profile_keys()) == [(name, shown(default)) for name, default in fields.items()]


def test_every_key_told_is_read() -> None:
    for key, _ in told(profile_keys()):
        backend = f"backend: {owner}\n" if (owner := owner_of(key)) else ""
        assert parse_profile(f"{backend}{key}:", "marvin.yaml", "marvin").name == "marvin"


def test_every_profile_that_ships_is_told() -> None:
    section = DOCS.read_text().split("## Those that come with the program\n")[1].split("\n## ")[0]
    names = {name for name, _ in told(section)}
    assert names | {"local"} == set(profile_names())


def test_the_example_loads() -> None:
    example = re.search(r"```yaml\n(# ~.*?)```", DOCS.read_text(), re.DOTALL)
    assert example is not None
    profile = parse_profile(example[1], "marvin.yaml", "marvin")
    assert (profile.gpu_type, profile.gpus, profile.array_limit) == ("l4", 1, 20)


@pytest.mark.parametrize(("page", "least"), [(DOCS, 1), (ERRORS, 13)])
def test_every_error_shown_is_what_the_program_says(page: Path, least: int, update_golden: bool) -> None:
    text = page.read_text()
    if update_golden:
        text = ERROR.sub(
            lambda found: f"```yaml\n{found['profile']}```\n\n```text\n{message(found['profile'])}```", text
        )
        page.write_text(text)
    examples = list(ERROR.finditer(text))
    assert len(examples) >= least
    for example in examples:
        assert message(example["profile"]) == example["message"]


def test_every_profile_for_an_environment_loads() -> None:
    page = (ROOT / "docs" / "your-environment.md").read_text()
    profiles = re.findall(r"```yaml\n(# profiles/.*?)```", page, re.DOTALL)
    assert len(profiles) == 5
    for profile in profiles:
        loaded = parse_profile(profile, "cluster.yaml", "cluster")
        assert loaded.setup or loaded.environment or loaded.modules
