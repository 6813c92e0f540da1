"""Java libraries by coordinates, from Maven Central, through the Ivy that pyspark brings along.

Owns: the folders below `.cache/java`, one a set of libraries. A set is fetched once, under a file lock (several test
runs may want it at the same time), into a temporary folder that is renamed when complete: a set that is there is
whole, and later runs touch neither network nor lock. The set's own Ivy cache lies beside it, so that a home folder
with a half-filled Maven or Ivy cache has no say.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from tests.support.java import UnavailableError, java_executable, pyspark_jars

PROJECT_ROOT = Path(__file__).parents[2]
CACHE = PROJECT_ROOT / ".cache" / "java"
FETCH_TIMEOUT_S = 900
FETCH_ATTEMPTS = 3
SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""


@dataclass(frozen=True)
class Library:
    """Maven coordinates; what it depends on comes along."""

    organisation: str
    module: str
    revision: str

    def __str__(self) -> str:
        return f"{self.organisation}:{self.module}:{self.revision}"


def fetch(name: str, libraries: Sequence[Library]) -> Path:
    """The folder with the jars of `libraries` and all they need; `name` is its name in the cache.

    Raises `UnavailableError` when it is not there yet and cannot be fetched.
    """
    folder = CACHE / name
    if _is_complete(folder, libraries):
        return folder / "jars"
    CACHE.mkdir(parents=True, exist_ok=True)
    with _locked(CACHE / f"{name}.lock"):
        if not _is_complete(folder, libraries):
            _fetch_anew(folder, libraries)
    return folder / "jars"


def _is_complete(folder: Path, libraries: Sequence[Library]) -> bool:
    try:
        return (folder / "coordinates").read_text() == _coordinates(libraries)
    except FileNotFoundError:
        return False


def _coordinates(libraries: Sequence[Library]) -> str:
    return "".join(f"{library}\n" for library in libraries)


def _fetch_anew(folder: Path, libraries: Sequence[Library]) -> None:
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(folder, ignore_errors=True)
    (partial / "jars").mkdir(parents=True, exist_ok=True)
    (partial / "ivysettings.xml").write_text(SETTINGS)
    (partial / "ivy.xml").write_text(_ivy_module(folder.name, libraries))
    # A registry that hiccups is common and Ivy keeps what it has: another attempt goes on where the last one stopped.
    for attempt in range(1, FETCH_ATTEMPTS + 1):
        problem = _run_ivy(partial)
        if problem is None:
            break
        if attempt == FETCH_ATTEMPTS:
            raise UnavailableError(
                f"needs {', '.join(map(str, libraries))} from Maven Central, which Ivy cannot get: {problem}"
            )
    (partial / "coordinates").write_text(_coordinates(libraries))
    os.replace(partial, folder)


def _run_ivy(folder: Path) -> str | None:
    """Resolve and copy the jars; a line about what went wrong, or None."""
    ivy = next(pyspark_jars().glob("ivy-*.jar"))
    # fmt: off
    command = [
        str(java_executable()), "-jar", str(ivy), "-warn",
        "-settings", str(folder / "ivysettings.xml"),
        "-ivy", str(folder / "ivy.xml"),
        "-cache", str(folder / "ivy-cache"),
        "-retrieve", str(folder / "jars" / "[artifact]-[revision](-[classifier]).[ext]"),
        "-types", "jar", "bundle",
    ]
    # fmt: on
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no end after {FETCH_TIMEOUT_S} s"
    if done.returncode == 0:
        return None
    complaints = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return complaints[-1] if complaints else f"exit code {done.returncode}"


def _ivy_module(name: str, libraries: Sequence[Library]) -> str:
    dependencies = "".join(
        f"<dependency org={quoteattr(library.organisation)} name={quoteattr(library.module)}"
        f' rev={quoteattr(library.revision)} conf="default"/>'
        for library in libraries
    )
    return (
        f'<ivy-module version="2.0"><info organisation="milena" module={quoteattr(name)}/>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
