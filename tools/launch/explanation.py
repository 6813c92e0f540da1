"""Why a broker does not start, or why a client is stuck: the first cause that is found, and the next command.

Asks in the order in which a start or a client meets its obstacles, and changes nothing.

Owns the order and the texts. Must not know how a tool prints them.
"""

from __future__ import annotations

import argparse
import errno
import os
import pwd
import shlex
import socket
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from config.broker import BrokerConfig
from config.broker_properties import BROKER_ID, ZOOKEEPER_CONNECT
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from storage.disk.files import OsFiles
from storage.disk.names import LOCK
from tools.base.command_line import UnreachableError, UsageError, wrapped
from tools.client.admin_client import AdminClient, CallTimedOut
from tools.client.admin_options import admin_client
from tools.client.bootstrap import Endpoint, parse_bootstrap, require_reachable
from tools.launch.broker_config import SettingsError, read_broker_config
from tools.launch.running_servers import running_brokers

CONNECT_TIMEOUT_S = 1.0
CLIENT_TIMEOUT_MS = 4000
_EMPTY, _STABLE = "Empty", "Stable"


class Explanation(NamedTuple):
    """One paragraph: what is wrong, and the command to type next."""

    text: str
    next_command: str
    is_problem: bool = True

    def __str__(self) -> str:
        """Return the paragraph, with the command in a line of its own that can be copied."""
        return f"{wrapped(f'{self.text} Next:')}\n  {self.next_command}"


def explain_start(path: str) -> Explanation:
    """Return why a broker with these settings does not start. Raises UsageError if the file cannot be read."""
    name = shlex.quote(path)
    try:
        config = read_broker_config(path)
    except SettingsError as error:
        return Explanation(
            f"The broker does not start because of its settings: {str(error).splitlines()[0]}. Correct the file.",
            f"kafka-server-start --check {name}",
        )
    obstacles = chain(
        _setting_obstacles(config, name),
        _folder_obstacles(config),
        _address_obstacles(config, name),
        _zookeeper_obstacles(config),
    )
    return next(
        obstacles,
        Explanation(
            "Settings, log directories and addresses are usable, so nothing here keeps the broker from starting.",
            f"kafka-server-start {name}",
            is_problem=False,
        ),
    )


def explain_client(options: argparse.Namespace) -> Explanation:
    """Return why a client at `bootstrap_server` is stuck, with its `topic` and `group` if they are given.

    Raises UsageError.
    """
    at = f"--bootstrap-server {options.bootstrap_server}"
    if options.command_config is not None:
        at += f" --command-config {shlex.quote(options.command_config)}"
    try:
        with admin_client(options, timeout_ms=CLIENT_TIMEOUT_MS) as client:
            cluster = client.metadata(None)
            obstacles = chain(
                _advertised_obstacles(cluster),
                _topic_obstacles(cluster, options.topic, at),
                _group_obstacles(client, cluster, options.group, at),
            )
            found = next(obstacles, None)
    except UnreachableError as error:
        return _unreachable(str(error), f"kafka-topics --bootstrap-server {options.bootstrap_server}")
    except CallTimedOut as error:
        return Explanation(f"The address accepts connections and does not respond: {error}.", "kafka-check")
    except KafkaError as error:
        return Explanation(
            f"The broker refuses this client: {error.message}. Correct its login or its permissions.",
            f"kafka-acls {at} --list",
        )
    return found or Explanation(
        "The brokers respond at every address that they advertise, and what was asked for is available.",
        f"kafka-console-consumer {at} --topic {options.topic or 'TOPIC'} --from-beginning --timeout-ms 5000",
        is_problem=False,
    )


def _setting_obstacles(config: BrokerConfig, name: str) -> Iterator[Explanation]:
    from broker.setting_problems import setting_problems  # imports much of the broker

    for problem in setting_problems(config):
        yield Explanation(
            f"The broker does not start because of its settings: {problem}. Correct the file.",
            f"kafka-server-start --check {name}",
        )


def _folder_obstacles(config: BrokerConfig) -> Iterator[Explanation]:
    user = pwd.getpwuid(os.geteuid()).pw_name
    for text in config.log_dirs:
        folder = Path(text)
        existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
        if not existing.is_dir():
            yield Explanation(
                f"The log directory {folder} cannot be created: {existing} is a file.",
                f"ls -l {shlex.quote(str(existing))}",
            )
        elif not os.access(existing, os.W_OK | os.X_OK):
            yield Explanation(
                f"The log directory {folder} cannot be written by user {user}: {existing} belongs to another user.",
                f"sudo install -d -o {user} {shlex.quote(text)}",
            )
        elif (folder / LOCK).exists() and not _is_free(folder / LOCK):
            yield Explanation(
                f"The log directory {folder} is in use by a broker that runs already, and belongs to one broker.",
                _stop_command(config),
            )


def _is_free(lock: Path) -> bool:
    held = OsFiles().lock(str(lock))
    if held is None:
        return False
    held.close()
    return True


def _stop_command(config: BrokerConfig) -> str:
    ours = any(broker.broker_id == config[BROKER_ID] for broker in running_brokers())
    return f"kafka-server-stop --node-id {config[BROKER_ID]} --wait" if ours else "kafka-server-stop --wait"


def _address_obstacles(config: BrokerConfig, name: str) -> Iterator[Explanation]:
    for listener in config.listeners:
        failure = _bind_failure(listener.host, listener.port)
        if failure is None:
            continue
        address = Endpoint(listener.host, listener.port)
        if failure.errno == errno.EADDRINUSE:
            owner = next(
                (f"broker {it.broker_id}, process {it.pid}" for it in running_brokers() if _has(it.addresses, address)),
                "another process",
            )
            text = f"The address {address} of listener {listener.name} is in use by {owner}."
            command = (
                "kafka-server-stop --wait" if owner != "another process" else f"ss -ltnp 'sport = :{address.port}'"
            )
            yield Explanation(text, command)
        else:
            yield Explanation(
                f"The address {address} of listener {listener.name} cannot be bound: {failure.strerror or failure}. "
                "Name an address of this machine.",
                f"kafka-server-start --check {name}",
            )


def _bind_failure(host: str, port: int) -> OSError | None:
    if not port:
        return None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            attempt.bind(address)
            attempt.listen()
    except OSError as error:
        return error
    return None


def _has(addresses: Sequence[str], address: Endpoint) -> bool:
    return any(served.endswith(f":{address.port}") for served in addresses)


def _zookeeper_obstacles(config: BrokerConfig) -> Iterator[Explanation]:
    servers = config[ZOOKEEPER_CONNECT]
    if not servers:
        return
    try:
        require_reachable(parse_bootstrap(servers.partition("/")[0]), CONNECT_TIMEOUT_S)
    except (UnreachableError, UsageError):
        yield Explanation(
            f"No ZooKeeper server of zookeeper.connect={servers} accepts connections. Start it, or remove the setting: "
            "then one broker keeps its metadata itself.",
            "zookeeper-server-start config/zookeeper.properties",
        )


def _unreachable(reason: str, listing: str) -> Explanation:
    if "security.protocol" in reason:
        return Explanation(f"{reason}.", f"{listing} --command-config client.properties --list")
    served = sorted({address for broker in running_brokers() for address in broker.addresses})
    reason = reason if reason.endswith("?") else f"{reason}."
    if served:
        shown = ", ".join(served)
        command = f"kafka-topics --bootstrap-server {served[0].partition('://')[2]} --list"
        return Explanation(f"{reason} Brokers that run from this installation serve at {shown}.", command)
    return Explanation(f"{reason} No broker runs from this installation.", "kafka-server-start")


def _advertised_obstacles(cluster: MetadataResponse) -> Iterator[Explanation]:
    for broker in cluster.brokers:
        endpoint = Endpoint(broker.host, broker.port)
        try:
            require_reachable([endpoint], CONNECT_TIMEOUT_S)
        except UnreachableError:
            yield Explanation(
                f"Broker {broker.node_id} tells its clients to connect to {endpoint}, which does not accept "
                "connections from here, so they find the first address and then get stuck. Set advertised.listeners of "
                "this broker to an address that clients reach, and start it again.",
                f"kafka-server-start server.properties --override advertised.listeners=PLAINTEXT://HOST:{broker.port}",
            )


def _topic_obstacles(cluster: MetadataResponse, topic: str | None, at: str) -> Iterator[Explanation]:
    if topic is None:
        return
    found = next((it for it in cluster.topics if it.name == topic), None)
    if found is None or found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        yield Explanation(
            f"The topic {topic} does not exist, or this user may not describe it.",
            f"kafka-topics {at} --create --topic {shlex.quote(topic)}",
        )
    elif without := _without_leader(found):
        yield Explanation(
            f"{len(without)} of {len(found.partitions)} partitions of {topic} have no leader, so nobody writes or "
            "reads them: the brokers of their in-sync replicas do not run. Start those.",
            f"kafka-topics {at} --describe --topic {shlex.quote(topic)} --unavailable-partitions",
        )


def _without_leader(topic: MetadataResponseTopic) -> list[int]:
    return [partition.partition_index for partition in topic.partitions if partition.leader_id < 0]


def _group_obstacles(
    client: AdminClient, cluster: MetadataResponse, group: str | None, at: str
) -> Iterator[Explanation]:
    if group is None:
        return
    brokers = [broker.node_id for broker in cluster.brokers]
    responses = (client.call(ListGroupsRequest(), ListGroupsResponse, broker_id=broker) for broker in brokers)
    states = {listed.group_id: listed.group_state for response in responses for listed in response.groups}
    quoted = shlex.quote(group)
    if group not in states:
        yield Explanation(
            f"The group {group} does not exist: no consumer with this group.id has joined or committed.",
            f"kafka-consumer-groups {at} --list",
        )
    elif states[group] == _EMPTY:
        yield Explanation(
            f"The group {group} has no members, so nobody reads for it. Start its consumers.",
            f"kafka-consumer-groups {at} --describe --group {quoted}",
        )
    elif states[group] != _STABLE:
        yield Explanation(
            f"The group {group} is in the state {states[group]}: its members do not get partitions until all have "
            "joined again, or max.poll.interval.ms removes those that have not.",
            f"kafka-consumer-groups {at} --describe --group {quoted} --members",
        )
