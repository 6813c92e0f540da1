"""What the site needs beside docs/: pages from the root of the repository, and links to files that are no pages.

A link that leaves docs/ leads to the page that is made of the file, or else to the file in the repository. It is plain
text if the build does not know the address of the repository. Each target has to exist: a wrong link fails the build.

Owns both. Must not know what the pages say. MkDocs calls the functions (mkdocs.yml names this file).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = "docs"
PAGES: Mapping[str, str] = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "examples/README.md": "examples.md",
}
"""The page that is made of a file of the repository."""
_LINK = re.compile(r"\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
_HAS_SCHEME = re.compile(r"[a-z]+:")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of files of the repository."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with links as the site has them."""
    sources = {made: source for source, made in PAGES.items()}
    source = PurePosixPath(sources.get(page.file.src_uri, f"{DOCS}/{page.file.src_uri}"))
    folder = PurePosixPath(page.file.src_uri).parent

    def linked(match: re.Match[str]) -> str:
        text, anchor = match["text"], match["anchor"] or ""
        if _HAS_SCHEME.match(match["target"]):
            return match[0]
        target = os.path.normpath(source.parent / match["target"])
        if not (ROOT / target).exists():
            raise PluginError(f"{source}: the link {match['target']} leads to no file")
        if (page_of := _page_of(target)) is not None:
            return f"[{text}]({os.path.relpath(page_of, folder)}{anchor})"
        return f"[{text}]({config.repo_url}/blob/main/{target}{anchor})" if config.repo_url else text

    return _LINK.sub(linked, markdown)


def _page_of(target: str) -> str | None:
    """Return the page or picture of the site that is made of a file or folder of the repository."""
    if target in PAGES:
        return PAGES[target]
    if not target.startswith(f"{DOCS}/") or target.endswith(".json"):
        return None
    path = target.removeprefix(f"{DOCS}/")
    return f"{path}/README.md" if (ROOT / target).is_dir() else path
