"""The plug-ins of `create.topic.policy.class.name` (KIP-108) and `alter.config.policy.class.name` (KIP-133).

A policy is a Python class without arguments. It has `validate(request)`, and may have `configure(settings)`, which gets
the settings of the broker's file, and `close()`. `validate` rejects a request by raising `PolicyViolation`; clients get
POLICY_VIOLATION with its text. Any other exception is logged and rejects the request with UNKNOWN_SERVER_ERROR.

Owns what policies are given, and what their exceptions mean. Must not know which request calls them. Policies run on
the event loop, so they must not wait for anything.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from base.dataclass import dataclass
from broker.settings.plug_ins import configured_plug_in
from config import broker_properties as rows
from config.broker import BrokerConfig
from config.definition import Property
from controller.machine.model import ReplicaAssignment
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics import CreatableTopic

logger = logging.getLogger("kafka.server.Policies")


class PolicyViolation(Exception):  # noqa: N818 - Kafka's name
    """Raised by a policy to reject a request. Its text is the error message for the client."""


@dataclass(frozen=True, slots=True)
class NewTopicRequest:
    """What a policy for new topics is given, after all other checks."""

    topic: str
    num_partitions: int | None
    """None if the client assigned the replicas."""
    replication_factor: int | None
    """None if the client assigned the replicas."""
    replicas_assignments: Mapping[int, Sequence[int]] | None
    """The broker ids of each partition, if the client assigned them."""
    configs: Mapping[str, str]
    """The overrides as the client sent them."""


@dataclass(frozen=True, slots=True)
class ConfigRequest:
    """What a policy for changes of configuration is given, after all other checks."""

    resource_type: str
    """`TOPIC` or `BROKER`."""
    resource_name: str
    """Empty for the defaults of all brokers."""
    configs: Mapping[str, str | None]
    """The values that the client sent, without settings that the request does not name. Deleted ones have None."""


class Policies:
    """The policies of one broker. A policy that is not set allows everything."""

    def __init__(self, config: BrokerConfig) -> None:
        """Raises InvalidPlugInError."""
        self._create_topic = _new_policy(config, rows.CREATE_TOPIC_POLICY_CLASS_NAME)
        self._alter_config = _new_policy(config, rows.ALTER_CONFIG_POLICY_CLASS_NAME)

    def check_new_topic(self, topic: CreatableTopic, planned: Mapping[int, ReplicaAssignment]) -> None:
        """Raise KafkaError if the policy rejects `topic`; `planned` has the replicas of each partition."""
        if self._create_topic is None:
            return
        is_assigned = bool(topic.assignments)
        _validate(
            self._create_topic,
            NewTopicRequest(
                topic.name,
                None if is_assigned else len(planned),
                None if is_assigned else len(planned[0].replicas),
                {number: list(one.replicas) for number, one in planned.items()} if is_assigned else None,
                {config.name: config.value for config in topic.configs if config.value is not None},
            ),
        )

    def check_change(self, resource_type: str, resource_name: str, configs: Mapping[str, str | None]) -> None:
        """Raise KafkaError if the policy rejects a change of the named settings."""
        if self._alter_config is not None:
            _validate(self._alter_config, ConfigRequest(resource_type, resource_name, configs))

    def close(self) -> None:
        """Close the policies. One that fails to close is logged."""
        for policy in filter(None, (self._create_topic, self._alter_config)):
            try:
                if hasattr(policy, "close"):
                    policy.close()
            except Exception:
                logger.exception("the policy %s cannot be closed", type(policy).__qualname__)


def _new_policy(config: BrokerConfig, row: Property[str | None]) -> Any:
    name = config[row]
    return configured_plug_in(config, row, name, "validate") if name else None


def _validate(policy: Any, request: NewTopicRequest | ConfigRequest) -> None:
    try:
        policy.validate(request)
    except PolicyViolation as violation:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, str(violation)) from violation
    except Exception as error:
        name = type(policy).__qualname__
        logger.exception("the policy %s failed, and the request is rejected", name)
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The policy {name} failed, see the broker's log.") from error
