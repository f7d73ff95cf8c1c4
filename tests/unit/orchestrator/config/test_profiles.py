"""Profiles: what a file says, what it may not say, and where files are looked for."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.config.profiles import (
    Profile,
    every_profile,
    find_profile,
    own_folder,
    parse_profile,
    profile_names,
)
from orchestrator.config.profiles.model import READERS
from orchestrator.core.errors import ProfileError
from orchestrator.core.machine.package_files import template
from orchestrator.core.units import seconds


def read(text: str) -> Profile:
    return parse_profile(text, "x.yaml", "x")


def write_own(name: str, text: str) -> Path:
    path = own_folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_what_a_profile_says() -> None:
    profile = read(
        """
        account: 0123
        partition: gpu,long
        gpus: l4:2
        mem: 32g
        time: 2:00:00
        nodelist: cpu[1-4]
        options: {exclusive: true, gres: "lscratch:10", cpu_freq: high}
        forbid: [mem_per_cpu, --qos]
        modules: [cuda/12.4, python]
        setup: |
          source .venv/bin/activate
          export A='b c'
        python: apptainer exec --nv 'my image.sif' python
        environment: {OMP_NUM_THREADS: 01, TOKENIZERS_PARALLELISM: false, EMPTY: ""}
        price_per_hour: 1
        """
    )
    assert profile == Profile(
        name="x",
        source="x.yaml",
        account="0123",
        partition="gpu,long",
        gpus=2,
        gpu_type="l4",
        mem="32G",
        time="2:00:00",
        nodelist="cpu[1-4]",
        options=(("exclusive", None), ("gres", "lscratch:10"), ("cpu-freq", "high")),
        forbid=frozenset({"mem-per-cpu", "qos"}),
        modules=("cuda/12.4", "python"),
        setup=("source .venv/bin/activate", "export A='b c'"),
        python=("apptainer", "exec", "--nv", "my image.sif", "python"),
        environment={"OMP_NUM_THREADS": "01", "TOKENIZERS_PARALLELISM": "false", "EMPTY": ""},
        price_per_hour=1.0,
    )


def test_an_empty_list_of_modules_is_not_none_at_all() -> None:
    assert read("modules: []").modules == read("modules:").modules == ()
    assert read("partition: cpu").modules is None


def test_memory_of_a_job_however_it_is_told() -> None:
    assert read("mem: 4G").job_mem == "4G"
    assert read("mem_per_cpu: 2G\ncpus_per_task: 3").job_mem == "6144M"
    assert read("mem_per_cpu: 2G").job_mem is None


def test_what_is_forbidden_may_still_be_told() -> None:
    profile = read("forbid: [mem]\nmem: 40G")
    assert (profile.forbid, profile.job_mem) == ({"mem"}, "40G")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- partition", "x.yaml:1:1: found a list"),
        ("sshd: host", "found sshd, which is no key"),
        ("ssh: -oProxyCommand=x", "ssh: '-oProxyCommand=x' cannot name a machine"),
        ("folder: ~/marl", "found folder, which is a folder of the machine that ssh names, and no ssh"),
        ("backend: local\nssh: box", "found ssh, which is no key of backend: local"),
        ("partition: [a, b]", "partition: found a list, expected text"),
        ("partition: true", "partition: found true, expected text"),
        ('partition: "a\\nb"', "expected text on one line"),
        ('account: "a\\u2028b"', "expected text on one line"),
        ('account: ""', "expected text on one line"),
        ("gpus: -1", "gpus: found -1"),
        ("gpus: [1]", "gpus: found a list"),
        ("cpus_per_task: 0", "cpus_per_task: found 0, expected a whole number from 1"),
        ("pack: true", "pack: found true"),
        ("requeue: 1", "requeue: found 1, expected true or false"),
        ("price_per_hour: -1", "price_per_hour: found -1"),
        ("price_per_hour: .nan", "price_per_hour: found NaN"),
        ("mem: 1.5G", "mem: found 1.5G, expected megabytes"),
        ("{cpus_per_task: 2, mem_per_cpu: 0}", "mem_per_cpu: found 0, expected memory of a core"),
        ("max_mem: lots", "max_mem: found lots, expected megabytes"),
        ("mem: 4G\nmem_per_cpu: 2G", "x.yaml:2:1: found both mem and mem_per_cpu"),
        ("mem: 4G\nmax_mem: 2G", "x.yaml:2:1: max_mem: found 2G, expected a job's 4G or more"),
        ("forbid: [mem]\nmax_mem: 2G", "forbids asking for memory"),
        ("time: 0", "time: found 0, expected minutes"),
        ("time: 10\nsignal: 600", "x.yaml:2:1: found a time limit of 600 s and a signal 600 s"),
        ("modules: cuda", "modules: found cuda, expected a list"),
        ("setup: {a: b}", "setup: found a mapping, expected lines of shell"),
        ('setup: ["a\\0b"]', "which no program takes"),
        ('setup: ["a\\rb"]', "expected a line without control characters"),
        ("setup: [export HF_TOKEN=abc]", "found HF_TOKEN, which looks like a secret"),
        ("python: uv run 'python", "which is no command: no closing quotation"),
        ("python: []", "found no command"),
        ("environment: {A-B: 1}", "found A-B, expected a name"),
        ("environment: {A: [1]}", "environment.A: found a list"),
        ("environment: {A: $HOME/x}", "$VARIABLES are not filled in"),
        ("environment: {aws_secret_access_key: x}", "looks like a secret"),
        ("options: {C: a100}", "found C, expected the long name"),
        ("options: {--exclusive: true}", "found --exclusive, expected the long name"),
        ("options: {mail-type: END}", "a key of its own"),
        ("options: {signal: USR2}", "which the program sets itself"),
        ("options: {cpu_freq: high, cpu-freq: low}", "for the second time"),
        ("options: {exclusive: false}", "or true for an option that has none"),
        ('options: {tmp: "1\\n#SBATCH --wrap=x"}', "expected text on one line"),
        ("forbid: [array]", "found array, expected options that scripts can do without"),
        ("forbid: [gres]\noptions: {gres: tmp}", "options: found gres, which this profile forbids"),
        ("backend: local\nmem: 4G", "x.yaml:2:1: found mem, which is no key of backend: local"),
        ("backend: slrum", "backend: found slrum, expected one of: local, skypilot, slurm"),
        ("partition: *a", "x.yaml:1:12: found *a, and no &a that ends above it"),
        ("partition: a\npartition: b", "found partition twice"),
        ("", "the file is empty"),
    ],
)
def test_what_is_refused(text: str, expected: str) -> None:
    with pytest.raises(ProfileError) as caught:
        read(text)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("written", "meant"),
    [("partiton", "partition"), ("walltime", "time"), ("memory", "mem"), ("cpus-per-task", "cpus_per_task"),
     ("mail-type", "mail_type"), ("module", "modules"), ("env", "environment"), ("venv", "setup")],
)  # fmt: skip
def test_the_nearest_spelling_is_named(written: str, meant: str) -> None:
    with pytest.raises(ProfileError) as caught:
        read(f"{written}: a")
    assert caught.value.hint == f"did you mean {meant}?"


@pytest.mark.parametrize(
    "line",
    ["export WANDB_API_KEY=$(cat ~/.key)", 'export HF_TOKEN="$TOKEN"', "test $TOKEN = x", "export A=b"],
)
def test_secrets_from_elsewhere_are_no_secrets_in_the_file(line: str) -> None:
    assert read(f"setup:\n  - |\n    {line}").setup == (line,)


@pytest.mark.parametrize(
    ("name", "secret"),
    [("WANDB_API_KEY", True), ("HF_TOKEN", True), ("AWS_ACCESS_KEY_ID", True), ("CLIENT_SECRET", True),
     ("DB_PASSWORD", True), ("TOKENS", True), ("OPENAI_APIKEY", True), ("TOKENIZERS_PARALLELISM", False),
     ("SSL_CERT_FILE", False), ("KEYBOARD", False), ("WANDB_MODE", False)],
)  # fmt: skip
def test_which_names_look_like_secrets(name: str, secret: bool) -> None:
    for text in (
        f"environment: {{{name}: a}}",
        f"setup: [export {name}=a]",
        f"python: [run, --env={name}=a]",
    ):
        with pytest.raises(ProfileError, match="secret") if secret else contextlib.nullcontext():
            read(text)


@pytest.mark.parametrize("name", ["local", *sorted(path.stem for path in template("profiles").iterdir())])
def test_every_profile_that_ships_loads(name: str) -> None:
    profile = find_profile(name)
    assert profile.name == name
    assert profile.description
    if profile.backend == "slurm":
        assert Path(profile.source).parent == template("profiles")
        # What packing and the worker's clock need to know.
        assert profile.cpus_per_task
        assert profile.job_mem
        assert profile.time
        assert seconds(profile.time) <= 20 * 3600


def test_jean_zay_never_asks_for_memory() -> None:
    for name, gpu, cores in (("jean-zay-v100", "qos_gpu-t3", 10), ("jean-zay-a100", "qos_gpu_a100-t3", 8)):
        profile = find_profile(name)
        assert {"mem", "mem-per-cpu", "mem-per-gpu"} <= profile.forbid
        assert (profile.qos, profile.cpus_per_task, profile.hint) == (gpu, cores, "nomultithread")
        assert profile.modules is not None


def test_a_profile_of_ones_own_comes_first() -> None:
    path = write_own("gpu.yaml", "partition: mine")
    assert find_profile("gpu") == Profile("gpu", str(path), partition="mine")
    write_own("marvin.yaml", "partition: cpu")
    write_own("not a name.yaml", "partition: cpu")
    assert profile_names() == [
        "local", "cpu", "gpu", "jean-zay-a100", "jean-zay-v100", "l4", "marvin", "test-cluster"
    ]  # fmt: skip


def test_the_folder_of_ones_own_may_be_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert write_own("there.yaml", "account: a") == tmp_path / "orchestrate" / "profiles" / "there.yaml"
    assert find_profile("there").account == "a"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert own_folder() == Path.home() / ".config" / "orchestrate" / "profiles"


def test_a_path_is_read_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("cpu.yaml", "other.yml"):
        Path(name).write_text("partition: here")
        assert find_profile(name) == Profile(Path(name).stem, name, partition="here")
        assert find_profile(str(tmp_path / name)).partition == "here"
    assert find_profile("cpu").partition is None


def test_a_name_that_there_is_not() -> None:
    with pytest.raises(ProfileError, match="cpv: there is no such profile; there are: local, cpu") as caught:
        find_profile("cpv")
    assert caught.value.hint == "did you mean cpu?"
    with pytest.raises(ProfileError) as caught:
        find_profile("zzzzzz")
    assert str(own_folder() / "NAME.yaml") in str(caught.value.hint)


@pytest.mark.parametrize(
    ("path", "expected"),
    [("none.yaml", "there is no such file"), ("folder.yaml", "is a folder, expected a profile file"),
     ("pipe.yaml", "is no plain file, expected a profile file"), ("mine", "is no plain file"),
     ("latin.yaml", "latin.yaml:1:14: found the byte 0xe9"), ("local.yaml", "not 'local'"),
     ("a b.yaml", "found the name 'a b'"), ("/", "found the name ''"), ("a\0/b.yaml", "no file can have"),
     (f"{'x' * 90}/y.yaml/z", "there is no such file"), ("cpu.yaml/z.yaml", "cannot be read")],
)  # fmt: skip
def test_files_that_are_no_profiles(
    path: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.yaml").mkdir()
    os.mkfifo("pipe.yaml")
    os.mkfifo(write_own("mine.yaml", "").with_suffix(".new"))
    (own_folder() / "mine.new").rename(own_folder() / "mine.yaml")
    Path("cpu.yaml").touch()
    Path("latin.yaml").write_bytes(b"account: caf \xe9")
    with pytest.raises(ProfileError) as caught:
        find_profile(path)
    assert expected in str(caught.value)


def test_a_broken_profile_hides_no_other() -> None:
    write_own("broken.yaml", "partiton: cpu")
    found, problems = every_profile()
    assert [profile.name for profile in found] == [name for name in profile_names() if name != "broken"]
    assert ["broken.yaml:1:1: found partiton" in str(problem) for problem in problems] == [True]


hostile = st.sampled_from(
    [
        "$(reboot)",
        "`id`",
        "a'b",
        'a"b',
        "; echo",
        "\\",
        "%j",
        "-1",
        "l4:2",
        "1-0",
        "4G",
        "a\nb",
        "a\x00b",
        "a\x7fb",
    ]
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), hostile)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(hostile, st.text(max_size=9)), inner, max_size=3),
    ),
    max_leaves=4,
)


@settings(max_examples=500, deadline=None)
@given(st.dictionaries(st.sampled_from(list(READERS)), values, min_size=1, max_size=2))
def test_a_hostile_profile_is_read_or_refused(data: dict[str, Any]) -> None:
    with contextlib.suppress(ProfileError):
        profile = read(json.dumps(data))
        words = [profile.account, profile.partition, *(value for _, value in profile.options)]
        words += [*(profile.python or ()), *profile.setup, *profile.environment.values()]
        assert [word for word in words if word and not word.replace("\t", " ").isprintable()] == []


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ProfileError):
        read(text)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_any_name_is_found_or_not(name: str) -> None:
    with contextlib.suppress(ProfileError):
        assert find_profile(name).name == name


def test_a_cloud_profile() -> None:
    profile = read(
        """
        backend: skypilot
        infra: aws/us-east-1
        accelerators: L4
        spot: true
        cpus_per_task: 8
        instances: 3
        store: s3://bucket/folder/
        hold: "1:00:00"
        """
    )
    assert (profile.accelerators, profile.gpus, profile.spot) == ("L4:1", 1, True)
    assert (profile.instances, profile.store, seconds(profile.hold)) == (3, "s3://bucket/folder", 3600)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("accelerators: 2", "expected a GPU and a number such as L4:1"),
        ("accelerators: L4:0", "expected a GPU and a number such as L4:1"),
        ("store: results", "expected s3://BUCKET/FOLDER"),
        ("store: gs://bucket", "expected s3://BUCKET/FOLDER"),
        ("store: '-oProxyCommand=x:y'", "store: "),
        ("secrets: [A B]", "expected a name"),
        ("partition: gpu", "which is no key of backend: skypilot"),
        ("instances: 0", "instances: "),
    ],
)
def test_what_a_cloud_profile_may_not_say(text: str, found: str) -> None:
    with pytest.raises(ProfileError, match=found):
        read(f"backend: skypilot\n{text}")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("any_of: [{infra: aws}, {infra: gcp}]", "targets: [a, b]"),
        ("accelerators: [L4, A100]", "targets: [a, b]"),
        ("accelerators: {L4: 1, T4: 1}", "targets: [a, b]"),
        ("infra: [aws, gcp]", "targets: [a, b]"),
        ("region: us-east-1", "infra: aws/us-east-1"),
        ("num_nodes: 2", "nodes: 2"),
        ("use_spot: true", "spot"),
        ("any_off: 1", "docs/profiles.md"),
    ],
)
def test_keys_of_skypilot_are_answered_with_what_to_write_here(text: str, hint: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse_profile(f"backend: skypilot\n{text}\n", "x.yaml", "x")
    assert hint in (caught.value.hint or "")
    assert "sbatch" not in (caught.value.hint or "")


def test_one_kind_of_accelerator_may_be_a_mapping_as_in_skypilot() -> None:
    profile = parse_profile("backend: skypilot\naccelerators: {L4: 2}\n", "x.yaml", "x")
    assert (profile.accelerators, profile.gpus) == ("L4:2", 2)


def test_a_key_of_another_backend_names_it() -> None:
    with pytest.raises(ProfileError) as caught:
        parse_profile("partition: cpu\nany_of: [{infra: aws}]\n", "x.yaml", "x")
    assert "backend: skypilot" in (caught.value.hint or "")
