"""The jars of Spark's connectors: fetched once from Maven Central, and compared with the hashes in this project.

The table `connector.sha256` lists every jar with its SHA-256, in the format of sha256sum(1); a jar is named
ORGANISATION_MODULE-VERSION.jar, as Spark names it. Ivy, which pyspark ships, fetches the jars that are missing. Spark
could do that too (spark.jars.packages), but it prints twenty lines at each start and resolves the versions again.

Owns the table and the folder of the jars. Must not know the session that uses them.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from spark_jobs.skeleton.java_runtime.java_command import java_command

TABLE = Path(__file__).with_name("connector.sha256")
_SETTINGS = Path(__file__).with_name("ivysettings.xml")
_FETCH_TIMEOUT_S = 600


class PinnedJarError(Exception):
    """A jar cannot be fetched, or is not the one that this project was tested with."""


def pinned_jars(folder: Path, table: Path = TABLE) -> list[Path]:
    """Return the jars of the table in `folder`; fetches the missing ones.

    Raises PinnedJarError, which names the file and both hashes, or what Ivy reported; JobError without Java.
    """
    pinned = _read(table)
    jars = [folder / name for name in pinned]
    if missing := [jar.name for jar in jars if not jar.exists()]:
        print(f"Fetching {len(missing)} jars of Spark's connectors from Maven Central into {folder}", file=sys.stderr)
        _fetch(missing, folder)
    for jar in jars:
        _verify(jar, pinned[jar.name], table)
    return jars


def _verify(jar: Path, expected: str, table: Path) -> None:
    with jar.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != expected:
        raise PinnedJarError(f"{jar} has SHA-256 {found}, {table.name} expects {expected}; remove the file")


def _fetch(names: Iterable[str], folder: Path) -> None:
    """Let Ivy fetch the jars into a temporary folder, then move each to its place in one step."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="partial-", dir=folder) as temporary:
        partial = Path(temporary)
        (partial / "ivy.xml").write_text(_module(names), encoding="utf-8")
        # fmt: off
        command = [
            java_command(), "-jar", str(_ivy()), "-warn",
            "-settings", str(_SETTINGS),
            "-ivy", str(partial / "ivy.xml"),
            "-cache", str(partial / "cache"),
            "-retrieve", str(partial / "[organisation]_[artifact]-[revision].[ext]"),
            "-types", "jar", "bundle",
        ]
        # fmt: on
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise PinnedJarError(f"Maven Central did not respond within {_FETCH_TIMEOUT_S} s") from None
        fetched = {jar.name: jar for jar in partial.glob("*.jar")}
        for name in names:
            if name not in fetched:
                lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
                raise PinnedJarError(
                    f"{name} cannot be fetched from Maven Central: {lines[-1] if lines else 'no output'}"
                )
            os.replace(fetched[name], folder / name)


def _module(names: Iterable[str]) -> str:
    """Return the ivy.xml that names exactly these jars and nothing that they depend on."""
    dependencies = []
    for name in names:
        organisation, _, rest = name.removesuffix(".jar").partition("_")
        module, _, revision = rest.rpartition("-")
        dependencies.append(
            f'<dependency org="{organisation}" name="{module}" rev="{revision}" conf="default" transitive="false"/>'
        )
    return (
        '<ivy-module version="2.0"><info organisation="milena" module="connectors"/>'
        f"<dependencies>{''.join(dependencies)}</dependencies></ivy-module>"
    )


def _ivy() -> Path:
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    return next((Path(pyspark.origin).parent / "jars").glob("ivy-*.jar"))


def _read(table: Path) -> Mapping[str, str]:
    lines = (line.split() for line in table.read_text(encoding="utf-8").splitlines())
    return {name: sha256 for sha256, name in lines}
