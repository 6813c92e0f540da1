"""Regenerates the tables of Java libraries: resolves each set on Maven Central, and records every SHA-256.

    python -m tests.support.lock_libraries

must run after the coordinates of a set have changed. It writes `libraries.lock` for tests and bench, and
`spark_jobs/skeleton/java_runtime/connector.sha256` for the jars of Spark's connectors. Review the difference before you
commit it.
"""

from __future__ import annotations

import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path

from spark_jobs.skeleton.java_runtime.pinned_jars import TABLE
from spark_jobs.skeleton.session import CONNECTORS, EXCLUDED
from tests.support.apache_kafka import library_sets
from tests.support.ivy import LOCK, Library, ivy_module, run_ivy, section, sha256_of
from tests.support.jdbc_driver import DRIVERS

# Ivy checks the SHA-1 that Maven Central publishes beside every file.
SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""
HEADER = """# Every Java library that tests and bench fetch from Maven Central: its SHA-256 and its coordinates, by set.
# Made by: python -m tests.support.lock_libraries
"""


def resolved(
    name: str, libraries: Sequence[Library], excluded: Sequence[tuple[str, str]] = ()
) -> Mapping[Library, str]:
    """Return every artifact that `libraries` need, with its SHA-256. Raises RuntimeError."""
    with tempfile.TemporaryDirectory(prefix="lock-libraries-") as temporary:
        folder = Path(temporary)
        (folder / "jars").mkdir()
        (folder / "ivysettings.xml").write_text(SETTINGS)
        (folder / "ivy.xml").write_text(ivy_module(name, libraries, is_transitive=True, excluded=excluded))
        if problem := run_ivy(folder):
            raise RuntimeError(f"{name} cannot be resolved: {problem}")
        report = ET.parse(folder / "ivy-cache" / f"milena-{name}-default.xml").getroot()
        found = [
            Library(module.attrib["organisation"], module.attrib["name"], revision.attrib["name"])
            for module in report.iter("module")
            for revision in module.iter("revision")
            if revision.find("artifacts/artifact") is not None
        ]
        artifacts = {library: sha256_of(folder / "jars" / library.file_name) for library in found}
        assert len(artifacts) == len(list((folder / "jars").iterdir()))
        return artifacts


def main() -> None:
    sections = []
    for name, libraries in {**library_sets(), **DRIVERS}.items():
        print(name, flush=True)
        sections.append(section(name, resolved(name, libraries)))
    LOCK.write_text(HEADER + "\n" + "\n".join(sections))
    print(*CONNECTORS, flush=True)
    excluded = [(organisation, module) for organisation, _, module in (each.partition(":") for each in EXCLUDED)]
    connector = resolved("spark-connector", [Library(*each.split(":")) for each in CONNECTORS], excluded)
    # Spark names a jar after its coordinates.
    lines = sorted(f"{sha256}  {library.organisation}_{library.file_name}\n" for library, sha256 in connector.items())
    TABLE.write_text("".join(lines))


if __name__ == "__main__":
    main()
