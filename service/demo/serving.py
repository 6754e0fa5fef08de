"""`python -m service.demo.serving OPTION...`: `phasecast serve` that doesn't outlive whoever started it.

The starter holds the other end of its standard input. However it ends, SIGKILL included, that input is over then.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from service.cli.main import main as phasecast

_INPUT = 0


def main() -> None:
    """Serve with the options of `phasecast serve` until asked to end, or until nobody is left to ask."""
    threading.Thread(target=_watch, name="demo-watch", daemon=True).start()
    sys.argv[1:1] = ["serve"]
    phasecast()


def _watch() -> None:
    """Wait for the end of the input, then end this process in order."""
    while os.read(_INPUT, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
