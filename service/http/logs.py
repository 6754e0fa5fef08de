"""The log of a serving process: lines for people, or one JSON object a line with the request it belongs to."""

from __future__ import annotations

import logging
import time
from typing import Literal

import orjson

from service.http.tracing import NOW

LogFormat = Literal["text", "json"]
REQUESTS = "phasecast.requests"
"""Logger of one record per request; its facts are in the record's `facts`."""


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: time (UTC), level, logger, message, ids of request and trace, facts, trace of an error."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        wall_s, millis = divmod(int(record.created * 1000), 1000)
        line: dict[str, object] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(wall_s))}.{millis:03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if now := NOW.get():
            ids = {"request_id": now.request_id, "trace_id": now.trace_id, "parent_id": now.parent_id}
            line |= {name: value for name, value in ids.items() if value is not None}
        line |= getattr(record, "facts", {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def configure(form: LogFormat) -> None:
    """Send what is logged to the standard error; a line for each request is only written as JSON, where programs read it."""
    handler = logging.StreamHandler()
    if form == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.getLogger(REQUESTS).setLevel(logging.WARNING)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a worker's calls of its owner are the owner's to log
    logging.basicConfig(level=logging.INFO, handlers=[handler])
