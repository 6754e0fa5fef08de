"""The processes of a demo crew, told apart from servers that other tests keep running."""

from __future__ import annotations

import psutil


def crew_processes() -> list[psutil.Process]:
    """Workers and co-runners that this test process started and that are still there, oldest first."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if any(part.startswith("service.demo.") for part in process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return sorted(found, key=lambda process: process.create_time())
