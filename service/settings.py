"""Settings of a running service: the only reader of the environment."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from telemetry.errors import BadField


@dataclass(frozen=True)
class Settings:
    """What one serving process needs to know; passed as an argument, never read from a global.

    `body_limit_bytes` (`question_limit_bytes` where questions are asked) and `batch_limit` bound a request; `tick_s` is the
    pause between two rounds of upkeep. A refit takes at least `refit_outcomes` new outcomes, once that many are known;
    `refit_share` is the part of the time that refits may take beside those growth calls for. `challengers` are asked what is
    served, once it is. Every `sample_s` seconds this machine's resources are sampled as those of `sample_host`; 0 is never. With
    `require_token` calls from this machine need a token too; `rate_per_s` is how many requests a second one token, or one
    address without, may send.
    `workers` other processes answer questions, and log in `log_format`; with none this one does.
    """

    store: Path
    host: str = "127.0.0.1"
    port: int = 8787
    body_limit_bytes: int = 16 * 2**20
    question_limit_bytes: int = 4 * 2**20
    batch_limit: int = 10_000
    tick_s: float = 0.05
    refit_outcomes: int = 50
    refit_share: float = 0.04
    challengers: tuple[str, ...] = ("hazards", "median_of_nine")
    sample_s: float = 0.0
    sample_host: str = field(default_factory=socket.gethostname)

    require_token: bool = False
    rate_per_s: float | None = None
    workers: int = 0
    log_format: Literal["text", "json"] = "text"

    def __post_init__(self) -> None:
        """Refuse an address that is none: an empty one would be every address of this machine."""
        if not self.host:
            raise BadField("host", self.host, "name an address, such as 127.0.0.1; 0.0.0.0 is all of this machine's")

    @property
    def token_required(self) -> bool:
        """Whether every call needs a token: it does wherever others can reach the API."""
        return self.require_token or not is_loopback(self.host)

    @property
    def requests_per_s(self) -> float:
        """Requests a second that one caller may send; 0 is without limit, as it is on this machine if nobody said otherwise."""
        if self.rate_per_s is not None:
            return self.rate_per_s
        return 0.0 if is_loopback(self.host) else 1000.0


def is_loopback(host: str) -> bool:
    """True for an address only this machine can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def default_store(environment: Mapping[str, str] | None = None) -> Path:
    """$PHASECAST_STORE, else store.duckdb in the user's data directory."""
    env = os.environ if environment is None else environment
    if named := env.get("PHASECAST_STORE"):
        return Path(named)
    base = Path(env["XDG_DATA_HOME"]) if env.get("XDG_DATA_HOME") else Path.home() / ".local" / "share"
    return base / "phasecast" / "store.duckdb"


def default_token(environment: Mapping[str, str] | None = None) -> str | None:
    """$PHASECAST_TOKEN: what commands show an API that wants a token; None where it is not set."""
    return (os.environ if environment is None else environment).get("PHASECAST_TOKEN") or None


def models_folder(store: Path) -> Path:
    """Where the model files of a store lie: a folder beside it."""
    return store.with_name(store.name + ".models")
