"""GET / and what the page loads: plain files of this package, and the plot library that the plotly package carries."""

from __future__ import annotations

import re
from importlib import metadata, resources
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, Response

from service.plot_library import plot_library
from telemetry.errors import UnknownId

router = APIRouter(include_in_schema=False)
FILES = resources.files("service.http") / "page"
MEDIA = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = {
    "Content-Security-Policy": (
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "  # plots set styles of their own
        "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
PLOTS = f"plotly-{metadata.version('plotly')}.min.js"
"""Named by version, so that a browser may keep it for good."""


@router.get("/")
def get_page() -> Response:
    """The page."""
    return _file("page.html")


@router.get("/favicon.ico")
def get_icon() -> Response:
    """Browsers ask for it by this name, whatever the page says."""
    return _file("favicon.svg")


@router.get("/page/{name}")
def get_file(name: str) -> Response:
    """A file of the page; the plot library under its versioned name."""
    if name == PLOTS:
        forever = {"Cache-Control": "public, max-age=31536000, immutable"}
        return FileResponse(plot_library(), media_type=MEDIA[".js"], headers=POLICY | forever)
    if not re.fullmatch(r"[a-z]+\.(css|js|svg)", name) or not (FILES / name).is_file():
        raise UnknownId("file", name, "open / for the page")
    return _file(name)


def _file(name: str) -> Response:
    """A file of this package, asked for anew each time, so that an upgrade shows at once."""
    text = (FILES / name).read_text(encoding="utf-8").replace("{{plots}}", f"/page/{PLOTS}")
    return Response(text, media_type=MEDIA[Path(name).suffix], headers=POLICY | {"Cache-Control": "no-cache"})
