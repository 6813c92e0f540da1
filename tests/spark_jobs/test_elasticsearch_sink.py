"""Documents reach a server with the bulk call; a repeated batch overwrites them."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from spark_jobs.elasticsearch_sink import JOB, send
from spark_jobs.skeleton.errors import JobError
from tests.spark_jobs.conftest import JobRunner, Sent, Topics, objects


class Index(ThreadingHTTPServer):
    """Keeps the documents of bulk requests; refuses those with the field `bad`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.documents: dict[tuple[str, str], Any] = {}
        self.requests = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Index

    def do_POST(self) -> None:
        self.server.requests += 1
        lines = iter(self.rfile.read(int(self.headers["Content-Length"])).decode().splitlines())
        items = []
        for line in lines:
            ((action, target),) = json.loads(line).items()
            place = (target["_index"], target["_id"])
            if action == "delete":
                self.server.documents.pop(place, None)
                items.append({action: {"status": 200}})
                continue
            document = json.loads(next(lines))
            if "bad" in document:
                items.append({action: {"status": 400, "error": {"type": "mapper_parsing_exception"}}})
            else:
                self.server.documents[place] = document
                items.append({action: {"status": 201}})
        body = json.dumps({"errors": any("error" in item.get("index", {}) for item in items), "items": items}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None: ...


@pytest.fixture
def index() -> Iterator[Index]:
    with Index() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.spark
@pytest.mark.parametrize("ignore_keys", [False, True])
def test_documents_have_the_key_or_the_place_as_their_id(
    ignore_keys: bool, index: Index, topics: Topics, job_runner: JobRunner
) -> None:
    topic = topics.create("Documents", 1)
    topics.send(topic, [*objects({"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "a", "n": 3}, key="id")])
    flags = ["--input", topic, "--url", index.url, "--bulk-records", "2"]
    flags += ["--ignore-keys"] if ignore_keys else []
    for checkpoint in ("first", "again"):
        job_runner.run(JOB, *flags, "--checkpoint", str(job_runner.folder / checkpoint))
    if ignore_keys:
        assert index.documents == {
            (topic.lower(), f"{topic}+0+{n - 1}"): {"id": "b" if n == 2 else "a", "n": n} for n in (1, 2, 3)
        }
    else:
        assert {key: document["n"] for (_, key), document in index.documents.items()} == {"a": 3, "b": 2}
        topics.send(topic, [Sent(None, b"a")])
        job_runner.run(JOB, *flags, "--checkpoint", str(job_runner.folder / "again"))
        assert [key for _, key in index.documents] == ["b"]
    assert index.requests >= 4


def row(text: str) -> SimpleNamespace:
    return SimpleNamespace(topic="t", document_id="1", text=text)


def test_refused_documents_and_a_silent_server_fail_the_task(index: Index) -> None:
    with pytest.raises(JobError, match=r"1 documents were refused: .*mapper_parsing_exception"):
        send([row('{"bad": 1}'), row("{}")], index.url, 10)
    with pytest.raises(JobError, match=r"--url: http://127\.0\.0\.1:9 does not respond"):
        send([row("{}")], "http://127.0.0.1:9", 10)
