"""Latency and rate of the network between two processes of ours: round trips of 64 bytes, and bytes sent one way until received.

`python -m calibrate.hosts.probes.network SECONDS [HOST:PORT]` measures towards a peer, by default one that it starts on this
machine; `... peer HOST` is that peer: it prints its port, and ends with whoever started it.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import sys

from calibrate.hosts.begin import end_with_parent
from calibrate.hosts.loops import sampled, singly
from calibrate.hosts.series import tell_done, telling

PING_BYTES = 64
BULK_BYTES = 4 << 20
_HEAD = struct.Struct("!Q")
_CHUNK_BYTES = 1 << 18
LATENCY_SHARE = 0.3


def main() -> None:
    """Be the peer, or measure, telling each sample."""
    if sys.argv[1] == "peer":
        end_with_parent()
        answer(sys.argv[2])
        return
    budget_s, address = float(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    if address:
        measure(host_and_port(address), budget_s)
        return
    command = [sys.executable, "-m", "calibrate.hosts.probes.network", "peer", "127.0.0.1"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as peer:  # noqa: S603  our own module
        try:
            assert peer.stdout is not None
            measure(("127.0.0.1", int(peer.stdout.readline())), budget_s)
        finally:
            peer.kill()


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of HOST:PORT; an IPv6 address may stand in brackets."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def measure(address: tuple[str, int], budget_s: float, bulk_bytes: int = BULK_BYTES) -> None:
    """Tell round trips in s, then the rate in bytes/s, to the peer at an address."""
    with socket.create_connection(address, timeout=10.0) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ping, bulk = bytes(PING_BYTES), bytes(bulk_bytes)
        trip = telling("network_round_trip", "s")
        singly(lambda: exchange(link, ping), budget_s=LATENCY_SHARE * budget_s, tell=trip)
        rate = telling("network", "bytes_per_s")
        sampled(lambda: exchange(link, bulk), work=float(bulk_bytes), budget_s=(1.0 - LATENCY_SHARE) * budget_s, tell=rate)
    tell_done()


def exchange(link: socket.socket, content: bytes) -> None:
    """Send so much and wait until the peer says that all of it came."""
    link.sendall(_HEAD.pack(len(content)) + content)
    _read_exactly(link, _HEAD.size)


def answer(host: str) -> None:
    """Listen on a free port of `host`, print it, and acknowledge what one caller sends until it leaves."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listening:
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        link, _ = listening.accept()
        with link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while head := _read_exactly(link, _HEAD.size):
                _skip(link, _HEAD.unpack(head)[0])
                link.sendall(head)


def _read_exactly(link: socket.socket, n_bytes: int) -> bytes:
    """So many bytes; empty where the other side has left."""
    found = b""
    while len(found) < n_bytes:
        part = link.recv(n_bytes - len(found))
        if not part:
            return b""
        found += part
    return found


def _skip(link: socket.socket, n_bytes: int) -> None:
    buffer = bytearray(_CHUNK_BYTES)
    view = memoryview(buffer)
    while n_bytes > 0:
        got = link.recv_into(view[: min(n_bytes, _CHUNK_BYTES)])
        if not got:
            return
        n_bytes -= got


if __name__ == "__main__":
    main()
