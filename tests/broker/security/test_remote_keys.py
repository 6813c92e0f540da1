"""The key set behind a URL."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from broker.jobs import key_set_jobs
from broker.security.remote_keys import RemoteKeys
from config.broker import BrokerConfig
from tests.support.identity_provider import IdentityProvider
from tests.support.manual_clock import ManualClock


def test_keys_are_read_and_kept_if_they_cannot_be_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys.json"
    keys = RemoteKeys(IdentityProvider().publish(path))
    keys.refresh(0)
    assert keys.keys.verifiers.keys() == {"rsa", "ec"}
    path.write_text("nonsense")
    keys.refresh(0)
    path.unlink()
    keys.refresh(0)
    assert keys.keys.verifiers.keys() == {"rsa", "ec"}
    assert caplog.text.count("2 keys stay in use") == 2


def test_keys_are_read_when_they_are_old_or_one_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    keys = RemoteKeys(path.as_uri())
    assert keys.is_due(0, 1000), "never read"
    keys.refresh(0)
    assert keys.is_due(1, 1000), "the file did not exist"
    IdentityProvider().publish(path)
    keys.refresh(5)
    assert [keys.is_due(now_ms, 1000) for now_ms in (5, 1004, 1005)] == [False, False, True]
    keys.report_missing_key()
    assert keys.is_due(6, 1000)
    keys.refresh(6)
    assert not keys.is_due(7, 1000)


async def test_failed_reads_are_repeated_after_growing_pauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys.json"
    keys = RemoteKeys(path.as_uri())
    config = BrokerConfig.from_properties(
        {
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "50",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "150",
        }
    )
    pauses_s: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses_s.append(seconds)
        if len(pauses_s) == 4:
            IdentityProvider().publish(path)

    with ThreadPoolExecutor(1) as background:
        (job,) = key_set_jobs(config, ManualClock(), [keys], background)
        assert job.initial_delay_ms is None
        monkeypatch.setattr(asyncio, "sleep", sleep)
        await job.run()
        assert pauses_s == [0.05, 0.1, 0.15, 0.15]
        assert keys.keys.verifiers
        await job.run()
        assert len(pauses_s) == 4, "the keys are not old yet"
        path.unlink()
        keys.refresh(0)
        (job,) = key_set_jobs(config, ManualClock(), [keys], background)
        assert job.initial_delay_ms == 50, "the read at the start has failed"


@pytest.mark.parametrize("text", ['{"keys": [1, null, "x"]}', "[" * 100_000, '{"keys": [{"kid": 1}]}', "\xff"])
def test_a_response_without_keys_changes_nothing(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys.json"
    path.write_text(text, encoding="latin-1")
    keys = RemoteKeys(path.as_uri())
    keys.refresh(0)
    assert not keys.keys.verifiers
    assert "0 keys stay in use" in caplog.text


def test_redirects_are_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys.json"
    provider = IdentityProvider().publish(path)
    content = path.read_bytes()
    targets = {"/other-path": "/keys", "/other-scheme": "https://127.0.0.1:1/keys", "/file": provider}

    class Provider(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            target = targets.get(self.path)
            self.send_response(200 if target is None else 302)
            if target is not None:
                self.send_header("Location", target)
            self.end_headers()
            if target is None:
                self.wfile.write(content)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Provider) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            found = {}
            for path_of_url in targets:
                keys = RemoteKeys(f"http://127.0.0.1:{server.server_port}{path_of_url}")
                keys.refresh(0)
                found[path_of_url] = keys.keys.verifiers.keys()
        finally:
            server.shutdown()
            thread.join()
    assert found == {key: set() for key in targets}
    for target in targets.values():
        assert f"redirects to {target!r}; redirects are not followed: configure the final address" in caplog.text
