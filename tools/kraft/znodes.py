"""Translates the nodes of a cluster with ZooKeeper, or of the embedded store, to the metadata of KRaft and back.

Owns what corresponds to what, what has no counterpart, and which states of a cluster cannot be translated. Must not
know records, files, or how a tree is reached. Pure: the same nodes always have the same translation, so that an
interrupted one can be repeated.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from random import Random
from typing import Final, NamedTuple
from uuid import UUID

from broker.network.sasl.scram import ScramCredential
from broker.quotas import client_quotas
from broker.security import acls
from broker.security.acl_store import decoded_acls, encoded_acls, pattern_text
from broker.security.delegation_tokens import CHANGES as TOKEN_CHANGES
from broker.security.delegation_tokens import ROOT as TOKENS_ROOT
from broker.security.delegation_tokens import DelegationToken, decode_token, encode_token
from broker.security.scram_credentials import MECHANISMS, Mechanism, credential_text, parse_credential
from config.broker import base_row, is_password
from config.features import TRANSACTION_VERSION
from config.topic_properties import TOPIC_PROPERTIES
from controller.machine.model import LeaderAndIsr, LeaderRecoveryState, ReplicaAssignment, Topic
from controller.tree import acl_nodes, paths
from controller.tree.paths import ConfigEntity
from protocol.errors import KafkaError
from protocol.ids import random_id
from protocol.internal_topics import SHARE_GROUP_STATE_TOPIC
from tools.kraft import image as kraft
from tools.kraft.image import AclImage, ClusterImage, PartitionImage, ScramImage, TokenImage, TopicImage

LEVELS: Final[Mapping[str, int]] = {kraft.METADATA_VERSION: 25, "group.version": 1, TRANSACTION_VERSION: 2}
"""The features of a new Kafka 4.0, which every Kafka 4.x serves; 25 is 4.0-IV3. A level chosen in Milena is kept."""

_CONFIG_TYPES: Final = {
    "topics": kraft.TOPIC,
    "brokers": kraft.BROKER,
    paths.CLIENT_METRICS_TYPE: kraft.CLIENT_METRICS,
    paths.GROUPS_TYPE: kraft.GROUP,
}
_STORED_TYPES: Final = {number: name for name, number in _CONFIG_TYPES.items()}
_REMOVED_IN_KAFKA_4: Final = frozenset(
    f"{prefix}{name}"
    for prefix in ("", "log.")
    for name in ("message.format.version", "message.timestamp.difference.max.ms", "message.downconversion.enable")
)
_ACL_ROOTS: Final = (
    (acl_nodes.LITERAL_ROOT, acls.PatternType.LITERAL),
    (acl_nodes.PREFIXED_ROOT, acls.PatternType.PREFIXED),
)
_NOT_IN_KRAFT: Final = ("/consumers/", f"{paths.FEATURE}/", f"{paths.MIGRATION}/", f"{paths.BROKER_SEQUENCE_ID}/")
"""What a translation from KRaft leaves as it is in the tree."""
_GENERATED_IDS_MAX: Final = 10_000
"""Ids above this one count as chosen by an administrator."""
_CONTAINERS: Final = frozenset((*acl_nodes.ACL_PATHS, TOKENS_ROOT, paths.DELEGATION_TOKENS, TOKEN_CHANGES))
"""They exist with an authorizer, or a secret of tokens. Some hold notifications, which nobody reads again."""


class Node(NamedTuple):
    """A node of a tree. `version` counts the changes of its data."""

    data: bytes | None
    version: int = 0


@dataclass(slots=True)
class Report:
    """What a translation has to say beside its result."""

    problems: list[str] = field(default_factory=list)
    """What prevents it. Without any, the result is complete but for the notes."""
    notes: list[str] = field(default_factory=list)
    """What is not taken, or changes."""


class Translated(NamedTuple):
    """The metadata of a tree. `created_ids` are topics that had no id: it is derived from the cluster and the name."""

    image: ClusterImage
    cluster_id: str
    controller_epoch: int
    created_ids: Collection[str]


def to_kraft(nodes: Mapping[str, Node], brokers: Collection[int], report: Report) -> Translated | None:
    """Translate the nodes of a stopped cluster whose replicas are all on `brokers`; None if there is no cluster."""
    if paths.CLUSTER_ID not in nodes:
        report.problems.append("the source holds no metadata of a cluster")
        return None
    cluster_id = paths.decode_cluster_id(nodes[paths.CLUSTER_ID].data)
    reader = _TreeReader(nodes, cluster_id, report)
    reader.check_state()
    reader.read_topics(frozenset(brokers))
    reader.read_configs()
    reader.read_acls()
    reader.read_tokens()
    reader.read_features()
    return Translated(reader.image, cluster_id, controller_epoch(nodes), reader.created_ids)


def controller_epoch(nodes: Mapping[str, Node]) -> int:
    """Return how often a controller was elected; 0 if none was."""
    epoch = nodes.get(paths.CONTROLLER_EPOCH)
    return paths.decode_controller_epoch(epoch.data) if epoch is not None and epoch.data else 0


def leader_epochs(nodes: Mapping[str, Node], cluster_id: str) -> dict[tuple[UUID, int], int]:
    """Return the leader epoch of each partition that has had a leader, by the id of its topic and its number."""
    found = {}
    for path, node in nodes.items():
        parent, _, name = path.rpartition("/")
        if parent != paths.TOPICS:
            continue
        topic = paths.decode_topic(name, node.data)
        topic_id = topic.topic_id or created_topic_id(cluster_id, name)
        for number in topic.partitions:
            if (state := nodes.get(paths.partition_state_path((name, number)))) is not None:
                leadership = paths.decode_partition_state((name, number), state.data, state.version)
                found[topic_id, number] = leadership.state.leader_epoch
    return found


def created_topic_id(cluster_id: str, topic: str) -> UUID:
    """Return the id of a topic that has none. It is the same on each broker and at each repetition."""
    seed = hashlib.sha256(f"{cluster_id} {topic}".encode()).digest()
    return random_id(Random(seed).getrandbits)


class _TreeReader:
    """Reads the parts of a tree into an image."""

    def __init__(self, nodes: Mapping[str, Node], cluster_id: str, report: Report) -> None:
        self._nodes = nodes
        self._cluster_id = cluster_id
        self._report = report
        self.image = ClusterImage()
        self.created_ids: list[str] = []
        self._children: dict[str, list[str]] = defaultdict(list)
        for path in nodes:
            parent, _, name = path.rpartition("/")
            self._children[parent].append(name)

    def _data(self, path: str) -> bytes | None:
        return self._nodes[path].data if path in self._nodes else None

    def check_state(self) -> None:
        """Report work of the controller that has to end first."""
        problems = self._report.problems
        for topic in self._children[paths.DELETE_TOPICS]:
            problems.append(f"topic {topic} is being deleted: start the brokers, and wait until it is gone")
        if paths.REASSIGN_PARTITIONS in self._nodes:
            problems.append(f"{paths.REASSIGN_PARTITIONS} requests a reassignment: start the brokers, let it end")
        if paths.PREFERRED_REPLICA_ELECTION in self._nodes:
            self._report.notes.append(f"{paths.PREFERRED_REPLICA_ELECTION}: the requested elections are not taken")
        if (data := self._data(paths.MIGRATION)) and paths.decode_migrated_controller_id(data) >= 0:
            problems.append(f"{paths.MIGRATION}: a controller of KRaft leads the cluster, which migrates already")
        if groups := self._children[paths.CONSUMERS]:
            self._report.notes.append(f"{paths.CONSUMERS}: offsets of consumers of 0.8 are not taken: {_few(groups)}")

    def read_topics(self, brokers: frozenset[int]) -> None:
        missing: dict[int, list[str]] = defaultdict(list)
        for name in self._children[paths.TOPICS]:
            topic = paths.decode_topic(name, self._data(paths.topic_path(name)))
            topic_id = topic.topic_id
            if topic_id is None:
                topic_id = created_topic_id(self._cluster_id, name)
                self.created_ids.append(name)
            self.image.topics[name] = TopicImage(topic_id)
            for number, assignment in topic.partitions.items():
                if assignment.is_being_reassigned:
                    self._report.problems.append(
                        f"partition {name}-{number} is being reassigned: start the brokers, and wait for its end, or "
                        "cancel it"
                    )
                for broker in set(assignment.replicas) - brokers:
                    missing[broker].append(f"{name}-{number}")
                self._read_partition(name, number, assignment)
        for broker, partitions in sorted(missing.items()):
            self._report.problems.append(
                f"broker {broker} has replicas of {len(partitions)} partitions ({_few(partitions)}), and none of the "
                "folders belongs to it: name its folders too, or move its replicas first"
            )

    def _read_partition(self, name: str, number: int, assignment: ReplicaAssignment) -> None:
        path = paths.partition_state_path((name, number))
        node = self._nodes.get(path)
        if node is None:
            self._report.problems.append(f"{path} is missing: partition {name}-{number} never had a leader")
            return
        leadership = paths.decode_partition_state((name, number), node.data, node.version)
        state = leadership.state
        self.image.topics[name].partitions[number] = PartitionImage(
            assignment.replicas,
            tuple(broker for broker in state.isr if broker in assignment.replicas) or state.isr,
            kraft.NO_LEADER,
            state.leader_epoch,
            leadership.partition_epoch,
            int(state.recovery_state),
        )

    def read_configs(self) -> None:
        for path in self._nodes:
            words = path.split("/")[2:] if path.startswith("/config/") else []
            if len(words) % 2 or not words or words[0] == "changes":
                continue
            entity = paths.parse_config_entity_path("/".join(words))
            values = paths.decode_config(path, self._data(path))
            if entity.parts[0][0] in _CONFIG_TYPES:
                self._take_config(path, entity, values)
            else:
                self._take_client_settings(path, entity, values)

    def _take_config(self, path: str, entity: ConfigEntity, values: Mapping[str, str]) -> None:
        ((entity_type, name),) = entity.parts
        notes = self._report.notes
        if entity_type == "topics" and name not in self.image.topics:
            if values:
                notes.append(f"{path} is not taken: there is no such topic")
            return
        taken = {}
        for key, value in values.items():
            if key in _REMOVED_IN_KAFKA_4:
                notes.append(f"{path}: {key}={value} is not taken: Kafka 4 does not have it")
            elif entity_type == "brokers" and is_password(key):
                notes.append(f"{path}: {key} is not taken: it is encrypted with password.encoder.secret; set it again")
            else:
                taken[key] = value
        if taken:
            self.image.configs[_CONFIG_TYPES[entity_type], name or ""] = taken

    def _take_client_settings(self, path: str, entity: ConfigEntity, values: Mapping[str, str]) -> None:
        rest = dict(values)
        user = entity.parts[0][1]
        if len(entity.parts) == 1 and entity.parts[0][0] == "users" and user is not None:
            for mechanism in Mechanism:
                if (text := rest.pop(mechanism.stored_name, None)) is not None:
                    self._take_credential(user, mechanism, text)
        quotas = client_quotas.readable_quotas(rest)
        for key in rest.keys() - quotas.keys():
            self._report.notes.append(f"{path}: {key} is not taken: it is no quota")
        if quotas:
            named = frozenset((client_quotas.ENTITY_TYPES[stored], name) for stored, name in entity.parts)
            self.image.quotas[named] = quotas

    def _take_credential(self, user: str, mechanism: Mechanism, text: str) -> None:
        try:
            found = parse_credential(text)
        except ValueError as error:
            self._report.notes.append(f"user {user}: {mechanism.stored_name} is not taken: {error}")
            return
        credential = ScramImage(found.salt, found.stored_key, found.server_key, found.iterations)
        self.image.scram[user, mechanism.number] = credential

    def read_acls(self) -> None:
        types = {one.title: one for one in acls.ResourceType}
        for root, pattern_type in _ACL_ROOTS:
            for title in self._children[root]:
                if title not in types:
                    self._report.problems.append(f"{root}/{title}: ACLs of an unknown type of resources")
                    continue
                for name in self._children[f"{root}/{title}"]:
                    pattern = acls.Pattern(types[title], name, pattern_type)
                    for acl in sorted(decoded_acls(pattern, self._data(f"{root}/{title}/{name}"))):
                        self._take_acl(pattern, acl)

    def _take_acl(self, pattern: acls.Pattern, acl: acls.Acl) -> None:
        taken = AclImage(
            int(pattern.resource_type),
            pattern.name,
            int(pattern.pattern_type),
            acl.principal,
            acl.host,
            int(acl.operation),
            int(acl.permission),
        )
        digest = hashlib.sha256(f"{self._cluster_id} {taken!r}".encode()).digest()
        self.image.acls[random_id(Random(digest).getrandbits)] = taken

    def read_tokens(self) -> None:
        for token_id in self._children[paths.DELEGATION_TOKENS]:
            token = decode_token(token_id, self._data(f"{paths.DELEGATION_TOKENS}/{token_id}") or b"")
            self.image.tokens[token_id] = TokenImage(
                token.owner, token.requester, tuple(token.renewers), token.issued_ms, token.ends_ms, token.expires_ms
            )
        if self.image.tokens:
            self._report.notes.append(
                f"{len(self.image.tokens)} delegation tokens stay valid only with the same delegation.token.secret.key"
            )

    def read_features(self) -> None:
        block = paths.decode_producer_id_block(self._data(paths.PRODUCER_ID_BLOCK))
        self.image.next_producer_id = 0 if block is None else block.last + 1
        chosen = paths.decode_features(data).levels if (data := self._data(paths.FEATURE_LEVELS)) else {}
        levels = {name: chosen.get(name, level) for name, level in LEVELS.items()}
        self.image.features = {name: level for name, level in levels.items() if level}
        if SHARE_GROUP_STATE_TOPIC in self.image.topics:
            self._report.notes.append("share groups continue when share.version=1 is set, which Kafka 4.0 lacks")


def _few(names: Collection[str], shown: int = 3) -> str:
    """Return the first names, and how many there are if these are not all."""
    first = ", ".join(sorted(names)[:shown])
    return first if len(names) <= shown else f"{first} and {len(names) - shown} more"


# -- from KRaft ----------------------------------------------------------------------------------------------------


def from_kraft(image: ClusterImage, cluster_id: str, controller_epoch: int, report: Report) -> dict[str, Node]:
    """Translate to the nodes of a cluster without running brokers, parents first."""
    nodes: dict[str, bytes | None] = {"/cluster": None}
    nodes |= dict.fromkeys(sorted(paths.PERSISTENT_PATHS, key=lambda path: path.count("/")))
    nodes[paths.CONTROLLER_EPOCH] = paths.encode_controller_epoch(controller_epoch)
    if image.next_producer_id:
        size = paths.PRODUCER_ID_BLOCK_SIZE
        block = paths.ProducerIdBlock(-1, max(0, image.next_producer_id - size), image.next_producer_id - 1)
        nodes[paths.PRODUCER_ID_BLOCK] = paths.encode_producer_id_block(block)
    level = image.features.get(TRANSACTION_VERSION, 0)
    nodes[paths.FEATURE_LEVELS] = paths.encode_features(
        paths.FinalizedFeatures(paths.FIRST_FEATURE_NODE_WITHOUT_RANGES, True, {TRANSACTION_VERSION: level})
    )
    for name, topic in sorted(image.topics.items()):
        nodes |= _topic_nodes(name, topic, controller_epoch, report)
    for entity, values in _settings(image, report).items():
        nodes |= {path: None for path in paths.config_parent_paths(entity) if path not in nodes}
        nodes[paths.config_path(entity)] = paths.encode_config(values)
    nodes |= _acl_nodes(image, report)
    nodes |= _token_nodes(image)
    nodes[paths.CLUSTER_ID] = paths.encode_cluster_id(cluster_id)
    versions = {paths.BROKER_SEQUENCE_ID: _generated_ids(image, report)}
    return {path: Node(data, versions.get(path, 0)) for path, data in nodes.items()}


def _generated_ids(image: ClusterImage, report: Report) -> int:
    """Return a version of the node that counts generated broker ids, so high that the next one is of no broker.

    A generated id is this version beyond reserved.broker.max.id, which is not known here.
    """
    highest = max(image.brokers | image.with_replicas, default=0)
    if highest > _GENERATED_IDS_MAX:
        report.notes.append(f"the highest broker id is {highest}: set broker.id of each new broker, do not generate it")
        return 0
    return highest


def is_left_as_it_is(path: str) -> bool:
    """Return whether a node of a tree has no counterpart in KRaft, so that a translation must not delete it."""
    return f"{path}/".startswith(_NOT_IN_KRAFT) or path in _CONTAINERS


def _topic_nodes(name: str, topic: TopicImage, controller_epoch: int, report: Report) -> dict[str, bytes | None]:
    assignments = {}
    nodes: dict[str, bytes | None] = {}
    for number, partition in sorted(topic.partitions.items()):
        assignments[number] = ReplicaAssignment(partition.replicas, partition.adding, partition.removing)
        if partition.adding or partition.removing:
            report.problems.append(
                f"partition {name}-{number} is being reassigned: start the nodes, and wait for its end, or cancel it"
            )
        # The last replica leaves the ISR when its node stops, but stays eligible.
        isr = partition.isr or partition.eligible
        if not isr:
            report.problems.append(
                f"partition {name}-{number} has no in-sync replica: start the nodes, and elect a leader"
            )
        state = LeaderAndIsr(
            partition.leader, partition.leader_epoch, isr, LeaderRecoveryState(partition.recovery_state)
        )
        nodes[paths.partition_path((name, number))] = None
        nodes[paths.partition_state_path((name, number))] = paths.encode_partition_state(state, controller_epoch)
    first = {paths.topic_path(name): paths.encode_topic(Topic(topic.topic_id, assignments))}
    return {**first, paths.partitions_path(name): None, **nodes}


def _settings(image: ClusterImage, report: Report) -> dict[ConfigEntity, dict[str, str]]:
    """Return the settings of all entities. Each topic has them, even if they are empty."""
    found: dict[ConfigEntity, dict[str, str]] = {paths.topic_entity(name): {} for name in sorted(image.topics)}
    for (entity_type, name), values in sorted(image.configs.items()):
        stored = _STORED_TYPES.get(entity_type)
        if stored is None:
            report.notes.append(f"settings of {name}: not taken, their entity has the unknown type {entity_type}")
            continue
        entity = ConfigEntity(((stored, name or None),))
        found[entity] = {}
        for key, value in values.items():
            problem = _why_not_taken(stored, key)
            if problem is None:
                found[entity][key] = value
            else:
                report.notes.append(f"{paths.config_path(entity)}: {key} is not taken: {problem}")
    for named, quotas in image.quotas.items():
        for key, quota in quotas.items():
            try:
                entity = client_quotas.entity_of(tuple(named))
                text = client_quotas.stored_quota(entity, client_quotas.QuotaChange(key, quota))
            except KafkaError as error:
                shown = ", ".join(
                    f"{entity_type} {name or 'default'}" for entity_type, name in sorted(named, key=itemgetter(0))
                )
                report.notes.append(f"quota {key} of {shown}: not taken: {error.message}")
                continue
            assert text is not None
            found.setdefault(entity, {})[key] = text
    for (user, number), credential in sorted(image.scram.items()):
        if number not in MECHANISMS:
            report.notes.append(f"user {user}: not taken: a credential of the unknown mechanism {number}")
            continue
        text = credential_text(ScramCredential(*credential))
        found.setdefault(ConfigEntity((("users", user),)), {})[MECHANISMS[number].stored_name] = text
    return found


def _why_not_taken(entity_type: str, key: str) -> str | None:
    if entity_type == "topics" and key not in TOPIC_PROPERTIES:
        return "Kafka 3.9 does not have it"
    if entity_type == "brokers" and is_password(key):
        return "it would have to be encrypted; set it again"
    if entity_type == "brokers" and base_row(key) is None:
        return "Kafka 3.9 does not have it"
    return None


def _acl_nodes(image: ClusterImage, report: Report) -> dict[str, bytes | None]:
    by_pattern: dict[acls.Pattern, set[acls.Acl]] = defaultdict(set)
    for each in image.acls.values():
        pattern = acls.Pattern(
            acls.ResourceType(each.resource_type), each.resource_name, acls.PatternType(each.pattern_type)
        )
        acl = acls.Acl(each.principal, each.host, acls.Operation(each.operation), acls.Permission(each.permission_type))
        by_pattern[pattern].add(acl)
    nodes: dict[str, bytes | None] = dict.fromkeys(acl_nodes.ACL_PATHS) if by_pattern else {}
    for pattern, rules in sorted(by_pattern.items()):
        try:
            for acl in rules:
                acls.check_acl(pattern, acl)
            problem = acls.problem_of_storing(pattern, rules)
        except acls.InvalidAclError as error:
            problem = str(error)
        if problem is not None:
            report.problems.append(f"the ACLs of {pattern} cannot be stored: {problem}")
            continue
        nodes[acl_nodes.acl_path(pattern_text(pattern))] = encoded_acls(rules)
    return nodes


def _token_nodes(image: ClusterImage) -> dict[str, bytes | None]:
    if not image.tokens:
        return {}
    nodes: dict[str, bytes | None] = {TOKENS_ROOT: None, paths.DELEGATION_TOKENS: None}
    for token_id, token in sorted(image.tokens.items()):
        stored = DelegationToken(
            token_id, token.owner, token.requester, token.renewers, token.issued_ms, token.expires_ms, token.ends_ms
        )
        nodes[f"{paths.DELEGATION_TOKENS}/{token_id}"] = encode_token(stored)
    return nodes


def differences(before: Mapping[str, Node], after: Mapping[str, Node]) -> Iterator[str]:
    """Yield a line for each node that a translation to KRaft and back loses, adds or changes.

    Not what follows from the stop of the brokers, and not what `is_left_as_it_is`.
    """
    for path in sorted(before.keys() | after.keys()):
        old, new = (_comparable(path, nodes[path].data if path in nodes else None) for nodes in (before, after))
        if old != new and not is_left_as_it_is(path) and path not in _OF_THE_CONTROLLER:
            yield f"{path} {'is new' if old is None else 'is lost' if new is None else 'changes'}"


_OF_THE_CONTROLLER: Final = (paths.CONTROLLER_EPOCH, paths.PRODUCER_ID_BLOCK, paths.FEATURE_LEVELS)


def _comparable(path: str, data: bytes | None) -> object:
    """Return the content of a node without its form; None without content."""
    if not data:
        return None
    try:
        content = json.loads(data)
    except ValueError:
        return data
    if not isinstance(content, dict):
        return content
    if path.endswith("/state"):
        content |= {"leader": None, "controller_epoch": None}
    if path.startswith("/config/"):
        return {key: _number_or_text(value) for key, value in (content.get("config") or {}).items()} or None
    if path.startswith("/kafka-acl"):
        # Brokers read the names of operations and permissions in any case.
        content["acls"] = sorted(json.dumps(acl, sort_keys=True).lower() for acl in content.get("acls", ()))
    return {key: value for key, value in content.items() if value not in ({}, [])} | {"version": None}


def _number_or_text(value: object) -> object:
    try:
        return float(str(value))
    except ValueError:
        return value
