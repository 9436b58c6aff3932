"""`python -m cli.tether PARENT COMMAND…`: become a command that dies with its parent.

On Linux the kernel kills the process when the parent has ended in any way, so that a killed
`turnmill up` leaves nothing behind. Elsewhere there is no such thing: there, a `turnmill up` that
is killed by SIGKILL leaves its processes running.
"""

import ctypes
import os
import signal
import sys

# From linux/prctl.h.
PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Replace this process by the command. parent: id of the process that started this one."""
    if sys.platform == "linux":
        # SIGKILL: what would wait for a Redis that died along with the parent waits for ever.
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
            raise OSError(ctypes.get_errno(), "prctl failed")
    if os.getppid() != parent:
        # It ended before it could be watched.
        sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
