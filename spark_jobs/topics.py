"""Makes sure that a job's topics are there before Spark looks for them.

Spark's source fails on a topic that is missing and its sink lets the broker auto-create one with default
settings, which is wrong for an output that must be compacted; so topics are made here, with the settings that
the job needs, or waited for.

Owns the waiting and the making. Must not know which topics a job has.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

_LOG = logging.getLogger(__name__)

_REQUEST_TIMEOUT_S = 30
_POLL_INTERVAL_S = 1
_POLLS_BETWEEN_WARNINGS = 30


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic that a job needs, and how to make it."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)


def create_topics(bootstrap_servers: str, specs: list[TopicSpec]) -> None:
    """Makes those of `specs` that do not exist; an existing topic is left as it is.

    Raises KafkaException with the broker's reason when one cannot be made.
    """
    admin = _admin(bootstrap_servers)
    missing = [spec for spec in specs if spec.name in _missing(admin, specs)]
    if not missing:
        return
    requests = [
        NewTopic(spec.name, spec.partitions, spec.replication_factor, config=dict(spec.config)) for spec in missing
    ]
    for future in admin.create_topics(requests, operation_timeout=_REQUEST_TIMEOUT_S).values():
        future.result()


def wait_for_topics(bootstrap_servers: str, specs: list[TopicSpec]) -> None:
    """Returns once all of `specs` exist; until then says which do not."""
    admin = _admin(bootstrap_servers)
    polls = 0
    while missing := _missing(admin, specs):
        if polls % _POLLS_BETWEEN_WARNINGS == 0:
            _LOG.warning("waiting for missing topics: %s (--create-topics makes them)", ", ".join(sorted(missing)))
        polls += 1
        time.sleep(_POLL_INTERVAL_S)


def _admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers})


def _missing(admin: AdminClient, specs: list[TopicSpec]) -> set[str]:
    # All topics are listed: asking for one by name would let the broker auto-create it.
    try:
        present = admin.list_topics(timeout=_REQUEST_TIMEOUT_S).topics
    except KafkaException as error:
        raise ConnectionError(f"no broker answered: {error.args[0].str()}") from error
    return {spec.name for spec in specs if spec.name not in present}
