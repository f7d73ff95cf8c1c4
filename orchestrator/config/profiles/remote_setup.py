"""Prepare a profile's machine behind ssh: shell lines before Python starts, and the profile's text there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from orchestrator.config.profiles.model import Profile

# The Python of a machine without a profile's: the first on PATH after its setup.
THEIR_PYTHON = ("python3",)
_ONLY_HERE = ("ssh", "folder")


def preparation(profile: Profile) -> Iterator[str]:
    """Yield shell lines that set up Python's environment: modules, variables, the site's own setup."""
    if profile.modules is not None:
        yield "module purge"
        yield from (f"module load {shlex.quote(module)}" for module in profile.modules)
    for name, value in sorted(profile.environment.items()):
        yield f"export {name}={shlex.quote(value)}"
    yield from profile.setup


def text_for_there(profile: Profile) -> str:
    """Return the profile's file for its own cluster: without ssh, and with a Python."""
    import yaml

    text = Path(profile.source).read_text(encoding="utf-8")
    root = yaml.compose(text, yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode), "it was parsed"
    root.value = [(key, value) for key, value in root.value if key.value not in _ONLY_HERE]
    if profile.python is None:
        words = [yaml.ScalarNode("tag:yaml.org,2002:str", word, style='"') for word in THEIR_PYTHON]
        python = yaml.SequenceNode("tag:yaml.org,2002:seq", words, flow_style=True)
        root.value.append((yaml.ScalarNode("tag:yaml.org,2002:str", "python"), python))
    written: str = yaml.serialize(root, Dumper=yaml.SafeDumper, allow_unicode=True, width=10_000)
    return written
