"""What the README says, done: its commands in order, its replies compared, its commands and calls complete."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer

from service.cli.main import app
from service.http.app import create_app
from service.settings import Settings
from telemetry.importers.registry import FORMATS
from telemetry.store.file import Store

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()
BLOCKS = [(lang, text) for lang, text in re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)]
USUAL = "127.0.0.1:8787"
LONG = {"make demo", "make test", ".venv/bin/phasecast demo --attempts 60"}
"""Each takes minutes: what they run is run by the other tests, and the demo by a test of its own."""


def commands(text: str) -> list[str]:
    """Commands of a block: lines joined while a quote is open or a backslash ends them, comments left out."""
    found, line = [], ""
    for piece in text.splitlines():
        line += piece if not line or line.endswith("\\") else "\n" + piece
        if line.count("'") % 2 == 0 and not line.endswith("\\"):
            found.append(re.sub(r"\s+# .*$", "", line).strip())
            line = ""
    return [command for command in found if command]


def shaped_like(shown: Any, told: Any) -> bool:
    """Whether a reply has every member shown, of the same kind; a shown reply may be shortened."""
    if isinstance(shown, dict):
        return all(name in told and shaped_like(value, told[name]) for name, value in shown.items())
    if isinstance(shown, list):
        return len(shown) == len(told) and all(map(shaped_like, shown, told))
    return isinstance(told, type(shown)) or (isinstance(shown, float | int) and isinstance(told, float | int))


def spaced(text: str) -> str:
    return " ".join(text.split())


@dataclass
class Reader:
    """Somebody who does what the README says, in a folder of their own and on a port that is free."""

    folder: Path
    said: str = ""
    server: subprocess.Popen[str] | None = None
    skipped: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        (self.folder / ".venv").symlink_to(sys.prefix)

    def read(self, lang: str, text: str) -> None:
        """Do what one block says."""
        if lang == "python":
            (self.folder / "example.py").write_text(text.replace(USUAL, self.address))
        elif lang == "json":
            assert shaped_like(json.loads(text), json.loads(self.said)), self.said
        elif lang == "console":
            self._see(text)
        else:
            assert "bash" == lang
            for command in commands(text):
                self._do(command)

    def _do(self, command: str) -> None:
        if command in LONG:
            self.skipped.add(command)
        elif " serve " in command:
            self._serve(command)
        else:
            if re.search("phasecast (predict|residual)", command):
                self.stop()
            self._answered(command)

    def _answered(self, command: str) -> None:
        """Run a command until the API takes it: what was sent is learned within moments, and a person reads slower."""
        until = time.monotonic() + 20
        while True:
            code, self.said = self._run(command)
            assert 0 == code, f"{command}\n{self.said}"
            if "urn:phasecast:problem:" not in self.said and '"ready":false' not in self.said:
                return
            assert time.monotonic() < until, f"{command}\n{self.said}"
            time.sleep(0.1)

    def _see(self, text: str) -> None:
        """Run the command behind the prompt; what is shown of its failure appears, `…` standing for what varies."""
        prompt, *shown = text.splitlines()
        code, told = self._run(prompt.removeprefix("$ "))
        assert code, "it is shown to fail"
        for fragment in spaced(" ".join(shown)).split("…"):
            assert fragment.strip() in spaced(told)

    def _run(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", command.replace(USUAL, self.address)],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout

    def _serve(self, command: str) -> None:
        port = self.address.rpartition(":")[2]
        self.server = subprocess.Popen([*command.split(), "--port", port], cwd=self.folder, stdout=subprocess.PIPE, text=True)
        assert self.server.stdout is not None
        assert f" at http://{self.address}\n" in self.server.stdout.readline()

    def stop(self) -> None:
        """Ctrl-C."""
        if self.server is not None and self.server.poll() is None:
            self.server.send_signal(signal.SIGINT)
            assert 0 == self.server.wait(timeout=20)
            self.server.stdout.close()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    somebody = Reader(tmp_path)
    yield somebody
    somebody.stop()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_readme_does_what_it_says(reader: Reader) -> None:
    for lang, text in BLOCKS:
        reader.read(lang, text)
    assert LONG == reader.skipped


@pytest.mark.slow
def test_the_short_demo_of_the_readme_runs(reader: Reader) -> None:
    done = subprocess.run(
        [".venv/bin/phasecast", "demo", "--attempts", "60"],
        cwd=reader.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    assert 0 == done.returncode, done.stdout
    made = list((reader.folder / ".demo").glob("*/store.duckdb"))
    assert 1 == len(made)
    for part in ("consent", "What happened", "phasecast serve --store"):
        assert part in done.stdout
    with Store.open(made[0]) as store, store.reader() as rows:
        assert [(60,)] == rows.rows("SELECT count(*) FROM attempts WHERE run_id NOT LIKE '%-relay-%'")


def test_every_command_is_in_the_readme() -> None:
    group = typer.main.get_command(app)
    names = "backtest backup calibrate compact demo doctor export fit freeze grant "
    names += "hosts import predict report residual restore score serve shadow snapshot token"
    assert set(names.split()) == set(group.commands)
    assert [] == [name for name in group.commands if f"phasecast {name}" not in README]


def test_every_format_is_in_the_readme() -> None:
    assert [] == [importer.name for importer in FORMATS if f"| `{importer.name}` |" not in README]


def test_the_exit_codes_of_the_readme_are_those_of_the_help() -> None:
    assert spaced(app.info.epilog) in spaced(README)


def test_every_call_is_in_the_readme(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.duckdb") as store:
        paths = create_app(Settings(store=tmp_path / "s.duckdb"), store).openapi()["paths"]
    assert {"/v1/events", "/v1/predict", "/v1/residual", "/v1/snapshot"} <= paths.keys()
    assert [] == [path for path in [*paths, "/openapi.json"] if path not in README]


def test_files_the_readme_points_to_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert [] == [link for link in links if not (Path(__file__).resolve().parents[1] / link).exists()]
