"""`orchestrate verify` trains a sample of finished runs again: honest ones are equal, others are named."""

from __future__ import annotations

import json
import random
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.rundir import RunDir, sha256
from tests import helpers, warm
from tests.integration.test_extend import benchmarl
from tests.slurm.lab import Lab

PROGRAM = """
import random, sys, time
from pathlib import Path
from orchestrate_run import run

steps, seed, kind, log = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
state, generator = [0.0], random.Random(None if kind == "random" else seed)
exactness = "no progress lost" if kind == "vague" else "exact"
start = run.resume(state, generator, total=steps, exactness=exactness)
for step in range(start + 1, steps + 1):
    state[0] += generator.random()
    with open(log, "a") as file:
        file.write(f"{seed} {step}\\n")
    if kind == "slow":
        time.sleep(0.05)
    clock = {"clock": time.time()} if kind == "clock" else {}
    run.log(step, **{"return": state[0]}, **clock)
    run.save(step)
"""


def grid(lab: Lab, steps: int, kind: str = "plain", seeds: int = 3) -> dict[str, Any]:
    (lab.folder / "train.py").write_text(PROGRAM)
    command = [sys.executable, "train.py", "{steps}", "{seed}", kind, str(lab.folder / "steps.log")]
    base = {"command": command, "steps": steps}
    return {
        "name": "tiny",
        "trainer": "command",
        "length": "steps",
        "base": base,
        "matrix": {"seed": list(range(seeds))},
    }


def train(lab: Lab, grid: dict[str, Any]) -> None:
    (lab.folder / "grid.yaml").write_text(json.dumps(grid))
    lab.run("sweep", "grid.yaml", "--yes", env=warm.WORKERS)


def verify(lab: Lab, *arguments: str, code: int = 0) -> str:
    return lab.run("verify", "tiny", *arguments, code=code, env=warm.WORKERS)


def steps(lab: Lab) -> int:
    return len((lab.folder / "steps.log").read_text().splitlines())


def runs(lab: Lab, *, in_grid: bool = True) -> list[RunDir]:
    return [lab.dir().run(row.run_id) for row in lab.dir().read_index() if row.in_grid is in_grid]


def falsify(run: RunDir, row: int, attempt: int | None = None, name: str = "return") -> None:
    """Change a value on record, and the checksums with it."""
    result = json.loads(run.result_path.read_bytes())
    path = run.attempt(result["attempt"] if attempt is None else attempt).metrics
    lines = path.read_text().splitlines()
    data = json.loads(lines[row])
    data["metrics"][name] += 0.25
    lines[row] = json.dumps(data)
    path.write_text("\n".join(lines) + "\n")
    (item,) = (one for one in result["manifest"] if run.path / one["path"] == path)
    item |= {"sha256": sha256(path), "bytes": path.stat().st_size}
    run.result_path.write_text(json.dumps(result))
    run.verify(run.result(), checksums=True)


def contents(lab: Lab) -> dict[str, str]:
    """The files of the sweep, less what a verification adds."""
    added = ("verified", ".verify")
    files = (path for path in lab.dir().path.rglob("*") if path.is_file())
    names = {path.relative_to(lab.dir().path): path for path in files}
    return {str(name): sha256(path) for name, path in names.items() if name.parts[0] not in added}


def test_honest_runs_are_equal_and_a_changed_row_is_named(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    train(lab, grid(lab, 4))
    before = contents(lab)
    told = verify(lab)
    assert "3 of 3 segments trained again, all equal: 10 % falsified ones" in told
    assert contents(lab) == before
    assert [path.name for path in lab.dir().verify_scratch.iterdir()] == [".lock"]
    lab.run("collect", "tiny")
    table = (lab.dir().path / "results.csv").read_text()
    assert table.count(" on ") == 3

    wrong, *_ = runs(lab)
    falsify(wrong, 3)
    told = verify(lab, code=1)
    assert f"DIFFERS {wrong.run_id}: iteration 3, 3 frames: return is" in told
    assert "3 of 3 segments trained again, not as on record: 1; both trainings are kept" in told
    answer = json.loads(lab.run("verify", "tiny", wrong.run_id, "--json", code=1))
    assert [(one["run_id"], one["difference"]["frames"]) for one in answer["verdicts"]] == [(wrong.run_id, 3)]
    assert "1 result not as trained again by `orchestrate verify`" in lab.run("collect", "tiny")
    lab.run("report", "tiny")
    page = (lab.dir().report / "index.html").read_text()
    assert "differs: iteration 3, 3 frames" in page
    assert "verified" in page


@pytest.mark.nightly
def test_of_a_longer_run_only_the_rest_is_trained_again(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    train(lab, grid(lab, 4, seeds=2))
    train(lab, grid(lab, 10, seeds=2))
    trained = steps(lab)
    assert trained == 2 * 10
    assert "4 of 4 segments trained again, all equal" in verify(lab)
    assert steps(lab) == 2 * trained
    one, other = runs(lab)
    falsify(one, 2)
    falsify(other, 2, attempt=0)
    told = verify(lab, code=1)
    assert f"DIFFERS {one.run_id}: iteration 6, 6 frames" in told
    assert f"DIFFERS {other.run_id}: iteration 2, 2 frames" in told


@pytest.mark.nightly
def test_an_honest_clock_is_not_accused_and_a_random_program_is_no_verdict(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    train(lab, grid(lab, 3, "clock", seeds=2))
    told = verify(lab)
    assert "all equal" in told
    assert "not compared, as two trainings here differ in it: clock" in told
    falsify(runs(lab)[0], 2)
    assert "DIFFERS" in verify(lab, code=1)
    train(lab, grid(lab, 3, "random", seeds=2))
    assert "2 runs not verified: two trainings here differ" in verify(lab, code=1)


@pytest.mark.nightly
def test_the_first_part_alone_is_trained_and_a_killed_command_goes_on(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    train(lab, grid(lab, 60, "slow", seeds=1))
    told = verify(lab, "--first", "0.1")
    assert "the first 10 % of each of 1 of 1 segment trained again, all equal" in told
    assert 60 + 6 < steps(lab) < 60 + 50
    before = steps(lab)
    killed = lab.start("verify", "tiny", env=warm.WORKERS)
    helpers.wait_for(lambda: steps(lab) >= before + 5)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert "1 of 1 segment trained again, all equal" in verify(lab)
    assert before + 60 <= steps(lab) <= before + 70
    falsify(*runs(lab), 3)
    assert "iteration 3, 3 frames" in verify(lab, "--first", "0.1", code=1)


@pytest.mark.nightly
def test_runs_that_cannot_be_repeated_have_no_verdict(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    lab.write_grid("tiny", "command", {"command": ["false"]}, {"seed": [0]})
    lab.run("sweep", "tiny.yaml", code=1, env=warm.WORKERS)
    assert "tiny: no run to verify is finished" in verify(lab, code=2)
    assert "no sweep named 'tine'" in lab.run("verify", "tine", code=2)
    train(lab, grid(lab, 3, "vague", seeds=1))
    assert "its exactness is 'no progress lost'" in verify(lab, code=2)
    train(lab, grid(lab, 3, seeds=1))
    assert "no run fits 'none'" in verify(lab, "none", code=2)
    assert "--first: found 0.0, expected a share" in verify(lab, "--first", "0", code=2)
    (lab.folder / "train.py").write_text(PROGRAM.replace("+= generator", "+= 2 * generator"))
    assert "stale: trained by other code" in verify(lab, code=2)


@pytest.mark.nightly
def test_of_100_runs_the_falsified_ones_are_named_and_no_other(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    train(lab, grid(lab, 5, seeds=100))
    dice = random.Random(0)
    falsified = dice.sample(runs(lab), 10)
    for run in falsified:
        falsify(run, dice.randint(1, 5))
    wrong = {run.run_id for run in falsified}
    for seed, more in ((0, ()), (1, ()), (0, ("--sample", "100"))):
        answer = json.loads(verify(lab, "--json", "--seed", str(seed), *more, code=1))
        named = {one["run_id"] for one in answer["verdicts"] if one["difference"]}
        assert named == wrong & {one["run_id"] for one in answer["verdicts"]} != set()
        assert answer["not_verified"] == {}
    assert named == wrong


@pytest.mark.nightly
def test_benchmarl_runs_and_their_longer_ones_are_verified(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    train(lab, benchmarl(2, "mappo", "iql"))
    train(lab, benchmarl(4, "mappo", "iql"))
    told = verify(lab)
    assert "4 of 4 segments trained again, all equal" in told
    assert "the tensors of 4 last checkpoints" in told
    falsify(runs(lab)[0], 1, name="collection/reward/reward_mean")
    assert "collection/reward/reward_mean is" in verify(lab, code=1)
