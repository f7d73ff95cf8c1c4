"""Name the parts of a program's state that it had after a checkpoint and lacks once it is resumed."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from orchestrator.rundir.records.audits import LeftOut

_MOST_NAMED = 6
_MISSING = "missing"
# Kinds that follow from others more often than they are a cause: a network also keeps its last outputs.
_LAST = ("network", "variable")
_GLOBAL = {
    "random": "Python's random state",
    "numpy.random": "NumPy's random state",
    "torch": "PyTorch's random state",
    "torch.cuda": "CUDA's random states",
}
# Kinds by words in the path of a part, in the order of precedence.
_WORDS = (
    ("step counter", r"counters?|since_\w+|\w+_since\w*"),
    ("sampler's cursor", r"cursor|sampler|permutation|perm|order|shuffl\w*|minibatch\w*|indices"),
    ("replay memory", r"replay\w*|memory|buffer|buf|rb|transitions"),
    ("return normaliser", r"(ret|rew|return|reward)\w*_?(rms|norm\w*|mean|var|std|stats?|scal\w*)"),
    (
        "observation normaliser",
        r"(obs|state)\w*_?(rms|norm\w*|mean|var|std|stats?)|rms|norm\w*|running\w*|scaler",
    ),
    ("target network", r"target\w*|\w*_targ(et)?|tgt\w*|\w+_target"),
    ("exploration schedule", r"eps|epsilon\w*|explor\w*|temperature|(log_)?(alpha|temp)|beta|noise\w*|sigma"),
    ("learning-rate schedule", r"lr|learning_?rate|lrnow|schedul\w*|anneal\w*|step_?size"),
    ("best or early-stopping state", r"best\w*|patience|stale\w*|bad\w*|no_improve\w*|early\w*"),
    ("episode in progress", r"(ep|episode|episodic)\w*|dones?|elapsed\w*|lstm\w*|hidden\w*"),
    ("observation carried over", r"obs\w*|next_obs|last_obs|observation\w*|states?"),
    ("step counter", r"\w*(steps?|count\w*|iter\w*|updates?|frames?|timesteps?|num_\w+)|t|n|k|i"),
)
_POSITION = re.compile(r"replay memory _?(pos\w*|ptr|cursor|idx|index|full|size|next|next_(idx|index))")
_WHOLE = {"optimizer", "scheduler", "module"}
_KINDS = {"optimizer": "optimizer", "scheduler": "learning-rate schedule"}


class Part(NamedTuple):
    """A part of a program's state (``orchestrate_state`` in its Python)."""

    path: str
    hash: str
    shown: str
    kinds: Sequence[str]
    live: bool


class _Pair(NamedTuple):
    """A part in two executions."""

    was: Part | None
    became: Part | None

    @property
    def part(self) -> Part:
        found = self.was or self.became
        assert found is not None
        return found

    @property
    def differs(self) -> bool:
        return self.was is None or self.became is None or self.was.hash != self.became.hash


def states_at(folder: Path, frames: int) -> dict[tuple[str, int], dict[str, Part]]:
    """Return the states that the hook noted at a checkpoint, by the lines of the program."""
    found = {}
    for path in sorted(folder.glob(f"state-{frames}-[0-9]*.json")):
        noted = json.loads(path.read_text())
        name, line = noted["place"]
        found[name, line] = {one[0]: Part(*one) for one in noted["parts"]}
    return found


def left_out(straight: Path, resumed: Path, frames: int) -> tuple[LeftOut, ...]:
    """Return what differs between two executions at a line of the program, the surest first.

    A resumed program may reach lines sooner after its checkpoint than the straight one: where least differs,
    both are equally far.
    """
    one, two = states_at(straight, frames), states_at(resumed, frames)
    noise = _noise(straight, resumed, frames)
    found = [_differing(one[place], two[place], noise) for place in two if place in one]
    parts = _grouped(min(filter(None, found), key=len, default={}))
    return tuple(sorted(parts, key=lambda one: one.kind in _LAST))[:_MOST_NAMED]


def _noise(straight: Path, killed: Path, frames: int) -> set[str]:
    """Return parts that differed before the kill: no two executions have them in common."""
    files = [folder / f"state-{frames}-begin.json" for folder in (straight, killed)]
    if not all(map(Path.exists, files)):
        return set()
    one, two = ({part[0]: part[1] for part in json.loads(file.read_text())["parts"]} for file in files)
    return {path for path in one if path in two and one[path] != two[path]}


def _differing(one: Mapping[str, Part], two: Mapping[str, Part], noise: Collection[str]) -> dict[str, _Pair]:
    """Return the parts that differ, of variables that are read before they are set if there are any.

    A variable that only one program has is none: nothing reads it.
    """
    roots = {_root(path) for path in one} & {_root(path) for path in two}
    paths = (path for path in dict.fromkeys((*one, *two)) if _root(path) in roots and path not in noise)
    pairs = {path: _Pair(one.get(path), two.get(path)) for path in paths}
    differing = {path: pair for path, pair in pairs.items() if pair.differs}
    return {path: pair for path, pair in differing.items() if pair.part.live} or differing


def _grouped(pairs: Mapping[str, _Pair]) -> Iterator[LeftOut]:
    """Yield the parts by name; several of one object as that object."""
    groups: dict[tuple[str, str], list[str]] = {}
    for path, pair in pairs.items():
        groups.setdefault((_owner(pair.part), str("rng" in pair.part.kinds)), []).append(path)
    for (owner, _), paths in groups.items():
        pair = pairs[paths[0]]
        if len(paths) == 1 and not set(pair.part.kinds) & _WHOLE:
            yield LeftOut(_kind(paths[0], pair.part.kinds), paths[0], _text(pair.was), _text(pair.became))
        else:
            yield LeftOut(_kind(owner, pair.part.kinds), owner)


def _text(part: Part | None) -> str:
    return _MISSING if part is None else part.shown


def _root(path: str) -> str:
    return re.split(r"[.\[]", path)[0]


def _owner(part: Part) -> str:
    """Return the path of the object that holds a part; an optimizer or a network is one object."""
    if _WHOLE & set(part.kinds):
        return re.split(r"\.(?:state|param_groups|weight|bias|base_lrs|last_epoch|_|\d)|\[", part.path)[0]
    return re.sub(r"(\.[^.\[]*|\[[^\[]*)$", "", part.path)


def _kind(path: str, kinds: Sequence[str]) -> str:
    if "global rng" in kinds:
        return _GLOBAL.get(path, "random state")
    if "rng" in kinds:
        return "random generator of the environment" if "environment" in kinds else "random generator"
    for kind, named in _KINDS.items():
        if kind in kinds:
            return named
    words = [word for word in re.split(r"[.\[\]']+", path.lower()) if word]
    for named, pattern in _WORDS:
        if any(re.fullmatch(pattern, word) for word in words):
            return "replay memory's position" if _POSITION.fullmatch(f"{named} {words[-1]}") else named
    if "environment" in kinds:
        return "episode in progress"
    return "network" if "module" in kinds else "variable"
