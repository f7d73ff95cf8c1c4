"""Read the text of a user's file, or raise an error with the cause."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from orchestrator.config.yaml_files.nodes import Position, YamlFile


def read_text(path: Path, source: YamlFile, otherwise: Callable[[Path], str]) -> str:
    """Read a file. ``otherwise`` returns the hint for a missing path.

    Raises the source's kind of :class:`PlacedError`.
    """
    try:
        if _is_special(path):
            raise source.error(None, f"is no plain file, expected a {source.noun} file")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise source.error(None, "there is no such file", otherwise(path)) from None
    except IsADirectoryError:
        raise source.error(
            None, f"is a folder, expected a {source.noun} file", otherwise(path / "_")
        ) from None
    except UnicodeDecodeError as error:
        *above, line = error.object[: error.start].decode().split("\n")
        raise source.error(
            Position(len(above) + 1, len(line) + 1),
            f"found the byte 0x{error.object[error.start]:02x}, expected UTF-8 text",
            f"is this a {source.noun} file? Save it as UTF-8",
        ) from None
    except ValueError:  # a null byte or half a character in the name
        raise source.error(None, "found a name that no file can have") from None
    except OSError as error:
        raise source.error(None, f"cannot be read: {error.strerror}") from None


def _is_special(path: Path) -> bool:
    """Return whether the path leads to a FIFO, a device or a socket: reading it might never end.

    The pipe of a shell's ``<(…)`` is allowed: ``/dev/fd/63`` leads to no path.
    """
    target = Path(os.path.realpath(path))
    return target.exists() and not target.is_file() and not target.is_dir()
