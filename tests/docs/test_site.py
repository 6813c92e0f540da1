"""The documentation builds as a site without a warning: no page is left out, every link and anchor exists."""

from __future__ import annotations

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.commands import ROOT, output_of
from tests.support.java import UnavailableError
from tests.support.parts import skip_when_unavailable

TIMEOUT_S = 120


def test_every_page_is_in_the_navigation() -> None:
    """Pages of tools are reached from their list."""
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    named = set(re.findall(r"^ +- .*?([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert {page for page in pages - named if not page.startswith("tools/")} == set()


@pytest.mark.soak  # takes five seconds; .github/workflows/docs.yml builds the site for each change
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    with skip_when_unavailable():
        if find_spec("mkdocs") is None:
            raise UnavailableError("needs mkdocs: pip install --requirement requirements-release.lock")
    command = [sys.executable, "-P", "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    output_of(command, ROOT, {}, TIMEOUT_S)
    search = json.loads((tmp_path / "search" / "search_index.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in search["docs"]}
    assert {"", "tools/milena/", "configuration/", "from-docker-compose/", "changelog/"} <= found
    assert (tmp_path / "images" / "console-overview.png").exists()
