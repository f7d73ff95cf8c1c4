"""Rules for README and docs/: short sentences, standard words, commands that exist, few words in all."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

from benchmarks.synthetic import finished_sweep
from docs.code_reference import METRIC_COLUMNS, RUN_COLUMNS
from orchestrator.analysis.collect import collect
from orchestrator.rundir import SweepDir
from orchestrator.ui.cli import app
from tests.helpers import ROOT

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LONGEST = 30
# All words of docs/, code and tables too: what is new replaces something.
WORDS = 35_000
# Say it in standard words: significant, checksum mismatch, not trusted, read-only copy.
BANNED = (
    "more than luck",
    "wrong by their looks",
    "wrong by its looks",
    "means harm",
    "half is taken for whole",
    "nobody hears",
    "comes home",
    "come home",
    "leave them to it",
)


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences outside of code blocks: of paragraphs, list items, cells of tables, headings."""
    text = re.sub(r"^( *)(```|~~~).*?^ *\2[ ]*$", "\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->|^---\n.*?^---\n", "\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"``.+?``|`[^`]+`", "CODE", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^\s*([-*]|\d+\.|#+|>|!!!|\?\?\?) ", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(
        r"^\|.*\|$", lambda row: "\n\n" + row[0].replace("|", "\n\n") + "\n\n", text, flags=re.MULTILINE
    )
    for paragraph in re.split(r"\n\s*\n", text):
        yield from re.split(r"(?<=[.!?])[\"')*_]*\s+", " ".join(paragraph.split()))


def long_sentences(page: Path) -> list[str]:
    return [one for one in sentences(page.read_text()) if len(re.findall(r"\w[\w'’./-]*", one)) > LONGEST]


def test_a_sentence_ends_where_a_reader_sees_its_end() -> None:
    text = (
        "# A head\nOne `a. b` [two](x.md).\nThree\n```bash\nfour. five\n```\n"
        "- six\n- seven! Eight\n\n| nine | ten |\n"
    )
    assert [one for one in sentences(text) if one] == [
        *("A head One CODE two.", "Three", "six", "seven!", "Eight", "nine", "ten")
    ]


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_sentences_are_short(page: Path) -> None:
    found = long_sentences(page)
    assert found == [], f"{len(found)} sentences of more than {LONGEST} words"


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_standard_words_are_used(page: Path) -> None:
    text = " ".join(page.read_text().split()).lower()
    assert [words for words in BANNED if words in text] == []


def test_the_pages_have_few_words() -> None:
    assert sum(len(page.read_text().split()) for page in PAGES if page.name != "README.md") <= WORDS


def commands(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each `orchestrate …` that stands in a block of commands."""
    for block in re.findall(r"^ *```(?:console|bash|sh)\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.shlex(line, posix=True, punctuation_chars=True)
            words.whitespace_split = True
            found: list[str] = []
            for word in [*words, ";"]:
                if word[0] not in ";&|()<>":
                    found.append(word)
                    continue
                if "orchestrate" in (names := [Path(name).name for name in found]):
                    yield found[names.index("orchestrate") + 1 :]
                found = []


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_the_program_has_every_command_and_option(page: Path) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    for name, *arguments in commands(page.read_text()):
        if name.startswith("-"):
            continue
        assert name in group.commands, f"orchestrate {name}"
        command = group.commands[name]
        try:
            command.make_parser(click.Context(command, info_name=name)).parse_args(arguments)
        except click.UsageError as error:
            pytest.fail(f"orchestrate {name} {' '.join(arguments)}: {error.format_message()}")


def test_every_column_of_the_tables_is_described(tmp_path: Path) -> None:
    finished_sweep(tmp_path, "speed", {"algorithm": ["mappo"], "seed": [0]})
    tables = collect([SweepDir(tmp_path, "speed")])
    described = {name for names in RUN_COLUMNS for name in names.split()}
    assert set(tables.runs.columns) - set(tables.keys) <= described
    assert set(tables.metrics.columns) == {name for names in METRIC_COLUMNS for name in names.split()}
