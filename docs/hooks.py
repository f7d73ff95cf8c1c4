"""Called by mkdocs (``hooks`` in mkdocs.yml): adds the pages that are made from the code."""

from __future__ import annotations

import json

from code_reference import pages, python  # beside this file
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from jobs.training.context import Outcome, RunContext
from orchestrator.analysis.collect import Collected
from orchestrator.api import Launched, Opened, Pictures, launch
from orchestrator.api import open as open_sweep
from orchestrator.config.schema import grid_schema, profile_schema
from orchestrator.config.trainers import TrainerSpec


def on_files(files: Files, config: MkDocsConfig) -> Files:
    parts = (launch, open_sweep, Opened, Launched, Pictures, Collected, TrainerSpec, RunContext, Outcome)
    for place, text in {**pages(), "reference/api.md": python(parts)}.items():
        files.append(File.generated(config, place, content=text))
    for name, schema in (("grid", grid_schema()), ("profile", profile_schema())):
        files.append(File.generated(config, f"schema/{name}.json", content=json.dumps(schema, indent=1)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Colour the commands of a `console` block: its lines have no prompt, and copy as they are."""
    return markdown.replace("```console", "```bash")
