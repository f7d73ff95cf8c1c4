"""The beginning of programs that follow the run protocol: ``frames``, ``write(line)`` and ``save()``."""

from __future__ import annotations

BEGINNING = """
import json, os, signal, sys, time
from pathlib import Path

inbox = Path(os.environ["ORCHESTRATE_CHECKPOINT_DIR"])
resume = os.environ.get("ORCHESTRATE_RESUME")
frames = json.loads(Path(resume).read_text()) if resume else 0

def write(line):
    with open(os.environ["ORCHESTRATE_METRICS"], "a") as file:
        file.write(json.dumps(line) + "\\n")

def save():
    (inbox / "unfinished").write_text(json.dumps(frames))
    (inbox / "unfinished").rename(inbox / str(frames))
    while (inbox / str(frames)).exists():
        time.sleep(0.005)
"""
