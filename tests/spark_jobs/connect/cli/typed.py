"""A folder in which the lines of a quick start or a book are typed unchanged, as in a folder of Kafka."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.broker import ROOT
from tests.support.commands import output_of

TIMEOUT_S = 60
CONFIGS = (
    "connect-standalone.properties", "connect-distributed.properties", "connect-file-source.properties",
    "connect-file-sink.properties", "server.properties",
)  # fmt: skip


class KafkaFolder:
    """`bin` and `config` as in a clone. `ports` has, for each port in a typed line, the one that it stands for here."""

    def __init__(self, folder: Path, ports: Mapping[int, int]) -> None:
        self.folder = folder
        self._ports = ports
        folder.mkdir(exist_ok=True)
        (folder / "bin").symlink_to(ROOT / "bin")
        (folder / "config").mkdir()
        for name in CONFIGS:
            shutil.copy(ROOT / "config" / name, folder / "config")
            self._replace(folder / "config" / name)
        rest_port = ports[8083]
        for name in CONFIGS[:2]:
            self.append(name, {"listeners": f"http://127.0.0.1:{rest_port}", "offset.flush.interval.ms": "100"})
        self.append(CONFIGS[0], {"offset.storage.file.filename": str(folder / "connect.offsets")})

    def append(self, name: str, settings: Mapping[str, str]) -> None:
        """Add settings to a file of `config`."""
        with (self.folder / "config" / name).open("a") as file:
            file.write("".join(f"\n{key}={value}" for key, value in settings.items()) + "\n")

    def type(self, line: str) -> str:
        """Run a line in the shell; return its output. Fails if it does."""
        return output_of(["bash", "-c", self._here(line)], self.folder, {"PYTHONPATH": str(ROOT)}, TIMEOUT_S)

    @contextmanager
    def in_background(self, line: str, environment: Mapping[str, str] | None = None) -> Iterator[None]:
        """Run a line until the end of the block; then it gets SIGTERM, and has to end without an error."""
        with (self.folder / "output").open("ab") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {self._here(line)}"],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
                stdout=output,
                stderr=output,
            )
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT_S)
        assert process.returncode == 0, (self.folder / "output").read_text()

    def _here(self, line: str) -> str:
        for typed, port in self._ports.items():
            line = line.replace(f"localhost:{typed}", f"127.0.0.1:{port}")
        return line

    def _replace(self, path: Path) -> None:
        path.write_text(self._here(path.read_text()))
