"""Set values in a composed configuration, each in the type of its field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from jobs.hydra.spelling import Vocabulary, wants_dots
from jobs.training.config_errors import bare_key
from orchestrator.core.types import Value


def set_value(
    vocabulary: Vocabulary, cfg: DictConfig, key: str, value: Value, choices: Mapping[str, Value]
) -> Any:
    """Set a value in the config of these choices and return it in the type of its field, references as text.

    Raises :class:`RefusedKeyError` for an unknown key or a value of a wrong type.
    """
    if (problem := vocabulary.unknown_key(cfg, key, choices)) is not None:
        raise problem
    if isinstance(value, Mapping) and is_dataclass(OmegaConf.get_type(cfg, bare_key(key))):
        raise wants_dots(key, value)
    try:
        with open_dict(cfg):
            OmegaConf.update(cfg, bare_key(key), value)
        if "${" in json.dumps(value):
            return value  # other values may have to be set first
        typed = OmegaConf.select(cfg, bare_key(key))
    except OmegaConfBaseException as error:
        raise vocabulary.wrong_type(key, value, error) from error
    return OmegaConf.to_container(typed) if OmegaConf.is_config(typed) else typed
