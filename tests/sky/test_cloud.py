"""SkyPilot asked for real: prices, machines from launch to end, and each of its failures in our words."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.backends.instances import RecordedState
from orchestrator.backends.skypilot import client
from orchestrator.backends.skypilot.client import Request, RequestState
from orchestrator.core.errors import BackendUnavailableError, RefusedError
from orchestrator.core.machine.installation import install_here
from orchestrator.core.types import JobState
from tests.helpers import PATIENCE_S, free_port, wait_for
from tests.sky.bed import Bed, Laptop
from tests.sky.catalog import write_catalog
from tests.sky.refusing import refusing

L4 = "resources: {infra: aws/us-east-1, accelerators: L4}\nrun: nvidia-smi\n"
SECRET = "key-of-nobody-51a7"


def settled(request: str, timeout: float = PATIENCE_S) -> Request:
    """What became of a request."""

    def over() -> Request | None:
        time.sleep(0.2)
        seen = client.request_state(request)
        return seen if seen.state is not RequestState.RUNNING else None

    return wait_for(over, timeout, f"the end of request {request}")  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("asked", "machine", "price", "otherwise"),
    [
        ("accelerators: L4", "g6.xlarge", 0.8048, 0.3),
        ("accelerators: 'L4:1', cpus: 8+", "g6.2xlarge", 0.9776, 0.36),
        ("accelerators: L4, use_spot: true", "g6.xlarge", 0.3, 0.8048),
        ("cpus: 8+, memory: 32+", "m6i.2xlarge", 0.384, 0.14),
    ],
)
def test_the_machine_that_is_chosen_and_its_price(
    bed: Bed, asked: str, machine: str, price: float, otherwise: float
) -> None:
    task = f"resources: {{infra: aws, {asked}}}\nrun: nvidia-smi\n"
    client.validate(task)
    found = client.price(task)
    assert (found.cloud, found.region, found.instance_type) == ("AWS", "us-east-1", machine)
    assert (found.usd_per_hour, found.otherwise, found.spot) == (price, otherwise, "spot" in asked)
    assert {"aws", "slurm"} <= set(client.enabled_clouds())


@pytest.mark.parametrize(
    ("resources", "said", "hint"),
    [
        ("infra: aws, accelerators: L5", "no such accelerator", "is one of L4"),
        ("infra: aws, accelerators: RTX5070", "no such accelerator", "A10G, L4, T4, V100"),
        ("infra: aws, accelerators: L4, cpus: 800+", "no machine of an enabled cloud", "sky gpus list"),
        ("infra: aws/eu-moon-1, cpus: 2+", "Invalid region 'eu-moon-1'", "in the profile"),
        ("infra: aws, instance_type: g7.huge", "Invalid instance type 'g7.huge'", "in the profile"),
        ("infra: gcp, accelerators: L4", "no suitable cloud is enabled", "sky check"),
        ("infra: slurm/test, cpus: 2, use_spot: true", "no spot machines", "spot: false"),
        ("infra: slurm/moon, cpus: 2", "Available clusters: ['test']", "in the profile"),
        ("infra: aws, accelerator: L4", "did you mean 'accelerators'", "--dry-run"),
    ],
)
def test_what_no_cloud_has(bed: Bed, resources: str, said: str, hint: str) -> None:
    with pytest.raises(RefusedError) as caught:
        client.price(f"resources: {{{resources}}}\nrun: 'true'\n")
    assert said in str(caught.value)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("text", ["resource: {}\nrun: x", "envs: {A: }\nrun: x", "resources: {cpu: 2}", "[]"])
def test_a_task_that_is_none(bed: Bed, text: str) -> None:
    with pytest.raises(RefusedError, match="SkyPilot refuses the task"):
        client.validate(text)


@pytest.mark.nightly
def test_what_amazon_refuses(bed: Bed) -> None:
    answers = {
        "InsufficientInstanceCapacity": ("no machine available now (tried AWS (us-east-1)", "spot: false"),
        "VcpuLimitExceeded": ("your quota is exceeded (tried AWS (us-east-1)", "Service Quotas"),
        "UnauthorizedOperation": ("your account lacks a permission", "permission"),
        "AuthFailure": ("refuses your credentials", "aws configure"),
    }
    with refusing(bed) as door:
        for code, (said, hint) in answers.items():
            door.code = code
            ended = settled(client.launch("refused", L4, secrets={}))
            assert ended.state is RequestState.FAILED
            assert said in ended.text
            assert f"{code}: as the test wants it" in ended.text
            assert hint in ended.hint
        assert door.asked >= len(answers)
    assert client.clusters(["refused"], refresh=True) == {}


@pytest.mark.nightly
def test_an_instance_from_launch_to_end(bed: Bed, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "sent").write_text("hello")
    task = (
        "name: 0001-0001\nresources: {infra: slurm/test, cpus: 2, autostop: {idle_minutes: 5, down: true}}\n"
        f"workdir: {tmp_path / 'work'}\nsecrets: {{KEY: null}}\n"
        'run: echo "$(hostname) $PWD $HOME $(cat sent) $KEY" > came; while [ ! -e go ]; do sleep 0.2; done\n'
    )
    request = client.launch("one", task, secrets={"KEY": SECRET})
    assert client.launching("one") == request
    assert settled(request).state is RequestState.SUCCEEDED
    assert client.launching("one") is None
    one = client.clusters(["one", "other"], refresh=False)["one"]
    assert (one.state, one.price_per_hour, one.spot) == (RecordedState.UP, 0.0, False)
    assert (one.region, one.autodown) == ("Slurm test", "goes down after 5 idle minutes")
    assert time.time() - 300 < one.since <= time.time()

    client.ssh_config("one")
    argv = ["ssh", "one", 'until cat sky_workdir/came 2>/dev/null; do sleep 0.2; done; echo "$HOME"']
    said = subprocess.run(
        argv, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=True
    ).stdout.split()
    host, folder, home, sent, key, home_of_a_login = said
    assert (host, folder, home_of_a_login) == ("cpu1", f"{home}/sky_workdir", home)
    assert (sent, key) == ("hello", SECRET)
    assert client.tasks("one")["0001-0001"].state is JobState.RUNNING
    assert bed.slurm.queue() != []

    more = "resources: {infra: slurm/test, accelerators: L4}\nrun: 'true'\n"
    taken = settled(client.launch("one", more, secrets={}))
    assert "of that name is in use" in taken.text
    assert "sky down" in taken.hint
    bed.server.stop()
    try:
        with pytest.raises(BackendUnavailableError) as caught:
            client.clusters(["one"], refresh=True)
        assert not isinstance(caught.value, RefusedError)
    finally:
        bed.connect()
    client.down("one")
    assert client.clusters(["one"], refresh=True) == {}
    wait_for(lambda: bed.slurm.queue() == [], what="Slurm to see the instance's job off")
    with pytest.raises(RefusedError, match="there is no such instance"):
        client.tasks("one")
    client.down("one")
    assert not [path for path in written(bed) if SECRET.encode() in path.read_bytes()]


def written(bed: Bed) -> Iterator[Path]:
    """The laptop's files."""
    return (path for path in bed.home.rglob("*") if path.is_file())


@pytest.mark.nightly
def test_down_while_it_is_being_started(bed: Bed) -> None:
    task = "resources: {infra: slurm/test, cpus: 2}\nrun: sleep 60\n"
    request = client.launch("early", task, secrets={})
    wait_for(bed.slurm.queue, what="the instance's job")
    client.down("early")
    assert client.request_state(request).state is RequestState.CANCELLED
    wait_for(lambda: bed.slurm.queue() == [], what="Slurm to see the instance's job off")
    never = client.launch("never", task, secrets={})
    client.down("never")
    assert client.request_state(never).state is RequestState.CANCELLED
    assert bed.slurm.queue() == []


def test_a_stop_is_refused_on_slurm(bed: Bed) -> None:
    task = "resources: {infra: slurm/test, cpus: 2, autostop: {idle_minutes: 5, down: false}}\nrun: 'true'\n"
    ended = settled(client.launch("stops", task, secrets={}))
    assert "cannot be stopped" in ended.text
    assert "sky down" in ended.hint


@pytest.fixture
def laptop(own_world: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Laptop]:
    """A SkyPilot that knows no cloud and no prices, and reaches nobody."""
    client.close()
    laptop = Laptop()
    laptop.guard()
    for name, value in {**laptop.env, "https_proxy": "http://127.0.0.1:1", "HTTPS_PROXY": ""}.items():
        monkeypatch.setenv(name, value)
    yield laptop
    client.close()
    laptop.stop()


def test_without_prices_and_without_clouds(laptop: Laptop) -> None:
    client.validate(L4)
    assert fails(lambda: client.price(L4)) == (
        "look up a price: the list of machines and prices cannot be fetched",
        "connect this machine once: SkyPilot then keeps the prices in ~/.sky/catalogs",
    )
    write_catalog(laptop.home)
    assert client.price(L4).usd_per_hour == 0.8048  # nobody needs an account to know a price
    said, hint = fails(lambda: client.price("resources: {accelerators: L4}\nrun: 'true'\n"))
    assert said == "look up a price: no suitable cloud is enabled"
    assert hint.startswith("`sky check`")


def test_without_skypilot(laptop: Laptop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sky").mkdir()
    (tmp_path / "sky" / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'sky'\")")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    said, hint = fails(lambda: client.price(L4))
    assert said.startswith("SkyPilot cannot be used by ")
    assert hint == install_here("sky")


def test_without_an_answer(laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYPILOT_API_SERVER_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    said, hint = fails(lambda: client.clusters(None, refresh=False))
    assert "SkyPilot's API server does not answer" in said
    assert "sky api start" in hint


def fails(function: Callable[[], object]) -> tuple[str, str]:
    """What an error says, up to SkyPilot's own words, and its hint."""
    with pytest.raises(BackendUnavailableError) as caught:
        function()
    return ": ".join(str(caught.value).split(": ")[:2]), caught.value.hint or ""
