"""Whatever is left in the folders of runs, `sweep` makes each of them done or says why not."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestrator.core.records import plain
from orchestrator.core.types import Reason, RunState
from orchestrator.rundir import Claim, End, Event, Holder, RunDir, SweepDir
from orchestrator.rundir.records.journal import CLAIMED, ENDED, STARTED, Journal
from orchestrator.ui.cli import app

PROGRAM = (
    "import json, os\n"
    "row = {'iteration': 1, 'frames': 1, 'total': 1, 'metrics': {'return': 1.0}}\n"
    "open(os.environ['ORCHESTRATE_METRICS'], 'a').write(json.dumps(row) + '\\n')\n"
)
# An attempt's outcome; None: its process died without an end record.
Outcome = str | None
REASONS = {"interrupted": Reason.STOPPED, "failed": Reason.CODE_ERROR}


@dataclass(frozen=True)
class State:
    """What is left of a run: attempts before and after the one that finished it, and records of them."""

    before: tuple[Outcome, ...]
    end: bool
    result: bool
    after: tuple[Outcome, ...]
    journal: tuple[str, ...]

    @property
    def expected(self) -> str:
        return "failed" if not self.result and self.after[-1:] == ("failed",) else "done"


STATES = [
    State(*state)
    for state in itertools.product(
        [("failed",)],
        [True, False],
        [True, False],
        [(), (None,), ("interrupted",), ("failed",)],
        [(), (CLAIMED,), (CLAIMED, ENDED)],
    )
] + [State((), True, True, (None, "interrupted"), (CLAIMED, ENDED)), State((), True, False, (), (CLAIMED,))]


class Ruin:
    """Turns a finished sweep into one of such states. All its workers are dead."""

    def __init__(self, sweep: SweepDir) -> None:
        self._sweep, self._journals = sweep, dict[int, Journal]()
        process = subprocess.Popen(["sleep", "100"])
        self._holder = Holder.of(process.pid)
        process.kill()
        process.wait()
        for path in (sweep.path / "journals").glob("*.jsonl"):
            path.unlink()

    def make(self, run: RunDir, state: State) -> None:
        number = 1 + len(state.before)
        run.attempt(1).path.rename(run.path / "moved")
        for index, outcome in enumerate(state.before, start=1):
            self._attempt(run, index, outcome, state)
        (run.path / "moved").rename(run.attempt(number).path)
        text = run.result_path.read_text().replace("attempts/1/", f"attempts/{number}/")
        run.result_path.write_text(text.replace('"attempt": 1,', f'"attempt": {number},'))
        if not state.end:
            run.attempt(number).end_path.unlink()
        if not state.result:
            run.result_path.unlink()
        self._tell(run, number, "done" if state.end else None, state)
        for index, outcome in enumerate(state.after, start=number + 1):
            self._attempt(run, index, outcome, state)

    def _attempt(self, run: RunDir, number: int, outcome: Outcome, state: State) -> None:
        attempt = run.attempt(number)
        attempt.path.mkdir()
        claim = Claim("nonce", self._holder, time.time(), f"{number:04d}-0001")
        attempt.claim_path.write_text(json.dumps(plain(claim)))
        attempt.metrics.write_text('{"resumed_from": null}\n')
        if outcome:
            attempt.write_end(End(RunState(outcome), REASONS[outcome]))
        self._tell(run, number, outcome, state)

    def _tell(self, run: RunDir, number: int, outcome: Outcome, state: State) -> None:
        if number not in self._journals:
            started = Event(STARTED, time.time(), data={"holder": plain(self._holder)})
            journal = Journal.create(self._sweep.path / "journals" / f"{number:04d}-0001.jsonl", started)
            assert journal is not None
            self._journals[number] = journal
        if CLAIMED in state.journal:
            self._journals[number].append(Event(CLAIMED, time.time(), run.run_id, number))
        if outcome and ENDED in state.journal:
            data = {"outcome": outcome, "reason": plain(REASONS.get(outcome))}
            self._journals[number].append(Event(ENDED, time.time(), run.run_id, number, data))


def orchestrate(*arguments: str, code: int = 0) -> str:
    answer = CliRunner().invoke(app, list(arguments))
    assert answer.exit_code == code, answer.output
    return answer.output


def told() -> dict[str, str]:
    """The states of runs that `status` tells."""
    return {
        run["run_id"]: run["state"] for run in json.loads(orchestrate("status", "ruin", "--json"))[0]["runs"]
    }


@pytest.mark.nightly
def test_a_sweep_converges_from_any_state_of_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(PROGRAM)
    argv = json.dumps([sys.executable, str(tmp_path / "program.py")])
    matrix = f"matrix: {{seed: range({len(STATES)})}}\n"
    Path("ruin.yaml").write_text(f"name: ruin\ntrainer: command\nbase: {{command: {argv}}}\n{matrix}")
    orchestrate("sweep", "ruin.yaml")
    sweep = SweepDir(tmp_path / "results", "ruin")
    states, ruin = dict(zip(sweep.run_ids(), STATES, strict=True)), Ruin(sweep)
    for run_id, state in states.items():
        ruin.make(sweep.run(run_id), state)

    orchestrate("sweep", "ruin.yaml", code=1)
    assert told() == {run_id: state.expected for run_id, state in states.items()}
    for run_id, state in states.items():
        attempts = len(state.before) + 1 + len(state.after)
        again = not state.result and state.expected == "done"
        assert sweep.run(run_id).newest_attempt() == attempts + again, state
    entries = len(sweep.read_ledger())
    assert "nothing new to submit" in orchestrate("sweep", "ruin.yaml", code=1)
    assert len(sweep.read_ledger()) == entries  # what was found is on record once
    orchestrate("retry", "ruin")
    assert set(told().values()) == {"done"}
