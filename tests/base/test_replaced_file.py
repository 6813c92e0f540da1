from __future__ import annotations

from pathlib import Path

import pytest

from base.replaced_file import replace_file
from base.system_calls import SYSTEM_CALLS


def test_file_is_replaced_and_nothing_else_remains(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    replace_file(path, "old")
    replace_file(path, "é")
    assert path.read_text(encoding="utf-8") == "é"
    assert list(tmp_path.iterdir()) == [path]


def test_content_is_on_the_disk_before_the_file_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    replace_file(path, "old")
    synced: list[str] = []

    def sync(_: int) -> None:
        synced.append(f"{path.read_text()} {path.with_name('state.json.partial').read_text()}")

    monkeypatch.setattr("base.replaced_file.SYSTEM_CALLS", SYSTEM_CALLS._replace(sync_data=sync))
    replace_file(path, "new")
    assert synced == ["old new"]
    assert path.read_text() == "new"


def test_write_that_fails_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError("no space")

    path = tmp_path / "state.json"
    replace_file(path, "old")
    monkeypatch.setattr("base.replaced_file.SYSTEM_CALLS", SYSTEM_CALLS._replace(sync_data=fail))
    with pytest.raises(OSError, match="no space"):
        replace_file(path, "new")
    assert path.read_text() == "old"
