"""Parse the text of a grid file into a :class:`Grid`, section by section."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.config.backends import RESOURCE_SYNTAX
from orchestrator.config.command_line.command import PROGRAM_OF_ONES_OWN, code_of
from orchestrator.config.grid.changes import changed
from orchestrator.config.grid.extends import ANCHORS, Extended
from orchestrator.config.grid.forks import read_fork, read_init
from orchestrator.config.grid.hydra_sweeps import SweepTextError
from orchestrator.config.grid.model import Axis, Exclusion, Grid
from orchestrator.config.grid.other_programs import section_hint
from orchestrator.config.grid.other_sections import (
    read_keep,
    read_length,
    read_library,
    read_loggers,
    read_metrics,
    read_plugins,
)
from orchestrator.config.grid.points import read_exclude, read_include, refuse_empty
from orchestrator.config.grid.resources import OTHER_NAMES, RESOURCES, read_resources
from orchestrator.config.grid.rules import read_rules
from orchestrator.config.grid.values import Keys, one_value, several_values
from orchestrator.config.trainers import TrainerSpec, get_trainer, trainer_names
from orchestrator.config.yaml_files.nodes import (
    Entries,
    Items,
    KeyNode,
    Node,
    Position,
    Scalar,
    YamlFile,
    did_you_mean,
    kind,
    plain_value,
    read_flag,
    shown,
    texts,
)
from orchestrator.core.types import Value
from orchestrator.rundir.index import SWEEP_NAME

# Descriptions of the sections, in Markdown, for the reference.
SECTIONS: Mapping[str, str] = {
    "name": (
        "The name of the sweep and of its folder in the results: up to 100 letters, digits, dots, dashes "
        "and underscores."
    ),
    "trainer": "The trainer: `benchmarl`, `ppo`, `impala`, `a2c`, `command`, or one of your own.",
    "plugins": (
        "Tasks, models and algorithms of your own for `benchmarl`; environments for `ppo`, `impala` and "
        "`a2c`. A folder of a Python package, relative to the grid file, the name of an installed package, "
        "or a list of these."
    ),
    "loggers": (
        "For `command`: where metrics go besides the run's metrics file, `[tensorboard, wandb]` or one of "
        "them. Other trainers have a key for it."
    ),
    "metrics": (
        "For `command`: which metrics count if the program writes none to its metrics file. `from` is "
        "`tensorboard`, `wandb`, `jsonl`, `csv`, `monitor`, or a file in the run's working folder; "
        "`frames` and `return` are names of series in it. All three are optional. A change makes no run "
        "stale."
    ),
    "extends": (
        "Another grid file, or a list of them, relative to this one. Its sections are inherited; those of "
        "this file take precedence."
    ),
    "anchors": (
        "Blocks with YAML's anchors (`&name`), to which other sections refer (`*name`, `<<: *name`). "
        "Ignored otherwise."
    ),
    "labels": (
        "Names and values of your own, such as a note. They are no part of a run's identity, also if a "
        "key moves here from `base`. `frames` gives `estimate` the length of runs of a program."
    ),
    "base": "Keys that are the same in every run.",
    "matrix": (
        "Keys with several values. Every combination is a run. The first key varies slowest and the "
        "last one fastest: the order in which `status` lists runs. They begin seed by seed, so that a "
        "busy hour slows all variants alike."
    ),
    "zip": "Keys with lists that advance together, as one more axis after those of `matrix`.",
    "for": (
        "A list of mappings. Each has a condition, `algorithm: mappo` or several values as in `algorithm: "
        "[iql, qmix]`, and in `set` the keys of the runs that meet it. They replace keys of `base`; "
        "where two entries set a key, the later one counts. An entry for no run is an error."
    ),
    "exclude": (
        "A list of mappings. Each takes away every point that agrees with all of its keys. A key has one "
        "value or several, as in `{algorithm: iql, seed: [1, 2]}`; a list that is itself a value of the "
        "key is that value. Keys are those of `matrix` and `zip`, and `target` with `compare: true`. An "
        "entry that takes nothing away is an error."
    ),
    "include": (
        "A list of mappings. Each adds one whole point: `base`, over it what `for` sets, and over that the "
        "entry's own keys. It names every key of `matrix` and `zip`, may name further keys of the "
        "trainer, and changes no other point."
    ),
    "targets": (
        "Where runs may go: names of profiles, `[local]` by default. Several targets share the "
        "runs; `--on A,B` replaces them."
    ),
    "compare": (
        "With `true`, every point runs once on *each* target, and the target is part of a run's "
        "identity. The report compares them."
    ),
    "resources": (
        f"What one run needs, in {RESOURCE_SYNTAX}'s names and syntax: `cpus_per_task`, `gpus`, `mem`, "
        "`time` and the number of `nodes`. "
        'Keys of the run may stand in them: `"{actors} + 1"`. A run that needs more than the target has is '
        "skipped there, with the reason."
    ),
    "length": (
        "For `command`: the key that only says when a run ends, such as `steps`. Runs then go on from "
        "finished ones that differ in a lower value of it alone. Other trainers know theirs."
    ),
    "keep": (
        "`state`, the default: the last checkpoint of a finished run holds all that a longer run needs to go "
        "on. `result`: only what was learned."
    ),
    "library": (
        "Results trees, one or a list: runs that are finished there are adopted, not trained. A folder, "
        "`user@host:PATH`, a profile or `s3://BUCKET/FOLDER`; they are only read."
    ),
    "fork": (
        "Every run goes on from the whole state of another one, with the keys of its own point: `{for: "
        "{experiment.lr: 5e-5}, at: 60_000}` from the run with these values after 60,000 frames, which is "
        "trained first, or `{from: SWEEP/RUN}` from the end of a finished run."
    ),
    "init": (
        "`SWEEP/RUN`: every run begins with the policy of this finished run, and else from nothing. RUN is "
        "the name of its folder."
    ),
    "notify": (
        "A command that sends a message when the sweep ends, when a first run fails, and when a budget is "
        "used up: the program and its arguments, with `{event}`, `{sweep}` and `{message}`."
    ),
}
_TARGET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DEFAULT_TARGETS = ("local",)


def parse_grid(text: str, source: str, changes: Sequence[str] = ()) -> Grid:
    """Parse the grid in ``text``; ``source`` is the file's name in messages.

    ``changes``: ``key=value`` of `--set`, as a grid would have them that extends this one.

    Raises :class:`GridError` with line, column, what was found, what was expected and the nearest spelling.
    """
    place = YamlFile(source, extended=bool(changes))
    extended = Extended(text, place, _known_sections)
    root = changed(extended.root, changes, SECTIONS, place)
    sections = {entry.key: entry for entry in root.entries}
    name = _name(sections, place, inherits=bool(extended.files))
    spec = _trainer(sections, place)
    keys = Keys(spec, place)
    base = _base(sections.get("base"), keys, place)
    axes = _matrix(sections.get("matrix"), keys, place)
    axes = (*axes, *_zip(sections.get("zip"), keys, place))
    targets = _targets(sections.get("targets"), place)
    node = _node(sections, "compare")
    compare = node is not None and read_flag("compare", node, place)
    varying = _with_targets(axes, targets, compare)
    exclude = read_exclude(_node(sections, "exclude"), base, varying, place)
    include = read_include(_node(sections, "include"), axes, keys, place)
    refuse_empty(sections, base, axes, include, place)
    rules, rule_nodes = read_rules(_node(sections, "for"), base, varying, include, keys, place)
    _check_anchors(_node(sections, ANCHORS), keys)
    fork = read_fork(_node(sections, "fork"), keys, place)
    positions = {
        **keys.positions,
        **{name: sections[name].at for name in sections if name in ("plugins", "fork", "init")},
    }
    return Grid(
        name=name,
        trainer=spec,
        base=base,
        axes=varying,
        exclude=exclude,
        include=include,
        targets=targets,
        compare=compare,
        resources=read_resources(_node(sections, "resources"), keys.max_threads, spec, place),
        plugins=read_plugins(_node(sections, "plugins"), spec, place),
        loggers=read_loggers(_node(sections, "loggers"), spec, place),
        metrics=read_metrics(_node(sections, "metrics"), spec, place),
        notify=_notify(_node(sections, "notify"), keys, place),
        text=text,
        source=source,
        positions=positions,
        rules=rules,
        extends=tuple(extended.files),
        changes=tuple(changes),
        merged=_merged(root, rule_nodes, exclude) if extended.files or changes else None,
        labels=_labels(sections.get("labels"), keys, place),
        length=read_length(_node(sections, "length"), keys.positions, spec, place),
        keep=read_keep(_node(sections, "keep"), place),
        library=read_library(_node(sections, "library"), place),
        fork=fork,
        init=read_init(_node(sections, "init"), keys, place, forks=fork is not None),
    )


def _merged(root: Entries, rules: tuple[Node, ...], exclude: Sequence[Exclusion]) -> Entries:
    """Return the merged sections, in order, without entries of `for` and `exclude` that fit no point."""
    kept = {exclusion.at for exclusion in exclude}

    def items(entry: KeyNode) -> tuple[Node, ...] | None:
        if entry.key == "for":
            return rules
        if entry.key == "exclude" and isinstance(entry.node, Items):
            return tuple(item for item in entry.node.items if item.at in kept)
        return None

    return Entries(
        tuple(
            replace(entry, node=Items(found, entry.node.at)) if (found := items(entry)) is not None else entry
            for entry in sorted(root.entries, key=lambda entry: [*SECTIONS].index(entry.key))
            if entry.key != ANCHORS
        ),
        root.at,
    )


def _labels(section: KeyNode | None, keys: Keys, source: YamlFile) -> dict[str, Value]:
    """Parse names with one value each."""
    if section is None:
        return {}
    if not isinstance(section.node, Entries):
        raise source.unexpected(
            "labels", section.node, "names with values", "such as labels: {note: first try}"
        )
    for entry in section.node.entries:
        if entry.key in keys.positions:
            raise source.error(
                entry.at,
                f"labels: found {shown(entry.key)}, which is a key of the runs",
                "remove one of them",
            )
        keys.check_secret(entry.key, plain_value(entry.node), entry.at)
    return {entry.key: plain_value(entry.node) for entry in section.node.entries}


def _check_anchors(node: Node | None, keys: Keys) -> None:
    """Refuse secrets in the section for anchors, as elsewhere in a grid."""
    if isinstance(node, Items):
        for item in node.items:
            _check_anchors(item, keys)
    elif isinstance(node, Entries):
        for entry in node.entries:
            keys.check_secret(entry.key, plain_value(entry.node), entry.at)
            _check_anchors(entry.node, keys)


def _with_targets(axes: tuple[Axis, ...], targets: tuple[str, ...], compare: bool) -> tuple[Axis, ...]:
    """With ``compare: true``, add the target as an axis: it becomes part of every run's identity."""
    return (*axes, Axis(("target",), tuple((target,) for target in targets))) if compare else axes


def _known_sections(root: Node, source: YamlFile) -> Entries:
    if not isinstance(root, Entries):
        raise source.error(root.at, f"found {kind(root)}, expected the sections {', '.join(SECTIONS)}")
    for entry in root.entries:
        if entry.key not in SECTIONS:
            raise source.error(
                entry.at,
                f"found {shown(entry.key)}, expected one of: {', '.join(SECTIONS)}",
                _suggest_section(entry, [entry.key for entry in root.entries]),
            )
    return root


def _suggest_section(entry: KeyNode, sections: Sequence[str]) -> str:
    """Suggest the place of an unknown section."""
    key = entry.key
    if key in RESOURCES or key in OTHER_NAMES:
        return f"did you mean resources: {{{OTHER_NAMES.get(key, key)}: …}}?"
    within = [inner.key for inner in entry.node.entries] if isinstance(entry.node, Entries) else []
    near = section_hint(key, within, sections) or did_you_mean(key, SECTIONS)
    return near or "the trainer's own keys go into base or matrix"


def _node(sections: Mapping[str, KeyNode], name: str) -> Node | None:
    return sections[name].node if name in sections else None


def _name(sections: Mapping[str, KeyNode], source: YamlFile, *, inherits: bool) -> str:
    node = _node(sections, "name")
    if node is None:
        hint = "a name is not inherited: add one" if inherits else "add a line such as name: speed"
        raise source.error(Position(1, 1), "the grid has no name", hint)
    name = node.value if isinstance(node, Scalar) else None
    if not isinstance(name, str) or not SWEEP_NAME.fullmatch(name) or name.endswith((".", "-")):
        raise source.error(
            node.at,
            f"name: found {kind(node)}, expected up to 100 letters, digits, dots, dashes and underscores "
            "that start with a letter or digit: it names a folder",
            "put a number in quotes" if isinstance(name, int | float) else None,
        )
    return name


def _trainer(sections: Mapping[str, KeyNode], source: YamlFile) -> TrainerSpec:
    node = _node(sections, "trainer")
    names = trainer_names()
    if node is None:
        raise source.error(
            Position(1, 1), "the grid names no trainer", "add a line such as trainer: benchmarl"
        )
    if not isinstance(node, Scalar) or node.value not in names:
        raise source.error(
            node.at,
            f"trainer: found {kind(node)}, expected one of: {', '.join(names)}",
            _suggest_trainer(kind(node).lower(), names),
        )
    return get_trainer(str(node.value))


def _suggest_trainer(name: str, names: Sequence[str]) -> str | None:
    if near := did_you_mean(name, names):
        return near
    # An algorithm in place of a trainer.
    if name.endswith(("ppo", "sac", "ddpg", "dqn", "iql", "qmix", "vdn")):
        return "algorithms are keys of base or matrix: trainer: benchmarl, and base: {algorithm: mappo}"
    return f"a program of your own is {PROGRAM_OF_ONES_OWN} (docs/run-protocol.md)"


def _mapping(entry: KeyNode | None, source: YamlFile) -> tuple[KeyNode, ...]:
    """Return the entries of a section that maps keys to values; none for an empty or absent section."""
    if entry is None or (isinstance(entry.node, Scalar) and entry.node.value is None):
        return ()
    if not isinstance(entry.node, Entries):
        raise source.error(
            entry.node.at, f"{entry.key}: found {kind(entry.node)}, expected a mapping of the trainer's keys"
        )
    return entry.node.entries


def _base(section: KeyNode | None, keys: Keys, source: YamlFile) -> dict[str, Value]:
    base = {}
    for entry in _mapping(section, source):
        keys.add(entry.key, entry.at, "base")
        base[entry.key] = value = one_value(entry.key, entry.node, source, where="base")
        keys.check_value(entry.key, value, entry.node.at)
    return base


def _matrix(section: KeyNode | None, keys: Keys, source: YamlFile) -> tuple[Axis, ...]:
    axes = []
    for entry in _mapping(section, source):
        keys.add(entry.key, entry.at, "matrix")
        axes.append(Axis((entry.key,), tuple((value,) for value in _steps(entry, keys, source))))
    return tuple(axes)


def _zip(section: KeyNode | None, keys: Keys, source: YamlFile) -> tuple[Axis, ...]:
    columns: dict[str, list[Value]] = {}
    for entry in _mapping(section, source):
        keys.add(entry.key, entry.at, "zip")
        columns[entry.key] = _steps(entry, keys, source)
        first, length = next((key, len(values)) for key, values in columns.items())
        if len(columns[entry.key]) != length:
            raise source.error(
                entry.node.at,
                f"zip: found a list of {len(columns[entry.key])} for {entry.key}, expected {length} as for "
                f"{first}: they advance together",
                "lists that vary independently go into matrix",
            )
    return (Axis(tuple(columns), tuple(zip(*columns.values(), strict=True))),) if columns else ()


def _steps(entry: KeyNode, keys: Keys, source: YamlFile) -> list[Value]:
    try:
        values = several_values(entry, source)
    except SweepTextError as error:
        raise source.error(entry.node.at, f"{entry.key}: {error}", error.hint) from None
    for value, at in values:
        keys.check_value(entry.key, value, at)
    return [value for value, _ in values]


def _targets(section: KeyNode | None, source: YamlFile) -> tuple[str, ...]:
    if section is None:
        return _DEFAULT_TARGETS
    node = section.node
    expected = "names of targets", "such as targets: [local]"
    items = list(texts("targets", node, source, *expected))
    for name, item in items:
        if not _TARGET.fullmatch(name):
            raise source.unexpected("targets", item, *expected)
    names = tuple(name for name, _ in items)
    if not names:
        raise source.error(
            node.at, "targets: found an empty list, expected at least one", "leave it out for [local]"
        )
    if len(set(names)) < len(names):
        raise source.error(node.at, f"targets: found {_twice(names)} twice")
    return names


def _notify(node: Node | None, keys: Keys, source: YamlFile) -> tuple[str, ...]:
    """Parse the command that sends messages."""
    if node is None:
        return ()
    expected = "a list: a program and its arguments", 'such as notify: [mail, -s, "{event}", me@example.org]'
    if not isinstance(node, Items) or not node.items:
        raise source.unexpected("notify", node, *expected)
    arguments = tuple(text for text, _ in texts("notify", node, source, *expected))
    for text in arguments:
        keys.check_secret("notify", text, node.at)
    if "{message}" in (code_of(arguments) or ""):
        raise source.error(
            node.at,
            "notify: found {message} in code, which would run what the message says",
            'pass it as an argument: [bash, -c, \'echo "$1"\', bash, "{message}"]',
        )
    return arguments


def _twice(names: tuple[str, ...]) -> str:
    return next(name for name in names if names.count(name) > 1)
