"""Room for the bodies of requests that are on their way."""

from __future__ import annotations

from telemetry.errors import Busy

MOST_HELD_BYTES = 256 * 2**20


class Bodies:
    """How many bytes of bodies are being read at the moment, all requests together; for one thread."""

    def __init__(self, most_bytes: int = MOST_HELD_BYTES) -> None:
        self.held_bytes, self._most_bytes = 0, most_bytes

    def hold(self, size_bytes: int) -> None:
        """Take up so many bytes more; Busy where that would be too many."""
        if self.held_bytes + size_bytes > self._most_bytes:
            raise Busy("body", f"{self.held_bytes} bytes of other requests on their way", "send the same again in a second")
        self.held_bytes += size_bytes
