"""Row: one class is the validation, the DDL with column comments, and the documentation of a table."""

from __future__ import annotations

import types
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field

Id = Annotated[str, Field(min_length=1, max_length=200)]
Ns = Annotated[int, Field(ge=0, lt=2**63)]
Seconds = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0, lt=2**63)]

_SQL = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN", list[float]: "DOUBLE[]", list[str]: "VARCHAR[]"}
KNOWN_FROM = "Commit number at which the row became known; nothing made with an earlier commit has seen it."
KNOWN_UNTIL = "Commit number at which a newer version of the row replaced it; null while it stands."


@dataclass(frozen=True)
class Column:
    """One column: its name, SQL type, whether it may be null, and what it means with its unit."""

    name: str
    sql: str
    null: bool
    comment: str


def _sql_type(annotation: Any) -> tuple[str, bool]:
    """SQL type and nullability of a field's annotation."""
    if get_origin(annotation) is Annotated:
        return _sql_type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [a for a in get_args(annotation) if a is not type(None)]
        return _sql_type(inner[0])[0], True
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return "VARCHAR", False
    return _SQL[annotation], False


def quote(text: str) -> str:
    """A SQL string literal; COMMENT and ATTACH take no parameters, so every such text goes through here."""
    return "'" + text.replace("'", "''") + "'"


class Row(BaseModel):
    """Base of every table. Subclasses set `table`, `title`, `key`, and `versioned` where rows replace each other.

    Each table ends in `known_from`, and a versioned one in `known_until`, both stamped by the store.
    Unknown fields and non-finite numbers are refused.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    table: ClassVar[str]
    title: ClassVar[str]
    key: ClassVar[tuple[str, ...]] = ()
    versioned: ClassVar[bool] = False

    @classmethod
    def made(cls, values: dict[str, Any]) -> Self:
        """A row of values that our own code has just made, by name; those left out take their defaults.

        Nothing is checked: what pydantic's `model_construct` does, without its search for aliases that no table has.
        """
        row = cls.__new__(cls)
        object.__setattr__(row, "__dict__", {**_left_out(cls), **values})
        object.__setattr__(row, "__pydantic_fields_set__", set(values))
        object.__setattr__(row, "__pydantic_extra__", None)
        object.__setattr__(row, "__pydantic_private__", None)
        return row

    @classmethod
    def columns(cls) -> list[Column]:
        """All columns in order, the stamped ones last."""
        found = []
        for name, field in cls.model_fields.items():
            sql, null = _sql_type(field.annotation)
            found.append(Column(name, sql, null, field.description or ""))
        found.append(Column("known_from", "BIGINT", null=False, comment=KNOWN_FROM))
        if cls.versioned:
            found.append(Column("known_until", "BIGINT", null=True, comment=KNOWN_UNTIL))
        return found

    @classmethod
    def ddl(cls) -> list[str]:
        """Statements that create the table with its key and comments."""
        parts = [f'"{c.name}" {c.sql}{"" if c.null else " NOT NULL"}' for c in cls.columns()]
        key = (*cls.key, "known_from") if cls.versioned and cls.key else cls.key
        if key:
            parts.append(f"PRIMARY KEY ({', '.join(key)})")
        made = [f"CREATE TABLE {cls.table} ({', '.join(parts)})", f"COMMENT ON TABLE {cls.table} IS {quote(cls.title)}"]
        return made + [f'COMMENT ON COLUMN {cls.table}."{c.name}" IS {quote(c.comment)}' for c in cls.columns()]

    @classmethod
    def markdown(cls) -> str:
        """The table's part of data/README.md."""
        head = f"## {cls.table}\n\n{cls.title}\n\n| column | type | null | meaning |\n|---|---|---|---|\n"
        lines = [f"| `{c.name}` | {c.sql} | {'yes' if c.null else 'no'} | {c.comment} |" for c in cls.columns()]
        return head + "\n".join(lines) + "\n"


@cache
def _left_out(kind: type[Row]) -> dict[str, Any]:
    """What the fields of a table are where nothing is given; none of them can be changed in place."""
    return {name: field.default for name, field in kind.__pydantic_fields__.items() if not field.is_required()}
