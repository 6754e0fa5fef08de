"""`python -m service.demo.serving STORE`: the API on a free port, as `phasecast serve` but not outliving whoever started it.

The starter holds the other end of its standard input. However it ends, SIGKILL included, that input is over then.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from service.http.app import serve
from service.http.logs import configure
from service.settings import Settings

_INPUT = 0


def main() -> None:
    """Serve until asked to end, or until nobody is left to ask."""
    threading.Thread(target=_watch, name="demo-watch", daemon=True).start()
    configure("text")
    serve(Settings(store=Path(sys.argv[1]), port=0), lambda url: print(f"served at {url}", flush=True))  # noqa: T201  the link


def _watch() -> None:
    """Wait for the end of the input, then end this process in order."""
    while os.read(_INPUT, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
