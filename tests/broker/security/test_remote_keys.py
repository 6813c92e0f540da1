"""The key set behind a URL."""

from pathlib import Path

import pytest

from broker.security.remote_keys import RemoteKeys
from tests.support.identity_provider import IdentityProvider


def test_keys_are_read_and_kept_if_they_cannot_be_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys.json"
    keys = RemoteKeys(IdentityProvider().publish(path))
    keys.refresh()
    assert keys.keys.keys() == {"rsa", "ec"}
    path.write_text("nonsense")
    keys.refresh()
    path.unlink()
    keys.refresh()
    assert keys.keys.keys() == {"rsa", "ec"}
    assert caplog.text.count("2 keys stay in use") == 2
