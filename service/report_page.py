"""The report as one HTML file: figures, plots, words and queries, with everything it needs inside and no way out."""

from __future__ import annotations

from importlib import resources

from service.plot_library import plot_library
from service.report_schemas import ReportOut

FILES = resources.files("service.http") / "page"
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
"""What the file may do: run what is in it, load and send nothing."""
SCRIPTS = ("reportplots.js", "report.js")


def page(report: ReportOut) -> str:
    """The file's text. Its own policy forbids it to load or send anything, so it is the same with and without a network.

    The figures stand in it as the JSON that GET /v1/reports gives.
    """
    data = report.model_dump_json().replace("<", "\\u003c")  # so that no name in it can end its element
    parts = {
        "css": _read("page.css") + _read("report.css"),
        "data": data,
        "plots": plot_library().read_text(encoding="utf-8").replace("</script", "<\\/script"),
        "script": "\n".join(map(_read, SCRIPTS)),
        "policy": POLICY,
        "icon": _read("favicon.svg"),
    }
    made = []
    for number, piece in enumerate(_read("report.html").split("{{")):
        name, closing, rest = piece.partition("}}")
        made.append(piece if number == 0 or not closing else parts[name] + rest)
    return "".join(made)


def _read(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")
