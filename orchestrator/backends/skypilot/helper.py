"""The process in which SkyPilot runs: questions come as lines of JSON, and so do the answers.

It takes seconds to import, prints at will and keeps much that it found out at first; so it has a process of
its own for the life of a command, where what it prints goes nowhere. The API server that does the work is
SkyPilot's, and outlives both.
"""

from __future__ import annotations

import difflib
import io
import json
import os
import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.backends.skypilot.errors import Failure, not_installed, translated

_REQUESTS = {"PENDING": "running", "WAITING": "running", "RUNNING": "running"}
_MANY = 12
_WATCH_S = 0.2
_BOOT = ("aws", "post_provision_runcmd")
_CLUSTERS = {"INIT": "starting", "UP": "up", "STOPPED": "stopped"}


def main() -> None:
    """Answer until nobody asks any more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    helper = Helper()
    for line in sys.stdin:
        answers.write(json.dumps(helper.answer(**json.loads(line))) + "\n")
        answers.flush()


def _end_with(parent: int) -> None:
    """End this process when the one that asks is gone: nothing is launched that nobody has on record."""
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    os._exit(1)


class Helper:
    """What can be asked: one public method for each function of :mod:`client` that asks SkyPilot."""

    def __init__(self) -> None:
        self._secrets: set[str] = set()

    def answer(self, call: str, asked: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {"value": getattr(self, call)(**arguments)}
        except Exception as error:
            trouble = self._trouble(error, asked, near=_near(arguments.get("text", "")))
            return {"trouble": [trouble.message, trouble.hint, trouble.refused]}

    def validate(self, text: str) -> None:
        """By SkyPilot's schema, and what it checks of a task besides its machine; no server, no prices."""
        import sky
        from sky.utils import common_utils, schemas

        config = _parsed(text)
        resources = config.get("resources")
        common_utils.validate_schema(dict(config), schemas.get_task_schema(), "")
        if resources is not None:
            common_utils.validate_schema(dict(resources), schemas.get_resources_schema(), "resources: ")
        sky.Task.from_yaml_config({key: value for key, value in config.items() if key != "resources"})

    def launch(
        self, cluster: str, text: str, secrets: Mapping[str, str], boot: Sequence[str], dry: bool
    ) -> str:
        from sky import skypilot_config
        from sky.client import sdk

        self._secrets |= set(secrets.values())
        with skypilot_config.replace_skypilot_config_in_process(_config_with(boot)):
            return str(sdk.launch(_task(text, secrets), cluster_name=cluster, dryrun=dry))

    def launching(self, cluster: str) -> str | None:
        from sky.client import sdk

        self._server()
        active = sdk.api_status(cluster_name=cluster)
        return next((one.request_id for one in active if one.name.endswith("launch")), None)

    def request_state(self, request: str) -> tuple[str, str, str]:
        """State, and of a failed one what is to be told of it."""
        from sky.client import sdk

        self._server()
        found = [one for one in sdk.api_status([request]) if one.request_id == request]
        if not found:
            return "unknown", "", ""
        state = _REQUESTS.get(found[0].status, found[0].status.lower())
        if state != "failed":
            return state, "", ""
        try:
            sdk.get(request)
        except Exception as error:
            asked = f"launch {found[0].cluster_name}"
            trouble = self._trouble(error, asked, log=_log(request))
            return state, trouble.message, trouble.hint
        return state, "", ""

    def clusters(self, names: Sequence[str] | None, refresh: bool) -> list[dict[str, Any]]:
        from sky import exceptions
        from sky.client import sdk
        from sky.utils import common

        mode = common.StatusRefreshMode.FORCE if refresh else common.StatusRefreshMode.NONE
        request = sdk.status(names, refresh=mode, all_users=names is not None)
        records = sdk.get(request)
        if refresh:
            # One whose cloud does not answer is reported as it last was, and only the log says so.
            _, failed, why = _log(request).partition("Failed to refresh status")
            if failed:
                raise exceptions.ClusterStatusFetchingError(why.partition("\n")[2])
        return [_cluster(record) for record in records]

    def tasks(self, cluster: str) -> list[tuple[str, str, int]]:
        """Name, state and number of each task, in the order in which they were sent."""
        from sky.client import sdk

        records = sdk.get(sdk.queue(cluster, all_users=True))
        found = [(one["job_name"], one["status"].value, one["job_id"]) for one in records]
        return sorted(found, key=lambda one: one[2])

    def cancel(self, cluster: str, names: Sequence[str]) -> None:
        from sky.client import sdk

        ended = ("SUCCEEDED", "CANCELLED")
        asked = [
            number
            for name, state, number in self.tasks(cluster)
            if name in names and state not in ended and not state.startswith("FAILED")
        ]
        if asked:
            sdk.get(sdk.cancel(cluster, job_ids=asked))

    def down(self, cluster: str) -> None:
        from sky import exceptions
        from sky.client import sdk

        self._server()
        # A launch that has not begun would make the instance after it was taken down.
        launching = self.launching(cluster)
        if launching is not None:
            sdk.get(sdk.api_cancel([launching]))
        try:
            sdk.get(sdk.down(cluster))
        except exceptions.ClusterDoesNotExist:
            pass  # it went by itself, or never was
        if self.clusters([cluster], refresh=True):
            raise RuntimeError(f"{cluster} is still there after it was taken down")

    def ssh_config(self, cluster: str) -> bool:
        """Whether `ssh CLUSTER` can work from now on."""
        from sky.client.cli import command
        from sky.utils import cluster_utils

        command._get_cluster_records_and_set_ssh_config([cluster])
        return cluster in cluster_utils.SSHConfigHelper.list_cluster_names()

    def price(self, text: str) -> dict[str, Any]:
        """By the optimizer itself, here: the API server answers with a table for people.

        Where no cloud is enabled, the cheapest machine of the cloud that the task names: nobody needs an
        account to know a price.
        """
        from sky import core, exceptions
        from sky.utils import dag_utils

        task = _task(text, {})
        try:
            chosen = (
                core.optimize(dag_utils.convert_entrypoint_to_dag(task), quiet=True).tasks[0].best_resources
            )
        except exceptions.NoCloudAccessError:
            (asked,) = task.resources
            if asked.cloud is None:
                raise
            fitting = asked.cloud.get_feasible_launchable_resources(asked, task.num_nodes).resources_list
            if not fitting:
                raise
            chosen = min(fitting, key=lambda one: one.get_cost(3600))
        return {
            "instance_type": chosen.instance_type or "",
            "cloud": str(chosen.cloud),
            "region": chosen.region or "",
            "spot": bool(chosen.use_spot),
            "usd_per_hour": chosen.get_cost(3600) * task.num_nodes,
            "otherwise": _hourly(chosen.copy(use_spot=not chosen.use_spot), task.num_nodes),
        }

    def server_version(self) -> str:
        from sky.client import sdk

        self._server()
        return str(sdk.api_info().version)

    def check(self, cloud: str | None) -> dict[str, Any]:
        from sky.client import sdk

        request = sdk.check((cloud,) if cloud else None, verbose=False)
        found = sdk.get(request)
        enabled = {str(name).lower() for clouds in found.values() for name in clouds}
        reason = re.search(r"Reason[^:\n]*: ([^\n]*)", _log(request))
        return {"enabled": sorted(enabled), "why": reason[1] if reason else ""}

    def _server(self) -> None:
        """See to it that the API server runs: what asks it for its requests does not start it."""
        from sky.server import common

        common.check_server_healthy_or_start_fn()

    def _trouble(self, error: Exception, asked: str, *, log: str = "", near: str = "") -> Failure:
        if isinstance(error, ImportError):
            return not_installed(error)
        return translated(error, asked, secrets=tuple(self._secrets), log=log, near=near)


def _log(request: str) -> str:
    """What SkyPilot wrote while it was at a request."""
    from sky.client import sdk

    log = io.StringIO()
    sdk.stream_and_get(request, follow=False, output_stream=log)
    return log.getvalue()


def _parsed(text: str) -> dict[str, Any]:
    import yaml

    config = yaml.safe_load(text)
    if not isinstance(config, dict):
        raise ValueError("a task file is a mapping of keys to values")
    return config


def _task(text: str, secrets: Mapping[str, str]) -> Any:
    """A task as SkyPilot reads it. A secret that has no value in the file is given it here."""
    import sky

    return sky.Task.from_yaml_config(_parsed(text), secrets_overrides=list(secrets.items()))


def _config_with(boot: Sequence[str]) -> Any:
    """SkyPilot's configuration with commands for machines of AWS, after those that it has already.

    A server elsewhere has a configuration of its own, and ends a launch that it began.
    """
    from sky import skypilot_config
    from sky.server import common

    config = skypilot_config.to_dict()
    if boot and common.is_api_server_local():
        own = config.get_nested(_BOOT, default_value=None) or []
        config.set_nested(_BOOT, [*own, *boot])
    return config


def _cluster(record: Any) -> dict[str, Any]:
    handle = record["handle"]
    resources = getattr(handle, "launched_resources", None)
    minutes = record["autostop"]
    ends = "goes down" if record["to_down"] else "stops"
    return {
        "name": record["name"],
        "state": _CLUSTERS[record["status"].value],
        "since": float(record["launched_at"]),
        "price_per_hour": _hourly(resources, handle.launched_nodes) if resources is not None else None,
        "region": f"{resources.cloud} {resources.region}" if resources is not None else "",
        "instance_type": (resources.instance_type or "") if resources is not None else "",
        "spot": bool(resources is not None and resources.use_spot),
        "autodown": f"{ends} after {minutes} idle minutes" if minutes >= 0 else "",
    }


def _hourly(resources: Any, nodes: int) -> float | None:
    try:
        return float(resources.get_cost(3600)) * nodes
    except Exception:
        return None  # it is in no price list, or there is none here


def _near(text: str) -> str:
    """Accelerators whose names resemble the one that a task asks for, if there is none of that name."""
    try:
        from sky.utils import accelerator_registry

        asked = (_parsed(text).get("resources") or {}).get("accelerators") if text else None
        known = sorted(set(accelerator_registry._accelerator_df["AcceleratorName"]))
    except Exception:
        return ""  # no list to compare with; the error is told without
    names = [asked] if isinstance(asked, str) else list(asked or ())
    wanted = [str(name).partition(":")[0] for name in names]
    unknown = [name for name in wanted if name.lower() not in map(str.lower, known)]
    near = [
        one
        for name in unknown
        for one in difflib.get_close_matches(name.upper(), known, cutoff=0.5) or known[:_MANY]
    ]
    return ", ".join(dict.fromkeys(near))


if __name__ == "__main__":
    main()
