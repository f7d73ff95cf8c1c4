"""Draft a grid from a Python program: its options, seed, output folder and metrics."""

from __future__ import annotations

import ast
from pathlib import Path

from orchestrator.config.program.hydra_keys import config_options, config_sweep
from orchestrator.config.program.options import Option, options_of, sources
from orchestrator.config.program.packages import module_of_file
from orchestrator.core.errors import PlacedError
from orchestrator.ui.drafts.text import Draft

_LIBRARIES = "argparse, click, typer, tyro, absl, Hydra, OmegaConf and sys.argv[1]"
_BY_HAND = 'Write those that `--help` of the program names into command, as in "--lr", "{lr}".'
# Names in a program's source, and the format of metrics that they stand for; the first counts.
_METRICS = {
    "ORCHESTRATE_METRICS": "",
    "orchestrate_run": "",
    "SummaryWriter": "tensorboard",
    "tensorboard_log": "tensorboard",
    "wandb": "wandb",
    "DictWriter": "csv",
    "csv.writer": "csv",
    "to_csv": "csv",
    "Monitor": "monitor",
    "monitor_dir": "monitor",
    "jsonl": "jsonl",
}


def draft_of_python(file: Path, spelled: str) -> Draft:
    """Read a program's sources. ``spelled``: the file as the command names it.

    Raises :class:`PlacedError`.
    """
    text = file.read_bytes()
    try:
        ast.parse(text)
    except SyntaxError as error:
        raise PlacedError(
            f"is not Python: {error.msg}", file=file, line=error.lineno, column=error.offset
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise PlacedError(f"is not Python: {error}", file=file) from None
    path = file.absolute()
    options, swept = [*(options_of(path) or config_options(path))], config_sweep(path)
    known = {option.key for option in options}
    options += [Option(key, (f"{key}={{{key}}}",)) for key in swept if key not in known]
    notes = [] if options else [f"No options found in its sources: {_LIBRARIES} are read.", _BY_HAND]
    try:
        words = " ".join(ast.unparse(tree) for _, tree in sources(path))
    except RecursionError:  # a very long expression
        words = ""
    source = next((kind for word, kind in _METRICS.items() if word in words), None)
    where = "no logger found in the program" if source is None else "found by itself"
    later = [
        f"# metrics: {{from: {source or 'csv'}}}  # {where}: docs/run-protocol.md, metrics without edits"
    ]
    module = module_of_file(spelled)
    start = ["python", "-m", module] if module else ["python", spelled]
    return Draft(spelled, start, options, swept, notes=notes, later=[] if source == "" else later)
