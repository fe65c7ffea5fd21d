"""Becomes another program that does not outlive its parent: `python leash.py PARENT_PID SIGNALS -- COMMAND`.

A script of its own, since code between fork and exec is not safe in a process with threads. SIGNALS are numbers with
commas (or nothing) that the program is to ignore. Linux kills the program when the thread that started it ends, so it
must be started from a thread that stays: the main one. What the program starts in its turn is not held. Elsewhere
than on Linux the leash does nothing. Knows only the standard library: it runs isolated, before anything is installed.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1
NOT_FOUND = 127


def hold(parent: int) -> None:
    """Have the kernel kill this process when its parent ends."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes  # loading it takes longer than all the rest

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel was asked
        sys.exit(1)


def main() -> None:
    """Take the leash, then become the command."""
    parent, ignored, _, *command = sys.argv[1:]
    hold(int(parent))
    for number in filter(None, ignored.split(",")):
        signal.signal(int(number), signal.SIG_IGN)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]} cannot be started: {error.strerror}.", file=sys.stderr)
        sys.exit(NOT_FOUND)


if __name__ == "__main__":
    main()
