"""The helper process that imports SkyPilot: requests and replies are lines of JSON.

SkyPilot takes seconds to import, prints freely and caches its first results; so it has its own process for
the life of a command, with output discarded. SkyPilot's API server does the work and outlives both.
"""

from __future__ import annotations

import difflib
import io
import json
import os
import re
import select
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.backends.skypilot.errors import Failure, failure_of, not_installed

_REQUESTS = {"PENDING": "running", "WAITING": "running", "RUNNING": "running"}
_MANY = 12
_BOOT = ("aws", "post_provision_runcmd")
_CLUSTERS = {"INIT": "starting", "UP": "up", "STOPPED": "stopped"}


def main() -> None:
    """Reply to requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    helper = Helper()
    for line in sys.stdin:
        answers.write(json.dumps(helper.answer(**json.loads(line))) + "\n")
        answers.flush()


def _exit_with_parent() -> None:
    """Exit when the requesting process has ended: a launch must be recorded by its caller."""
    hangup = select.poll()
    hangup.register(sys.stdin, 0)
    hangup.poll()
    os._exit(1)


class Helper:
    """One public method per function of :mod:`client` that queries SkyPilot."""

    def __init__(self) -> None:
        self._secrets: set[str] = set()

    def answer(self, call: str, asked: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Reply to one request, with a value or a failure."""
        try:
            return {"value": getattr(self, call)(**arguments)}
        except Exception as error:
            failure = self._failure(error, asked, near=_similar_accelerators(arguments.get("text", "")))
            return {"failure": [failure.message, failure.hint, failure.refused]}

    def validate(self, text: str) -> None:
        """Check a task file by SkyPilot's schema and task parser, without its machine; no server,
        no prices.
        """
        import sky
        from sky.utils import common_utils, schemas

        config = _parsed(text)
        resources = config.get("resources")
        common_utils.validate_schema(dict(config), schemas.get_task_schema(), "")
        if resources is not None:
            common_utils.validate_schema(dict(resources), schemas.get_resources_schema(), "resources: ")
        sky.Task.from_yaml_config({key: value for key, value in config.items() if key != "resources"})

    def launch(self, cluster: str, text: str, secrets: Mapping[str, str], boot: Sequence[str]) -> str:
        """Request the launch of a task; return the request's id."""
        from sky import skypilot_config
        from sky.client import sdk

        self._secrets |= set(secrets.values())
        with skypilot_config.replace_skypilot_config_in_process(_config_with(boot)):
            return str(sdk.launch(_task(text, secrets), cluster_name=cluster))

    def launching(self, cluster: str) -> str | None:
        """Return the id of the active launch request of an instance."""
        from sky.client import sdk

        self._server()
        active = sdk.api_status(cluster_name=cluster)
        return next((one.request_id for one in active if one.name.endswith("launch")), None)

    def request_state(self, request: str) -> tuple[str, str, str, float | None, bool]:
        """Return the state, for a failed request its message and hint, when it finished, and whether it was
        refused before a machine was obtained.
        """
        from sky.client import sdk

        self._server()
        found = [one for one in sdk.api_status([request]) if one.request_id == request]
        if not found:
            return "unknown", "", "", None, True
        state = _REQUESTS.get(found[0].status, found[0].status.lower())
        finished = found[0].finished_at
        if state != "failed":
            return state, "", "", finished, True
        try:
            sdk.get(request)
        except Exception as error:
            asked = f"launch {found[0].cluster_name}"
            failure = self._failure(error, asked, log=_log(request))
            refused = failure.refused and not failure.obtained
            return state, failure.message, failure.hint, finished, refused
        return state, "", "", finished, True

    def clusters(self, names: Sequence[str] | None, refresh: bool) -> list[dict[str, Any]]:
        """Return the records of instances."""
        from sky import exceptions
        from sky.client import sdk
        from sky.utils import common

        mode = common.StatusRefreshMode.FORCE if refresh else common.StatusRefreshMode.NONE
        request = sdk.status(names, refresh=mode, all_users=names is not None)
        records = sdk.get(request)
        if refresh:
            # If its cloud does not answer, an instance keeps its last state; only the log shows that.
            _, failed, why = _log(request).partition("Failed to refresh status")
            if failed:
                raise exceptions.ClusterStatusFetchingError(why.partition("\n")[2])
        return [_cluster(record) for record in records]

    def tasks(self, cluster: str) -> list[tuple[str, str]]:
        """Return name and state of each task, in the order of submission."""
        from sky.client import sdk

        records = sorted(sdk.get(sdk.queue(cluster, all_users=True)), key=lambda one: one["job_id"])
        return [(one["job_name"], one["status"].value) for one in records]

    def down(self, cluster: str) -> None:
        """Terminate an instance, and raise if it still exists afterwards."""
        from sky import exceptions
        from sky.client import sdk

        self._server()
        # A pending launch would create the instance again after its termination.
        launching = self.launching(cluster)
        if launching is not None:
            sdk.get(sdk.api_cancel([launching]))
        try:
            sdk.get(sdk.down(cluster))
        except exceptions.ClusterDoesNotExist:
            pass  # already terminated, or never created
        if self.clusters([cluster], refresh=True):
            raise RuntimeError(f"{cluster} still exists after its termination")

    def ssh_config(self, cluster: str) -> bool:
        """Set up `ssh CLUSTER`; return whether that succeeded."""
        from sky.client.cli import command
        from sky.utils import cluster_utils

        command._get_cluster_records_and_set_ssh_config([cluster])
        return cluster in cluster_utils.SSHConfigHelper.list_cluster_names()

    def price(self, text: str) -> dict[str, Any]:
        """Return the optimizer's choice, computed here: the API server only returns a table as text.

        Where no cloud is enabled, the cheapest machine of the task's cloud: prices need no account.
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
        """Return the API server's version."""
        from sky.client import sdk

        self._server()
        return str(sdk.api_info().version)

    def enabled_clouds(self) -> list[str]:
        """Return the enabled clouds, in lower case; checks them if none is known to be, as a launch does."""
        from sky.client import sdk

        found = sdk.get(sdk.enabled_clouds()) or self.check(None)["enabled"]
        return [str(name).lower() for name in found]

    def check(self, cloud: str | None) -> dict[str, Any]:
        """Return the enabled clouds, and what the requested one lacks."""
        from sky.client import sdk

        request = sdk.check((cloud,) if cloud else None, verbose=False)
        found = sdk.get(request)
        enabled = {str(name).lower() for clouds in found.values() for name in clouds}
        reason = re.search(r"Reason[^:\n]*: ([^\n]*)", _log(request))
        return {"enabled": sorted(enabled), "why": reason[1] if reason else ""}

    def _server(self) -> None:
        """Start the API server if needed: status requests alone do not."""
        from sky.server import common

        common.check_server_healthy_or_start_fn()

    def _failure(self, error: Exception, asked: str, *, log: str = "", near: str = "") -> Failure:
        if isinstance(error, ImportError):
            return not_installed(error)
        return failure_of(error, asked, secrets=tuple(self._secrets), log=log, near=near)


def _log(request: str) -> str:
    """Return SkyPilot's log of a request."""
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
    """Parse a task; secrets without a value in the file get theirs here."""
    import sky

    return sky.Task.from_yaml_config(_parsed(text), secrets_overrides=list(secrets.items()))


def _config_with(boot: Sequence[str]) -> Any:
    """Return SkyPilot's configuration with further boot commands for machines of AWS.

    Empty for a remote server: it has its own configuration, and finishes a launch by itself.
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
        return None  # not in the price list, or no list here


def _similar_accelerators(text: str) -> str:
    """Return accelerators with names similar to the requested ones, if these do not exist."""
    try:
        from sky.utils import accelerator_registry

        asked = (_parsed(text).get("resources") or {}).get("accelerators") if text else None
        known = sorted(set(accelerator_registry._accelerator_df["AcceleratorName"]))
    except Exception:
        return ""  # no list to compare with
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
