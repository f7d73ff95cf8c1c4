"""docs/profiles.md: its tables are complete, its example loads, its errors are what the program says."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from docs.code_reference import profile_table
from orchestrator.config.backends import owner_of
from orchestrator.config.profiles import Profile, parse_profile, profile_names
from orchestrator.core.errors import ProfileError

DOCS = Path(__file__).parents[4] / "docs" / "profiles.md"
ERROR = re.compile(r"```yaml\n(?P<profile>(?:(?!```).)*)```\n\n```text\n(?P<message>.*?)```", re.DOTALL)


def test_the_table_is_what_the_code_says(update_golden: bool) -> None:
    """The reference is made of the same; here it stands for those who read the file as it is."""
    begin, end = "| key | default | meaning |\n", "\n\n"
    before, after = DOCS.read_text().split(begin)
    if update_golden:
        rest = after[after.index(end) :]
        DOCS.write_text(before + "\n".join(profile_table()) + rest)
        after = DOCS.read_text().split(begin)[1]
    assert (begin + after.split(end)[0]).splitlines() == profile_table()


def told(heading: str) -> list[tuple[str, str]]:
    """The first two cells of every row in the table below a heading."""
    section = DOCS.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `(\S+)` \| (.*?) ?\|", section, re.MULTILINE)


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
    assert told("Every key") == [(name, shown(default)) for name, default in fields.items()]


def test_every_key_told_is_read() -> None:
    for key, _ in told("Every key"):
        backend = f"backend: {owner}\n" if (owner := owner_of(key)) else ""
        assert parse_profile(f"{backend}{key}:", "marvin.yaml", "marvin").name == "marvin"


def test_every_profile_that_ships_is_told() -> None:
    names = {name for name, _ in told("Those that come with the program")}
    assert names | {"local"} == set(profile_names())


def test_the_example_loads() -> None:
    example = re.search(r"```yaml\n(# ~.*?)```", DOCS.read_text(), re.DOTALL)
    assert example is not None
    profile = parse_profile(example[1], "marvin.yaml", "marvin")
    assert (profile.gpu_type, profile.gpus, profile.array_limit) == ("l4", 1, 20)


def test_every_error_in_the_docs_is_what_the_program_says(update_golden: bool) -> None:
    text = DOCS.read_text()
    if update_golden:
        text = ERROR.sub(
            lambda found: f"```yaml\n{found['profile']}```\n\n```text\n{message(found['profile'])}```", text
        )
        DOCS.write_text(text)
    examples = list(ERROR.finditer(text))
    assert len(examples) > 12
    for example in examples:
        assert message(example["profile"]) == example["message"]
