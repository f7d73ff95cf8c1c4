"""Parse the text of a profile into a :class:`Profile`."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.config.backends import (
    BUILT_IN,
    DEFAULT_BACKEND,
    BackendSpec,
    get_backend,
    has_key,
    owner_of,
)
from orchestrator.config.profiles.model import KEY_OPTIONS, READERS, Profile
from orchestrator.config.profiles.readers import OTHER_KEYS, Reader, read_backend
from orchestrator.config.profiles.sbatch_options import option_name, task_option
from orchestrator.config.yaml_files.nodes import (
    Entries,
    KeyNode,
    Position,
    Scalar,
    YamlFile,
    did_you_mean,
    kind,
    read_nodes,
    shown,
)
from orchestrator.core.errors import ProfileError
from orchestrator.core.types import Value
from orchestrator.core.units import ALL_MEMORY, megabytes, memory, seconds

# If forbidden, they only describe a job's resources, which packing needs.
_STATED = ("cpus_per_task", "gpus", "mem", "mem_per_cpu", "time")


def parse_profile(text: str, source: str, name: str) -> Profile:
    """Parse the profile in ``text``; ``source`` is the file's name in messages.

    Raises :class:`ProfileError` with line, column, what was found, what was expected, the nearest spelling.
    """
    place = source_of(source)
    root = read_nodes(text, place)
    if not isinstance(root, Entries):
        raise place.error(root.at, f"found {kind(root)}, expected keys such as partition: cpu")
    backend = _backend(root, place)
    readers = {**READERS, **{name: key.read for name, key in backend.own.items()}}
    entries = _entries(root, readers, backend, place)
    values: dict[str, Value] = {}
    for key, entry in entries.items():
        if not (isinstance(entry.node, Scalar) and entry.node.value is None):
            values[key] = readers[key](key, entry.node, place)
        elif key == "modules":
            values[key] = ()  # an empty list unloads all; any other key without a value is to be filled in
    if "gpus" in values:
        values["gpu_type"], values["gpus"] = values["gpus"]
    if "accelerators" in values:
        values["gpus"] = int(values["accelerators"].rpartition(":")[2])
    own = {name: values.pop(name, key.default) for name, key in backend.own.items()}
    profile = Profile(name=name, source=source, own=own, **values)
    _check_together(profile, {key: entry.at for key, entry in entries.items()}, place)
    return profile


def source_of(name: str) -> YamlFile:
    """Return the file in error messages."""
    return YamlFile(name, "profile", "templates/profiles/cpu.yaml", ProfileError)


def _backend(root: Entries, source: YamlFile) -> BackendSpec:
    """Return this profile's backend."""
    named = next((entry for entry in root.entries if entry.key == "backend"), None)
    if named is None or (isinstance(named.node, Scalar) and named.node.value is None):
        return get_backend(DEFAULT_BACKEND)
    return get_backend(read_backend("backend", named.node, source))


def _entries(
    root: Entries, readers: Mapping[str, Reader], backend: BackendSpec, source: YamlFile
) -> dict[str, KeyNode]:
    for entry in root.entries:
        if task_option(option_name(entry.key)) is not None:
            raise source.error(
                entry.at,
                f"found {shown(entry.key)}: a job has the nodes that a run needs, and a task on each",
                f"remove {entry.key}; for runs on several nodes set resources: {{nodes: 2}} in the grid",
            )
        if entry.key not in readers:
            raise source.error(
                entry.at,
                f"found {shown(entry.key)}, which is no key of a profile",
                backend.hints.get(entry.key)
                or did_you_mean(entry.key, readers, OTHER_KEYS, _of_others(entry.key) or backend.hint),
            )
    return {entry.key: entry for entry in root.entries}


def _of_others(key: str) -> str | None:
    """Return the backend that has a key of this name in its own files, as a hint."""
    other = next((spec for spec in BUILT_IN.values() if key in spec.hints), None)
    return f"of backend: {other.name}, {other.hints[key]}" if other else None


def _check_together(profile: Profile, keys: Mapping[str, Position], source: YamlFile) -> None:
    """Refuse contradictions between keys."""
    _check_backend(profile, keys, source)
    for key in KEY_OPTIONS:
        if key not in _STATED and option_name(key) in profile.forbid and getattr(profile, key) is not None:
            raise source.error(
                keys[key],
                f"found {key}, which this profile forbids",
                f"leave out {key}, or take it out of forbid",
            )
    for name, _ in profile.options:
        if name in profile.forbid:
            raise source.error(keys["options"], f"options: found {name}, which this profile forbids")
    if profile.mem is not None and profile.mem_per_cpu is not None:
        raise source.error(keys["mem_per_cpu"], "found both mem and mem_per_cpu, expected one of them")
    if profile.ssh is None and profile.folder != Profile.folder:
        raise source.error(
            keys["folder"],
            "found folder, which is a folder of the machine that ssh names, and no ssh",
            "add ssh: HOST, or leave folder out",
        )
    if profile.requeue and profile.chain > 1:
        raise source.error(
            keys["chain"],
            "found a chain of jobs where requeue is true: a job that is requeued needs no other to follow it",
            "add requeue: false, or leave chain out",
        )
    _check_amounts(profile, keys, source)


def _check_backend(profile: Profile, keys: Mapping[str, Position], source: YamlFile) -> None:
    """Refuse keys that the backend does not have."""
    for key, at in keys.items():
        if not has_key(profile.backend, key):
            other = owner_of(key)
            hint = f"add backend: {other}, or leave it out" if other else None
            raise source.error(at, f"found {key}, which is no key of backend: {profile.backend}", hint)


def _check_amounts(profile: Profile, keys: Mapping[str, Position], source: YamlFile) -> None:
    if profile.time is not None and seconds(profile.time) <= profile.signal:
        raise source.error(
            keys.get("signal", keys["time"]),
            f"found a time limit of {seconds(profile.time)} s and a signal {profile.signal} s before it",
            "a job needs more time than that",
        )
    if profile.mem_per_cpu == memory(ALL_MEMORY):
        raise source.error(
            keys["mem_per_cpu"],
            "mem_per_cpu: found 0, expected memory of a core",
            "mem: 0 is all memory of a node",
        )
    if profile.max_mem and "mem" in profile.forbid:
        raise source.error(keys["max_mem"], "found max_mem, but this profile forbids asking for memory")
    if profile.max_mem and profile.job_mem and megabytes(profile.max_mem) < megabytes(profile.job_mem):
        raise source.error(
            keys["max_mem"], f"max_mem: found {profile.max_mem}, expected a job's {profile.job_mem} or more"
        )
