"""Profiles: named clusters as data, in YAML files."""

from orchestrator.config.profiles.find import (
    as_typed,
    every_profile,
    find_profile,
    own_folder,
    place_of,
    profile_names,
)
from orchestrator.config.profiles.model import Profile
from orchestrator.config.profiles.parse import parse_profile
from orchestrator.config.profiles.remote_setup import preparation, text_for_there
from orchestrator.config.profiles.sbatch_options import option_name

__all__ = [
    "Profile",
    "as_typed",
    "every_profile",
    "find_profile",
    "option_name",
    "own_folder",
    "parse_profile",
    "place_of",
    "preparation",
    "profile_names",
    "text_for_there",
]
