"""The Java that runs Spark: the one of JAVA_HOME, otherwise the first of the PATH, as Spark's own scripts choose it."""

import os
import shutil
from pathlib import Path

from spark_jobs.skeleton.errors import JobError

_INSTALL = "install a JDK 17 or newer"


def java_command() -> str:
    """Return the path of the program. Raises JobError if there is none: Spark would report it in pages of traces."""
    home = os.environ.get("JAVA_HOME")
    if not home:
        found = shutil.which("java")
        if found is None:
            raise JobError(f"java is missing: {_INSTALL}, or set JAVA_HOME")
        return found
    command = Path(home) / "bin" / "java"
    if shutil.which(command) is None:
        raise JobError(f"JAVA_HOME: {command} is not a program: {_INSTALL}, and set JAVA_HOME to its folder")
    return str(command)
