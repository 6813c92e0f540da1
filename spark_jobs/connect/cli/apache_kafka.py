"""`--java`: Apache Kafka's own worker in the place of Milena's, from the Kafka that KAFKA_HOME names.

It is for connectors that exist only in Java. Topics and files are the same, so that either continues where the other
one has stopped.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

from spark_jobs.connect.base.errors import ConfigError

JAVA: Final = "--java"
HOME: Final = "KAFKA_HOME"


def run_apache_kafka(name: str, arguments: Sequence[str], variables: Mapping[str, str] = os.environ) -> NoReturn:
    """Replace this process by the script of that name, with the arguments but `--java`. Raises ConfigError."""
    home = variables.get(HOME)
    if not home:
        raise ConfigError(f"{JAVA} needs {HOME}: expected the folder of an unpacked Apache Kafka, with its Java")
    script = Path(home).absolute() / "bin" / f"{name}.sh"
    try:
        os.execv(script, [str(script), *(each for each in arguments if each != JAVA)])
    except OSError as error:
        raise ConfigError(f"{HOME}={home} is no unpacked Apache Kafka: {script}: {error.strerror}") from error
