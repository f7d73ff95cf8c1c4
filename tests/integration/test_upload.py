"""Offline W&B runs go up by the real client, to a server on loopback that keeps what it is sent."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.core.errors import OrchestrateError, UploadError
from orchestrator.core.machine.installation import install_package
from orchestrator.rundir import RunDir, SweepDir
from orchestrator.rundir.uploads import wandb_id
from orchestrator.sync.wandb import plan_uploads, send
from orchestrator.ui.cli.results.upload import upload
from tests import warm
from tests.helpers import ROOT, children, make_sweep, running, wait_for
from tests.offline_logs import (
    PARTS,
    PROJECT,
    end_part,
    finish,
    history,
    make_logs,
    of_benchmarl,
    take_part,
    value,
)
from tests.wandb_server import ENTITY, KEY, UploadedRun, WandbServer, signed_in

# Into the second attempt's steps, while it logs again what it builds on.
TORN = 2400


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    make_logs(folder)
    return folder


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    monkeypatch.chdir(tmp_path)
    with signed_in(tmp_path, monkeypatch) as server:
        yield server


def sweep_of(number: int, name: str = "tiny") -> SweepDir:
    return make_sweep(Path("results"), [of_benchmarl(seed) for seed in range(number)], name)


def finished(run: RunDir, logs: Path) -> None:
    take_part(run, PARTS[0], logs)
    finish(run)


def steps(run: UploadedRun) -> list[tuple[int, float]]:
    return [(line["_step"], line["return"]) for line in run.history]


def test_a_run_with_three_attempts_is_one_run_with_each_step_once(server: WandbServer, logs: Path) -> None:
    sweep = sweep_of(1)
    [run_id] = sweep.run_ids()
    run = sweep.run(run_id)
    for part in PARTS:
        take_part(run, part, logs)
        end_part(run)

    [sent] = send(plan_uploads([sweep]).todo)
    assert sent.error == ""

    [up] = server.runs.values()
    assert up.name == wandb_id("tiny", run_id)
    assert (up.entity, up.project) == (ENTITY, PROJECT)
    assert sent.url.endswith(f"/{ENTITY}/speed%20of%20things/runs/{up.name}")
    assert steps(up) == [(row.iteration, row.metrics["return"]) for row in run.history()]
    assert [step for step, _ in steps(up)] == list(range(10))
    assert up.config["lr"] == 0.1
    assert up.config["deep"] == {"er": [1, 2]}
    assert up.said("displayName") == "mappo seed=0"
    assert up.said("groupName") == "tiny"
    assert up.said("tags") == ["small"]
    assert (up.summary["return"], up.summary["again/and/again"]) == (value(9, 3), 9)
    pictures = {line["picture"]["path"] for line in up.history if "picture" in line}
    assert len(pictures) == 1
    assert pictures <= set(up.files)
    assert up.exit_code == 1  # it is not finished


@pytest.mark.nightly
def test_what_a_killed_attempt_had_not_logged_again_is_the_earlier_ones(
    server: WandbServer, logs: Path
) -> None:
    """What those logged beyond their checkpoints stays out; when the run ends, the rest is added."""
    sweep = sweep_of(1)
    [run_id] = sweep.run_ids()
    run = sweep.run(run_id)
    for part in PARTS[:2]:
        take_part(run, part, logs)
        end_part(run)
    torn = take_part(run, PARTS[2], logs, cut=TORN)
    end_part(run)
    upload(Path("results"))
    [up] = server.runs.values()
    assert steps(up) == history(PARTS[2])[:7]

    shutil.rmtree(torn)  # it was not killed after all
    shutil.copytree(logs / "3" / "wandb", torn, symlinks=True)
    shutil.rmtree(run.attempts()[0].wandb)
    shutil.rmtree(run.attempts()[1].wandb)
    finish(run)
    upload(Path("results"))
    [up] = server.runs.values()
    assert steps(up) == history(PARTS[2])
    assert up.exit_code == 0


def test_what_is_up_is_not_sent_again_and_running_runs_wait(
    server: WandbServer, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = sweep_of(4)
    ids = sweep.run_ids()
    for run_id in ids[:2]:
        finished(sweep.run(run_id), logs)
    take_part(sweep.run(ids[2]), PARTS[0], logs)  # by this process, which is there

    assert upload(Path("results"))
    where = f"{server.url}/{ENTITY}/speed%20of%20things"
    assert capsys.readouterr().out == f"W&B: 2 runs uploaded to {where}, 1 left for later\n"
    assert set(server.runs) == {wandb_id("tiny", run_id) for run_id in ids[:2]}
    before = list(server.operations)
    assert upload(Path("results"))
    assert capsys.readouterr().out == "W&B: 0 runs uploaded, 2 there already, 1 left for later\n"
    assert server.operations == before

    end_part(sweep.run(ids[2]))
    assert upload(Path("results"), runs=[ids[0]])
    assert server.operations == before
    assert upload(Path("results"), dry_run=True)
    assert capsys.readouterr().out.endswith("W&B: 1 run would go up, 2 there already\n")
    assert upload(Path("results"))
    (sweep.path / "uploads.jsonl").unlink()
    assert upload(Path("results"))  # what went up is forgotten here, and known there
    assert set(server.runs) == {wandb_id("tiny", run_id) for run_id in ids[:3]}
    assert [steps(server.runs[wandb_id("tiny", run_id)]) for run_id in ids[:3]] == [
        *([history(PARTS[0])] * 2),
        history(PARTS[0])[:4],  # up to its checkpoint
    ]


@pytest.mark.nightly
def test_the_same_runs_go_to_another_project_too(
    server: WandbServer, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_of(1)
    finished(sweep.run(sweep.run_ids()[0]), logs)
    upload(Path("results"))
    monkeypatch.setenv("WANDB_PROJECT", "elsewhere")
    monkeypatch.setenv("WANDB_ENTITY", "others")
    monkeypatch.setenv("WANDB_NAME", "of a run of this machine")
    server.runs.clear()
    upload(Path("results"))
    [up] = server.runs.values()
    assert (up.entity, up.project, up.said("displayName")) == ("others", "elsewhere", "mappo seed=0")


def test_runs_go_up_at_the_same_time(server: WandbServer, logs: Path) -> None:
    sweep = sweep_of(3)
    for run_id in sweep.run_ids():
        finished(sweep.run(run_id), logs)
    server.gate.clear()
    with uploading() as process:
        wait_for(lambda: len(server.held) == 3, 180)
        server.gate.set()
        assert process.wait(180) == 0
    assert [steps(up) for up in server.runs.values()] == [history(PARTS[0])] * 3


def test_an_upload_that_was_killed_is_done_again_and_nothing_is_double(
    server: WandbServer, logs: Path, tmp_path: Path
) -> None:
    sweep = sweep_of(3)
    for run_id in sweep.run_ids():
        finished(sweep.run(run_id), logs)
    [first, *others] = plan_uploads([sweep]).todo
    list(send([first]))
    server.gate.clear()
    server.cut = True
    with uploading() as process:
        wait_for(lambda: len(server.held) == 2, 180)
        workers = [*children(process.pid), *(core for pid in children(process.pid) for core in children(pid))]
        assert len(workers) >= 4  # two of ours, two of W&B's
        arguments = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (process.pid, *workers)]
        with pytest.raises(OrchestrateError, match="another upload of tiny is running"):
            list(send(others))
        process.kill()
    assert not any(KEY.encode() in line for line in arguments)
    wait_for(lambda: not any(running(pid) for pid in workers), 180)
    assert not any(KEY.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert [record.run_id for record in sweep.uploads.read()] == [first.run_id]

    *parts, whole = sorted(len(up.lines) for up in server.runs.values())
    assert whole == 6
    assert all(0 < part < 6 for part in parts)

    server.gate.set()
    server.cut = False
    upload(Path("results"))
    assert [steps(up) for up in server.runs.values()] == [history(PARTS[0])] * 3
    assert {up.exit_code for up in server.runs.values()} == {0}
    assert len(sweep.uploads.read()) == 3


@pytest.mark.parametrize(
    ("variables", "message", "hint"),
    [
        ({"WANDB_API_KEY": ""}, "no key for http://127.0.0.1", "wandb login"),
        ({"WANDB_API_KEY": "short"}, "no key for http://127.0.0.1", "wandb login"),
        ({"WANDB_BASE_URL": "http://127.0.0.1:9"}, "127.0.0.1 cannot be reached", "WANDB_BASE_URL"),
        ({"PYTHONPATH": "without"}, "W&B is not installed here", install_package("wandb")),
    ],
    ids=["no key", "no key at all", "no server", "not installed"],
)
def test_where_nothing_can_be_sent_one_line_says_what_to_do(
    server: WandbServer,
    logs: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    message: str,
    hint: str,
) -> None:
    sweep = sweep_of(1)
    finished(sweep.run(sweep.run_ids()[0]), logs)
    Path("without").mkdir()
    Path("without/wandb.py").write_text("raise ImportError('no wandb')\n")
    for name, text in variables.items():
        monkeypatch.setenv(name, f"{Path(text).absolute()}:{ROOT}" if name == "PYTHONPATH" else text)
    with pytest.raises(UploadError, match=message) as caught:
        list(send(plan_uploads([sweep]).todo))
    assert "\n" not in str(caught.value)
    assert hint in (caught.value.hint or "")
    assert sweep.uploads.read() == []


@pytest.mark.nightly
def test_a_server_that_refuses_is_named_and_nothing_counts_as_up(
    server: WandbServer, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = sweep_of(1)
    finished(sweep.run(sweep.run_ids()[0]), logs)
    server.refuse = 401
    with pytest.raises(UploadError, match=r"refuses the key \(401\)"):
        upload(Path("results"))
    server.refuse = 403
    assert not upload(Path("results"))
    assert "refuses the run (403)" in capsys.readouterr().err
    server.refuse, server.refuse_history = None, 404  # the run is there, its steps are not
    assert not upload(Path("results"))
    assert "W&B's client says: Fatal error while uploading" in capsys.readouterr().err
    assert sweep.uploads.read() == []


def test_a_damaged_log_is_named_and_the_others_go_up(
    server: WandbServer, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = sweep_of(4)
    ids = sweep.run_ids()
    runs = [sweep.run(run_id) for run_id in ids]
    finished(runs[0], logs)
    finished(runs[1], logs)
    with open(runs[1].attempts()[0].wandb_packed, "r+b") as archive:  # not what was published
        archive.seek(3000)
        archive.write(b"?")
    for run in runs[2:]:
        folder = take_part(run, PARTS[0], logs)
        [log] = folder.glob("offline-run-*/*.wandb")
        content = bytearray(log.read_bytes())
        content[1200] ^= 1
        log.write_bytes(content)
    end_part(runs[2])
    finish(runs[3])  # published when it was damaged already

    assert not upload(Path("results"))
    told = capsys.readouterr().err
    assert f"tiny {ids[1][:8]}: {runs[1].attempts()[0].wandb_packed}: changed since" in told
    assert f"tiny {ids[2][:8]}: {runs[2].attempts()[0].wandb.absolute()}: holds a damaged log" in told
    assert f"tiny {ids[3][:8]}: {runs[3].attempts()[0].wandb_packed.absolute()}: holds a damaged log" in told
    assert set(server.runs) == {wandb_id("tiny", ids[0])}


def uploading() -> subprocess.Popen[bytes]:
    command = [warm.FRESH, "-m", "orchestrator.ui.cli", "sync", "--wandb"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)
