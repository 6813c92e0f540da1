"""Where this machine has what a ZooKeeper server needs: a `java` command, and ZooKeeper's jars.

Owns where they are searched, and the command line of a server. Must not know how a server is supervised.
"""

import importlib.util
import os
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_HEAP_OPTIONS: Final = "-Xmx512M"
_SERVER_JAR: Final = "zookeeper-[0-9]*.jar"
# Other brands of logging ignore it: ZooKeeper's own distribution has a file of settings in its folder `conf`.
_LOG_OPTION: Final = "-Dlog4j2.level=INFO"


class NoZooKeeperError(Exception):
    """A ZooKeeper server cannot be started here; the text says what is missing and how to get it."""


def server_command(settings: Path, variables: Mapping[str, str] = os.environ) -> list[str]:
    """Return the command line of a ZooKeeper server. Raises NoZooKeeperError."""
    heap = shlex.split(variables.get("KAFKA_HEAP_OPTS") or _HEAP_OPTIONS)
    return [_java(variables), *heap, _LOG_OPTION, "-cp", _class_path(variables), MAIN_CLASS, str(settings)]


def _java(variables: Mapping[str, str]) -> str:
    home = variables.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else variables.get("PATH", os.defpath))
    if found is None:
        where = f"JAVA_HOME={home} has none" if home else "PATH has none"
        raise NoZooKeeperError(
            f"ZooKeeper needs a java command of version 8 or newer, and {where}: install openjdk-17-jre-headless or "
            f"set JAVA_HOME. {_ALTERNATIVE}"
        )
    return found


def _class_path(variables: Mapping[str, str]) -> str:
    home = variables.get("ZOOKEEPER_HOME")
    if home:
        for jars in (Path(home, "lib"), Path(home)):
            if any(jars.glob(_SERVER_JAR)):
                return os.pathsep.join((str(Path(home, "conf")), f"{jars}/*"))
        raise NoZooKeeperError(f"ZOOKEEPER_HOME={home} has no lib/zookeeper-*.jar; expected an unpacked ZooKeeper")
    spec = importlib.util.find_spec("pyspark")  # not imported, which is slow
    if spec is not None and spec.origin is not None:
        jars = Path(spec.origin).parent / "jars"
        if any(jars.glob(_SERVER_JAR)):
            return f"{jars}/*"
    raise NoZooKeeperError(
        "There is no ZooKeeper here: set ZOOKEEPER_HOME to an unpacked apache-zookeeper-*-bin.tar.gz of "
        "https://zookeeper.apache.org/releases.html, or run bin/spark-job flights_produce --help once, which installs "
        f"pyspark with ZooKeeper's jars. {_ALTERNATIVE}"
    )


_ALTERNATIVE: Final = "A single broker needs no ZooKeeper: without zookeeper.connect it stores its metadata itself."
