"""Checks what a release publishes: licence and metadata of each wheel and of the sdist, and the date in the changelog.

    python -m tests.release_files dist/*

Owns these checks; `twine check` makes those of the package index. Must not know how the files are built.
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from email import message_from_bytes
from pathlib import Path

from milena_broker import __version__

ROOT = Path(__file__).resolve().parents[1]
LICENCE = "LICENSE"
METADATA: Mapping[str, str] = {
    "Name": "milena-broker",
    "Version": __version__,
    "License-Expression": "Apache-2.0",
    "License-File": LICENCE,
    "Requires-Python": ">=3.11",
    "Description-Content-Type": "text/markdown",
}
_STEM = f"milena_broker-{__version__}"
_RELEASE = re.compile(r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>.+))?$", re.MULTILINE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def problems_of(path: Path) -> Iterator[str]:
    """Yield what is wrong with a wheel or an sdist."""
    is_wheel = path.suffix == ".whl"
    files = dict(_files_of_wheel(path) if is_wheel else _files_of_sdist(path))
    info = f"{_STEM}.dist-info" if is_wheel else _STEM
    licence = files.get(f"{info}/licenses/{LICENCE}" if is_wheel else f"{info}/{LICENCE}")
    if licence != (ROOT / LICENCE).read_bytes():
        yield f"{path.name}: expected the licence of the repository, found {'none' if licence is None else 'another'}"
    metadata = message_from_bytes(files.get(f"{info}/{'METADATA' if is_wheel else 'PKG-INFO'}", b""))
    for name, value in METADATA.items():
        if metadata[name] != value:
            yield f"{path.name}: expected {name}: {value}, found {metadata[name]}"
    tops = {"milena_broker", info} if is_wheel else {info}
    for other in sorted({name.partition("/")[0] for name in files} - tops):
        yield f"{path.name}: expected only {', '.join(sorted(tops))} at the top, found {other}"


def problems_of_changelog(text: str) -> Iterator[str]:
    """Yield what keeps the changelog from being that of this release."""
    newest = _RELEASE.search(text)
    if newest is None or newest["version"] != __version__:
        yield f"CHANGELOG.md: expected {__version__} as the newest release, found {newest and newest['version']}"
    elif newest["date"] is None or not _DATE.fullmatch(newest["date"]):
        yield f"CHANGELOG.md: expected the date of {__version__} as YYYY-MM-DD, found {newest['date']}"


def _files_of_wheel(path: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            yield name, archive.read(name)


def _files_of_sdist(path: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for member in archive:
            if (file := archive.extractfile(member)) is not None:
                yield member.name, file.read()


def main(arguments: Sequence[str]) -> int:
    """Print every problem; return 1 if there is one."""
    if not arguments:
        print("USAGE: python -m tests.release_files WHEEL_OR_SDIST...", file=sys.stderr)
        return 1
    found = list(problems_of_changelog((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")))
    for argument in arguments:
        found += problems_of(Path(argument))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
