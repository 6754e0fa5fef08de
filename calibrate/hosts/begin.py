"""How a measuring process begins: bound to its parent, and telling so, before anything heavy is imported.

`python -m calibrate.hosts.begin MODULE ARGUMENTS...` then goes on as that module. Only a process that has told that it is bound
is ever held: one that is held cannot notice that its parent has died.
"""

from __future__ import annotations

import ctypes
import runpy
import signal
import sys

from calibrate.hosts.series import tell_begun, tell_failed

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent dies, even while it is held; where it can't, a broken pipe ends it."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Bind this process, then be the module; what it fails by is told to whoever started it."""
    end_with_parent()
    tell_begun()
    del sys.argv[0]
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except Exception as error:  # noqa: BLE001  whatever it is, its reason goes into the profile and not onto the screen
        tell_failed(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
