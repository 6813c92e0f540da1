"""docs/tools shows the help of each tool as it is now."""

from pathlib import Path

import pytest

from tests.docs.tool_pages import FOLDER, pages


def test_every_tool_has_a_current_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    expected = pages()
    assert {path.name for path in Path(FOLDER).iterdir()} == set(expected)
    for name, text in expected.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, "python -m tests.docs.tool_pages writes the pages"
