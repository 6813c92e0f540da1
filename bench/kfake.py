"""franz-go's kfake as a process with its data on disk: `bench/go/main.go`, built with the Go of this machine.

Owns the build and the start. Must not know what is measured.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.java import UnavailableError
from tests.support.metadata_probe import is_serving
from tests.support.processes import ServerProcess

SOURCES = Path(__file__).with_name("go")
PROGRAMS = Path(__file__).parent.parent / ".cache" / "go"
BUILD_TIMEOUT_S = 600.0


class KfakeProcess(ServerProcess):
    """One broker on 127.0.0.1 with all files below `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        data = folder / "data"
        self.log_dir = data / "partitions"
        settings = folder / "kfake.properties"
        super().__init__(
            "kfake",
            [str(kfake_program()), str(settings)],
            folder / "kfake.log",
            is_serving,
            settings=settings,
            properties=lambda port: {"port": str(port), "data.dir": str(data)},
        )


def kfake_program() -> Path:
    """Return the program; builds it if it is new or has changed. Raises UnavailableError."""
    digest = hashlib.sha256(b"".join((SOURCES / name).read_bytes() for name in ("main.go", "go.mod", "go.sum")))
    program = PROGRAMS / f"kfake-{digest.hexdigest()[:16]}"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise UnavailableError(
            "kfake needs Go, and there is no go in PATH: install the version that bench/go/go.mod names"
        )
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PROGRAMS) as folder:
        built = Path(folder) / "kfake"
        command = [go, "build", "-o", str(built), "."]
        try:
            done = subprocess.run(
                command, cwd=SOURCES, capture_output=True, text=True, check=False, timeout=BUILD_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"kfake was not built within {BUILD_TIMEOUT_S:g} s") from None
        if done.returncode:
            raise UnavailableError(f"kfake cannot be built: {done.stderr.strip()[-1000:]}")
        os.replace(built, program)
    return program
