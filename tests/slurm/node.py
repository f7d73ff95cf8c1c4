"""The first process of a test node: makes its namespaces look like a host, then reaps orphans until killed.

Started under `unshare --pid --mount --uts`; its death ends every process of the node, as a power cut does.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys


def main(name: str, boot_id: str, etc: str, ready: str) -> None:
    """Take the host's name, its boot id and its files of /etc, say so in the file ``ready``, and stay."""
    socket.sethostname(name)
    subprocess.run(["mount", "--bind", boot_id, "/proc/sys/kernel/random/boot_id"], check=True)
    for file in os.listdir(etc):
        subprocess.run(["mount", "--bind", f"{etc}/{file}", f"/etc/{file}"], check=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    with open(ready, "w") as file:
        file.write(name)
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass  # it has no children now
        signal.sigtimedwait({signal.SIGCHLD}, 1.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
