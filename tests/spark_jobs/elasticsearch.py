"""An Elasticsearch as far as the sink uses it: the bulk request."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Index(ThreadingHTTPServer):
    """Keeps the documents of bulk requests; refuses those with the field `bad`, and those of `absent` indices.

    The first requests get the responses of `first_responses`: a status with headers, or the ids that are too many.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.documents: dict[tuple[str, str], Any] = {}
        self.absent: set[str] = set()
        self.requests: list[list[str]] = []  # the ids of each
        self.logins: list[str | None] = []
        self.first_responses: list[tuple[int, Mapping[str, str]] | set[str]] = []

    @classmethod
    @contextmanager
    def serving(cls) -> Iterator[Self]:
        with cls() as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                yield server
            finally:
                server.shutdown()
                thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Index

    def do_POST(self) -> None:
        lines = iter(self.rfile.read(int(self.headers["Content-Length"])).decode().splitlines())
        self.server.logins.append(self.headers["Authorization"])
        self.server.requests.append([])
        first = self.server.first_responses.pop(0) if self.server.first_responses else set[str]()
        if isinstance(first, tuple):
            self.respond(first[0], b"busy", first[1])
            return
        items = []
        for line in lines:
            ((action, target),) = json.loads(line).items()
            place = (target["_index"], target["_id"])
            self.server.requests[-1].append(place[1])
            document = None if action == "delete" else json.loads(next(lines))
            if place[0] in self.server.absent:
                items.append({action: {"status": 404, "error": {"type": "index_not_found_exception"}}})
            elif document is None:
                self.server.documents.pop(place, None)
                items.append({action: {"status": 200}})
            elif place[1] in first:
                items.append({action: {"status": 429, "error": {"type": "es_rejected_execution_exception"}}})
            elif "bad" in document:
                items.append({action: {"status": 400, "error": {"type": "mapper_parsing_exception"}}})
            else:
                self.server.documents[place] = document
                items.append({action: {"status": 201}})
        has_errors = any("error" in result for item in items for result in item.values())
        body = json.dumps({"errors": has_errors, "items": items}).encode()
        self.respond(200, body)

    def respond(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None: ...
