"""Finds Java and its class paths, and starts Java programs.

Owns: finding the `java` command and pyspark's bundled jars (which hold ZooKeeper and Ivy), compiling a program, and
putting a command line together. Must not know: what the programs are. If Java is missing, tests
raise `UnavailableError`, whose text says how to install it; `tests/support/parts.py` turns it into a skip or,
in CI, a failure.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

JAVA_VERSION_MIN = 17
HOW_TO_GET_IT = (
    f"install openjdk-{JAVA_VERSION_MIN}-jdk-headless, or set JAVA_HOME to a JDK {JAVA_VERSION_MIN} or newer"
)
UNVERIFIED = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
"""Options of a JVM that loads its classes without verifying them, which takes a tenth of the processor time of a start.

The jars are pinned by their hashes. The classes of an archive were verified when it was made.
"""

SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *UNVERIFIED)
"""Options of a JVM for a program of seconds: the optimizing compiler and threads of a collector would not pay off."""


class UnavailableError(Exception):
    """Something outside the project is missing on this machine; the text says how to get it."""


@cache
def java_executable() -> Path:
    """Return the `java` of JAVA_HOME or of the PATH. Raises UnavailableError unless it is a JDK and new enough."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        raise UnavailableError(f"needs a JDK {JAVA_VERSION_MIN}, and there is no java: {HOW_TO_GET_IT}")
    report = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', report)
    if version is None or int(version[1]) < JAVA_VERSION_MIN:
        what = report.partition("\n")[0]
        raise UnavailableError(f"needs a JDK {JAVA_VERSION_MIN}, and {found} is {what}: {HOW_TO_GET_IT}")
    # A JRE has the command and not the compiler.
    described = subprocess.run([found, "--describe-module", "jdk.compiler"], capture_output=True, check=False)
    if described.returncode:
        raise UnavailableError(f"needs a JDK {JAVA_VERSION_MIN}, and {found} is a JRE: {HOW_TO_GET_IT}")
    return Path(found)


@cache
def pyspark_jars() -> Path:
    """Return the folder of jars in the installed pyspark, without importing pyspark, which is slow."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise UnavailableError("needs pyspark's jars: pip install 'milena-broker[dev]'")
    return Path(spec.origin).parent / "jars"


Javac = Callable[[Sequence[str]], tuple[int, str]]
"""Runs the compiler with arguments; returns its exit status and its messages."""


def _javac(arguments: Sequence[str]) -> tuple[int, str]:
    """Run the compiler in a JVM of its own."""
    command = [str(java_executable()), *SHORT_LIVED, "-m", "jdk.compiler/com.sun.tools.javac.Main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def compiled(source: Path, libraries: Path | None, classes: Path, javac: Javac = _javac) -> Path:
    """Return the folder below `classes` with a compiled `.java` file; compiles it if it is new or has changed.

    Compiling takes longer than most programs run, and several test runs may want the same one at a time.

    Args:
        libraries: a folder of jars that the program uses; None for none.
        javac: runs the compiler; see `Javac`.
    """
    folder = classes / f"{source.stem}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    if folder.exists():
        return folder
    classes.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix="partial-", dir=classes))
    jars = libraries.glob("*.jar") if libraries else ()
    classpath = os.pathsep.join(map(str, jars))  # no wildcard: the compiler, run as a module, does not support it
    release = ("--release", str(JAVA_VERSION_MIN), "-proc:none")
    status, complaints = javac([*release, "-cp", classpath, "-d", str(partial), str(source)])
    if status:
        shutil.rmtree(partial)
        raise RuntimeError(f"{source} does not compile:\n{complaints}")
    try:
        partial.rename(folder)
    except OSError:  # another run was first
        shutil.rmtree(partial)
    return folder


def java_command(
    classpath: Iterable[Path | str],
    main: str,
    arguments: Iterable[str] = (),
    *,
    options: Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
) -> list[str]:
    """Return a command line; `main` is a class name. The program's temporary files are where those of the tests are."""
    properties = {"java.io.tmpdir": tempfile.gettempdir(), **(properties or {})}
    defines = [f"-D{name}={value}" for name, value in properties.items()]
    return [
        str(java_executable()),
        *options,
        *defines,
        "-cp",
        os.pathsep.join(str(entry) for entry in classpath),
        main,
        *arguments,
    ]
