"""The demo's co-running process: multiplies matrices on one thread while told to work, sleeps on its link otherwise.

`python -m service.demo.corunner DESCRIPTOR`; ends when the other end of the link does.
"""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection

import numpy as np

from service.demo.link import receive

_SIDE = 384


def main() -> None:
    """Work and rest as told."""
    end, working = Connection(int(sys.argv[1])), False
    left = np.full((_SIDE, _SIDE), 1.0 / _SIDE, dtype=np.float32)
    right = left.copy()
    while True:
        if not working or end.poll(0):
            try:
                working = receive(end)["word"] == "work"
            except EOFError:
                return
        right = left @ right


if __name__ == "__main__":
    main()
