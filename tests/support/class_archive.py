"""Archives of the classes of Java programs (JEP 350): a JVM that maps one starts with half of the CPU time.

Owns: the name of an archive, which changes with the JVM and the class path, and its options. Must not know the
programs: a function of the caller runs one. A JVM that cannot use an archive loads the classes as usual.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.support.ivy import locked
from tests.support.java import java_executable


def archive_options(name: str, jars: Iterable[Path], folder: Path, run: Callable[[str], object]) -> list[str]:
    """Return the options of a JVM that uses the archive for a class path of jars, in the order of that class path.

    Args:
        folder: of the archives.
        run: makes the archive if there is none: it runs a program of this class path with one more option of the JVM,
            and returns when the JVM has ended by itself or by SIGTERM.
    """
    stats = [(path.name, path.stat()) for path in (java_executable().resolve(), *jars)]
    content = repr([(each, stat.st_size, stat.st_mtime_ns) for each, stat in stats])
    archive = folder / f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:16]}.jsa"
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / f"{name}.lock"):  # several workers want it at a time
            if not archive.exists() and not _make(archive, run):
                return []
    return [f"-XX:SharedArchiveFile={archive}"]


def _make(archive: Path, run: Callable[[str], object]) -> bool:
    """Return whether the JVM has made the archive: not every JVM does."""
    partial = archive.with_suffix(f".{os.getpid()}")
    try:
        run(f"-XX:ArchiveClassesAtExit={partial}")
        if not partial.exists():
            return False
        partial.rename(archive)
    finally:
        partial.unlink(missing_ok=True)
    return True
