"""SkyPilot's failures in the user's terms: what was asked, what was found, the next command. Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.core.errors import BackendUnavailableError, RefusedError
from orchestrator.core.installation import install_here

SERVER_LOG = "~/.sky/api_server/server.log"
_LONGEST = 400
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Failure:
    """A failure that is told. ``refused``: the answer was no, and what was asked did not happen."""

    message: str
    hint: str
    refused: bool = True

    def error(self) -> BackendUnavailableError:
        return (RefusedError if self.refused else BackendUnavailableError)(self.message, hint=self.hint)


def not_installed(error: ImportError) -> Failure:
    found = f"SkyPilot cannot be used by {sys.executable}: {_line(str(error))}"
    return Failure(found, install_here("sky"), refused=False)


def unanswered(asked: str, seconds: float) -> Failure:
    found = f"{asked}: SkyPilot did not answer within {seconds:.0f} s"
    return Failure(found, f"look into {SERVER_LOG}; `sky api stop` and the same command again", refused=False)


def translated(
    error: BaseException, asked: str, *, secrets: Sequence[str] = (), log: str = "", near: str = ""
) -> Failure:
    """What a failure of SkyPilot means for ``asked``; no text of ``secrets`` is in it.

    ``log``: what SkyPilot wrote meanwhile; of a launch, it alone has the cloud's own words. ``near``:
    accelerators with a name like the one that was asked for.
    """
    errors = list(_with_tried(error))
    kinds = {kind.__name__ for one in errors for kind in type(one).__mro__}
    words = [str(one) or type(one).__name__ for one in errors]
    said = _cleaned("\n".join([*words, *_telling(log)]), secrets)
    for applies, trouble in _TROUBLES:
        if applies(kinds, said.lower()):
            found = trouble(said, near)
            return Failure(f"{asked}: {found.message}", found.hint, found.refused)
    return Failure(f"{asked}: {_line(said)}", f"look into {SERVER_LOG}; `sky check`", refused=False)


def _with_tried(error: BaseException) -> Iterator[BaseException]:
    """An error, and those of the places that were tried before it was given up."""
    yield error
    for one in getattr(error, "failover_history", None) or ():
        yield from _with_tried(one)


def _telling(log: str) -> list[str]:
    """What a cloud said in a log, each once: ``An error occurred (CODE) when calling OPERATION: TEXT``."""
    pattern = r"An error occurred \((\w+)\) when calling the \w+ operation(?: \(.*?\))?: ([^\n]*)"
    found = re.findall(pattern, log)
    return list(dict.fromkeys(f"{code}: {text}" for code, text in found))


def _tried(said: str) -> str:
    """The places that SkyPilot tried; it lists them: ``✗ AWS (us-east-1) — (gpus=L4:1, g6.xlarge, ...)``."""
    places = re.findall(r"✗ ([^\n—]+?)(?: — \(([^\n]*?)\))?(?=\n|$)", said)
    return "; ".join(f"{place.strip()} {what}".strip() for place, what in places)


def _cleaned(text: str, secrets: Sequence[str]) -> str:
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "…")
    return _COLOUR.sub("", text)


def _line(text: str) -> str:
    """One line of a text, not endless."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _first(text: str, *words: str) -> str:
    """The line that has one of these words, or else the first; not more than a line."""
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
    fix = f"`sky api stop`, then `sky api start`; what it says is in {SERVER_LOG}"
    return Failure(f"SkyPilot's API server does not answer: {_first(said)}", fix, refused=False)


def _unreachable(said: str, _: str) -> Failure:
    return Failure(
        f"the cloud does not answer: {_first(said)}", "try again; `sky check` asks it", refused=False
    )


def _no_cloud(_said: str, _: str) -> Failure:
    fix = "`sky check` tells of each cloud what it lacks; `infra:` in the profile names the one to use"
    return Failure("no cloud is enabled that this could run on", fix)


def _credentials(said: str, _: str) -> Failure:
    fix = "`sky check` tells what is missing; for AWS: `aws configure`"
    return Failure(f"the cloud does not take your credentials: {_first(said, *_CREDENTIALS)}", fix)


def _permission(said: str, _: str) -> Failure:
    fix = "ask who manages the cloud account for that right, or use another one: `sky check`"
    return Failure(f"your account is not allowed to: {_first(said, *_PERMISSION)}", fix)


def _quota(said: str, _: str) -> Failure:
    fix = (
        "ask the cloud for a higher quota (AWS: Service Quotas, EC2), or change `infra:`, `accelerators:` or "
        "`spot:` in the profile"
    )
    return Failure(f"your quota has no room for it{_where(said)}: {_first(said, *_QUOTA)}", fix)


def _capacity(said: str, _: str) -> Failure:
    fix = "try again later; or, in the profile: `spot: false`, another `infra:`, other `accelerators:`"
    return Failure(f"there is none to be had now{_where(said)}: {_first(said, *_CAPACITY)}", fix)


def _infeasible(said: str, near: str) -> Failure:
    if tried := _tried(said):
        fix = "`sky logs --provision NAME` tells more; another `infra:` in the profile may have one"
        return Failure(f"none could be started (tried {_line(tried)}): {_last(said)}", fix)
    if near:
        return Failure(
            f"no such accelerator: {_first(said)}", f"in the profile, `accelerators:` is one of {near}"
        )
    fix = (
        "ask for less in the profile (accelerators, cpus, memory, infra); `sky gpus list` shows what there is"
    )
    return Failure(f"no machine of an enabled cloud has all of it: {_first(said)}", fix)


def _no_spot(said: str, near: str) -> Failure:
    if near:
        return _infeasible(said, near)
    return Failure(f"there are no spot machines: {_first(said, 'spot')}", "in the profile: spot: false")


def _no_stop(said: str, _: str) -> Failure:
    fix = "take it down instead: `sky down NAME`; what is on its disk goes with it"
    return Failure(f"such an instance cannot be stopped: {_first(said, 'stop')}", fix)


def _unsupported(said: str, _: str) -> Failure:
    return Failure(
        f"the cloud cannot do it: {_first(said)}", "leave it out of the profile, or use another `infra:`"
    )


def _task(said: str, _: str) -> Failure:
    fix = "correct it in the profile; `orchestrate sweep … --dry-run` shows the task file"
    return Failure(f"SkyPilot refuses the task: {_line(said)}", fix)


def _taken(said: str, _: str) -> Failure:
    fix = "`sky status` shows it; `sky down NAME` ends it, once what is on it is not needed"
    return Failure(f"an instance of that name is in use: {_first(said)}", fix)


def _absent(said: str, _: str) -> Failure:
    return Failure(
        f"there is no such instance, or it is not up: {_first(said)}", "`sky status` lists those there are"
    )


def _broken(said: str, _: str) -> Failure:
    fix = "the instance may be up and cost money: `sky status`; `sky logs --provision NAME` tells more"
    return Failure(f"the instance could not be set up: {_line(said)}", fix)


_of_a_cloud = _is("CloudError", "ResourcesUnavailableError", "AWSAzFetchingError")

# In this order: the first that applies. A list of places that were tried names the cause in one of them.
_TROUBLES: Sequence[tuple[Callable[[set[str], str], bool], Callable[[str, str], Failure]]] = (
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
