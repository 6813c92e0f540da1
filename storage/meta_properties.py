"""`meta.properties`: which broker of which cluster a log directory belongs to.

Owns its format and the check at start. Nothing is ever overwritten: a directory of another broker is a mistake of the
operator, and writing into it would make it a loss of data. Must not know logs.
"""

from typing import NamedTuple

from config.properties import parse
from storage.files import Files


class WrongDirectoryError(Exception):
    """The directory belongs to somebody else, or does not say to whom. Names the path and both values."""


class MetaProperties(NamedTuple):
    broker_id: int
    cluster_id: str


def read(files: Files, path: str) -> MetaProperties | None:
    """None when there is none yet. Raises WrongDirectoryError when it is not understood."""
    try:
        text = files.read_whole(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    properties = parse(text)
    if properties.get("version") != "0":
        raise WrongDirectoryError(f'{path}: version is "{properties.get("version", "")}", expected 0')
    broker_id = properties.get("broker.id", "")
    if not broker_id.isdecimal() or not properties.get("cluster.id"):
        raise WrongDirectoryError(
            f'{path}: broker.id is "{broker_id}", expected a number, and cluster.id must be given'
        )
    return MetaProperties(int(broker_id), properties["cluster.id"])


def write(files: Files, path: str, meta: MetaProperties) -> None:
    text = f"version=0\nbroker.id={meta.broker_id}\ncluster.id={meta.cluster_id}\n"
    files.replace(path, text.encode(), durable=True)


def verify(found: MetaProperties, path: str, *, broker_id: int | None, cluster_id: str | None) -> None:
    """Raises WrongDirectoryError unless what was found agrees with what is expected; None expects nothing."""
    if broker_id is not None and found.broker_id != broker_id:
        raise WrongDirectoryError(f"{path}: broker.id is {found.broker_id}, expected {broker_id}")
    if cluster_id is not None and found.cluster_id != cluster_id:
        raise WrongDirectoryError(f'{path}: cluster.id is "{found.cluster_id}", expected "{cluster_id}"')
