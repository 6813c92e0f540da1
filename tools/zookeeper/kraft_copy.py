"""What `metadata-copy` does between a cluster with ZooKeeper, or an embedded store, and nodes of KRaft.

Owns the checks before anything is written, and the order of the changes. Must not know options, or how a tree is
opened. A change of sides is complete when each `meta.properties` is replaced, that beside the metadata as the last one.
Until then the command can be repeated, and the former side can still have its directories back.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from uuid import UUID

from base.topic_partition import TopicPartition
from broker.cluster.metadata_store import RETIRED_FILE, STORE_FILE_ENDINGS
from controller.embedded.sqlite_store import METADATA_FILE
from protocol.ids import random_id
from storage.disk.names import KRAFT_METADATA, DirectoryState
from tools.kraft import metadata_log, node_folders, znodes
from tools.kraft.image import ClusterImage, records_of, replayed
from tools.kraft.metadata_log import SnapshotId
from tools.kraft.node_folders import KRAFT_VERSION, ZOOKEEPER_VERSION, FolderError, NodeFolder, PartitionFolder
from tools.kraft.znodes import Node, Report, Translated

PARTITIONS_SHOWN: Final = 3


class ConversionError(Exception):
    """Nothing was changed. The text has one line for each problem."""


def to_kraft(
    nodes: Mapping[str, Node], paths: Sequence[Path], *, rehearsal: Path | None, is_check: bool
) -> Iterator[str]:
    """Make the log directories `paths`, which are locked, those of KRaft nodes; yield what there is to report.

    The node of the first one becomes the controller, and its first directory holds the metadata.

    Args:
        nodes: the tree of their cluster.
        rehearsal: where copies of the directories are made, which are changed instead.
        is_check: whether nothing is changed at all.

    Raises:
        ConversionError, FolderError, OSError, ValueError
    """
    report = Report()
    folders = [node_folders.read_folder(path) for path in paths]
    for folder in folders:
        if node_folders.has_run_with_kraft(folder) or (folder is folders[0] and folder.version == KRAFT_VERSION):
            raise ConversionError(f"{folder.path} belongs to a KRaft node already")
    translated = znodes.to_kraft(nodes, node_folders.by_node(folders).keys(), report)
    if translated is None:
        raise ConversionError("\n".join(report.problems))
    _check_owners(folders, translated.cluster_id, report)
    folders = [
        each if each.directory_id is not None else replace(each, directory_id=random_id(secrets.randbits))
        for each in folders
    ]
    without_id = _place(translated, folders, report)
    if report.problems:
        raise ConversionError("\n".join(report.problems))
    records = list(records_of(translated.image))
    end = SnapshotId(len(records), max(1, translated.controller_epoch))
    batches = list(metadata_log.snapshot(records, end, int(time.time() * 1000)))
    _check_snapshot(batches, translated.image)
    yield from _summary(translated.image)
    for topic in sorted(translated.created_ids):
        yield f"Topic {topic} had no id and gets one"
    yield from (f"Note: {note}" for note in report.notes)
    if is_check or rehearsal is not None:
        back = znodes.from_kraft(translated.image, translated.cluster_id, end.epoch, Report())
        yield from (f"Difference after a way there and back: {line}" for line in znodes.differences(nodes, back))
    if is_check:
        yield f"{len(without_id)} partition.metadata and {len(folders)} meta.properties would be written"
        return
    if rehearsal is not None:
        folders, without_id = _linked(folders, without_id, rehearsal)
    for partition, topic_id in without_id:
        node_folders.write_topic_id(partition, topic_id)
    for folder in folders[1:]:
        node_folders.remove_metadata_log(folder)
    written = node_folders.write_snapshot(folders[0], batches, end)
    for folder in reversed(folders):
        node_folders.write_meta_properties(replace(folder, version=KRAFT_VERSION))
    for folder in folders:
        _retire_store(folder.path)
    yield f"Wrote {written}; these directories belong to KRaft now: {', '.join(str(each.path) for each in folders)}"


def _check_owners(folders: Sequence[NodeFolder], cluster_id: str, report: Report) -> None:
    for folder in folders:
        if folder.cluster_id != cluster_id:
            report.problems.append(f"{folder.path} belongs to cluster {folder.cluster_id}, expected {cluster_id}")


def _place(translated: Translated, folders: Sequence[NodeFolder], report: Report) -> list[tuple[PartitionFolder, UUID]]:
    """Add the directories of the replicas to the image; return the partitions that have no topic id yet."""
    image = translated.image
    found: dict[tuple[int, TopicPartition], list[tuple[PartitionFolder, UUID]]] = defaultdict(list)
    without_id = []
    for folder in folders:
        assert folder.directory_id is not None
        for each in node_folders.partitions_in(folder):
            _check_partition(each, image, report)
            if each.state is DirectoryState.CURRENT:
                found[each.node_id, each.partition].append((each, folder.directory_id))
                topic = image.topics.get(each.partition[0])
                if topic is not None and each.topic_id is None:
                    without_id.append((each, topic.topic_id))
    for name, topic in image.topics.items():
        for number, partition in topic.partitions.items():
            directories = []
            for node_id in partition.replicas:
                places = found.pop((node_id, (name, number)), [])
                if len(places) == 1:
                    directories.append(places[0][1])
                elif places:
                    report.problems.append(
                        f"{name}-{number} is in two folders: {places[0][0].path}, {places[1][0].path}"
                    )
                elif node_id in {folder.node_id for folder in folders}:
                    report.problems.append(f"the data of partition {name}-{number} is in no folder of broker {node_id}")
            topic.partitions[number] = replace(partition, directories=tuple(directories))
    for (node_id, _), places in found.items():
        report.notes.append(f"{places[0][0].path} is no replica of broker {node_id}: Kafka 4 renames it to *-stray")
    return without_id


def _check_partition(each: PartitionFolder, image: ClusterImage, report: Report) -> None:
    if each.state is DirectoryState.FUTURE:
        report.problems.append(f"{each.path} is a move between directories: start the broker, and wait for its end")
    topic = image.topics.get(each.partition[0])
    is_current = each.state is DirectoryState.CURRENT
    if is_current and topic is not None and each.topic_id not in (None, topic.topic_id):
        report.problems.append(
            f"{each.path} belongs to an earlier topic of this name: its id is {each.topic_id}, "
            f"expected {topic.topic_id}; start the broker once, which settles it"
        )


def _check_snapshot(batches: Sequence[bytes], image: ClusterImage) -> None:
    """Raise ConversionError unless what will be written reads as the same metadata."""
    stored = list(metadata_log.read_records(b"".join(batches)))
    if replayed(each.fields for each in stored if each.fields is not None) != image:
        raise ConversionError("the snapshot does not read as it was written: please report this bug")


def _summary(image: ClusterImage) -> Iterator[str]:
    partitions = sum(len(topic.partitions) for topic in image.topics.values())
    yield (
        f"{len(image.topics)} topics with {partitions} partitions, settings of {len(image.configs)} entities, "
        f"quotas of {len(image.quotas)}, {len(image.scram)} SCRAM credentials, {len(image.acls)} ACLs, "
        f"{len(image.tokens)} delegation tokens, next producer id {image.next_producer_id}"
    )
    yield f"Features: {', '.join(f'{name}={level}' for name, level in sorted(image.features.items()))}"


def _linked(
    folders: Sequence[NodeFolder], without_id: Sequence[tuple[PartitionFolder, UUID]], rehearsal: Path
) -> tuple[list[NodeFolder], list[tuple[PartitionFolder, UUID]]]:
    """Copy the directories below `rehearsal`; return the same values for the copies."""
    if rehearsal.exists():
        raise FolderError(f"{rehearsal} exists, expected a new folder for the rehearsal")
    for folder in folders:
        if folder.path.resolve() in rehearsal.resolve().parents:
            raise FolderError(f"{rehearsal} is in {folder.path}, expected a new folder elsewhere on its file system")
    targets = {folder.path: rehearsal / f"{number}-{folder.path.name}" for number, folder in enumerate(folders)}
    try:
        for source, target in targets.items():
            node_folders.link_folder(source, target)
    except BaseException:
        shutil.rmtree(rehearsal, ignore_errors=True)
        raise
    linked = [replace(folder, path=targets[folder.path]) for folder in folders]
    return linked, [
        (each._replace(path=targets[each.path.parent] / each.path.name), topic_id) for each, topic_id in without_id
    ]


def _retire_store(folder: Path) -> None:
    """Rename the embedded store: the metadata log has the newer metadata from now on."""
    for ending in STORE_FILE_ENDINGS:
        path = folder / f"{METADATA_FILE}{ending}"
        if path.exists():
            path.rename(folder / f"{RETIRED_FILE}{ending}")


# -- from KRaft ----------------------------------------------------------------------------------------------------


class FromKraft:
    """The nodes of KRaft whose log directories, which are locked, become those of brokers with another store."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Raises ConversionError, FolderError, Malformed, OSError."""
        self.report = Report()
        self._folders = [node_folders.read_folder(path) for path in paths]
        if not any(map(node_folders.is_used_by_kraft, self._folders)):
            raise ConversionError(f"{self._folders[0].path} does not belong to a KRaft node")
        logs = [log for path in paths if (log := node_folders.read_metadata_log(path)) is not None]
        if not logs:
            raise ConversionError(f"no folder holds {KRAFT_METADATA}: name that of metadata.log.dir too")
        newest = max(logs, key=lambda log: (log.end.epoch, log.end.offset))
        self.cluster_id = self._folders[0].cluster_id
        self._image = replayed(newest.records)
        self._epoch = newest.end.epoch
        _check_owners(self._folders, self.cluster_id, self.report)
        # A snapshot that no node has used has no registrations; each other broker has registered or has replicas.
        registered = self._image.brokers
        brokers = registered | self._image.with_replicas if registered else node_folders.by_node(self._folders).keys()
        for folder in self._folders:
            if folder.node_id not in brokers:
                self.report.notes.append(f"{folder.path} stays as it is: node {folder.node_id} is only a controller")
        self._folders = [folder for folder in self._folders if folder.node_id in brokers]
        self._check_places()
        self._wanted = znodes.from_kraft(self._image, self.cluster_id, self._epoch, self.report)
        if self.report.problems:
            raise ConversionError("\n".join(self.report.problems))

    def _check_places(self) -> None:
        nodes = node_folders.by_node(self._folders)
        present: set[tuple[int, TopicPartition]] = set()
        for folder in self._folders:
            for each in node_folders.partitions_in(folder):
                _check_partition(each, self._image, self.report)
                if each.state is DirectoryState.CURRENT:
                    present.add((each.node_id, each.partition))
        for name, topic in self._image.topics.items():
            for number, partition in topic.partitions.items():
                for node_id in partition.replicas:
                    if node_id in nodes and (node_id, (name, number)) not in present:
                        self.report.problems.append(
                            f"the data of partition {name}-{number} is in no folder of node {node_id}"
                        )

    def nodes(self, found: Mapping[str, Node]) -> dict[str, Node] | None:
        """Return the tree that replaces `found`; None if brokers have run on `found` since the nodes of KRaft stopped.

        Raises ConversionError if both sides have gone on.
        """
        if self._is_superseded_by(found):
            return None
        return self._wanted | {path: node for path, node in found.items() if znodes.is_left_as_it_is(path)}

    def _is_superseded_by(self, found: Mapping[str, Node]) -> bool:
        """Return whether brokers have run on the tree `found` since.

        They elect a controller and leaders, whose epochs rise. A topic that only the tree has proves nothing: Kafka 4
        may have deleted it.

        Raises ConversionError if the nodes of KRaft have also changed what the tree does not have.
        """
        ours, theirs = (znodes.leader_epochs(nodes, self.cluster_id) for nodes in (self._wanted, found))
        is_newer = znodes.controller_epoch(found) > self._epoch
        if not is_newer and not any(theirs[each] > ours[each] for each in ours.keys() & theirs.keys()):
            return False
        newer = [each for each in ours if ours[each] > theirs.get(each, -1)]
        if newer:
            names = {topic.topic_id: name for name, topic in self._image.topics.items()}
            partitions = ", ".join(f"{names[topic_id]}-{number}" for topic_id, number in newer[:PARTITIONS_SHOWN])
            raise ConversionError(
                "brokers have run on the target since the nodes of KRaft stopped, but it lacks partitions of these "
                f"nodes, or has a lower leader epoch of them: {len(newer)}, such as {partitions}. Name the folders of "
                "all nodes in one command, before a broker starts, or choose a new target"
            )
        return True

    def lines(self) -> Iterator[str]:
        yield from _summary(self._image)
        for node_id in sorted(self._image.with_replicas - node_folders.by_node(self._folders).keys()):
            yield f"Note: node {node_id} has replicas: name its folders in the same command, before a broker starts"
        yield from (f"Note: {note}" for note in self.report.notes)

    def finish(self) -> str:
        """Give the directories to the brokers. The metadata log stays, and no node starts on it."""
        for folder in self._folders:
            node_folders.retire_metadata_log(folder, self._epoch)
        for folder in self._folders:
            node_folders.write_meta_properties(replace(folder, version=ZOOKEEPER_VERSION))
        paths = ", ".join(str(each.path) for each in self._folders)
        return f"These directories belong to brokers without KRaft now: {paths}"
