"""`python -m benchmarks [PART...]`: run benchmarks and print what they found; `--json` for machines."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated

import orjson
import typer

from benchmarks import answers, contended, fits, hosts, ingest, learning, new_host, outcomes, plans, recorder, starting
from benchmarks.measured import Figure

PARTS: dict[str, Callable[[], list[Figure]]] = {
    "ingest": ingest.run,
    "recorder": recorder.run,
    "answers": answers.run,
    "plans": plans.run,
    "contended": contended.run,
    "starting": starting.run,
    "fits": fits.run,
    "learning": learning.run,
    "outcomes": outcomes.run,
    "hosts": hosts.run,
    "new_host": new_host.run,
}


def main(
    parts: Annotated[list[str] | None, typer.Argument(help=f"Any of {', '.join(PARTS)}; all if none is named.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Run benchmarks; figures are medians of n values with their range, in one run on this machine."""
    if unknown := set(parts or ()) - PARTS.keys():
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: use {', '.join(PARTS)}")
    found = []
    for name in parts or PARTS:
        found += (made := PARTS[name]())
        if not json:
            typer.echo("\n".join(_line(one) for one in made))
    if json:
        typer.echo(orjson.dumps({"cpus": os.cpu_count(), "figures": [asdict(one) for one in found]}).decode())


def _line(one: Figure) -> str:
    spread = f"n={one.n}, {one.low:,.4g} to {one.high:,.4g}" if one.n > 1 else "n=1"
    reach = f"  [to reach: {one.reach}]" if one.reach else ""
    return f"{one.what:<60} {one.value:>12,.4g} {one.unit:<9} ({spread}){reach}"


if __name__ == "__main__":
    typer.run(main)
