"""Templates, styles and scripts of the page."""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template


def text(name: str) -> str:
    """Return a file of this folder."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def template(name: str) -> Template:
    """Return a template of this folder; it escapes what it is given."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["id"] = id
    return environment.from_string(text(name))
