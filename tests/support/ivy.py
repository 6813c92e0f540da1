"""Java libraries by coordinates, from Maven Central, through the Ivy that pyspark ships.

Owns: the folders below `.cache/java`, one per set of libraries, and reading `libraries.lock`, which lists every
artifact of every set with its SHA-256. A set is fetched once, under a file lock (several test runs may want it at the
same time), into a temporary folder that is renamed when every file in it has the right hash. Later runs touch neither
network nor lock. Ivy gets the artifacts by their coordinates and resolves nothing: no version can change, and no POM is
read. One start of Ivy, which takes seconds, fetches several sets.
`python -m tests.support.lock_libraries` regenerates the lock file.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from tests.support.java import SHORT_LIVED, UnavailableError, java_executable, pyspark_jars

PROJECT_ROOT = Path(__file__).parents[2]
CACHE = PROJECT_ROOT / ".cache" / "java"
LOCK = Path(__file__).with_name("libraries.lock")
FETCH_TIMEOUT_S = 900
FETCH_ATTEMPTS = 3
# The marker of a fetched set; it contains the text of the lock file, so that a changed lock is fetched again.
MARKER = "artifacts"
# Ivy would read POMs and request a SHA-1 of every file: four requests per artifact. The lock file replaces both.
SETTINGS = """<ivysettings>
  <property name="ivy.checksums" value=""/>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
_SECTION = re.compile(r"^\[(\S+)\]\n((?:[0-9a-f]{64}  \S+\n)*)", re.MULTILINE)


class WrongHashError(Exception):
    """A fetched file is not the one that was locked. Never a reason to skip."""


@dataclass(frozen=True, order=True)
class Library:
    """Maven coordinates of a jar."""

    organisation: str
    module: str
    revision: str

    def __str__(self) -> str:
        return f"{self.organisation}:{self.module}:{self.revision}"

    @property
    def file_name(self) -> str:
        return f"{self.module}-{self.revision}.jar"


def fetch(name: str, libraries: Sequence[Library]) -> Path:
    """Return the folder with the jars of `libraries` and of all they need; `name` is the set's name in the lock file.

    Raises:
        UnavailableError: the set is missing and cannot be fetched.
        WrongHashError: a file is not the one that was locked.
        LookupError: the lock file does not hold the set.
    """
    pinned = locked_artifacts(name)
    if missing := set(libraries) - pinned.keys():
        raise LookupError(f"{LOCK.name} has no {min(missing)} in [{name}]: run python -m tests.support.lock_libraries")
    fetch_sets([name])
    return CACHE / name / "jars"


def fetch_sets(names: Iterable[str]) -> None:
    """Fetch those of the sets that are missing, all with one start of Ivy. Raises as `fetch` does."""
    missing = _incomplete(names)
    if not missing:
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    with ExitStack() as locks:
        for name in sorted(missing):  # in one order, so that two runs do not wait for each other
            locks.enter_context(locked(CACHE / f"{name}.lock"))
        if missing := _incomplete(missing):
            _fetch_anew(missing)


def _incomplete(names: Iterable[str]) -> dict[str, Mapping[Library, str]]:
    pinned = {name: locked_artifacts(name) for name in names}
    return {name: artifacts for name, artifacts in pinned.items() if not _is_complete(CACHE / name, artifacts)}


def locked_artifacts(name: str) -> Mapping[Library, str]:
    """Return every artifact of a set with its SHA-256. Raises LookupError."""
    sections = dict(_SECTION.findall(LOCK.read_text()))
    if name not in sections:
        raise LookupError(f"{LOCK.name} has no set [{name}]: run python -m tests.support.lock_libraries")
    lines = (line.split() for line in sections[name].splitlines())
    return {Library(*coordinates.split(":")): sha256 for sha256, coordinates in lines}


def section(name: str, artifacts: Mapping[Library, str]) -> str:
    """Return a set of the lock file."""
    return f"[{name}]\n" + "".join(f"{sha256}  {library}\n" for library, sha256 in sorted(artifacts.items()))


def sha256_of(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _is_complete(folder: Path, pinned: Mapping[Library, str]) -> bool:
    try:
        return (folder / MARKER).read_text() == section(folder.name, pinned)
    except FileNotFoundError:
        return False


def _fetch_anew(sets: Mapping[str, Mapping[Library, str]]) -> None:
    partial = CACHE / f"{min(sets)}.partial"
    shutil.rmtree(partial / "jars", ignore_errors=True)  # a fetch that failed may have been of other sets as well
    (partial / "jars").mkdir(parents=True)
    (partial / "ivysettings.xml").write_text(SETTINGS)
    pinned = {library: sha256 for artifacts in sets.values() for library, sha256 in artifacts.items()}
    (partial / "ivy.xml").write_text(ivy_module("libraries", pinned, is_transitive=False))
    # Registries fail at times. Ivy keeps fetched files, so an attempt continues where the last one stopped.
    for attempt in range(1, FETCH_ATTEMPTS + 1):
        problem = run_ivy(partial)
        if problem is None:
            break
        if attempt == FETCH_ATTEMPTS:
            raise UnavailableError(f"needs the libraries of {', '.join(sets)} from Maven Central; Ivy fails: {problem}")
    try:
        _verify(partial / "jars", pinned)
        for name, artifacts in sets.items():
            _place(partial, CACHE / name, artifacts)
    finally:
        shutil.rmtree(partial)


def _place(fetched: Path, folder: Path, artifacts: Mapping[Library, str]) -> None:
    """Make the folder of a set, in one step."""
    complete = fetched / folder.name
    (complete / "jars").mkdir(parents=True)
    for library in artifacts:
        os.link(fetched / "jars" / library.file_name, complete / "jars" / library.file_name)
    (complete / MARKER).write_text(section(folder.name, artifacts))
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(complete, folder)


def _verify(jars: Path, pinned: Mapping[Library, str]) -> None:
    expected = {library.file_name: sha256 for library, sha256 in pinned.items()}
    found = {file.name: sha256_of(file) for file in jars.iterdir()}
    for name in sorted(expected.keys() | found.keys()):
        if found.get(name) != expected.get(name):
            raise WrongHashError(
                f"{name} from Maven Central has SHA-256 {found.get(name, '(not fetched)')},"
                f" {LOCK.name} expects {expected.get(name, '(no such file)')}"
            )


def run_ivy(folder: Path) -> str | None:
    """Fetch what `folder`/ivy.xml names into `folder`/jars; return a line about what went wrong, or None."""
    ivy = next(pyspark_jars().glob("ivy-*.jar"))
    # fmt: off
    command = [
        str(java_executable()), *SHORT_LIVED, "-jar", str(ivy), "-warn",
        "-settings", str(folder / "ivysettings.xml"),
        "-ivy", str(folder / "ivy.xml"),
        "-cache", str(folder / "ivy-cache"),
        "-retrieve", str(folder / "jars" / "[artifact]-[revision].[ext]"),
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


def ivy_module(
    name: str, libraries: Iterable[Library], *, is_transitive: bool, excluded: Iterable[tuple[str, str]] = ()
) -> str:
    """Return the ivy.xml of a module that needs `libraries`; if it is transitive, one version of each."""
    dependencies = "".join(
        f"<dependency org={quoteattr(library.organisation)} name={quoteattr(library.module)}"
        f' rev={quoteattr(library.revision)} conf="default" transitive="{str(is_transitive).lower()}"/>'
        for library in libraries
    )
    exclusions = "".join(f"<exclude org={quoteattr(org)} module={quoteattr(module)}/>" for org, module in excluded)
    conflicts = "" if is_transitive else '<conflict manager="all"/>'
    return (
        f'<ivy-module version="2.0"><info organisation="milena" module={quoteattr(name)}/>'
        f"<dependencies>{dependencies}{exclusions}{conflicts}</dependencies></ivy-module>"
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file, which one process at a time can do."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
