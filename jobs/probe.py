"""`python -m jobs.probe`: facts about this machine that only the libraries can give, for the doctor.

Writes a JSON object per line to stdout as soon as it is known: PyTorch, drawing, Procgen. Output of libraries
goes to stderr. A library that crashes takes only the lines after it along.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable
from typing import Any, TextIO

Facts = dict[str, Any]


def torch_facts() -> Facts:
    """Return PyTorch's version and what it can use here.

    ``cuda``: the version it is built for. ``threads``: how many it would take by itself. ``bf16``: how many
    times slower than in single precision the processor computes in 16 bits, where it is slower. ``device``,
    ``memory`` in bytes: the GPU of a test computation; ``error``: why that failed.
    """
    import torch

    facts: Facts = {"version": torch.__version__, "cuda": torch.version.cuda}
    facts["threads"] = torch.get_num_threads()
    facts["bf16"] = _slowness_of_bf16()
    if torch.version.cuda is None:
        return facts
    try:
        (torch.ones(2, device="cuda") + 1).sum().item()  # an addition needs a kernel that fits the GPU
        properties = torch.cuda.get_device_properties(0)
        facts.update(device=properties.name, memory=properties.total_memory)
    except Exception as error:  # a driver that is too old, a GPU that is too new, one that others hold, …
        facts["error"] = _one_line(error)
    return facts


def _slowness_of_bf16() -> float | None:
    import torch

    try:
        from jobs.training.records.operations import SLOW, slowdown

        return times if (times := slowdown(torch.bfloat16)) > SLOW else None
    except Exception:
        return None  # this PyTorch has other faults, which are told


def drawing_facts() -> Facts:
    """Return the size of a test picture.

    ``found`` and ``fix`` where drawing fails; ``absent`` where no installed library draws.
    """
    from jobs.training.records.headless_rendering import draw_vmas, obstacle

    if importlib.util.find_spec("vmas") is None:
        return {"absent": "vmas"}
    try:
        height, width, _ = draw_vmas()
    except Exception as error:  # each library fails in its own way
        return vars(obstacle(error))
    return {"height": height, "width": width}


def procgen_facts() -> Facts:
    """Return the number of Procgen's games.

    ``found`` and ``fix`` where they cannot be played; ``absent`` where they are not installed.
    """
    from jobs.training.context import BadConfigError
    from jobs.training.games.procgen import GAMES, make_pool

    if importlib.util.find_spec("envpool") is None:
        return {"absent": "envpool"}
    try:
        make_pool(GAMES[0], "easy", [0], num_levels=1, start_level=0, threads=1).reset()
    except BadConfigError as error:
        return {"found": str(error), "fix": error.hint}
    return {"games": len(GAMES)}


_PROBES: dict[str, Callable[[], Facts]] = {
    "torch": torch_facts,
    "drawing": drawing_facts,
    "procgen": procgen_facts,
}


def main() -> None:
    """Write the facts of each probe to stdout."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name, probe in _PROBES.items():
        _write_facts(answer, name, probe)
    answer.close()
    os._exit(0)  # libraries that were only loaded for this have nothing to tidy up that is worth a second


def _write_facts(answer: TextIO, name: str, probe: Callable[[], Facts]) -> None:
    try:
        facts = probe()
    except Exception as error:  # a package that is broken raises anything when it is imported
        facts = {"broken": _one_line(error)}
    answer.write(json.dumps({"probe": name, **facts}) + "\n")
    answer.flush()


def _one_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].strip() if lines else ''}".rstrip(": ")


if __name__ == "__main__":
    main()
