"""List the programs that a job script starts: bash runs the script, and records each program instead.

Bash is restricted (``bash -r``): it writes no file, enters no folder and starts only the tools named here,
which read files. A variable that the script does not set, and the output of a program, get a mark as value.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.errors import PlacedError

MARK = "\2"
_LONGEST = 20.0
_MOST_NAMES = 100
_TOOLS = (
    *("head", "tail", "tac", "cut", "tr", "wc", "cat", "seq", "expr", "bc", "basename", "dirname"),
    *("realpath", "ls", "grep", "sed", "awk", "jq"),
)
_BEFORE = r"""
ulimit -v 4000000 -t 30 2> /dev/null
FUNCNEST=1000
__record() {
  local name exported=() IFS=$' \n'
  for name in $(compgen -e); do exported+=("$name=${!name-}"); done
  printf '%s\0' "${BASH_LINENO[1]}" "${#exported[@]}" "${exported[@]}" "$#" "$@" >&@starts@
  printf '\2(%s)\2' "$1"
}
command_not_found_handle() { __record "$@"; }
exec() { (($# == 0)) || { __record "$@"; exit 0; }; }
command() { if [[ $1 == -* ]]; then builtin command "$@"; else "$@"; fi; }
cd() { [[ ${!#} -ef . ]] || __record cd "$@"; }
pushd() { __record pushd "$@"; }
popd() { __record popd "$@"; }
kill() { __record kill "$@"; return 1; }
wait() { :; }
eval() { [[ $* == *$'\2'* ]] || builtin eval "$@"; }
source() { __record source "$@"; }
.() { __record source "$@"; }
__tool() { local run=$1; shift; if ((run)); then builtin command "__$@"; else __record "$@"; fi; }
expr() { [[ $* == *$'\2'* ]]; __tool $? expr "$@"; }
sed() { local lines='^(-n )?[0-9pqd;!, ]+( [^- ][^ ]*)?$'; [[ $* =~ $lines ]]; __tool $((!$?)) sed "$@"; }
awk() { local other='system|getline|[|>@]|/inet/| -[^Fv0-9 ]'; [[ " $*" =~ $other ]]; __tool $? awk "$@"; }
enable -n kill history fc suspend
unset HOME RANDOM SRANDOM SECONDS EPOCHSECONDS EPOCHREALTIME HOSTNAME
"""
# Redirections into files and `&` outside of quotes, comments and arithmetic.
_LEFT_OUT = re.compile(
    r"""(?P<kept>\\.|'[^']*'|"(?:\\.|[^"\\])*"|\(\(.*?\)\)|\[\[.*?\]\]|(?<!\S)\#[^\n]*)"""
    r"""|(?:\d|&)?>[>|]?[ \t]*(?:>\([^()]*\)|(?:\$\([^()]*\)|"(?:\\.|[^"\\])*"|[^\s;&|()<>"])+)"""
    r"""|(?P<background>(?<![&>|<;])&(?![&>\d-]))""",
    re.DOTALL,
)
# Variables that restricted bash keeps from changing get other names while the script runs.
_FIXED = re.compile(r"(?<![\w/.-])(PATH|ENV|SHELL|HISTFILE|BASH_ENV)(?!\w)")
_RENAMED = "__of_the_script"
# A program that is only recorded reads no pipe, so that the command before it fails.
_STRICT = re.compile(r"^[ \t]*set[ \t]+[-+](?!-)[^\n;#&|]*", re.MULTILINE)
_UNSET = re.compile(r": line \d+: ([A-Za-z_]\w*): unbound variable")
_NTH = "argument_"
_COMPUTED = re.compile(r": line \d+: (.*): (?:syntax error: operand|integer expression) expected")
_MARKED, _OTHER = re.compile(rf"{MARK}(.*?){MARK}"), "1009"
_ARGUMENT = re.compile(r": line \d+: \$?(\d+): unbound variable")
_PATH = re.compile(r": line \d+: ([\w./~@+\x02-]+): restricted: cannot specify")
_ERROR = re.compile(rf"^(?:.*?: line (\d+): |(?:__)?(?:{'|'.join(_TOOLS)}): )(.*)", re.MULTILINE)


@dataclass(frozen=True)
class Start:
    """A program that the script starts in a line, with its arguments and the variables exported to it."""

    line: int
    argv: tuple[str, ...]
    exported: Mapping[str, str]


class Script:
    """A job script that is run once for each array index, to list its starts."""

    def __init__(self, file: Path, text: str, folder: Path) -> None:
        self._file, self._folder = file, folder
        text = text.replace("$!", "1").replace("$$", f"{MARK}pid{MARK}")
        kept = _LEFT_OUT.sub(lambda one: one["kept"] or (";" if one["background"] else ""), text)
        self._text = _STRICT.sub(r"\g<0>; set +e +o pipefail", _FIXED.sub(rf"\1{_RENAMED}", kept))
        self._unset: dict[str, str] = {}
        self._paths: set[str] = set()
        self._numbers: set[str] = set()
        self._until = time.monotonic() + _LONGEST
        for tool in _TOOLS:
            if path := shutil.which(tool):
                (folder / (f"__{tool}" if f"\n{tool}() {{" in _BEFORE else tool)).symlink_to(path)

    @property
    def lacking(self) -> list[str]:
        """Variables that the script uses and does not set, of unknown value."""
        return [name.removesuffix(_RENAMED) for name, value in self._unset.items() if MARK in value]

    def starts(self, values: Mapping[str, str]) -> list[Start]:
        """Run the script with these variables, again for each name that it lacks. Raises PlacedError."""
        for _ in range(_MOST_NAMES):
            errors = self._run(values)
            if not self._learns(errors, values):
                break
        starts = self._recorded(errors)
        if self._numbers:
            self._unset |= dict.fromkeys(self._numbers, _OTHER)
            other = self._recorded(self._run(values))
            self._unset |= dict.fromkeys(self._numbers, "1")
            if [start.argv for start in starts] != [start.argv for start in other]:
                names = ", ".join(f"${name}" for name in sorted(self._numbers))
                raise self.refused(f"computations with {names}", None)
        return starts

    def _learns(self, errors: str, values: Mapping[str, str]) -> bool:
        """Give values to names that bash lacked; return whether there are new ones.

        Those of numbers are 1, and in a second run another number, on which no argument may depend.
        """
        unset, paths = set(_UNSET.findall(errors)), set(_PATH.findall(errors)) - self._paths
        arguments = max(map(int, _ARGUMENT.findall(errors)), default=0)
        unset |= {f"{_NTH}{number}" for number in range(1, arguments + 1)}
        computed = {name for text in _COMPUTED.findall(errors) for name in _MARKED.findall(text)}
        numbers = computed & self._unset.keys() - self._numbers
        new = set() if numbers else unset - self._unset.keys()
        for name in new:
            here = os.getcwd() if name.endswith("_SUBMIT_DIR") else f"{MARK}{name}{MARK}"
            self._unset[name] = values.get(name, here)
        self._unset |= dict.fromkeys(numbers, "1")
        self._paths |= paths
        self._numbers |= numbers
        return bool(new or paths or numbers)

    def _recorded(self, errors: str) -> list[Start]:
        if error := _ERROR.search(errors):
            message = _MARKED.sub(r"$\1", error[2])[:200]
            raise self.refused(f"an error of bash, {message!r}", int(error[1] or 0) or None)
        listed = (self._folder / "starts").read_text(errors="replace").replace(_RENAMED, "")
        fields = iter(listed.split("\0")[:-1])
        return [_start(int(line), fields) for line in fields]

    def refused(self, found: str, line: int | None) -> PlacedError:
        """Return the error of a script that cannot be run here."""
        return PlacedError(
            f"found {found}, expected a script whose arguments depend on its own values and files only",
            file=self._file,
            line=line,
            hint=f"write base: {{command: [bash, {self._file.name}]}} and set its variables by hand",
        )

    def _run(self, values: Mapping[str, str]) -> str:
        """Run bash and return its messages."""
        bash = shutil.which("bash")
        if bash is None:
            raise PlacedError("cannot be read: found no bash here", file=self._file)
        before = [f"{name}={shlex.quote(value)}" for name, value in self._unset.items()]
        before += [f'{path}() {{ __record {path} "$@"; }}' for path in self._paths]
        environment = {"LC_ALL": "C", "BASH_ENV": str(self._folder / "before"), "PATH": str(self._folder)}
        argv = [bash, "--noprofile", "--norc", "-r", "-u", "-c", f"{self._text}\n", self._file.name]
        number = sum(name.startswith(_NTH) for name in self._unset)
        argv += [self._unset[f"{_NTH}{position}"] for position in range(1, number + 1)]
        with open(self._folder / "starts", "w") as starts, open(self._folder / "errors", "wb+") as errors:
            text = "\n".join([_BEFORE.replace("@starts@", str(starts.fileno())), *before])
            (self._folder / "before").write_text(text)
            process = subprocess.Popen(
                argv,
                env={**environment, **values},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=(starts.fileno(),),
                start_new_session=True,
            )
            try:
                process.wait(max(0.0, self._until - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise self.refused(f"loops that take more than {_LONGEST:g} s", None) from None
            finally:
                with suppress(ProcessLookupError, PermissionError):  # also of what it started
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            errors.seek(0)
            return errors.read().decode(errors="replace")


def _start(line: int, fields: Iterator[str]) -> Start:
    exported = (next(fields).partition("=") for _ in range(int(next(fields))))
    variables = {name: value for name, _, value in exported}
    return Start(line, tuple(next(fields) for _ in range(int(next(fields)))), variables)
