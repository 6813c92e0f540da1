"""A sender gets 200 when its records are stored, and a status that fits in all other cases."""

import hashlib
import hmac
import http.client
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from spark_jobs.connect.base.data import BYTES, STRING
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.connectors.webhook import WebhookSourceConnector, WebhookSourceTask
from tests.spark_jobs.connect.contexts import acknowledge, poll_until, start_connector, start_source


@contextmanager
def started(**others: str) -> Iterator[WebhookSourceTask]:
    settings = {name.replace("_", "."): each for name, each in others.items()}
    task = start_source(WebhookSourceTask, {"topic": "events", "listen.port": "0"} | settings)
    assert isinstance(task, WebhookSourceTask)
    try:
        yield task
    finally:
        task.stop()


@pytest.fixture
def senders() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as senders:
        yield senders


def request(task: WebhookSourceTask, body: bytes = b"{}", path: str = "/", method: str = "POST", **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", task.port, timeout=30)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): each for name, each in headers.items()})
        with connection.getresponse() as response:
            response.read()
            return response.status
    finally:
        connection.close()


def test_the_sender_gets_200_only_after_its_records_are_stored(senders: ThreadPoolExecutor) -> None:
    with started() as task:
        response = senders.submit(request, task, b'[{"a": 1}, 2]')
        first, second = poll_until(task, 2)
        assert [first.value, second.value] == [{"a": 1}, 2]
        task.commit_record(first, 0, 1)
        assert not response.done()
        task.commit_record(second, None, None)  # a transform has dropped it
        assert response.result() == 200


@pytest.mark.parametrize(
    ("body_format", "body", "value"),
    [("json", b'{"a": 1}', {"a": 1}), ("text", b"b\xc3\xa4r", "bär"), ("bytes", b"\0", b"\0")],
)
def test_the_body_is_what_its_format_says(
    body_format: str, body: bytes, value: Any, senders: ThreadPoolExecutor
) -> None:
    with started(body_format=body_format, path="/hook") as task:
        response = senders.submit(request, task, body, "/hook?from=me")
        (record,) = poll_until(task, 1)
        acknowledge(task, [record])
        assert response.result() == 200
    assert record.value == value
    assert record.value_schema == {"json": None, "text": STRING, "bytes": BYTES}[body_format]


def test_requests_that_cannot_become_records_get_a_status_that_says_why() -> None:
    with started(path="/hook", body_max_bytes="10") as task:
        assert request(task, path="/other") == 404
        assert request(task, path="/hook", method="GET") == 405
        assert request(task, b"{not json", "/hook") == 400
        assert request(task, b"\xff", "/hook") == 400
        assert request(task, b"[" * 10, "/hook") == 400
        assert request(task, b'"0123456789"', "/hook") == 413
        assert request(task, b"", "/hook", Content_Length="9" * 5000) == 413
        assert request(task, b"", "/hook", Content_Length="-1") == 411
        assert request(task, b"", "/hook", Transfer_Encoding="chunked") == 411
        assert request(task, b"[]", "/hook") == 200  # no record has to be stored
        assert task.poll() == []


def test_a_secret_is_required_if_one_is_set(senders: ThreadPoolExecutor) -> None:
    with started(secret="let me in", secret_header="X-Secret") as task:
        assert request(task) == 401
        assert request(task, X_Secret="let me") == 401
        response = senders.submit(request, task, X_Secret="let me in")
        acknowledge(task, poll_until(task, 1))
        assert response.result() == 200


def test_a_signature_of_the_body_is_required_if_its_secret_is_set(senders: ThreadPoolExecutor) -> None:
    signature = hmac.new(b"key", b"{}", hashlib.sha256).hexdigest()
    with started(**{"hmac.secret": "key", "hmac.header": "X-Signature"}) as task:
        assert request(task) == 401
        assert request(task, b"[]", X_Signature=signature) == 401
        for given in (signature, f"sha256={signature.upper()}"):
            response = senders.submit(request, task, X_Signature=given)
            acknowledge(task, poll_until(task, 1))
            assert response.result() == 200


def test_a_full_queue_is_503_until_records_are_stored(senders: ThreadPoolExecutor) -> None:
    with started(queue_max_records="2") as task:
        response = senders.submit(request, task, b"[1, 2]")
        records = poll_until(task, 2)
        assert request(task, b"[3]") == 503
        acknowledge(task, records)
        assert response.result() == 200
        response = senders.submit(request, task, b"[1, 2, 3]")  # alone it may be longer
        acknowledge(task, poll_until(task, 3))
        assert response.result() == 200


def test_too_many_connections_are_503() -> None:
    with started(connections_max="1") as task, socket.create_connection(("127.0.0.1", task.port)) as first:
        first.sendall(b"POST / HTTP/1.1\r\n")
        with socket.create_connection(("127.0.0.1", task.port)) as second:
            assert second.recv(100).startswith(b"HTTP/1.0 503 ")


def test_a_request_that_waits_too_long_is_503_and_will_be_repeated(senders: ThreadPoolExecutor) -> None:
    with started(ack_timeout_ms="1") as task:
        assert request(task) == 503
    with started(ack_timeout_ms="100") as task:
        response, records = senders.submit(request, task), task.poll()
        while not records:  # it was dropped before the poll
            response, records = senders.submit(request, task), task.poll()
        assert response.result() == 503
        acknowledge(task, records)


def test_a_slow_sender_is_cut_off() -> None:
    with started(request_timeout_ms="300") as task, socket.create_connection(("127.0.0.1", task.port)) as slow:
        slow.sendall(b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n{")
        assert slow.recv(100) == b""


def test_what_is_stored_during_the_end_gets_200_and_later_requests_no_connection(senders: ThreadPoolExecutor) -> None:
    with started() as task:
        response = senders.submit(request, task)
        records = poll_until(task, 1)
        stopper = threading.Thread(target=task.stop)
        stopper.start()
        acknowledge(task, records)
        assert response.result() == 200
        stopper.join()
        with pytest.raises(ConnectionRefusedError):
            request(task)


def test_a_task_that_failed_answers_503_to_what_it_did_not_store(senders: ThreadPoolExecutor) -> None:
    with started() as task:
        response = senders.submit(request, task)
        poll_until(task, 1)
        task.stop()
        assert response.result() == 503


def test_a_port_in_use_is_an_error_that_names_the_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"127\.0\.0\.1:{port} of listen\.host and listen\.port: Address already"
        ):
            start_source(WebhookSourceTask, {"topic": "events", "listen.port": str(port)})


@pytest.mark.parametrize(
    ("setting", "value"),
    [("topic", ""), ("listen.port", "65536"), ("path", "hook"), ("body.format", "xml"), ("hmac.algorithm", "md5")],
)
def test_a_wrong_setting_is_named(setting: str, value: str) -> None:
    with pytest.raises(ConfigError, match=setting.replace(".", r"\.")):
        start_connector(WebhookSourceConnector, {"topic": "events", "listen.port": "0", setting: value})


def test_one_task_has_the_port() -> None:
    config = {"topic": "events", "listen.port": "0"}
    assert start_connector(WebhookSourceConnector, config).task_configs(3) == [config]
