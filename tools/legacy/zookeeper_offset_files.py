"""kafka.tools.ExportZkOffsets, ImportZkOffsets and UpdateOffsetsInZK: the offsets of groups of 0.8, as a file of lines.

/consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from base import properties
from controller.tree.paths import Undecodable, consumer_offset_path
from protocol.errors import KafkaError
from tools.admin.consumer_groups import listed_groups
from tools.admin.group_actions.descriptions import committed_offsets
from tools.admin.group_actions.offset_resets import named_partitions
from tools.base.command_line import CommandLine, UsageError, run_tool
from tools.client.admin_client import EARLIEST, LATEST, CallTimedOut
from tools.client.admin_options import add_admin_options, admin_client
from tools.client.bootstrap import parse_bootstrap
from tools.zookeeper import zookeeper_offsets
from tools.zookeeper.legacy_zookeeper import broker_addresses, open_tree
from tools.zookeeper.znode_trees import Tree, TreeError

_LINE = re.compile(r"(?P<path>/consumers/[^/]+/offsets/[^/]+/\d+):(?P<offset>\d+)")
USAGE = "USAGE: kafka.tools.UpdateOffsetsInZK [earliest | latest] consumer.properties topic"


class FileError(Exception):
    """A file cannot be read or written, or has an invalid line; the text is one line for stderr."""


def export_main(arguments: Sequence[str] | None = None) -> int:
    """Run ExportZkOffsets; return the exit status."""
    line = CommandLine("ExportZkOffsets", "Export consumer offsets to an output file.")
    add_admin_options(line)
    _add_zookeeper(line)
    line.add_option("--group", value="group", repeatable=True, help_text="Consumer group; all without it.")
    line.add_option("--output-file", value="file", help_text="REQUIRED: Output file.")
    return run_tool(line, _guarded(_export), arguments)


def import_main(arguments: Sequence[str] | None = None) -> int:
    """Run ImportZkOffsets; return the exit status."""
    line = CommandLine("ImportZkOffsets", "Import offsets to zookeeper from files.")
    _add_zookeeper(line)
    line.add_option("--input-file", value="file", help_text="REQUIRED: Input file.")
    return run_tool(line, _guarded(_import), arguments)


def update_main(arguments: Sequence[str] | None = None) -> int:
    """Run UpdateOffsetsInZK; return the exit status."""
    line = CommandLine("UpdateOffsetsInZK", "Set the offsets of a group in ZooKeeper to the ends of a topic.")
    for name in ("position", "file", "topic"):
        line.add_argument(name, nargs="?", help="earliest or latest, consumer.properties, a topic")
    return run_tool(line, _guarded(_update), arguments)


def _add_zookeeper(line: CommandLine) -> None:
    line.add_option("--zkconnect", "--zookeeper", value="urls", help_text="ZooKeeper connect string.")


def _guarded(
    run: Callable[[CommandLine, argparse.Namespace], None],
) -> Callable[[CommandLine, argparse.Namespace], int]:
    def guarded(line: CommandLine, options: argparse.Namespace) -> int:
        try:
            run(line, options)
        except (FileError, TreeError, Undecodable, KafkaError, CallTimedOut) as error:
            print(error, file=sys.stderr)
            return 1
        return 0

    return guarded


def _export(line: CommandLine, options: argparse.Namespace) -> None:
    line.require(options, "--output-file")
    if (options.zkconnect is None) == (options.bootstrap_server is None):
        raise UsageError('Missing required argument "[zkconnect]"')
    if options.zkconnect is not None:
        tree = open_tree(options.zkconnect)
        try:
            names = options.group or zookeeper_offsets.groups(tree)
            lines = [text for group in names for text in _lines(group, zookeeper_offsets.offsets(tree, group))]
        finally:
            tree.close()
    else:
        with admin_client(options) as admin:
            names = options.group or sorted(group.group_id for group in listed_groups(admin))
            lines = [text for group in names for text in _lines(group, committed_offsets(admin, group))]
    try:
        Path(options.output_file).write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise FileError(f"Cannot write {options.output_file}: {error.strerror}") from error


def _lines(group: str, found: dict[tuple[str, int], int]) -> Iterator[str]:
    for (topic, partition), offset in sorted(found.items()):
        yield f"{consumer_offset_path(group, topic, partition)}:{offset}\n"


def _import(line: CommandLine, options: argparse.Namespace) -> None:
    line.require(options, "--zkconnect", "--input-file")
    wanted = _read(options.input_file)  # whole, before anything is written
    tree = open_tree(options.zkconnect)
    try:
        for path, offset in wanted.items():
            zookeeper_offsets.write_offset(tree, path, offset)
    finally:
        tree.close()


def _read(path: str) -> dict[str, int]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise FileError(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    found = {}
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        match = _LINE.fullmatch(text.strip())
        if match is None:
            raise FileError(
                f"{path}, line {number}: {text[:200]!r}, expected /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET"
            )
        found[match["path"]] = int(match["offset"])
    return found


def _update(line: CommandLine, options: argparse.Namespace) -> None:
    if options.topic is None or options.position not in ("earliest", "latest"):
        raise UsageError(USAGE)
    try:
        settings = properties.load(options.file)
    except (OSError, ValueError) as error:
        raise FileError(f"Cannot read {options.file}: {getattr(error, 'strerror', None) or error}") from error
    group, address = settings.get("group.id"), settings.get("zookeeper.connect")
    if not group or not address:
        raise FileError(f"{options.file} names no group.id and zookeeper.connect, expected both")
    tree = open_tree(address)
    try:
        _set_all(tree, address, options, group)
    finally:
        tree.close()


def _set_all(tree: Tree, address: str, options: argparse.Namespace, group: str) -> None:
    options.bootstrap_server = ",".join(broker_addresses(tree, address))
    parse_bootstrap(options.bootstrap_server)
    timestamp = EARLIEST if options.position == "earliest" else LATEST
    with admin_client(options) as admin:
        partitions = named_partitions(admin, [options.topic])
        for (topic, partition), offset in admin.list_offsets(dict.fromkeys(partitions, timestamp)).items():
            if isinstance(offset, KafkaError):
                raise offset
            print(f"updating partition {partition} with new offset: {offset}")
            zookeeper_offsets.write_offset(tree, consumer_offset_path(group, topic, partition), offset)
    print(f"updated the offset for {len(partitions)} partitions")
