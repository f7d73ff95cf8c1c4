"""Called by mkdocs (``hooks`` in mkdocs.yml): adds the pages that are made from the code."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from orchestrator.ui.reference import pages


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for place, text in pages().items():
        files.append(File.generated(config, place, content=text))
    return files
