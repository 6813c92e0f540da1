"""The source of JSON responses sends new records only, retries what may pass, and ends at what does not."""

import json
import threading
from collections.abc import Iterator, Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest

from spark_jobs.connect.base.api import SourceTask
from spark_jobs.connect.base.errors import ConfigError, ConnectError, DataError
from spark_jobs.connect.connectors.http_source import HttpSourceConnector, HttpSourceTask
from tests.spark_jobs.connect.contexts import FakeOffsets, poll_until, start_connector, start_source
from tests.support.processes import closed_port


class Response(NamedTuple):
    status: int = 200
    body: Any = ()
    """Bytes, or a value that is sent as JSON."""
    headers: Mapping[str, str] = {}


class Request(NamedTuple):
    method: str
    path: str
    headers: Message
    body: bytes


class Server:
    """Gives the planned responses, and the last one again and again; remembers requests."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.planned: list[Response] = [Response()]
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                outer.requests.append(Request(self.command, self.path, self.headers, body))
                response = outer.planned.pop(0) if len(outer.planned) > 1 else outer.planned[0]
                content = response.body if isinstance(response.body, bytes) else json.dumps(response.body).encode()
                self.send_response(response.status)
                for name, value in {"Content-Length": str(len(content)), **response.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET  # noqa: N815

            def log_message(self, *_arguments: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def start(server: Server, path: str = "/items", offsets: FakeOffsets | None = None, **others: str) -> SourceTask:
    config = {"http.url": server.url + path, "topic": "items", "poll.interval.ms": "1", "retry.backoff.ms": "1"}
    return start_source(
        HttpSourceTask, config | {name.replace("_", "."): each for name, each in others.items()}, offsets
    )


def poll_requests(task: SourceTask, server: Server, count: int) -> list[Any]:
    """Poll until the server has had so many requests; return the values of the records."""
    found: list[Any] = []
    while len(server.requests) < count:
        found += [record.value for record in task.poll()]
    return found


def test_each_item_of_an_array_is_a_record(server: Server) -> None:
    server.planned = [Response(body={"data": {"items": [{"id": 1}, "two", None]}})]
    records = poll_until(start(server, response_pointer="/data/items"), 3)
    assert [record.value for record in records] == [{"id": 1}, "two", None]
    assert records[0].topic == "items"
    assert records[0].source_partition == {"url": f"{server.url}/items"}


@pytest.mark.parametrize(("body", "values"), [({"id": 1}, [{"id": 1}]), ([], []), (None, []), (b"", []), (b"  \n", [])])
def test_an_object_is_one_record_and_nothing_is_none(server: Server, body: Any, values: list[Any]) -> None:
    server.planned = [Response(body=body), Response(body=[])]
    assert poll_requests(start(server), server, 2) == values


def test_an_unchanged_response_sends_nothing_also_after_a_restart(server: Server) -> None:
    validators = {"ETag": '"v1"', "Last-Modified": "Tue, 01 Oct 2024 10:00:00 GMT"}
    server.planned = [Response(body=[1, 2], headers=validators), Response(304)]
    offsets = FakeOffsets()
    task = start(server, offsets=offsets)
    records = poll_until(task, 2)
    assert poll_requests(task, server, 3) == []
    offsets.store(records)
    assert poll_requests(start(server, offsets=offsets), server, 4) == []
    for request in server.requests[1:]:
        assert request.headers["If-None-Match"] == '"v1"'
        assert request.headers["If-Modified-Since"] == "Tue, 01 Oct 2024 10:00:00 GMT"


def test_a_response_that_was_stored_in_part_is_sent_again(server: Server) -> None:
    server.planned = [Response(body=[1, 2], headers={"ETag": '"v1"'})]
    offsets = FakeOffsets()
    offsets.store(poll_until(start(server, offsets=offsets), 2)[:1])
    records = poll_until(start(server, offsets=offsets), 2)
    assert [record.value for record in records] == [1, 2]
    assert "If-None-Match" not in server.requests[-1].headers


def test_the_offset_of_the_last_record_is_in_the_next_url(server: Server) -> None:
    server.planned = [Response(body=[{"at": "a&b"}, {"at": "c d"}]), Response(body=[{"at": 7}]), Response(body=[])]
    offsets = FakeOffsets()
    settings: dict[str, Any] = {"offset_pointer": "/at", "offset_initial": "0"}
    task = start(server, "/since?at={offset}", offsets, **settings)
    records = poll_until(task, 3)
    poll_requests(task, server, 3)
    offsets.store(records)
    poll_requests(start(server, "/since?at={offset}", offsets, **settings), server, 4)
    assert [request.path for request in server.requests] == [
        "/since?at=0",
        "/since?at=c%20d",
        "/since?at=7",
        "/since?at=7",
    ]


def test_a_post_has_its_body_and_headers(server: Server) -> None:
    settings: dict[str, Any] = {"http_method": "POST", "http_body": '{"after": "{offset}"}', "offset_pointer": "/id"}
    task = start(server, offset_initial='say "hi"', http_auth_user="me", http_auth_password="word", **settings)
    server.planned = [Response(body=[{"id": 1}])]
    poll_until(task, 1)
    (request,) = server.requests
    assert (request.method, json.loads(request.body)) == ("POST", {"after": 'say "hi"'})
    assert request.headers["Authorization"] == "Basic bWU6d29yZA=="
    assert request.headers["Content-Type"] == "application/json"


def test_configured_headers_are_sent(server: Server) -> None:
    headers: dict[str, Any] = {"http.headers.X-Api-Key": "abc", "http.headers.Accept": "text/json"}
    start(server, **headers).poll()
    assert (server.requests[0].headers["X-Api-Key"], server.requests[0].headers["Accept"]) == ("abc", "text/json")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(server: Server, status: int) -> None:
    server.planned = [Response(status), Response(status, headers={"Retry-After": "0"}), Response(body=[1])]
    assert [record.value for record in poll_until(start(server), 1)] == [1]


@pytest.mark.parametrize("wait", ["3600", "Fri, 31 Dec 2100 23:59:59 GMT"])
def test_retry_after_is_waited_for(server: Server, wait: str) -> None:
    server.planned = [Response(503, headers={"Retry-After": wait})]
    task = start(server)
    task.poll()
    stopper = threading.Timer(0.05, task.stop)
    stopper.start()
    assert task.poll() == []
    stopper.join()
    assert len(server.requests) == 1


def test_retries_end(server: Server) -> None:
    server.planned = [Response(503, b"overloaded\nfor hours")]
    task = start(server, retries_max="2")
    with pytest.raises(ConnectError, match=r"/items: 503 Service Unavailable: overloaded \(after 2 retries\)"):
        poll_requests(task, server, 4)
    assert len(server.requests) == 3


def test_a_server_that_is_not_there_is_asked_again(server: Server) -> None:
    with closed_port() as port:
        config = {"http.url": f"http://127.0.0.1:{port}/", "topic": "t", "retry.backoff.ms": "1", "retries.max": "1"}
        task = start_source(HttpSourceTask, config)
        assert task.poll() == []
        with pytest.raises(ConnectError, match=r"Connection refused.*after 1 retries"):
            task.poll()


def test_a_refusal_ends_the_task_and_shows_no_secret(server: Server) -> None:
    server.planned = [Response(401, b"who are you?\r\nmore")]
    with pytest.raises(ConnectError, match=r"401 Unauthorized: who are you\?") as caught:
        start(server, "/items?key=hidden-key").poll()
    assert "hidden-key" not in str(caught.value)
    assert "more" not in str(caught.value)


def test_a_response_beyond_the_limit_ends_the_task(server: Server) -> None:
    server.planned = [Response(body=["x" * 1000])]
    with pytest.raises(ConnectError, match=r"longer than the 100 bytes of response\.max\.bytes"):
        start(server, response_max_bytes="100").poll()


def test_a_response_that_is_cut_off_is_requested_again(server: Server) -> None:
    server.planned = [Response(body=b"[1, 2", headers={"Content-Length": "6"}), Response(body=[1, 2])]
    assert len(poll_until(start(server), 2)) == 2


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<html>", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        ({"other": []}, "response.pointer is /data: there is no data"),
        ({"data": [{}]}, "offset.pointer is /id: there is no id"),
        ({"data": [{"id": 1.5}]}, "1.5: expected a string or a whole number"),
    ],
)
def test_a_response_of_another_form_is_an_error_that_says_what_was_expected(
    server: Server, body: Any, reason: str
) -> None:
    server.planned = [Response(body=body)]
    with pytest.raises(DataError, match=reason):
        start(server, "/{offset}", response_pointer="/data", offset_pointer="/id").poll()


def test_a_redirect_is_followed_on_the_same_server_only(server: Server) -> None:
    server.planned = [Response(302, headers={"Location": "/there"}), Response(body=[1])]
    assert len(poll_until(start(server), 1)) == 1
    server.planned = [Response(302, headers={"Location": "http://localhost:1/there"})]
    with pytest.raises(ConnectError, match=r"redirects to http://localhost:1/there: set http\.url"):
        start(server).poll()


VALID = {"http.url": "http://host/", "topic": "t"}


@pytest.mark.parametrize(
    ("setting", "changes"),
    [
        ("http.url", {"http.url": "file:///etc/passwd"}),
        ("http.url", {"http.url": "http://me:hidden-word@host/"}),
        ("http.url", {"http.url": "http://host/a b"}),
        ("http.url", {"http.url": "http://host:port/"}),
        ("topic", {"topic": ""}),
        ("http.method", {"http.method": "DELETE"}),
        ("response.pointer", {"response.pointer": "data"}),
        ("offset.pointer", {"offset.pointer": "/id"}),
        ("offset.pointer", {"http.url": "http://host/{offset}"}),
        ("http.body", {"http.body": "{}"}),
        ("http.auth.user", {"http.auth.user": "me"}),
        ("http.headers.a b", {"http.headers.a b": "c"}),
        ("http.headers.a", {"http.headers.a": "b\r\nc: d"}),
    ],
)
def test_a_wrong_setting_is_named(setting: str, changes: dict[str, str]) -> None:
    connector, config = HttpSourceConnector(), VALID | changes
    found = connector.definition.validate(config).errors or connector.validate(config)
    assert list(found) == [setting]
    assert "hidden-word" not in str(found)
    with pytest.raises(ConfigError) as caught:
        start_connector(HttpSourceConnector, config)
    assert str(caught.value) == found[setting][0]


def test_valid_settings_have_no_errors() -> None:
    assert HttpSourceConnector().validate(VALID) == {}
