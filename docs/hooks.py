"""Pages of the site that are written by what they tell of: README, tables, calls, commands, examples, notebooks.

So none of them can say what is no longer so. MkDocs calls `on_files` before it reads the pages.
"""

import base64
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

import click
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from service.cli.main import app
from service.http.app import create_app
from service.settings import Settings
from telemetry.store.file import Store

ROOT = Path(__file__).resolve().parents[1]
MOVED = {
    "data/README.md": "tables.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "docs/examples/placing.py": "example.md",
}
"""Where files of the repository stand on the site."""
Schema = Mapping[str, Any]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the written pages."""
    for name, content in pages():
        files.append(File.generated(config, name, content=content))
    return files


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site that would load anything from elsewhere: it is read where there is no internet."""
    loads = re.compile(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(?:https?:)?//[^>]+>")
    for page in Path(config.site_dir).rglob("*.html"):
        if found := [tag for tag in loads.findall(page.read_text(encoding="utf-8")) if 'rel="canonical"' not in tag]:
            raise PluginError(f"{page.name} loads from elsewhere: {found[0]}")


def pages() -> Iterator[tuple[str, str | bytes]]:
    """Each written page, or picture: its place on the site, and what it says."""
    yield "start.md", moved((ROOT / "README.md").read_text(encoding="utf-8"))
    for path, name in MOVED.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        yield name, text if name != "example.md" else f"# Placing work by what is expected of it\n\n```python\n{text}```\n"
    yield "commands.md", "\n\n".join(["# Commands", *commands(typer.main.get_command(app), "phasecast")])
    yield "calls.md", "\n\n".join(["# Calls", *calls(openapi())])
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        yield from notebook(path)


def moved(text: str) -> str:
    """Text of the repository with its links led to the pages of the site."""
    first = {"notebooks": "notebooks/01_from_raw_events_to_a_trusted_p90.md"}
    return re.sub(r"\]\(([^)]+)\)", lambda link: f"]({(MOVED | first).get(link[1], link[1].removeprefix('docs/'))})", text)


def commands(command: click.Command, name: str) -> Iterator[str]:
    """A command and those below it, with their options."""
    if isinstance(command, click.Group):
        for word in sorted(command.commands):
            yield from commands(command.commands[word], f"{name} {word}")
        return
    yield f"## `{name}`\n\n{command.help or ''}"
    rows = [(one.opts[-1], getattr(one, "help", None) or "") for one in command.params if one.name != "help"]
    if rows:
        yield table(("argument or option", "meaning"), [(f"`{word}`", " ".join(help_text.split())) for word, help_text in rows])


def openapi() -> dict[str, Any]:
    """What the API says of itself."""
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "store.duckdb") as store:
        return create_app(Settings(store=Path(folder) / "store.duckdb"), store).openapi()


def calls(told: Schema) -> Iterator[str]:
    """Each call of the API: what it does, what it takes, and an example where there is one."""
    yield "Written from `/openapi.json`, where every field of every answer stands too. A field without `*` may be left out."
    for path, methods in sorted(told["paths"].items()):
        for method, call in methods.items():
            yield f"## `{method.upper()} {path}`\n\n{call.get('description') or call.get('summary', '')}"
            asked = [(one["name"], one["schema"], one.get("required")) for one in call.get("parameters", [])]
            body = call.get("requestBody", {}).get("content", {}).get("application/json", {})
            fields = resolved(body.get("schema", {}), told)
            asked += [(name, of, name in fields.get("required", [])) for name, of in fields.get("properties", {}).items()]
            if asked:
                rows = [(f"`{name}`{'*' if must else ''}", kind(of, told), meaning(of)) for name, of, must in asked]
                yield table(("field", "kind", "meaning"), rows)
            for example in [*fields.get("examples", []), *(one["value"] for one in body.get("examples", {}).values())][:1]:
                yield f"```json\n{json.dumps(example, indent=2)}\n```"


def resolved(schema: Schema, told: Schema) -> Schema:
    """A schema, or the one it refers to."""
    return told["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def kind(schema: Schema, told: Schema) -> str:
    """The kind of a field in words."""
    if "anyOf" in schema:
        return " or ".join(kind(one, told) for one in schema["anyOf"])
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}), told)}"
    return " or ".join(map(str, schema["enum"])) if "enum" in schema else str(schema.get("type", "any"))


def meaning(schema: Schema) -> str:
    """What a field means, with its bounds."""
    bounds = [f"{word} {schema[name]:g}" for name, word in (("minimum", "at least"), ("maximum", "at most")) if name in schema]
    return " ".join([schema.get("description", ""), f"({', '.join(bounds)})" if bounds else ""]).strip()


def notebook(path: Path) -> Iterator[tuple[str, str | bytes]]:
    """A notebook as a page, with what it showed when it was run last, unless it was changed since; and its pictures."""
    shown = ROOT / ".notebooks" / path.name
    fresh = shown.exists() and shown.stat().st_mtime >= path.stat().st_mtime
    parts = []
    for place, cell in enumerate(json.loads((shown if fresh else path).read_text(encoding="utf-8"))["cells"]):
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for number, output in enumerate(cell.get("outputs", [])):
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"{path.stem}-{place}-{number}.png"
                yield f"notebooks/{picture}", base64.b64decode(data["image/png"])
                parts.append(f"![What this cell drew]({picture})")
            else:
                parts.append(displayed(output))
    parts.insert(
        1, "" if fresh else "!!! note\n    Not run for this copy of the site: `make notebooks docs` shows what it shows."
    )
    yield f"notebooks/{path.stem}.md", "\n\n".join(filter(None, parts))


def displayed(output: Schema) -> str:
    """What a cell showed, without pictures; a table as a table."""
    data = output.get("data", {})
    if "text/html" in data:
        html = re.sub(r"<style.*?</style>", "", "".join(data["text/html"]), flags=re.DOTALL)
        return re.sub(r"\n\s*", "", html)
    text = "".join(output.get("text", data.get("text/plain", [])))
    return f'<pre class="shown">{escape(text.rstrip())}</pre>' if text and output.get("name") != "stderr" else ""


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
