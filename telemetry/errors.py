"""Every error Phasecast raises, in one tree; each names the field, what was got, and the remedy.

PhasecastError
├── BadField            an input is wrong: names the field, the value, what would be right
├── UnknownId           something was asked for by name and is not there
├── Conflict            the same id came twice with different content; the first is kept
├── TooLarge            a body, batch or nesting past its limit
├── NotGranted          a host may not be measured without permission
│   ├── NoGrant         nobody permitted anything there
│   ├── NotInForce      the grant is withdrawn, over, or not yet begun
│   ├── OtherHost       the grant is for another host
│   ├── ProbeNotNamed   the grant does not name what is to be run
│   └── CeilingTooSmall it would take more time, threads, memory, disk or GPU than the grant allows
├── NoEvidence          nothing known to answer from; says what to ingest
├── Busy                the ingest queue is full; send again later
├── NotReached          the API did not answer; names the address
├── NoToken             the API wants a token, or knows none like the one that was sent
├── WrongScope          the token is good, but not for this call
├── TooMany             more requests than one caller may send; says when to go on
├── TooSlow             a body that did not arrive in time
└── StoreError          the store cannot serve
    ├── StoreHeld       another process owns the file; names it and the way to a copy
    ├── NewerStore      the file was written by a newer program
    ├── DamagedStore    the file, its log or a model file is not what it was
    └── DiskFull        no room to commit; queries go on
"""

from __future__ import annotations


class PhasecastError(Exception):
    """An error a user can act on.

    `field` names the input or object concerned, `got` what was found there, `fix` what to do.
    """

    def __init__(self, field: str, got: object, fix: str) -> None:
        self.field = field
        self.got = got
        self.fix = fix
        super().__init__(f"{field}: got {got!r}; {fix}")


class BadField(PhasecastError):
    """An input is wrong."""


class UnknownId(PhasecastError):
    """Something was asked for by name and is not there."""


class Conflict(PhasecastError):
    """The same id came twice with different content."""


class TooLarge(PhasecastError):
    """A body, batch or nesting is past its limit."""


class NotGranted(PhasecastError):
    """A host may not be measured without permission."""


class NoGrant(NotGranted):
    """Nobody permitted anything on this host."""


class NotInForce(NotGranted):
    """The grant is withdrawn, over, or has not begun."""


class OtherHost(NotGranted):
    """The grant is for another host."""


class ProbeNotNamed(NotGranted):
    """The grant does not name what is to be run."""


class CeilingTooSmall(NotGranted):
    """What is to be run would take more than the grant allows."""


class NoEvidence(PhasecastError):
    """Nothing is known from which to answer."""


class Busy(PhasecastError):
    """The ingest queue is full."""


class NotReached(PhasecastError):
    """The API did not answer."""


class NoToken(PhasecastError):
    """The API wants a token that it knows."""


class WrongScope(PhasecastError):
    """The token is not for this call."""


class TooMany(PhasecastError):
    """One caller sent more requests than it may."""


class TooSlow(PhasecastError):
    """A body did not arrive in time."""


class StoreError(PhasecastError):
    """The store cannot serve."""


class StoreHeld(StoreError):
    """Another process owns the file."""


class NewerStore(StoreError):
    """The file was written by a newer program."""


class DamagedStore(StoreError):
    """The file, its log or a model file is not what it was."""


class DiskFull(StoreError):
    """There is no room to commit."""
