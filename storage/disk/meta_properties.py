"""`meta.properties`: which broker of which cluster a log directory belongs to.

Owns its format and the check at start. A directory of another broker is a mistake of the operator, so its file is never
overwritten: writing to it could lose data. Must not know logs.
"""

from typing import Final, NamedTuple

from base.properties import parse
from storage.disk.files import Files

_KRAFT_VERSION: Final = "1"


class WrongDirectoryError(Exception):
    """The directory belongs to another broker or cluster, or its owner is unknown. The message contains the path."""


class MetaProperties(NamedTuple):
    """The owner of a directory. Files of early releases lack the cluster, or both; a start completes them."""

    broker_id: int | None
    cluster_id: str | None

    @property
    def is_complete(self) -> bool:
        return self.broker_id is not None and self.cluster_id is not None


def read(files: Files, path: str) -> MetaProperties | None:
    """Return the content, None if the file does not exist. Raises WrongDirectoryError if it is malformed."""
    try:
        text = files.read_whole(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    properties = parse(text)
    if properties.get("version") == _KRAFT_VERSION:
        raise WrongDirectoryError(
            f"{path}: version is 1: the directory belongs to a node of KRaft; metadata-copy --from-kraft converts it"
        )
    if properties.get("version") != "0":
        raise WrongDirectoryError(f'{path}: version is "{properties.get("version", "")}", expected 0')
    broker_id = properties.get("broker.id")
    if broker_id is not None and not broker_id.isdecimal():
        raise WrongDirectoryError(f'{path}: broker.id is "{broker_id}", expected a number')
    return MetaProperties(None if broker_id is None else int(broker_id), properties.get("cluster.id") or None)


def write(files: Files, path: str, meta: MetaProperties) -> None:
    """Replace the file durably. `meta` must be complete."""
    text = f"version=0\nbroker.id={meta.broker_id}\ncluster.id={meta.cluster_id}\n"
    files.replace(path, text.encode(), durable=True)


def verify(found: MetaProperties, path: str, *, broker_id: int | None, cluster_id: str | None) -> None:
    """Raise WrongDirectoryError unless `found` has the expected ids; an id of None matches any."""
    if None not in (broker_id, found.broker_id) and found.broker_id != broker_id:
        raise WrongDirectoryError(f"{path}: broker.id is {found.broker_id}, expected {broker_id}")
    if None not in (cluster_id, found.cluster_id) and found.cluster_id != cluster_id:
        raise WrongDirectoryError(f'{path}: cluster.id is "{found.cluster_id}", expected "{cluster_id}"')
