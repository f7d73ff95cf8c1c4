"""Explain SkyPilot's failures to the user: the request, the cause, the next command. Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator.core.errors import BackendUnavailableError, RefusedError
from orchestrator.core.machine.installation import install_here

SERVER_LOG = "~/.sky/api_server/server.log"
_LONGEST = 400
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Failure:
    """A failed request. ``refused``: it was certainly not executed. ``obtained``: a machine was, before."""

    message: str
    hint: str
    refused: bool = True
    obtained: bool = False

    def error(self) -> BackendUnavailableError:
        """Return it as an exception."""
        return (RefusedError if self.refused else BackendUnavailableError)(self.message, hint=self.hint)


def not_installed(error: ImportError) -> Failure:
    """Return the failure of an environment without SkyPilot."""
    found = f"SkyPilot cannot be used by {sys.executable}: {_line(str(error))}"
    return Failure(found, install_here("sky"), refused=False)


def unanswered(asked: str, seconds: float) -> Failure:
    """Return the failure of a request without a reply in time."""
    found = f"{asked}: SkyPilot did not answer within {seconds:.0f} s"
    return Failure(found, f"look into {SERVER_LOG}; `sky api stop` and the same command again", refused=False)


def failure_of(
    error: BaseException, asked: str, *, secrets: Sequence[str] = (), log: str = "", near: str = ""
) -> Failure:
    """Return the cause and the fix of an error in the request ``asked``, without any text of ``secrets``.

    ``log``: SkyPilot's log of the request; for a launch, only it has the cloud's own message. ``near``:
    accelerators with similar names.
    """
    errors = list(_with_tried(error))
    kinds = {kind.__name__ for one in errors for kind in type(one).__mro__}
    words = [str(one) or type(one).__name__ for one in errors]
    said = _cleaned("\n".join([*words, *_cloud_errors(log)]), secrets)
    for applies, failure in _FAILURES:
        if applies(kinds, said.lower()):
            found = failure(said, near)
            return replace(found, message=f"{asked}: {found.message}")
    text = _last(said) if "Traceback" in said else _line(said)
    return Failure(f"{asked}: {text}", f"look into {SERVER_LOG}; `sky check`", refused=False)


def _with_tried(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and those of the locations tried before it."""
    yield error
    for one in getattr(error, "failover_history", None) or ():
        yield from _with_tried(one)


def _cloud_errors(log: str) -> list[str]:
    """Return a cloud's errors in a log, each once: ``An error occurred (CODE) when calling
    OPERATION: TEXT``.
    """
    pattern = r"An error occurred \((\w+)\) when calling the \w+ operation(?: \(.*?\))?: ([^\n]*)"
    found = re.findall(pattern, log)
    return list(dict.fromkeys(f"{code}: {text}" for code, text in found))


def _tried(said: str) -> str:
    """Return the locations that SkyPilot tried, from ``✗ AWS (us-east-1) — (gpus=L4:1, g6.xlarge, ...)``."""
    places = re.findall(r"✗ ([^\n—]+?)(?: — \(([^\n]*?)\))?(?=\n|$)", said)
    return "; ".join(f"{place.strip()} {what}".strip() for place, what in places)


def _cleaned(text: str, secrets: Sequence[str]) -> str:
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "…")
    return _COLOUR.sub("", text)


def _line(text: str) -> str:
    """Return a text as one line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _first(text: str, *words: str) -> str:
    """Return the first line with one of these words, or else the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if any(word in line.lower() for word in words)]
    return _line((telling or lines or [text])[0])


def _where(said: str) -> str:
    tried = _tried(said)
    return f" (tried {_line(tried)})" if tried else ""


def _last(said: str) -> str:
    return _line(said.strip().splitlines()[-1])


_QUOTA = ("vcpulimitexceeded", "maxspotinstancecountexceeded", "instancelimitexceeded", "quota")
_PERMISSION = (
    "unauthorizedoperation",
    "accessdenied",
    "not authorized",
    "permission denied",
    "permissiondenied",
    "forbidden",
)
_CREDENTIALS = (
    "authfailure",
    "invalidclienttokenid",
    "expiredtoken",
    "security token",
    "credentials",
    "signaturedoesnotmatch",
)
_CAPACITY = (
    "insufficientinstancecapacity",
    "insufficient capacity",
    "out of capacity",
    "capacity-not-available",
)
_CATALOG = ("skypilot-catalog", "catalog")
_WAY = ("connectionerror", "timeout", "newconnectionerror", "max retries exceeded", "connection refused")


def _is(*names: str) -> Callable[[set[str], str], bool]:
    return lambda kinds, _: bool(kinds & set(names))


def _says(*words: str) -> Callable[[set[str], str], bool]:
    return lambda _, said: any(word in said for word in words)


def _both(*tests: Callable[[set[str], str], bool]) -> Callable[[set[str], str], bool]:
    return lambda kinds, said: all(test(kinds, said) for test in tests)


def _catalog(said: str, _: str) -> Failure:
    fix = "connect this machine once: SkyPilot then keeps the prices in ~/.sky/catalogs"
    return Failure(f"the list of machines and prices cannot be fetched: {_first(said)}", fix, refused=False)


def _server(said: str, _: str) -> Failure:
    fix = f"`sky api stop`, then `sky api start`; its log is {SERVER_LOG}"
    return Failure(f"SkyPilot's API server does not answer: {_first(said)}", fix, refused=False)


def _unreachable(said: str, _: str) -> Failure:
    return Failure(
        f"the cloud does not answer: {_first(said)}", "try again; check it with `sky check`", refused=False
    )


def _no_cloud(_said: str, _: str) -> Failure:
    fix = "`sky check` shows what each cloud lacks; set `infra:` in the profile to the one to use"
    return Failure("no suitable cloud is enabled", fix)


def _credentials(said: str, _: str) -> Failure:
    fix = "`sky check` shows what is missing; for AWS: `aws configure`"
    return Failure(f"the cloud refuses your credentials: {_first(said, *_CREDENTIALS)}", fix)


def _permission(said: str, _: str) -> Failure:
    fix = "ask the owner of the cloud account for that permission, or use another one: `sky check`"
    return Failure(f"your account lacks a permission: {_first(said, *_PERMISSION)}", fix)


def _quota(said: str, _: str) -> Failure:
    fix = (
        "ask the cloud for a higher quota (AWS: Service Quotas, EC2), or change `infra:`, `accelerators:` or "
        "`spot:` in the profile"
    )
    return Failure(f"your quota is exceeded{_where(said)}: {_first(said, *_QUOTA)}", fix)


def _capacity(said: str, _: str) -> Failure:
    fix = "try again later; or, in the profile: `spot: false`, another `infra:`, other `accelerators:`"
    return Failure(f"no machine available now{_where(said)}: {_first(said, *_CAPACITY)}", fix)


def _infeasible(said: str, near: str) -> Failure:
    if tried := _tried(said):
        fix = "see `sky logs --provision NAME`, or try another `infra:` in the profile"
        return Failure(f"none could be started (tried {_line(tried)}): {_last(said)}", fix)
    if near:
        return Failure(
            f"no such accelerator: {_first(said)}", f"in the profile, `accelerators:` is one of {near}"
        )
    fix = (
        "request less in the profile (accelerators, cpus, memory, infra); list machines with `sky gpus list`"
    )
    return Failure(f"no machine of an enabled cloud fits: {_first(said)}", fix)


def _no_spot(said: str, near: str) -> Failure:
    if near:
        return _infeasible(said, near)
    return Failure(f"there are no spot machines: {_first(said, 'spot')}", "in the profile: spot: false")


def _no_stop(said: str, _: str) -> Failure:
    fix = "terminate it instead: `sky down NAME`, which deletes its disk"
    return Failure(f"such an instance cannot be stopped: {_first(said, 'stop')}", fix)


def _unsupported(said: str, _: str) -> Failure:
    return Failure(
        f"not supported by the cloud: {_first(said)}", "remove it from the profile, or use another `infra:`"
    )


def _task(said: str, _: str) -> Failure:
    fix = "correct it in the profile; `orchestrate sweep … --dry-run` shows the task file"
    return Failure(f"SkyPilot refuses the task: {_line(said)}", fix)


def _taken(said: str, _: str) -> Failure:
    fix = "see `sky status`; terminate it with `sky down NAME` once its data is not needed"
    return Failure(f"an instance of that name is in use: {_first(said)}", fix)


def _absent(said: str, _: str) -> Failure:
    return Failure(
        f"there is no such instance, or it is not up: {_first(said)}", "list instances with `sky status`"
    )


def _broken(said: str, _: str) -> Failure:
    fix = "the instance may be up and cost money: `sky status`; see also `sky logs --provision NAME`"
    return Failure(f"the instance could not be set up: {_line(said)}", fix, obtained=True)


_of_a_cloud = _is("CloudError", "ResourcesUnavailableError", "AWSAzFetchingError")

# The first match applies. If several locations were tried, one of them has the cause.
_FAILURES: Sequence[tuple[Callable[[set[str], str], bool], Callable[[str, str], Failure]]] = (
    (_both(_says(*_CATALOG), _says(*_WAY)), _catalog),
    (_is("ApiServerConnectionError", "ApiServerAuthenticationError", "APIVersionMismatchError"), _server),
    (_says("api server process exited", "failed to start skypilot api server"), _server),
    (_is("RequestException"), _server),
    (_is("NoCloudAccessError"), _no_cloud),
    (_says("which is not enabled"), _no_cloud),
    (_is("PermissionDeniedError", "UserRequestRejectedByPolicy"), _permission),
    (
        _is("InvalidCloudCredentials", "CloudUserIdentityError", "ClusterOwnerIdentityMismatchError"),
        _credentials,
    ),
    (_is("ClusterStatusFetchingError", "FetchClusterInfoError", "NetworkError"), _unreachable),
    (_is("ResourcesMismatchError", "InvalidClusterNameError"), _taken),
    (_is("ClusterDoesNotExist", "ClusterNotUpError"), _absent),
    (_both(_of_a_cloud, _says(*_QUOTA)), _quota),
    (_both(_of_a_cloud, _says(*_CAPACITY)), _capacity),
    (_both(_of_a_cloud, _says(*_PERMISSION)), _permission),
    (_both(_of_a_cloud, _says(*_CREDENTIALS)), _credentials),
    (_both(_is("NotSupportedError"), _says("spot")), _no_spot),
    (_both(_is("ResourcesUnavailableError"), _says("catalog does not contain"), _says("spot")), _no_spot),
    (_both(_is("NotSupportedError"), _says("stop")), _no_stop),
    (_is("NotSupportedError", "ProvisionUnsupportedError"), _unsupported),
    (_says("failed to run setup commands", "failed to set up skypilot runtime"), _broken),
    (_is("ResourcesUnavailableError"), _infeasible),
    (_is("InvalidSkyPilotConfigError", "ValueError", "YAMLError", "TypeError"), _task),
    (_is("CommandError", "ClusterSetUpError"), _broken),
)
