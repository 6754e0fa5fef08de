"""Where the plotly package keeps the script that pages draw with."""

from __future__ import annotations

from importlib import util
from pathlib import Path

from telemetry.errors import UnknownId


def plot_library() -> Path:
    """The script's file; found without importing that package, which takes long."""
    found = util.find_spec("plotly")
    if found is None or not found.submodule_search_locations:
        raise UnknownId("package", "plotly", "install it: pages draw with its script")
    return Path(found.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
