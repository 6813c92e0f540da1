"""Tokens of an identity provider's endpoint, from a small HTTP server."""

import json
import threading
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from broker.security.retry_pauses import RetryPauses
from broker.security.token_source import TokenRenewal, TokenSource, TokenUnavailable, endpoint_token, unsecured_token
from broker.security.web_tokens import TOKEN_SIZE_MAX

OPTIONS = {"clientId": "a client", "clientSecret": "s+cret", "scope": "read write"}


@dataclass
class Provider:
    """An endpoint with one response for all requests; `is_silent` withholds it until the provider stops."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    is_silent: bool = False
    requests: list[tuple[str, str | None, bytes]] = field(default_factory=list)


@contextmanager
def served(provider: Provider) -> Iterator[str]:
    stopped = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            provider.requests.append((self.path, self.headers["Authorization"], body))
            if provider.is_silent:
                stopped.wait(30)
                return
            self.send_response(provider.status)
            for name, value in provider.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(provider.body)

        def do_GET(self) -> None:
            provider.requests.append((self.path, self.headers["Authorization"], b""))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        stopped.set()
        server.shutdown()
        thread.join()
        server.server_close()


def test_endpoint_token_sends_the_credentials_encoded_and_returns_the_access_token() -> None:
    provider = Provider(body=json.dumps({"access_token": "a.b.c"}).encode())
    with served(provider) as url:
        assert endpoint_token(url, OPTIONS) == "a.b.c"
    credentials = b64encode(b"a+client:s%2Bcret").decode()
    assert provider.requests == [("/token", f"Basic {credentials}", b"grant_type=client_credentials&scope=read+write")]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_is_refused_and_the_credentials_go_nowhere_else(status: int) -> None:
    other = Provider()
    with served(other) as target:
        provider = Provider(status=status, headers={"Location": target})
        with served(provider) as url, pytest.raises(TokenUnavailable, match=f"redirects to '{target}'") as caught:
            endpoint_token(url, OPTIONS)
    assert len(provider.requests) == 1
    assert other.requests == []
    assert "s+cret" not in str(caught.value)


def test_response_longer_than_a_token_may_be_is_refused() -> None:
    with (
        served(Provider(body=b"x" * (TOKEN_SIZE_MAX + 1))) as url,
        pytest.raises(TokenUnavailable, match=f"more than {TOKEN_SIZE_MAX} bytes"),
    ):
        endpoint_token(url, OPTIONS)


def test_error_of_the_endpoint_is_reported_with_the_beginning_of_its_body() -> None:
    with (
        served(Provider(status=401, body=b"invalid_client" + b" " * 1000)) as url,
        pytest.raises(TokenUnavailable, match="status 401: invalid_client") as caught,
    ):
        endpoint_token(url, OPTIONS)
    assert len(str(caught.value)) < 300


def test_endpoint_without_a_response_times_out() -> None:
    with served(Provider(is_silent=True)) as url, pytest.raises(TokenUnavailable, match="timed out"):
        endpoint_token(url, OPTIONS, timeout_s=0.1)


class Attempts:
    """A token source whose fetches fail while `is_failing`."""

    def __init__(self) -> None:
        self.now_s, self.count, self.is_failing = 0.0, 0, True
        pauses = RetryPauses(first_ms=1000, longest_ms=3000)
        self.source = TokenSource(self._fetch, lambda: self.now_s, lambda: 0.0, TokenRenewal, pauses)

    def _fetch(self) -> str:
        self.count += 1
        if self.is_failing:
            raise TokenUnavailable(f"failure {self.count}")
        return unsecured_token({"unsecuredLoginStringClaim_sub": "a"}, self.now_s)

    def at(self, now_s: float) -> str:
        """Return the failure at a time, empty if there is a token."""
        self.now_s = now_s
        try:
            assert self.source.token()
        except TokenUnavailable as error:
            return str(error)
        return ""


def test_provider_is_not_asked_again_before_a_growing_pause_is_over() -> None:
    attempts = Attempts()
    times_s = (0, 0.9, 1, 2.9, 3, 5.9, 6, 8.9, 9)
    assert [attempts.at(it) for it in times_s] == [f"failure {it}" for it in (1, 1, 2, 2, 3, 3, 4, 4, 5)]
    attempts.is_failing = False
    assert (attempts.at(11.9), attempts.at(12)) == ("failure 5", "")


def test_valid_token_stays_in_use_while_its_renewal_fails(caplog: pytest.LogCaptureFixture) -> None:
    attempts = Attempts()
    attempts.is_failing = False
    assert not attempts.at(0)
    attempts.is_failing = True
    assert [attempts.at(it) for it in (3000, 3001, 3599)] == ["", "", ""]
    assert attempts.count == 4
    assert "failure 2" in caplog.text
    assert attempts.at(3600) == "failure 4"
    assert attempts.at(3700) == "failure 5"
