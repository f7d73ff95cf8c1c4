"""Every test stands alone: its own HOME, no scheduler's or logger's variables, warnings are errors."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests import missing_parts, warm
from tests.browser import Browser, BrowserError, chromium

# How long an example takes says how busy the machine is, and nothing of the code. Every run tries the same
# examples, so that a commit fails for what it changed; `--hypothesis-profile=search` tries others.
settings.register_profile("any machine", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None)
settings.load_profile("any machine")

FOREIGN = ("SLURM_", "SKYPILOT_", "SKY_", "AWS_", "WANDB_", "ORCHESTRATE_", "HYDRA_", "CUDA_VISIBLE_DEVICES")

# Files whose tests share a cluster: SkyPilot's, one with results to compare with, and one without.
LANES = {
    "sky": ("tests/sky/",),
    "trained": tuple(
        f"tests/slurm/test_{name}.py"
        for name in ("chances", "faults", "launch", "limits", "submission", "sweep")
    ),
    "slurm": ("tests/slurm/",),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what the code produces now into tests/golden/, to be read in the diff",
    )
    parser.addoption(
        "--nightly",
        default="none",
        metavar="none|all|tenth:SEED",
        help="which tests marked `nightly` to run too: a tenth is drawn by the seed, such as the commit's id",
    )
    missing_parts.pytest_addoption(parser)


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    """Refuse a test whose ``nightly(but=…)`` names a case that it does not have."""
    made = yield
    for item in made[:1] if isinstance(made, list) else ():
        marker = item.get_closest_marker("nightly")
        cases = {one.callspec.id for one in made if hasattr(one, "callspec")}
        if marker and (unknown := {*marker.kwargs.get("but", ())} - cases):
            raise pytest.UsageError(f"{item.nodeid}: nightly(but={sorted(unknown)}): no such case")
    return made


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the nightly tests that were not asked for."""
    nightly = [item for item in items if is_nightly(item)]
    gone = set(nightly).difference(drawn_of(nightly, config.getoption("--nightly")))
    if gone:
        config.hook.pytest_deselected(items=list(gone))
        items[:] = [item for item in items if item not in gone]


def is_nightly(item: pytest.Item) -> bool:
    """Return whether the test is marked ``nightly``, and its case is none of those named by ``but``."""
    marker = item.get_closest_marker("nightly")
    case = getattr(item, "callspec", None)
    return marker is not None and (case is None or case.id not in marker.kwargs.get("but", ()))


def drawn_of(nightly: list[pytest.Item], asked: str) -> list[pytest.Item]:
    """Return those of the nightly tests that `--nightly=ASKED` runs. Raises ``UsageError`` for another value.

    A tenth is every tenth test in their order, so that no commit draws several of those that take minutes.
    """
    choice, _, seed = asked.partition(":")
    if choice == "tenth":
        return nightly[int(hashlib.sha256(seed.encode()).hexdigest(), 16) % 10 :: 10]
    if asked not in ("none", "all"):
        raise pytest.UsageError(f"--nightly={asked}: expected none, all or tenth:SEED")
    return nightly if asked == "all" else []


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several processes: one takes all tests of a lane, or of a file, which share what they made.

    Lanes come first. They mostly wait, so the others have the processor meanwhile.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByLane(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return next((name for name, files in LANES.items() if file.startswith(files)), file)

    config.option.loadscopereorder = False
    return ByLane(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """Programs that need PyTorch, and commands, are forks of two warm processes, shared by all workers.

    The workers are forks too, unless lines are counted: those that a module runs at its import count as well.
    """
    missing_parts.pytest_configure(config)
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    parents = warm.start(folder)
    sys.executable = str(folder / "bin" / "python")
    if config.getoption("dist", "no") != "no" and not config.getoption("cov_source", None):
        given = config.invocation_params
        parents.append(warm.start_collecting(folder, given.dir, given.args))

    def end() -> None:
        for parent in parents:
            parent.communicate()
        shutil.rmtree(folder)

    config.add_cleanup(end)


def pytest_collection_finish() -> None:
    """PyTorch computes in one thread, as a run has it: on busy cores several wait for each other, busily."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_world(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A HOME of the test's own (returned), an environment as on an idle machine, and warm commands."""
    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(FOREIGN):
            monkeypatch.delenv(name)
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "PYTHONPATH", "COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in warm.COMMANDS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("MPLCONFIGDIR", str(home / "matplotlib"))
    return home


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A results folder that does not exist yet, as before the first sweep."""
    return tmp_path / "results"


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of day as in UTC, wherever the test runs."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether `--update-golden` was given: golden files are then written instead of compared."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for the tests of a file."""
    try:
        with chromium(tmp_path_factory.mktemp("profile")) as browser:
            yield browser
    except BrowserError as error:
        pytest.fail(str(error), pytrace=False)
