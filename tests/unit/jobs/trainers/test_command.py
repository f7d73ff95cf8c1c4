"""How a grid's values become a program's arguments."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.check import ELSEWHERE, Problem
from jobs.trainers.command import checking
from jobs.trainers.command.training import command_line
from jobs.training.context import BadConfigError
from orchestrator.config.command_line.command import program_file
from orchestrator.config.trainers.command import COMMAND
from orchestrator.core.types import Run

values = st.text() | st.integers() | st.booleans() | st.none() | st.lists(st.text(), max_size=2)


def check(runs: list[Run]) -> list[Problem]:
    """What is found, but that these programs have no source of metrics."""
    return [found for found in checking.check(runs) if "no source of metrics" not in found.message]


def run(command: Any, number: int = 0, **overrides: Any) -> Run:
    return Run(f"{number:016x}", "command", {"command": command, **overrides}, seed=7, threads=2)


def test_a_program_is_named_that_cannot_fork_or_begin_with_a_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for start, fault in {"fork": "no checkpoint can be seen", "init": "no file of the program calls"}.items():
        (tmp_path / "train.py").write_text("print(1)\n")
        one = replace(run([sys.executable, "train.py"]), **{start: "base/0123456789abcdef"})
        [found] = check([one])
        assert (found.key, found.blocks) == (start, False)
        assert found.message.startswith(f"{start}: {fault}")
        (tmp_path / "train.py").write_text("from orchestrate_run import run\nrun.init()\n")
        assert check([one]) == check([run([sys.executable, "train.py"])]) == []


def test_files_that_the_folder_of_a_run_lacks_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.pt", "b.pt", "new.pt", "ckpt/c.bin", "models/d.pt", "models/net.py", "data/e.pt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "train.py").write_text(
        "load('a.pt', './b.pt', 'gone.pt', 'models/d.pt', 'data/e.pt')\nopen('ckpt/c.bin')\nsave('new.pt')\n"
        f"load('{tmp_path}/ckpt/c.bin', '../runs/x')\nimport models.net\n"
    )
    (tmp_path / "models/net.py").write_text("load('b.pt', 'gone.pt', 'new2.pt')\n")
    (tmp_path / "new2.pt").touch()
    (tmp_path / "plot.py").write_text("load('new.pt')\n")
    [found] = check([run([sys.executable, "train.py", "--init=b.pt"])])
    assert (
        found.message
        == "a.pt, ckpt/c.bin, new2.pt (named in train.py, models/net.py): outputs of earlier runs are not in "
        "a run's folder"
    )
    assert found.hint is not None
    assert "--init=a.pt" in found.hint
    assert not found.blocks
    monkeypatch.setattr(checking, "MOST_AT_START", 4)
    [many, _] = check([run([sys.executable, "train.py", "--init=b.pt"])])
    assert many.message.startswith(f"{tmp_path}, where runs start, holds 9 entries")


@given(values)
def test_a_value_is_one_argument_whatever_stands_in_it(value: Any) -> None:
    argv = command_line(run([sys.executable, "--key={key}", "{key}{seed}", "{key}"], key=value))
    text = value if isinstance(value, str) else json.dumps(value)
    assert argv == [
        sys.executable,
        f"--key={text}",
        f"{text}7",
        *(value if isinstance(value, list) else [text]),
    ]


@pytest.mark.parametrize(
    ("item", "value", "arguments"),
    [
        ("{key}", [64, "a b"], ["64", "a b"]),
        ("{key}", [], []),
        ("{key}", "", [""]),
        ("{key}", None, ["null"]),
        ("{key}", {"a": [1]}, ['{"a": [1]}']),
        ("--key={key}", [64, 64], ["--key=[64, 64]"]),
        ("{key:flag}", True, ["--key"]),
        ("{key:flag}", False, []),
        ("{key:flag}", None, []),
        ("{key:flag}", [], []),
        ("{key:flag}", [64, 64], ["--key", "64", "64"]),
        ("{key:flag}", 0, ["--key", "0"]),
        ("{key:flag}", "", ["--key", ""]),
        ("{key:no-flag}", True, ["--key"]),
        ("{key:no-flag}", False, ["--no-key"]),
        ("{{key}}", 1, ["{key}"]),
        ("{{key:flag}}", 1, ["{key:flag}"]),
        ("{{print}}", 1, ["{print}"]),
        ("${{key}}", 1, ["${key}"]),
        ("${print}", 1, ["${print}"]),
    ],
)
def test_a_placeholder_alone_may_be_several_arguments_or_none(
    item: str, value: Any, arguments: list[str]
) -> None:
    assert command_line(run([sys.executable, item, "last"], key=value))[1:] == [*arguments, "last"]


@pytest.mark.parametrize(
    ("code", "value", "printed"),
    [
        ("show {key}", [64, "a b;"], ["64", "a b;"]),
        ("show --key={key}", [64, 64], ["--key=[64, 64]"]),
        ("show {key:flag} x", False, ["x"]),
        ("show {key:flag}; show x", ["a b"], ["--key", "a b", "x"]),
        ("show {key} --key={key}", "a b", ["a b", "--key=a b"]),
        ("show {key} --key={key}", "*", ["*", "--key=*"]),
        ("show {key} x{key}", "~", ["~", "x~"]),
        ("show {key}", "{1..3}", ["{1..3}"]),
        ("show {key} --key={key} {key}{key}", "", ["", "--key=", ""]),
        ("show {key}", None, ["null"]),
        ("show '{key}'", "a b", ["a b"]),
        ("show '{key}'", {"a": "$(id)"}, ['{"a": "$(id)"}']),
        ('show "{key}"', "a; 'b' & c", ["a; 'b' & c"]),
        ('show "it\'s" "{key}"', "(a)", ["it's", "(a)"]),
        ("show '' \\\" '{key}'", "(a)", ["", '"', "(a)"]),
        ("A=b; show ${A} '{{key}}' ${A:-c}", "x", ["b", "{key}", "b"]),
    ],
)
@pytest.mark.parametrize("options", [["-c"], ["-euo", "pipefail", "-c"], ["-ec"], ["-c", "-e"]])
def test_the_code_of_a_shell_gets_values_as_its_quotation_wants_them(
    options: list[str], code: str, value: Any, printed: list[str]
) -> None:
    argv = command_line(run(["bash", *options, "show() { printf '%s\\n' \"$@\"; }\n" + code], key=value))
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines() == printed


@pytest.mark.parametrize(
    "before",
    [
        "A=$(basename /etc/x)/y; ",
        'A="$(dirname "$PWD")" && ',
        "A=`date +%s`; ",
        "A=$((1 + 2)); ",
        'eval "$(echo A=1)"; ',
        "bash -c 'true' && ",
        "cd ./fish && ",
        "# don't train\n",
        "# of $(date) and {seed} with bash -c\n",
        "true <<EOF\nit's {seed} $(date)\nEOF\n",
        "true <<-'END' > log\n\"\nEND\n",
        "cat <<< it; ",
        "for seed in 1; do true; done; ",
        "bash show.sh {key}; show eval.py; show eval --on; show tools.sh; ",
    ],
)
def test_what_a_shell_has_read_leaves_the_quotation_as_it_was(before: str, tmp_path: Path) -> None:
    (tmp_path / "fish").mkdir()
    (tmp_path / "show.sh").touch()
    argv = command_line(run(["bash", "-c", f"{before}show {{key:flag}} '{{key}}'"], key=[64, "a b"]))
    functions = "show() { printf '%s\n' \"$@\"; }\n"
    argv[2] = functions + argv[2]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-4:] == ["--key", "64", "a b", '[64, "a b"]']


@pytest.mark.parametrize(
    "before",
    [
        "A=$(show ",
        'A="$(show ',
        'show "$(case x in a) ',
        "show `",
        "bash -x show.sh ",
        "ssh host 2>&1 show ",
        "srun sh -c 'true; show ",
        '"/bin/bash" -c "show ',
        "eval show ",
        "show $'a\\'b' ",
    ],
)
@pytest.mark.parametrize("item", ["{key}", "{key:flag}", "--key={key}"])
def test_a_list_is_refused_where_a_shell_may_read_it_in_more_than_one_way(before: str, item: str) -> None:
    with pytest.raises(BadConfigError, match="is not known") as caught:
        command_line(run(["bash", "-c", f"{before}{item}"], key=[64, 64]))
    assert '"$@"' in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("show {key}", "a; id"),
        ("show {key}", "a\nid"),
        ("show {key}", "#1"),
        ('show "{key}"', "$(id)"),
        ('show "{key}"', "`id`"),
        ('show "{key}"', 'a" id "'),
        ("show '{key}'", "a' id '"),
        ('show "$(show "{key}")"', "$(id)"),
        ("show `show '{key}'`", "a'"),
        ("# don't\nshow {key}", "$(id)"),
        ("cat <<EOF\n'{key}'\nEOF", "$(id)"),
        ("sh -c 'show {key}'", "a; id"),
        ("eval 'show {key}'", "a; id"),
        ("show $(show {key})", "a b"),
        ("show $(show {key})", ""),
        ("sh -c 'show {key}'", "*"),
    ],
)
@pytest.mark.parametrize("start", [["bash"], ["/bin/sh"], ["env", "A=1", "bash"], ["bash", "-l"]])
def test_no_value_becomes_code_of_a_shell(start: list[str], code: str, value: str) -> None:
    with pytest.raises(BadConfigError, match="as code") as caught:
        command_line(run([*start, "-c", code], key=value))
    assert "$1" in (caught.value.hint or "")
    argv = command_line(run([*start, "-c", 'show "$1"', "bash", "{key}"], key=value))
    assert argv[-1] == value


@pytest.mark.parametrize(
    ("item", "hint"),
    [
        ("run_${seed}", "write {seed} for the run's value, ${{seed}}"),
        ("${size}", "write {size}"),
        ("{print}", "{{print}}"),
        ("{sizes}", "did you mean {size}?"),
        ("x{size:flag}", "--size={size}"),
    ],
)
@pytest.mark.parametrize("shell", [False, True])
def test_what_a_placeholder_cannot_mean_is_refused_with_what_to_write(
    item: str, hint: str, shell: bool
) -> None:
    argv = ["bash", "-c", f"echo {item}"] if shell else [sys.executable, item]
    with pytest.raises(BadConfigError) as caught:
        command_line(run(argv, size=3))
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("code", "refused"),
    [
        ("train --key $key", True),
        ('train --key "${key:-0}"', True),
        ("train key=$key", True),
        ("train \\\n  key=$key", True),
        ("train <<EOF\n$key\nEOF", True),
        ("bash -c 'train $key'", True),
        ("for x in $key; do train $x; done", True),
        ("train --seed $seed", True),
        ("key={key}; train $key", False),
        ("export A=1 key=2; train ${key%.*}", False),
        ("for key in 1 2; do train $key; done", False),
        ("read -r a key; train $key", False),
        ("train '$key' \\$key ${{key}} $keys # $key", False),
        ("train $HOME $code", False),
    ],
)
def test_a_variable_of_a_shell_named_as_a_key_is_refused_unless_the_code_sets_it(
    code: str, refused: bool
) -> None:
    for start in (["bash"], ["env", "A=1", "sh"]):
        if refused:
            with pytest.raises(BadConfigError, match="is a key of the run") as caught:
                command_line(run([*start, "-c", code], key=3))
            assert "write {" in (caught.value.hint or "")
        else:
            command_line(run([*start, "-c", code], key=3))
    command_line(run(["env", "key={key}", "seed={seed}", "bash", "-c", code], key=3))


def test_ids_of_runs_are_those_of_earlier_versions() -> None:
    point = {"command": ["python", "t.py", "{hidden}", "--lr={lr}"], "hidden": [64, 64], "lr": 0.1}
    assert COMMAND.identify(point, 3, 1).run_id == "2f0fb364b9acde2b"


@pytest.mark.parametrize(
    ("command", "name", "first", "refused"),
    [
        (["./run"], "run", b"#!/bin/bash\r\n", True),
        (["./run"], "run", b"#!/usr/bin/env python3\r\n", True),
        (["bash", "run.sh"], "run.sh", b"set -e\r\n", True),
        (["env", "A=1", "bash", "run"], "run", b"#!/bin/sh\r\n", True),
        (["bash", "-c", "bash run.sh && true"], "run.sh", b"#!/bin/bash\r\n", True),
        (["bash", "run.sh"], "run.sh", b"#!/bin/bash\n", False),
        (["bash", "-e", "run"], "run", b"true\r\n", True),
        ([sys.executable, "t.py"], "t.py", b"#!/usr/bin/env python3\r\n", False),
        ([sys.executable, "t.py"], "t.py", b"import shutil\r\n", False),
        ([sys.executable, "t.py"], "t.py", b"#!/home/josh/bin/python\r\n", False),
        (["bash", "-c", "python t.py"], "t.py", b"import shlex\r\n", False),
    ],
)
def test_scripts_with_line_ends_of_windows_are_refused(
    command: list[str],
    name: str,
    first: bytes,
    refused: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(first + b"true\r\n")
    Path(name).chmod(0o755)
    found = [problem.message for problem in check([run(command)])]
    assert [name in message and "CR LF" in message for message in found] == [True] * refused


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        ("set -e\ntrue\n", 0o755, ["is a text whose first line", "[bash, ./run]"]),
        ("set -e\ntrue\n", 0o644, ["found no program './run'", "chmod +x ./run, or", "[bash, ./run]"]),
        ("#!/bin/sh\ntrue\n", 0o755, []),
        ("\x7fELF\x02\x01\x01\n", 0o755, []),
    ],
)
def test_a_script_that_cannot_be_started_is_refused_with_the_way(
    content: str, mode: int, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run").write_text(content)
    Path("run").chmod(mode)
    problems = check([run(["./run", "--seed", "{seed}"])])
    assert len(problems) == bool(said)
    assert all(part in f"{problem.message}\n{problem.hint}" for problem in problems for part in said)


@pytest.mark.parametrize("program", ["no-such-program", "/etc/passwd"])
def test_a_program_that_this_machine_lacks_is_refused_if_runs_start_here(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (refused,) = check([run([program, "--seed", "{seed}"])])
    assert (refused.blocks, f"found no program '{program}'" in refused.message) == (True, True)
    monkeypatch.setenv(ELSEWHERE, "1")
    (found,) = check([run([program, "--seed", "{seed}"])])
    assert found.blocks is ("/" in program)


@pytest.mark.parametrize(
    ("items", "lost"),
    [
        (["echo", "bash", "--lr", "{lr}"], "--lr"),
        (['echo "$@"', "--lr", "{lr}"], "--lr"),
        (['echo "$@"', "bash", "--lr", "{lr}"], None),
        (["echo --lr ${1}", "bash", "{lr}"], None),
        (["echo --lr {lr}"], None),
        (["echo --lr {lr}", "bash"], None),
    ],
)
def test_arguments_that_the_code_of_a_shell_drops_are_warned_of(items: list[str], lost: str | None) -> None:
    found = [one for one in check([run(["bash", "-c", *items], lr=0.1)]) if "a shell runs" in one.message]
    assert [(one.blocks, f"no {lost}: " in one.message) for one in found] == [(False, True)] * bool(lost)


def test_braces_without_quotes_are_refused() -> None:
    (problem,) = check([run([sys.executable, "-c", "pass", {"lr": None}])])
    assert (problem.blocks, "found a mapping, {lr: …}" in problem.message) == (True, True)
    assert '"{lr}"' in str(problem.hint)


PROGRAM = """
import argparse
from options import add
p = argparse.ArgumentParser()
p.add_argument("--flag", type=bool, default=False)
p.add_argument("--cuda", action="store_true")
p.add_argument("--norm", action=argparse.BooleanOptionalAction, default=True)
p.add_argument("--tag")
p.add_argument("--cfg", type=json.loads)
add(p)
"""


@pytest.mark.parametrize(
    ("items", "keys", "warned"),
    [
        (["--flag", "{flag}"], {"flag": False}, "--flag false"),
        (["--flag={flag}"], {"flag": False}, "--flag false"),
        (["--other", "{flag}"], {"flag": "no"}, "--other no"),
        (["--flag", "{flag}"], {"flag": True}, None),
        (["--cuda", "{cuda}"], {"cuda": True}, "takes no value"),
        (["--norm={norm}"], {"norm": False}, "takes no value"),
        (["--cuda", "{cuda}"], {"cuda": "no"}, None),
        (["{norm:flag}"], {"norm": False}, "no --norm"),
        (["{norm:no-flag}"], {"norm": False}, None),
        (["{cuda:flag}"], {"cuda": False}, None),
        (["--tag", "{tag}"], {"tag": None}, "--tag null"),
        (["--tag", "{tag}"], {"tag": "null"}, None),
        (["--cfg", "{cfg}"], {"cfg": None}, None),
        (["{cuda}"], {"cuda": ""}, "an empty argument"),
        (["--tag", "{tag}"], {"tag": ""}, None),
        (["--unknown", "{flag}"], {"flag": False}, None),
    ],
)
def test_arguments_that_argparse_misreads_are_warned_of(
    items: list[str],
    keys: dict[str, Any],
    warned: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(PROGRAM)
    Path("options.py").write_text("def add(p):\n    p.add_argument('--other', type=bool)\n")
    problems = check([run([sys.executable, "train.py", *items], **keys)])
    assert [problem.blocks for problem in problems] == ([] if warned is None else [False])
    assert warned is None or warned in problems[0].message


def test_seed_and_threads_are_always_there() -> None:
    assert command_line(run([sys.executable, "{seed}", "{threads}"]))[1:] == ["7", "2"]


def test_a_value_is_not_filled_again() -> None:
    assert command_line(run([sys.executable, "{a}"], a="{seed}"))[1:] == ["{seed}"]


@pytest.mark.parametrize(
    "text", ['{"json": 1}', "{}", "{ x }", "a{", "${HOME", "{1}", "${HOME}", "${a.b}/x", '{"a": {"b": 1}}']
)
def test_other_braces_stay(text: str) -> None:
    assert command_line(run([sys.executable, text]))[1:] == [text]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (None, "expected a list"),
        ("python train.py", "is 'python train.py'; expected a list"),
        ([], "expected a list"),
        ([sys.executable, "{lr}"], "asks for 'lr', and the run has: seed, size, threads"),
    ],
)
def test_what_cannot_start_is_refused(command: Any, message: str) -> None:
    with pytest.raises(BadConfigError, match=message.replace("[", r"\[")):
        command_line(run(command, size=3))


@pytest.mark.parametrize(
    ("keys", "meant"),
    [
        ({"command": "python train.py --lr={lr}"}, 'command: [python, train.py, "--lr={lr}"]'),
        ({"script": "train.py"}, "command: [python, train.py]"),
        ({"command": 'sh -c "a b'}, 'command: [python, train.py, --seed, "{seed}"]'),
        ({}, 'command: [python, train.py, --seed, "{seed}"]'),
    ],
)
def test_what_is_no_list_is_shown_as_one(keys: dict[str, Any], meant: str) -> None:
    with pytest.raises(BadConfigError) as caught:
        command_line(Run("0" * 16, "command", keys, seed=7, threads=2))
    assert caught.value.hint == f"write {meant}"


def test_check_names_each_fault_once() -> None:
    runs = [run([sys.executable, "{lr}"], 1), run([sys.executable, "{lr}"], 2), run([sys.executable], 3)]
    (problem,) = check(runs)
    assert (problem.run_id, problem.key) == (runs[0].run_id, "command")


@pytest.mark.parametrize("length", [math.nan, math.inf, -5, 0, 0.5])
def test_a_length_that_no_run_can_have_is_refused(length: float) -> None:
    runs = [
        run([sys.executable, "-c", ""], number, **{key: length})
        for key in COMMAND.frames
        for number in (1, 2)
    ]
    messages = {problem.key: problem.message for problem in check(runs) if problem.blocks}
    assert messages == {key: f"{key}: found {length}, expected a number from 1" for key in COMMAND.frames}


def test_other_values_of_these_keys_are_the_programs_own() -> None:
    lengths = (1, 1e6, None, "short", False)
    assert not any(problem.blocks for problem in check([run(["true"], steps=one) for one in lengths]))


@given(st.text(st.sampled_from("ab '\"\\;|&()<>\n\t$#=-./"), max_size=40))
def test_any_code_of_a_shell_is_looked_into_without_harm(code: str) -> None:
    """A run starts it all the same: what is no file name is not asked for."""
    found = program_file(["sh", "-c", code])
    assert found is None or found.strip()


def test_an_empty_word_of_a_shell_is_no_program() -> None:
    assert program_file(["sh", "-c", "trap '' TERM; exec python train.py"]) is None
    assert program_file(["sh", "-c", "python train.py ''"]) == "train.py"
