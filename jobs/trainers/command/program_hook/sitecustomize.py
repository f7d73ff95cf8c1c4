"""Note the files and packages that the program of a `command` run used. Python imports this at the start.

Appends lines to the file that ORCHESTRATE_IMPORTS names. At once, from Python 3.8: "file", a tab and the path
of each file that is imported, opened to be read, or given to another program, below the folders that
ORCHESTRATE_PROJECT lists. At the end: "python VERSION", "NAME VERSION" for each package of an environment,
and "raised" or "returned": whether an exception ended it. Keeps the lines of its log in order. Runs in the
Python of the program, old ones included, and must not disturb it.
"""

import atexit
import os
import sys

# Files that one process notes at most.
_MOST = 5000
_EVENTS = frozenset(("open", "exec", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"))

_notes = os.environ.get("ORCHESTRATE_IMPORTS", "")
_folders = tuple(one + "/" for one in os.environ.get("ORCHESTRATE_PROJECT", "").split(os.pathsep) if one)
_seen = {_notes}
# An environment may lie in the project.
_library = os.path.dirname(os.__file__) + "/"


def _watch(event, about):  # type: ignore[no-untyped-def]
    """Note a file when it is used: a program that is killed has no end. Called for each audit event."""
    if event not in _EVENTS:
        return
    try:
        if event == "open":
            path, mode, flags = about
            if not isinstance(path, int):
                _see(os.fsdecode(path), "r" in mode and "+" not in mode if mode else not flags & 3)
        elif event == "exec":
            if about[0].co_filename[:1] != "<":
                _see(about[0].co_filename)
        else:
            for item in map(os.fsdecode, about[:1] if event == "os.system" else about[1]):
                for word in {item, *item.split()}:
                    _see(word)
    except Exception:
        pass


def _see(path, is_read=True):  # type: ignore[no-untyped-def]
    if path in _seen or len(_seen) > _MOST or (path[:1] == "/" and not path.startswith(_folders)):
        return
    full = os.path.abspath(path)
    is_new = full not in _seen and full.startswith(_folders) and not full.startswith(_library)
    is_new = is_new and not full.endswith(".pyc")  # of which the source counts
    _seen.update((path, full))
    # Files that the program wrote itself do not count, also when read later.
    if is_new and is_read and not _is_of_package(full) and "\n" not in full and os.path.isfile(full):
        with open(_notes, "a", encoding="utf-8", errors="surrogateescape") as file:
            file.write("file\t" + full + "\n")


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
    """Write printed text to the run's log line by line, so that it precedes the text of a later error."""
    try:
        if os.path.samestat(os.fstat(1), os.fstat(2)):
            sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    except Exception:
        pass


def _is_installed(module):  # type: ignore[no-untyped-def]
    # Not by getattr, here and below: a module may load others for that.
    return _is_of_package(str(getattr(module, "__dict__", {}).get("__file__")))


def _is_of_package(path):  # type: ignore[no-untyped-def]
    return "site-packages" in path or "dist-packages" in path


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
if _notes and _folders and hasattr(sys, "addaudithook"):
    sys.addaudithook(_watch)
if "ORCHESTRATE_AUDIT" in os.environ and hasattr(sys, "addaudithook"):
    import orchestrate_audit  # type: ignore[import-not-found] # noqa: F401
_hand_over()
