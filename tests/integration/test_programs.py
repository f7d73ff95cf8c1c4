"""Programs of the trainer `command`: runs of different code are told apart; results say what trained them."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from jobs.trainers.command import program_hook
from orchestrator.config.check import check_sweep
from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import runs_of
from orchestrator.rundir import SweepDir
from tests import warm
from tests.helpers import ROOT, command_run, end_record, make_sweep, published, work
from tests.protocol_program import BEGINNING

HOOK = Path(program_hook.__file__).parent / "sitecustomize.py"
TRAIN = """
import json, os, sys
import numpy, net
with open(os.environ["ORCHESTRATE_METRICS"], "a") as metrics:
    metrics.write(json.dumps({"frames": 1, "metrics": {"return": net.GAIN}}) + "\\n")
"""
CAUGHT = "import sys, traceback, atexit\ntry: {}['cache']\nexcept KeyError: traceback.print_exc()\n"
GRID = """name: mine
trainer: command
base:
  command: [{python}, train.py]
{more}matrix: {{seed: range({seeds})}}
"""


class Project:
    """A user's project, in git or not, and its sweep."""

    def __init__(self, folder: Path, git: bool = True) -> None:
        self.folder = folder
        folder.mkdir()
        self.write("train.py", TRAIN)
        self.write("net.py", "GAIN = 1.0\n")
        self.write(".gitignore", "results/\n")
        self.grid(1)
        if git:
            self.git("init", "--quiet")
            self.commit()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def grid(self, seeds: int, more: str = "") -> None:
        self.write("grid.yaml", GRID.format(python=sys.executable, seeds=seeds, more=more))

    def git(self, *arguments: str) -> str:
        argv = ["git", "-C", str(self.folder), "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=300).stdout.strip()

    def commit(self) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=m")
        return self.git("rev-parse", "HEAD")

    def run(self, *arguments: str, code: int = 0, module: str = "orchestrator.ui.cli") -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-m", module, *arguments],
            cwd=self.folder,
            env={**os.environ, **warm.COMMANDS, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        return done.stdout + done.stderr

    def sweep(self) -> str:
        return self.run("sweep", "--grid", "grid.yaml")

    def states(self) -> dict[int, str]:
        (told,) = json.loads(self.run("status", "mine", "--json"))
        points = {row.run_id: row.point for row in SweepDir(self.folder / "results", "mine").read_index()}
        return {points[run["run_id"]]["seed"]: run["state"] for run in told["runs"]}

    def table(self) -> pl.DataFrame:
        self.run("collect", "mine")
        return pl.read_parquet(self.folder / "results" / "mine" / "results.parquet").sort("seed")


@pytest.fixture(params=["git", "no git"])
def project(tmp_path: Path, request: pytest.FixtureRequest) -> Project:
    return Project(tmp_path / "project", git=request.param == "git")


@pytest.fixture
def repository(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


@pytest.mark.nightly(but=["git"])
def test_runs_of_an_edited_program_are_not_mixed_with_those_before(project: Project) -> None:
    project.sweep()
    project.write("net.py", "GAIN = 5.0\n")
    project.grid(seeds=3)
    said = project.sweep()
    assert "2/3 done  1 stale" in said
    assert "trained by other code: net.py changed\n" in said
    assert project.states() == {0: "stale", 1: "done", 2: "done"}
    told = "1 run is stale, trained by other code: net.py changed; see orchestrate status mine --why "
    assert told in project.run("status")
    table = project.table()
    assert table["code_id"].n_unique() == 2
    page = project.run("collect", "mine")
    assert "2 done, 1 stale" in page
    project.run("retry", "mine")
    assert project.states() == {0: "done", 1: "done", 2: "done"}
    assert project.table()["final_return"].to_list() == [5.0] * 3


@pytest.mark.nightly(but=["git"])
def test_a_grown_grid_makes_nothing_stale(project: Project) -> None:
    project.sweep()
    project.grid(seeds=2)
    project.write("README.md", "new\n")
    project.sweep()
    assert project.states() == {0: "done", 1: "done"}


def test_the_end_of_a_sweep_names_the_metrics_of_a_program_without_a_return(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", git=False)
    project.write("train.py", TRAIN.replace('"return"', '"reward"'))
    said = project.sweep()
    assert "1 finished run logged no return: expected the metric eval/return, " in said
    assert "found reward\n" in said


def test_a_program_that_logs_to_wandb_needs_neither_login_nor_network(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", git=False)
    project.write(
        "train.py",
        "import wandb\nwandb.init(project='mine')\n"
        "for step in range(3):\n    wandb.log({'frames': step + 1, 'episodic_return': 7.0})\n"
        "wandb.finish()\n",
    )
    assert "1/1 done" in project.sweep()
    assert project.table()["final_return"].to_list() == [7.0]


def test_only_what_a_program_uses_makes_its_runs_stale_and_a_change_can_be_accepted(
    repository: Project,
) -> None:
    repository.write("net.py", "GAIN = float(open('gain.yaml').read()[6:])\n")
    repository.write("gain.yaml", "gain: 1.0\n")
    repository.sweep()
    repository.write("plot.py", "")
    repository.write("ruff.toml", "")
    repository.write("net.py", "# a remark\nGAIN = float(open('gain.yaml').read()[6:])\n")
    assert repository.states() == {0: "done"}
    repository.write("gain.yaml", "gain: 2.0\n")
    assert "0 to do, 1 stale\nstale runs: orchestrate status mine" in repository.run("check", "grid.yaml")
    said = repository.sweep()
    (run_id,) = SweepDir(repository.folder / "results", "mine").run_ids()
    assert f"next: orchestrate status mine --why {run_id[:8]}" in said
    said = repository.run("status", "mine", "--why", "seed=0")
    assert "gain.yaml changed:" in said
    assert "-gain: 1.0\n+gain: 2.0\n" in said
    assert "net.py" not in said
    assert "1 change accepted: gain.yaml, for 1 run, by " in repository.run("accept", "mine")
    assert repository.states() == {0: "done"}
    for command in (["status", "mine"], ["collect", "mine"], ["sweep", "--grid", "grid.yaml"]):
        assert "1 change accepted: gain.yaml" in repository.run(*command)
    assert "by accepted changes" in repository.run("status", "mine", "--why", run_id)
    assert "nothing to accept" in repository.run("accept", "mine")
    repository.grid(seeds=2)
    repository.sweep()
    assert repository.states() == {0: "done", 1: "done"}
    assert "code differs" not in repository.run("collect", "mine")
    table = repository.table()
    assert table["code_id"].n_unique() == 2
    assert table["accepted_as"].to_list() == [table["code_id"][1], None]
    repository.write("gain.yaml", "gain: 3.0\n")
    assert repository.states() == {0: "stale", 1: "stale"}
    repository.write("net.py", "GAIN = 1.0\n")
    repository.run("retry", "mine")
    repository.write("gain.yaml", "gain: 4.0\n")  # which it opens no longer
    assert repository.states() == {0: "done", 1: "done"}


def test_the_grid_says_what_counts_also_of_runs_that_are_done(repository: Project) -> None:
    """Named afterwards, a file that the program does not open decides."""
    repository.write("plots.py", "")
    repository.sweep()
    repository.write("plots.py", "edited = 1\n")
    assert repository.states() == {0: "done"}
    repository.grid(2, more="  code: [plots.py]\n")
    repository.sweep()
    assert repository.states() == {0: "stale", 1: "done"}
    repository.write("net.py", "GAIN = 2.0\n")
    assert repository.states() == {0: "stale", 1: "done"}


def test_a_run_is_held_against_the_program_that_its_command_names(repository: Project) -> None:
    for name in ("a", "b"):
        repository.write(f"{name}.txt", "1")
    repository.write(
        "grid.yaml",
        f"name: mine\ntrainer: command\nbase: {{command: [{sys.executable}, train.py, '{{data}}.txt']}}\n"
        "zip: {data: [a, b], seed: [0, 1]}\n",
    )
    repository.sweep()
    repository.write("b.txt", "2")
    assert repository.states() == {0: "done", 1: "stale"}


def test_results_name_the_commit_what_differed_from_it_and_the_packages(repository: Project) -> None:
    commit = repository.git("rev-parse", "HEAD")
    repository.sweep()
    repository.write("net.py", "GAIN = 5.0\n")
    repository.grid(2)
    repository.sweep()
    table = repository.table()
    assert table["commit"].to_list() == [commit] * 2
    assert table["dirty"].to_list() == [False, True]
    versions = json.loads(table["versions"][0])
    assert set(versions) >= {"numpy", "python"}
    assert "torch" not in versions  # which it did not import
    assert table["exactness"].to_list() == ["undeclared"] * 2
    repository.run("report", "mine")
    page = (repository.folder / "results" / "mine" / "report" / "index.html").read_text()
    for fact in (commit, "numpy", versions["numpy"], "undeclared"):
        assert fact in page


def test_a_new_module_that_is_in_no_commit_makes_a_result_dirty(repository: Project) -> None:
    repository.write("extra.py", "")
    repository.sweep()
    assert repository.table()["dirty"].to_list() == [True]


WRITES_SETTINGS = """
where, seed = os.environ["ORCHESTRATE_SUBMIT_DIR"], os.environ["ORCHESTRATE_SEED"]
open(f"{where}/params_{seed}.yaml", "w")
"""


def test_settings_that_a_program_writes_into_its_project_are_named_and_left_out(tmp_path: Path) -> None:
    """Also of runs without a copy of their code, which were trained before the grid said so."""
    project = Project(tmp_path / "project", git=False)
    project.write("train.py", TRAIN + WRITES_SETTINGS)
    project.sweep()
    assert project.states() == {0: "done"}  # traced
    project = Project(tmp_path / "shell", git=False)
    project.write("run.sh", f"exec {sys.executable} train.py\n")
    project.write("train.py", TRAIN + WRITES_SETTINGS)
    grid = project.grid

    def shell_grid(seeds: int, more: str = "") -> None:
        grid(seeds, more)
        text = (project.folder / "grid.yaml").read_text()
        project.write("grid.yaml", text.replace(f"[{sys.executable}, train.py]", "[sh, run.sh]"))

    shell_grid(1)
    said = project.sweep()
    hint = "if no result depends on it: code: [-params_0.yaml] in the grid's base"
    assert f"trained by other code: params_0.yaml is new; {hint}" in said
    shell_grid(2, more="  code: [-params_*.yaml]\n")
    project.sweep()
    assert project.states() == {0: "done", 1: "done"}
    project.write("net.py", "GAIN = 2.0\n")
    assert project.states() == {0: "stale", 1: "stale"}


def test_without_an_answer_of_git_no_run_gets_another_id(
    repository: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a node that lacks git, of a machine where it is."""
    command = f"command=[{sys.executable},train.py]"
    by_hand = partial(repository.run, "--sweep", "mine", "command", command, module="jobs.train")
    by_hand("seed=0")
    with monkeypatch.context() as without:
        without.setenv("PATH", "/nowhere")
        by_hand("seed=1")
        for arguments in (["status", "mine"], ["collect", "mine"], ["retry", "mine"]):
            said = repository.run(*arguments)
            assert "which runs are stale is unknown: " in said
            assert "is in a git repository, and git is not installed" in said
    sweep = SweepDir(repository.folder / "results", "mine")
    runs = [sweep.run(run_id) for run_id in sweep.run_ids()]
    ids = {run.description().seed: published(run).code_id for run in runs}
    assert ids[0] is not None
    assert ids[1] is None
    (without_id,) = [run for run in runs if run.description().seed == 1]
    why = published(without_id).fields["code_unknown"]
    assert why.endswith("is in a git repository, and git is not installed")
    assert f"warning: the run has no code_id: {why}\n" in without_id.attempts()[-1].log.read_text()
    assert repository.states() == {0: "done", 1: "done"}


@pytest.mark.nightly(but=["git"])
def test_by_hand_programs_are_told_apart_too(project: Project) -> None:
    command = f"command=[{sys.executable},train.py]"
    project.run("--sweep", "mine", "command", command, "seed=0", module="jobs.train")
    project.write("net.py", "GAIN = 5.0\n")
    project.run("--sweep", "mine", "command", command, "seed=1", module="jobs.train")
    assert project.states() == {0: "stale", 1: "done"}


def told(tmp_path: Path, *lines: dict[str, Any], code: int = 0) -> dict[str, Any]:
    """The result, or the end, of a program that writes these lines."""
    (end,) = written(tmp_path, "".join(json.dumps(line) + "\n" for line in lines), code=code)
    return end


def written(tmp_path: Path, *texts: str, code: int = 0) -> list[dict[str, Any]]:
    """The results, or the ends, of programs that write these texts, one each."""
    write = "import os; open(os.environ['ORCHESTRATE_METRICS'], 'a').write({!r})"
    described = [command_run(["-c", write.format(text)]) for text in texts]
    sweep = make_sweep(tmp_path / "results", described)
    assert work(sweep) == code
    runs = [sweep.run(run.run_id) for run in described]
    return [
        end_record(run.attempts()[-1]) if (result := run.result()) is None else dict(result.fields)
        for run in runs
    ]


def test_a_program_says_itself_how_exact_it_is_and_what_it_is_made_of(tmp_path: Path) -> None:
    about = {"program": {"exactness": "exact", "versions": {"my-simulator": "2.1"}}}
    result = told(tmp_path, about, {"frames": 1})
    assert result["exactness"] == "exact"
    assert result["versions"]["my-simulator"] == "2.1"
    assert result["iterations"] == 1  # the line about the program is none of its training's


WRONG_ABOUT_ITSELF: list[tuple[dict[str, Any], str]] = [
    (
        {"program": {"exactness": "very"}},
        "exactness is 'very'; expected one of ['exact', 'no progress lost', 'reset']",
    ),
    ({"program": {"exact": True}}, "unknown key 'exact' of 'program'"),
    ({"program": {"versions": {"a": 1}}}, "expected texts by name"),
    ({"program": "mine"}, "a mapping as its value"),
    ({"program": {}, "frames": 1}, "has no other key"),
    ({"program": {"exactness": ["exact"]}}, "exactness is ['exact']"),
]


def test_what_it_says_of_itself_is_checked(tmp_path: Path) -> None:
    ends = written(tmp_path, *(json.dumps(line) + "\n" for line, _ in WRONG_ABOUT_ITSELF), code=1)
    for end, (_, why) in zip(ends, WRONG_ABOUT_ITSELF, strict=True):
        assert why in end["message"].replace('\\"', '"')


def test_a_last_line_without_a_newline_counts(tmp_path: Path) -> None:
    (result,) = written(tmp_path, '{"frames": 1}\n{"frames": 2, "metrics": {"return": 3}}')
    assert (result["frames"], result["final_return"]) == (2, 3)


USELESS = [
    ('{"frames": 1e400}', "found frames Infinity, expected a whole number from 0"),
    (f'{{"frames": 1{"0" * 30}}}', "expected a whole number from 0"),
    (f'{{"frames": 1{"0" * 400}}}', "expected a whole number from 0"),
    ('{"frames": -1}', "found frames -1, expected"),
    ('{"metrics": {}}', "found no key 'frames' in the line {"),
    ("[1]", "found no object"),
    ("[" * 100_000, "nested too deeply"),
]


def test_a_program_without_a_line_that_can_be_used_is_done_with_a_remark(tmp_path: Path) -> None:
    results = written(tmp_path, *(f"{line}\n" for line, _ in USELESS))
    for result, (_, why) in zip(results, USELESS, strict=True):
        assert why in result["remark"]


def test_a_program_that_writes_ten_lines_that_cannot_be_used_fails_at_once(tmp_path: Path) -> None:
    (end,) = written(tmp_path, "{'frames': 1}\n" * 100, code=1)
    assert "none of the first 10 lines of metrics can be used" in end["message"]


def test_what_cannot_be_used_is_dropped_and_counted(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", git=False)
    lines = [
        '{"frames": 0, "total": 20, "metrics": {"return": -1}}',
        '{"frames": 10, "metrics": {"return": 1, "env": "Ant", "q": null, "b": [1], "\\ud800": 2}}',
        '{"frames": 10, "metrics": {"eval": {"return": 5}, "return": "2", "x": 1e400}, "loss": 3}',
        '{"frames": 5, "metrics": {"return": 9}}',
        "nonsense",
        '{"frames": 20, "metrics": {"return": NaN, "ok": true}}',
    ]
    text = "".join(f"{line}\n" for line in lines)
    project.write("train.py", f"import os\nopen(os.environ['ORCHESTRATE_METRICS'], 'a').write({text!r})\n")
    said = project.sweep()
    assert "1/1 done" in said
    assert (
        "dropped 2 lines and 5 values of the metrics, first 'env': found \"Ant\", expected a number" in said
    )
    assert "1 finished run wrote metrics that cannot be used: 7 lines or values" in project.run(
        "collect", "mine"
    )
    (run,) = project.table().to_dicts()
    assert (run["frames"], run["initial_return"], run["dropped_metrics"]) == (20, 5.0, 7)
    sweep = SweepDir(project.folder / "results", "mine")
    (run_id,) = sweep.run_ids()
    history = sweep.run(run_id).history()
    assert [row.frames for row in history] == [0, 10, 20]
    assert history[1].metrics == {"return": 2, "eval/return": 5, "x": float("inf")}
    log = sweep.run(run_id).attempt(1).log.read_text()
    assert log.count("warning: dropped from the metrics, here and later") == 7


@pytest.mark.parametrize(
    ("total", "more", "warned"), [("", "", 1), (', "total": 9', "", 0), ("", "print('ok')", 0)]
)
def test_a_done_run_whose_last_words_are_an_exception_is_named(
    tmp_path: Path, total: str, more: str, warned: int
) -> None:
    project = Project(tmp_path / "project", git=False)
    line = f'{{"frames": 9{total}}}\n'
    wrote = f"import os\nopen(os.environ['ORCHESTRATE_METRICS'], 'a').write({line!r})\n"
    project.write("train.py", f"{wrote}{CAUGHT}{more}\n")
    said = "exit code 0 and an exception as its last words: KeyError: 'cache' (train.py:4 in <module>)"
    assert project.sweep().count(said) == warned
    warning = "1 finished run left with exit code 0 and an exception as their last words"
    assert project.run("collect", "mine").count(warning) == warned


def test_a_run_that_ends_before_its_declared_length_is_not_done(tmp_path: Path) -> None:
    """Its program printed an error that it caught, and left with exit code 0."""
    project = Project(tmp_path / "project", git=False)
    program = """
    import json, os, traceback
    total = 100
    with open(os.environ["ORCHESTRATE_METRICS"], "a") as metrics:
        for frames in range(10, total + 1, 10):
            line = {"frames": frames, "total": total, "metrics": {"return": frames}}
            metrics.write(json.dumps(line) + "\\n")
            if frames == 30 and not os.path.exists("mended"):
                traceback.print_exception(RuntimeError("CUDA error"))
                break
    """
    project.write("train.py", textwrap.dedent(program))
    said = project.run("sweep", "grid.yaml", code=1)
    why = "incomplete: stopped at 30 of 100 frames: RuntimeError: CUDA error"
    assert why in said
    assert why in project.run("status", "mine")
    assert why in project.run("collect", "mine")
    assert project.table()["final_return"].to_list() == [None]
    (project.folder / "mended").touch()
    project.run("retry", "mine")
    assert project.states() == {0: "done"}


@pytest.mark.parametrize(("total", "code"), [(40, 0), (100, 1)])
def test_a_resumed_program_may_evaluate_again_and_keeps_its_declared_length(
    tmp_path: Path, total: int, code: int
) -> None:
    program = f"""{BEGINNING}
if frames == 0:
    write({{"frames": 0, "total": {total}, "metrics": {{"eval/return": 0}}}})
    for frames in (10, 20, 30):
        write({{"frames": frames, "metrics": {{"loss": frames}}}})
    save()
    write({{"frames": 30, "metrics": {{"eval/return": 30}}}})
    os.kill(os.getpid(), signal.SIGKILL)
write({{"frames": 0, "metrics": {{"eval/return": 0}}}})
write({{"frames": 30, "metrics": {{"eval/return": 31}}}})
write({{"frames": 40, "metrics": {{"loss": 40}}}})
"""
    sweep = make_sweep(tmp_path / "results", [command_run(["-c", program])])
    assert work(sweep) == code
    run = sweep.run(sweep.run_ids()[0])
    assert (run.result() is None) == bool(code)
    assert [row.frames for row in run.history()] == [0, 10, 20, 30, 40]
    assert run.history()[3].metrics == {"loss": 30, "eval/return": 31}


def test_a_program_without_metrics_is_done_with_a_remark(tmp_path: Path) -> None:
    result = told(tmp_path, {"program": {"exactness": "exact"}})
    assert (result["frames"], result["final_return"]) == (0, None)
    assert "no metrics found: looked for TensorBoard" in result["remark"]
    assert "name the file by `metrics:`" in result["remark"]


def test_the_environments_own_sitecustomize_is_still_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clusters set up Python with one; the program finds its paths as without this program's."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import sys; sys.from_site = True\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    program = textwrap.dedent("""
        import os, sys, sitecustomize
        assert sys.from_site and "site" in sitecustomize.__file__, sitecustomize.__file__
        assert [path for path in sys.path if "program_hook" in path] == sys.path[-1:]
        open(os.environ["ORCHESTRATE_METRICS"], "a").write('{"frames": 1}\\n')
    """)
    sweep = make_sweep(tmp_path / "results", [command_run(["-c", program])])
    assert work(sweep) == 0


AFTER = "after KeyError: 'cache' (<string>:2 in <module>)"
ENDINGS = {
    "print('step 1'); sys.exit('no reward is given')": f"no reward is given, {AFTER}",
    "raise SystemExit('one of:\\n  a, b')": f"one of: a, b, {AFTER}",
    "print('rather give up'); sys.exit(1)": f"rather give up, {AFTER}",
    "sys.exit(1)": "KeyError: 'cache' (<string>:2 in <module>)",
    "atexit.register(print, 'bye'); raise ValueError('seed')": "ValueError: seed (<string>:4 in <module>)",
}


def test_the_last_words_of_a_program_come_before_an_exception_that_it_caught(tmp_path: Path) -> None:
    runs = {command_run(["-c", CAUGHT + last]).run_id: said for last, said in ENDINGS.items()}
    sweep = make_sweep(tmp_path / "results", [command_run(["-c", CAUGHT + last]) for last in ENDINGS])
    assert work(sweep) == 1
    for run_id, said in runs.items():
        end = end_record(sweep.run(run_id).attempts()[-1])
        assert end["message"] == f"the program left with exit code 1: {said}"


def test_the_hook_suits_an_old_python() -> None:
    tree = ast.parse(HOOK.read_text(), feature_version=(3, 4))
    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert imported == ["importlib.metadata"]  # which it does without; `__future__` would be an error


def test_the_hook_is_silent_where_it_fails(tmp_path: Path) -> None:
    """Here the folder that the program works in is gone, and others put odd things among its modules."""
    (tmp_path / "gone").mkdir()
    program = "import sys; sys.modules['odd'] = 3; sys.modules['odder'] = type('M', (), {'__file__': 1})"
    argv = ["sh", "-c", 'rmdir "$PWD"; exec "$0" -c "$1"', warm.FRESH, program]
    env = {**os.environ, "PYTHONPATH": str(HOOK.parent), "ORCHESTRATE_IMPORTS": str(tmp_path / "imports")}
    done = subprocess.run(argv, cwd=tmp_path / "gone", env=env, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "imports").read_text().startswith("python 3.")


def test_the_hook_notes_the_files_of_the_project_that_a_program_uses(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("net.py", "a.yaml", "b.yaml", "c.yaml", "run.sh", "unused.py"):
        (project / name).write_text("")
    (tmp_path / "other.yaml").write_text("")
    program = textwrap.dedent("""
        import os, subprocess, sys
        import net
        open("a.yaml").close()
        open("made.yaml", "w").close(); open("made.yaml").close()
        open(os.path.join(os.pardir, "other.yaml")).close()
        if not os.fork():
            open(os.path.abspath("b.yaml")).close()
            os._exit(0)
        os.wait()
        subprocess.run([sys.executable, "-c", "open('c.yaml')"])
        subprocess.run("sh run.sh", shell=True)
        os.kill(os.getpid(), 9)
    """)
    notes = tmp_path / "imports"
    env = {**os.environ, "PYTHONPATH": str(HOOK.parent)}
    env |= {"ORCHESTRATE_IMPORTS": str(notes), "ORCHESTRATE_PROJECT": str(project)}
    (project / "train.py").write_text(program)
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([warm.FRESH, "train.py"], cwd=project, env=env, timeout=300)
    notes.unlink()  # now no source of a module is read
    subprocess.run([warm.FRESH, "train.py"], cwd=project, env=env, timeout=300)
    noted = [line.partition("\t")[2] for line in notes.read_text().splitlines() if line.startswith("file")]
    names = [Path(path).relative_to(project).as_posix() for path in noted]
    assert names == ["train.py", "net.py", "a.yaml", "b.yaml", "c.yaml", "run.sh"]


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("[python, missing.py]", "found no file 'missing.py'"),
        ("[python, -u, 'lib/{seed}.py']", "found no file 'lib/0.py'"),
        ("[bash, run.sh, train.py]", "found no file 'run.sh'"),
        ("[env, A=1, python, missing.py]", "found no file 'missing.py'"),
        ("[python, .]", "found the folder '.', which holds no __main__.py"),
        ("[bash, -c, 'python missing.py']", "found no file 'missing.py'"),
        ("[python, -m, no_such_module.train]", "found no module 'no_such_module.train'"),
        ("[python, agents/train.py]", "agents/train.py imports .net, which Python refuses"),
        ("[./missing.py]", "found no program './missing.py'"),
        ("[python, train.py], code: [trian.py]", "found no file 'trian.py'"),
        ("[python, train.py], code: {a: 1}", "expected files, folders or patterns"),
    ],
)
def test_check_finds_a_program_that_is_not_there(repository: Project, command: str, found: str) -> None:
    text = f"name: mine\ntrainer: command\nbase: {{command: {command}}}\n"
    repository.write("grid.yaml", text.replace("python", sys.executable))
    (repository.folder / "agents").mkdir()
    repository.write("agents/train.py", "from .net import GAIN")
    said = repository.run("check", "grid.yaml", code=2)
    assert found in said
    assert "all good" not in said
    assert found in repository.run("sweep", "--grid", "grid.yaml", code=2)


@pytest.mark.parametrize(
    "command", ["[python, train.py]", "[python, -m, train]", "[python, -c, 'missing.py']"]
)
def test_check_finds_no_fault_with_one_that_is(repository: Project, command: str) -> None:
    text = f"name: mine\ntrainer: command\nbase: {{command: {command}}}\n"
    repository.write("grid.yaml", text.replace("python", sys.executable))
    assert "all good" in repository.run("check", "grid.yaml")


def test_estimate_warns_of_a_program_that_is_not_there(repository: Project) -> None:
    """It may be written yet."""
    text = f"name: mine\ntrainer: command\nbase: {{command: [{sys.executable}, missing.py], steps: 1}}\n"
    repository.write("grid.yaml", text)
    said = repository.run("estimate", "grid.yaml")
    assert "warning: grid.yaml:3:8: `command`: found no file 'missing.py'" in said


def test_a_program_in_which_no_source_of_metrics_can_be_seen_is_a_warning(repository: Project) -> None:
    def said(section: str = "") -> str:
        text = f"name: mine\ntrainer: command\nbase: {{command: [{sys.executable}, train.py]}}\n"
        repository.write("grid.yaml", text + section)
        return repository.run("check", "grid.yaml")

    repository.write("train.py", "print('reward', 1)\n")
    assert "no source of metrics can be seen in the program's files" in said()
    assert "all good" in said("metrics: {from: logs/mine.csv}\n")
    repository.write("train.py", "from torch.utils.tensorboard import SummaryWriter\n")
    assert "all good" in said()


def test_a_key_that_the_program_has_no_way_to_know_is_a_warning(repository: Project) -> None:
    """Not one that it may read from its run's description."""

    def said(command: str, *argument: str, name: str = "mine") -> str:
        text = f"name: {name}\ntrainer: command\nbase: {{command: [{sys.executable}, {command}]}}\n"
        repository.write("grid.yaml", text + "matrix: {lr: [1, 2], width: [1, 2]}\n")
        return repository.run(*argument or ("check", "grid.yaml"))

    warned = said("train.py, '{width}'")
    assert (
        "warning: grid.yaml:4:10: `command` does not use lr, and no file of the program names ORC" in warned
    )
    assert "--lr={lr}" in warned
    assert "all good" not in warned
    swept = said("-c, 'pass'", "sweep", "--grid", "grid.yaml", "--detach", name="other")
    assert "does not use lr, width" in swept
    assert "all good" in said("train.py, '{width}', '{lr}'")
    assert "all good" in said("-m, json")  # which is none of the project's
    assert "all good" in said("-c, 'import os; os.environ[\"ORCHESTRATE_RUN\"]'")
    repository.write("train.py", "import csv, os\nos.environ['ORCHESTRATE_RUN']\n")
    assert "all good" in said("train.py")
    repository.write("train.py", TRAIN)
    (repository.folder / ".git" / "index").write_bytes(b"DIRCnonsense" * 10)
    assert "all good" in said("train.py")  # whose files are not known


def test_a_seed_or_a_key_that_has_an_option_and_is_not_handed_over_is_refused(repository: Project) -> None:
    """Without an option the program may draw a seed itself, which is a warning."""

    def said(command: str, code: int = 0) -> str:
        text = f"name: mine\ntrainer: command\nbase: {{command: [{sys.executable}, train.py{command}]}}\n"
        repository.write("grid.yaml", text + "matrix: {lr: [1, 2], seed: [0, 1]}\n")
        return repository.run("check", "grid.yaml", code=code)

    repository.write("train.py", TRAIN)
    told = said(", '{lr}'")
    assert "warning: grid.yaml:4:" in told
    assert "`command` does not use seed" in told
    assert "read ORCHESTRATE_SEED" in told
    options = "p.add_argument('--random-seed', type=int)\np.add_argument('--lr')\n"
    repository.write("train.py", f"import argparse, csv\np = argparse.ArgumentParser()\n{options}")
    refused = said("", code=2)
    assert 'add --random-seed, "{seed}" to `command`' in refused
    assert 'add --lr, "{lr}" to `command`' in refused
    assert "all good" in said(", --lr, '{lr}', --random-seed, '{seed}'")
    repository.write("other.py", "import os\nos.environ['ORCHESTRATE_SEED']\n")
    assert "all good" in said(", --lr, '{lr}'")


@pytest.mark.parametrize(
    ("script", "code"), [("/opt/image/train.py", 0), ("-m, of_the_image", 0), ("missing.py", 2)]
)
def test_check_for_another_machine_knows_only_what_goes_there(
    repository: Project, script: str, code: int
) -> None:
    text = f"name: mine\ntrainer: command\nbase: {{command: [{sys.executable}, {script}]}}\n"
    here, there = (runs_of(parse_grid(text + f"targets: [{name}]\n", "g.yaml")) for name in ("local", "hpc"))
    assert bool(check_sweep(there, folder=repository.folder).problems) == bool(code)
    assert check_sweep(here, folder=repository.folder).problems
