"""Where Java and its class paths are, and how a Java program is started.

Owns: finding the `java` command and pyspark's bundled jars (which hold ZooKeeper and Ivy), and putting a command line
together. Must not know: what the programs are. Tests that need Java and do not find it say so through
`UnavailableError`, whose text tells a person how to get it; `tests/support/parts.py` turns that into a skip or, in CI,
a failure.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

JAVA_VERSION_MIN = 17


class UnavailableError(Exception):
    """Something outside the project is missing on this machine; the text says how to get it."""


@cache
def java_executable() -> Path:
    """The `java` of JAVA_HOME or of the PATH, checked to be new enough."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        raise UnavailableError(f"needs Java {JAVA_VERSION_MIN}: install openjdk-{JAVA_VERSION_MIN}-jdk-headless")
    report = subprocess.run([found, "-version"], capture_output=True, text=True, check=True).stderr
    version = re.search(r'version "(\d+)', report)
    if version is None or int(version[1]) < JAVA_VERSION_MIN:
        raise UnavailableError(f"needs Java {JAVA_VERSION_MIN} or newer, {found} is: {report.splitlines()[0]}")
    return Path(found)


@cache
def pyspark_jars() -> Path:
    """The folder of jars inside the installed pyspark; found without importing pyspark, which is slow."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise UnavailableError("needs pyspark's jars: pip install 'milena[dev]'")
    return Path(spec.origin).parent / "jars"


def java_command(
    classpath: Iterable[Path | str],
    main: str,
    arguments: Iterable[str] = (),
    *,
    options: Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
) -> list[str]:
    """A command line; `main` is a class name, or the path of a single `.java` source file that runs uncompiled."""
    defines = [f"-D{name}={value}" for name, value in (properties or {}).items()]
    return [
        str(java_executable()),
        *options,
        *defines,
        "-cp",
        os.pathsep.join(str(entry) for entry in classpath),
        main,
        *arguments,
    ]
