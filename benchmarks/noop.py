"""The server of the answer benchmark: the API over a store, and beside it plain FastAPI routes that only validate and render.

`python -m benchmarks.noop STORE` prints its address and serves until it is terminated.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from service.http.app import create_app
from service.schemas import AnswersOut, PredictRequest, ResidualRequest
from service.settings import Settings
from telemetry.store.file import Store


def with_noops(app: FastAPI) -> FastAPI:
    """Add `/noop/predict` and `/noop/residual`: the same body and answer models, one kept answer, `response_model` as usual."""
    kept = AnswersOut.model_validate({"answers": []})

    @app.put("/noop/kept")
    async def keep(answers: AnswersOut) -> None:
        nonlocal kept
        kept = answers

    @app.post("/noop/predict", response_model=AnswersOut)
    async def predict(_asked: PredictRequest) -> AnswersOut:
        return kept

    @app.post("/noop/residual", response_model=AnswersOut)
    async def residual(_asked: ResidualRequest) -> AnswersOut:
        return kept

    return app


def main(path: Path) -> None:
    """Serve on a free port of the loopback address."""
    with Store.open(path) as store, socket.create_server(("127.0.0.1", 0)) as listening:
        app = with_noops(create_app(Settings(store=path), store))
        sys.stdout.write(f"at http://127.0.0.1:{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listening])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
