"""Check SkyPilot and a profile's cloud: whether a machine could be rented now, and at what price."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.backends.skypilot import client
from orchestrator.backends.skypilot.task import is_ours, machine_text, refuse_shown_secrets
from orchestrator.config.profiles import Profile, place_of
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.findings import Finding, not_here, ok, problem, warning
from orchestrator.core.machine.installation import install_here, installed_version
from orchestrator.core.machine.s3 import connect, is_bucket, parse_bucket, refusal
from orchestrator.core.machine.ssh import Host


def examined(profile: Profile, *_: object) -> Iterator[Finding]:
    """Yield every finding about the profile's cloud, as it comes. Rents nothing."""
    for check in (installed, server, enabled, machine, instances, store):
        yield check(profile)


def examined_here(*_: object) -> Iterator[Finding]:
    """Report the version of SkyPilot; nothing of it is started, and no cloud is contacted."""
    name, version = "SkyPilot", installed_version("skypilot")
    if version is None:
        yield not_here(name, "not installed: no machine can be rented", f"to do so: {install_here('sky')}")
    else:
        asks = "`sky check` asks your clouds, `orchestrate doctor --on PROFILE` one of them"
        yield ok(name, f"{version}; {asks}")


def installed(_: Profile) -> Finding:
    """Check that SkyPilot is installed."""
    if version := installed_version("skypilot"):
        return ok("SkyPilot", version)
    return problem("SkyPilot", "not installed here", install_here("sky"), blocks=True)


def server(_: Profile) -> Finding:
    """Check SkyPilot's API server, and start it if it does not run."""
    name = "API server"
    try:
        return ok(name, f"answers, SkyPilot {client.server_version()}")
    except OrchestrateError as error:
        return problem(name, str(error), error.hint or "sky api start", blocks=True)


def enabled(profile: Profile) -> Finding:
    """Check that SkyPilot can use the profile's cloud with the credentials here; the cloud is contacted."""
    name, asked = "Cloud", (profile.infra or "").partition("/")[0]
    try:
        found = client.check(asked or None)
        refuse_shown_secrets(profile, lambda: found.enabled)
    except OrchestrateError as error:
        return problem(name, str(error), error.hint or "sky check", blocks=True)
    names = ", ".join(found.enabled)
    if asked in ("", "*") and found.enabled:
        return ok(name, f"{names}; the cheapest is taken")
    if asked.lower() in found.enabled:
        return ok(name, f"{asked} is enabled")
    fix = f"sky check {asked}" if asked else "sky check"
    return problem(name, found.why or "no cloud is enabled", f"{fix} explains the fix", blocks=True)


def machine(profile: Profile) -> Finding:
    """Report the machine that SkyPilot would rent, by its price list."""
    name = "Machine"
    try:
        text = machine_text(profile)
        client.validate(text)
        price = client.price(text)
    except OrchestrateError as error:
        fix = f"{error.hint or 'correct it'} ({place_of(profile)})"
        return problem(name, str(error), fix, blocks=True)
    kind = "spot" if price.spot else "on demand"
    other = "on demand" if price.spot else "spot"
    found = f"{price.instance_type} of {price.cloud} {price.region}, {price.usd_per_hour:.4g} $/h {kind}"
    if price.otherwise is not None and price.otherwise != price.usd_per_hour:
        found += f" ({other} {price.otherwise:.4g} $/h)"
    if profile.price_per_hour is not None:
        found += f"; the profile says {profile.price_per_hour:.4g} $/h"
    return ok(name, found)


def instances(_: Profile) -> Finding:
    """Report the instances that cost money now."""
    name = "Instances"
    try:
        ours = [one for one in client.clusters(None, refresh=True).values() if is_ours(one.name)]
        unstopped = [one for one in ours if not one.autodown]
        stray = [one.name for one in unstopped if client.launching(one.name) is None]
    except OrchestrateError as error:
        return warning(name, str(error), error.hint or "sky status --refresh")
    if not ours:
        return ok(name, "none is up")
    hourly = sum(one.price_per_hour or 0.0 for one in ours)
    names = ", ".join(one.name for one in ours)
    slow = [one.name for one in unstopped if one.name not in stray and one.launched_long]
    reasons = {"the launch died": stray, "the launch takes very long": slow}
    if stray or slow:
        said = "; ".join(
            f"nothing stops {', '.join(those)}: {why}" for why, those in reasons.items() if those
        )
        found = f"{names}: {hourly:.4g} $/h together by the price list; {said}"
        fix = f"orchestrate cancel SWEEP in the folder of its sweep, or: sky down {' '.join(stray + slow)}"
        return problem(name, found, fix)
    fix = f"orchestrate status shows their sweeps; to end one and lose its data: sky down {ours[0].name}"
    return warning(name, f"{names}: {hourly:.4g} $/h together by the price list", fix)


def store(profile: Profile) -> Finding:
    """Check that the store can be read from here; write access of instances shows only in a sweep."""
    name, where = "Store", profile.store
    if where is None:
        fix = f"set `store:` in {place_of(profile)}, and instances need not wait for this machine"
        found = f"none: an instance waits (hold: {profile.hold}) for this machine to fetch its results"
        return warning(name, found, fix)
    try:
        if is_bucket(where):
            connect().list_objects_v2(Bucket=parse_bucket(where).bucket, MaxKeys=1)
        elif ":" in where:
            Host(where.partition(":")[0]).run(["true"])
        else:
            return not_here(name, f"{where} is a folder of the instances", "see that all of them have it")
    except OrchestrateError as error:
        return problem(name, f"{where}: {error}", error.hint or _another(profile))
    except Exception as error:  # boto3 creates its error classes at run time
        return problem(name, f"{where}: {refusal(error)}", _another(profile))
    return ok(name, f"{where} answers")


def _another(profile: Profile) -> str:
    return f"name one that you can use as `store:` in {place_of(profile)}"
