from __future__ import annotations

import os
from pathlib import Path

import pytest

from base.replaced_file import replace_file


def test_file_is_replaced_and_nothing_else_remains(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    replace_file(path, "old")
    replace_file(path, "é")
    assert path.read_text(encoding="utf-8") == "é"
    assert list(tmp_path.iterdir()) == [path]


def test_content_is_on_the_disk_before_the_rename_and_the_name_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    replace_file(path, "old")
    content_at_sync: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda _: content_at_sync.append(path.read_text(encoding="utf-8")))
    replace_file(path, "new")
    assert content_at_sync == ["old", "new"]


def test_write_that_fails_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError("no space")

    path = tmp_path / "state.json"
    replace_file(path, "old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        replace_file(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
