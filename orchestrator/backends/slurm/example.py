"""What the example profile of `orchestrate init` says of the cluster at hand."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from orchestrator.backends.slurm.doctor.cluster_facts import Site
from orchestrator.core.types import CommandAnswer, RunCommand

_PARTITIONS = "`sinfo -s` lists them"
_ACCOUNTS = "`sacctmgr show associations user=$USER format=account,qos` lists yours"
_MOST_NAMES = 8


def example_words(ask: RunCommand | None) -> dict[str, str]:
    """Return partitions, the default one first, and the user's accounts, as far as the cluster answers."""
    site = Site(None, Path(), ask)
    partitions = site.partitions if ask is not None or shutil.which("sinfo") else []
    known = () if not partitions or isinstance(site.associations, CommandAnswer) else site.associations
    default_first = sorted(partitions, key=lambda one: not one.is_default)
    named = [f"{one.name} (the default)" if one.is_default else one.name for one in default_first]
    accounts = list(dict.fromkeys(one.account for one in known))
    return {"partitions": _listed(named) or _PARTITIONS, "accounts": _listed(accounts) or _ACCOUNTS}


def _listed(names: Sequence[str]) -> str:
    """Format names for a comment of one line; unprintable characters are removed."""
    printable = ["".join(char for char in name if char.isprintable()) for name in names]
    more = f", … ({len(names)} in all)" if len(names) > _MOST_NAMES else ""
    return f"there are: {', '.join(printable[:_MOST_NAMES])}{more}" if names else ""
