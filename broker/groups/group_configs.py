"""The settings of single groups of the consumer protocol, and of single share groups.

Owns what is set of each group. Must not know where it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from config.broker import BrokerConfig
from config.definition import ConfigError, Property
from controller.tree.paths import GROUPS_TYPE
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.groups.machine.consumer.events import Timeouts
    from broker.share.terms import ShareTerms


class GroupConfigs:
    """What is set of groups, over the settings of a broker."""

    entity_type = GROUPS_TYPE

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.settings: dict[str, Mapping[str, str]] = {}
        """The texts that were set, by name, of each group that has one."""
        self._timeouts: dict[str | None, Timeouts] = {}
        self._share_terms: dict[str | None, ShareTerms] = {}

    def timeouts(self, group_id: str) -> Timeouts:
        """Return the session timeout and heartbeat interval of a group."""
        key = group_id if group_id in self.settings else None
        found = self._timeouts.get(key)
        if found is None:
            found = self._timeouts[key] = self._computed(self.settings.get(group_id, {}))
        return found

    def share_timeouts(self, group_id: str) -> Timeouts:
        """Return the session timeout and heartbeat interval of a share group."""
        from broker.groups.machine.consumer.events import Timeouts  # on demand: no start needs it

        terms = self.share_terms(group_id)
        return Timeouts(terms.session_timeout_ms, terms.heartbeat_interval_ms)

    def share_terms(self, group_id: str) -> ShareTerms:
        """Return what is set of a share group."""
        key = group_id if group_id in self.settings else None
        found = self._share_terms.get(key)
        if found is None:
            from broker.share.terms import share_terms  # few brokers have share groups

            found = self._share_terms[key] = share_terms(self._config, self.settings.get(group_id, {}))
        return found

    def _computed(self, settings: Mapping[str, str]) -> Timeouts:
        from broker.groups.machine.consumer.events import Timeouts  # on demand: no start needs it
        from config.group import CONSUMER_HEARTBEAT_INTERVAL_MS, CONSUMER_SESSION_TIMEOUT_MS, value_of_group

        return Timeouts(
            value_of_group(self._config, settings, CONSUMER_SESSION_TIMEOUT_MS),
            value_of_group(self._config, settings, CONSUMER_HEARTBEAT_INTERVAL_MS),
        )

    def properties(self) -> Mapping[str, Property[object]]:
        from config.group import GROUP_PROPERTIES  # on demand, as above

        return GROUP_PROPERTIES

    def check(self, name: str, settings: Mapping[str, str]) -> None:
        """Raises KafkaError: INVALID_REQUEST for an empty name, INVALID_CONFIG for a setting or a value."""
        from config.group import group_problems  # on demand, as above

        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        try:
            problem = next(group_problems(self._config, settings), None)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, problem)

    def apply(self, name: str, settings: Mapping[str, str]) -> None:
        """Take over what is set of a group. Raises KafkaError as `check`."""
        if settings:
            self.check(name, settings)
            self.settings[name] = settings
        else:
            self.settings.pop(name, None)
        self._timeouts.pop(name, None)
        self._share_terms.pop(name, None)
