"""The head of a request, bounded: the server's own parser would hold headers without end before anybody is asked for a token."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.http.problems import problem

MOST_HEAD_BYTES = 64 * 2**10


class BoundedHeads(HttpToolsProtocol):
    """uvicorn's protocol, which answers 431 and closes once a request line with its headers is longer than MOST_HEAD_BYTES."""

    _in_head = False
    _head_bytes = 0

    def data_received(self, data: bytes) -> None:
        """Take what has arrived; what the parser did not finish belongs to the head."""
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._refuse()

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is over."""
        self._in_head = False
        super().on_headers_complete()

    def _refuse(self) -> None:
        fix = f"send at most {MOST_HEAD_BYTES} bytes of request line and headers"
        answer = problem(431, "too-large", "headers", f"{self._head_bytes} bytes and more", fix)
        self._in_head = False
        fields = b"".join(name + b": " + value + b"\r\n" for name, value in answer.raw_headers)
        self.transport.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\n" + fields + b"connection: close\r\n\r\n")
        self.transport.write(bytes(answer.body))
        self.transport.close()
