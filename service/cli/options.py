"""What commands share: the store option, JSON output, and how an error is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from service.settings import default_store
from telemetry.errors import BadField, PhasecastError

if TYPE_CHECKING:
    from rich.console import Console

PAGE_WIDTH = 160
StoreOption = Annotated[
    Path | None,
    typer.Option("--store", help="The store's file. Default: $PHASECAST_STORE, else store.duckdb in your data directory."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def store_path(given: Path | None) -> Path:
    """The store a command is about; BadField for something that can be none, before anything is made beside it."""
    path = given if given is not None else default_store()
    if path.exists() and not path.is_file():
        raise BadField("--store", str(path) if str(path) != "." else "", "name a file, such as work.duckdb")
    return path


def page_console() -> Console:
    """A console for tables; where it is no terminal, wide enough for them."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=PAGE_WIDTH)


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_DATACLASS).decode())


def json_object(option: str, text: str) -> dict[str, object]:
    """Read an option that is a JSON object."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadField(option, text, f"give a JSON object ({error})") from error
    if not isinstance(found, dict):
        raise BadField(option, text, 'give a JSON object, such as \'{"host": "node-1"}\'')
    return found


@dataclass(frozen=True)
class Failure:
    """An error as a command tells it."""

    field: str
    got: str
    fix: str

    @classmethod
    def of(cls, error: PhasecastError) -> Failure:
        """The failure behind an error."""
        return cls(error.field, str(error.got), error.fix)

    def text(self) -> str:
        """Two lines: what is wrong, what to do."""
        return f"phasecast: {self.field}: {self.got}\n  -> {self.fix}"
