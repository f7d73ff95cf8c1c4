"""Note at the end of a `command` run's program which packages it imported. Python imports this at the start.

Appends lines to the file that ORCHESTRATE_IMPORTS names: "python VERSION", "NAME VERSION" for each package
of an environment, and "raised" or "returned": whether an exception ended it. Keeps the lines of its log in
order. Runs in the Python of the program, old ones included, and must not disturb it.
"""

import atexit
import os
import sys


def _note():  # type: ignore[no-untyped-def]
    try:
        path = os.environ.get("ORCHESTRATE_IMPORTS")
        if not path or not os.path.isdir(os.path.dirname(path)):
            return
        found = ["python " + ".".join(map(str, sys.version_info[:3]))]
        for name, module in sorted(sys.modules.items()):
            if "." not in name and not name.startswith("_") and _is_installed(module):
                version = _version(name, module)
                if version:
                    found.append(name + " " + version)
        found.append("raised" if hasattr(sys, "last_type") else "returned")
        with open(path, "a") as file:
            file.write("\n".join(found) + "\n")
    except Exception:
        pass


def _write_whole_lines():  # type: ignore[no-untyped-def]
    """Write what is printed to the run's log line by line, so that an error's text is not before it."""
    try:
        if os.path.samestat(os.fstat(1), os.fstat(2)):
            sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    except Exception:
        pass


def _is_installed(module):  # type: ignore[no-untyped-def]
    # Not by getattr, here and below: a module may load others for that.
    origin = str(getattr(module, "__dict__", {}).get("__file__"))
    return "site-packages" in origin or "dist-packages" in origin


def _version(name, module):  # type: ignore[no-untyped-def]
    own = vars(module).get("__version__")
    if not isinstance(own, str):
        try:
            from importlib.metadata import version  # takes longer than most programs' start

            own = version(name)
        except Exception:
            return None
    return "".join(own.split())


def _hand_over():  # type: ignore[no-untyped-def]
    """Import the sitecustomize that Python would have found without this one."""
    here = os.path.dirname(__file__)
    sys.path[:] = [folder for folder in sys.path if folder != here]
    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found] # noqa: F401
    except ImportError:
        if own is not None:
            sys.modules["sitecustomize"] = own
    sys.path.append(here)  # last, for orchestrate_run


atexit.register(_note)
_write_whole_lines()
_hand_over()
