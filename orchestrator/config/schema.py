"""JSON schemas of grids and profiles, by which editors complete and check YAML files.

A schema is wider than the program: it takes every key of a trainer, and no target is looked up. What it
refuses, the program refuses too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from orchestrator.config.grid.parse import SECTIONS
from orchestrator.config.grid.resources import RESOURCES
from orchestrator.config.grid.values import OWN_KEYS
from orchestrator.config.profiles.model import Profile, told_keys
from orchestrator.core.types import KEPT

Schema = dict[str, Any]

_DIALECT = "http://json-schema.org/draft-07/schema#"  # the newest one that YAML's language server reads whole
_TEXT: Schema = {"type": "string"}
_NUMBER_OR_TEXT: Schema = {"type": ["number", "string"]}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_TEXT_OR_TEXTS: Schema = {"anyOf": [_TEXT, _TEXTS]}
_WORDS: Schema = {"type": ["array", "string"], "items": {"type": ["string", "number", "boolean"]}}
_OBJECT: Schema = {"type": "object"}
_OBJECTS: Schema = {"type": "array", "items": _OBJECT}
# A list, or a function of one: range(3).
_AXES: Schema = {"type": "object", "additionalProperties": {"type": ["array", "string"]}}

_SECTIONS: Mapping[str, Schema] = {
    "name": {"type": ["string", "number"]},
    "trainer": _TEXT,
    "plugins": _TEXT_OR_TEXTS,
    "loggers": _TEXT_OR_TEXTS,
    "metrics": _OBJECT,
    "extends": _TEXT_OR_TEXTS,
    "anchors": {},
    "labels": _OBJECT,
    "base": _OBJECT,
    "matrix": _AXES,
    "zip": _AXES,
    "for": {"type": "array", "items": {"type": "object", "required": ["set"]}},
    "exclude": _OBJECTS,
    "include": _OBJECTS,
    "targets": _TEXT_OR_TEXTS,
    "compare": {"type": "boolean"},
    "resources": _OBJECT,
    "length": _TEXT,
    "library": _TEXT_OR_TEXTS,
    "keep": {"enum": list(KEPT)},
    "fork": {**_OBJECT, "properties": {"for": _OBJECT, "from": _TEXT, "at": {"type": "number"}}},
    "init": _TEXT,
    "notify": _WORDS,
}
# By the annotations of `Profile`.
_BY_TYPE: Mapping[str, Schema] = {
    "str": _NUMBER_OR_TEXT,
    "int": {"type": ["integer", "string"]},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "tuple[str, ...]": _WORDS,
    "frozenset[str]": _WORDS,
    "Mapping[str, str]": _OBJECT,
    "tuple[tuple[str, str | None], ...]": _OBJECT,
}
_PROFILE: Mapping[str, Schema] = {"accelerators": {"type": ["string", "object"]}, "gpu_option": _TEXT}


def grid_schema() -> Schema:
    """Return the schema of a grid. A section without a value (``base:``) is as an absent one."""
    resources = {**_OBJECT, **_closed((name, _NUMBER_OR_TEXT, told) for name, told in RESOURCES.items())}
    own = {name: {"description": _plain(told)} for name, told in OWN_KEYS.items()}
    kinds = {**_SECTIONS, "resources": resources, "base": {**_OBJECT, "properties": own}}
    return _whole("a grid of orchestrate", ((name, kinds[name], told) for name, told in SECTIONS.items()))


def profile_schema() -> Schema:
    """Return the schema of a profile."""
    types = {key.name: str(key.type).removesuffix(" | None") for key in fields(Profile)}
    return _whole(
        "a profile of orchestrate",
        ((name, _PROFILE.get(name, _BY_TYPE.get(types[name], {})), told) for name, _, told in told_keys()),
    )


def _whole(title: str, keys: Iterable[tuple[str, Schema, str]]) -> Schema:
    return {"$schema": _DIALECT, "title": title, "type": "object", **_closed(keys)}


def _closed(keys: Iterable[tuple[str, Schema, str]]) -> Schema:
    """Return the part of a schema that takes these keys alone; each may be left empty."""
    properties = {
        name: {"description": _plain(told), "anyOf": [{"type": "null"}, kind]} for name, kind, told in keys
    }
    return {"properties": properties, "additionalProperties": False}


def _plain(told: str) -> str:
    """Return a description without the marks of Markdown."""
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", told).replace("`", "")
