"""What the commands of kafka-storage do with the log directories of a broker.

Owns their order and messages. Must not know how options are parsed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from broker.loop.clock import SystemClock
from config.broker import BrokerConfig
from config.broker_properties import BROKER_ID, ZOOKEEPER_CONNECT
from controller.embedded.sqlite_store import METADATA_FILE, SqliteStore
from controller.store.state_store import StoreError, StoreUnavailable
from controller.tree.registration import IdentityError, set_cluster_id
from controller.zookeeper.security import ZooKeeperSecurity
from storage.disk import meta_properties, names
from storage.disk.files import OsFiles
from storage.disk.meta_properties import MetaProperties, WrongDirectoryError
from tools.admin.configuration.entities import USERS, Entity
from tools.admin.configuration.stored import StoreFailed, alter_stored
from tools.base.command_line import UsageError, warn
from tools.files.coordinator_repair import RepairError, find_damage, lock, repair
from tools.files.segment_files import DumpError
from tools.files.store_backup import BackupError, back_up
from tools.launch.broker_config import SettingsError, read_broker_config
from tools.zookeeper import metadata_copy
from tools.zookeeper.znode_trees import EMBEDDED

_NEEDS_KRAFT: Final = ("no_initial_controllers", "release_version", "feature", "initial_controllers")
_SCRAM = re.compile(r"(?P<mechanism>SCRAM-SHA-(?:256|512))=\[name=(?P<name>[^,\]]+),(?P<rest>[^\]]+)\]")


class StorageError(Exception):
    """The command failed; the text is one line for stderr."""


def run(options: argparse.Namespace) -> int:
    """Perform `options.command`; return the exit status. Raises UsageError."""
    try:
        config = read_broker_config(options.config)
        match options.command:
            case "info":
                return _info(config)
            case "format":
                _format(config, options)
            case "backup":
                _backup(config, Path(options.target))
            case "repair":
                return _repair(config, options.keep, is_only_copy=options.only_copy)
            case "migrate":
                return _migrate(config, options)
    except (OSError, SettingsError, StorageError, StoreFailed, WrongDirectoryError, RepairError, DumpError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _repair(config: BrokerConfig, keep: str | None, *, is_only_copy: bool) -> int:
    """Print the damage, and repair it if `keep` is a folder; return 1 if damage is left.

    A broker without ZooKeeper runs alone, and so has the only copy.

    Raises RepairError, DumpError, OSError.
    """
    log_dirs = [folder for folder in config.log_dirs if os.path.isdir(folder)]
    with ExitStack() as undo:
        if keep is not None:
            for folder in log_dirs:
                undo.callback(lock(folder))
        status = 0
        for damaged in find_damage(log_dirs):
            for stretch in damaged.damages:
                print(f"{stretch.path} position {stretch.position} offset {stretch.offset}: {stretch.damage}")
            if keep is None:
                status = 1
                continue
            try:
                lost = repair(damaged, keep, is_only_copy=is_only_copy or not config[ZOOKEEPER_CONNECT])
            except RepairError as error:
                print(error, file=sys.stderr)
                status = 1
                continue
            print(f"{damaged.folder}: cut out the damage in {len(damaged.damages)} places, which is kept in {keep}")
            for line in lost:
                print(f"{damaged.folder}: {line}")
    return status


def _meta_path(folder: str) -> str:
    return os.path.join(folder, names.META_PROPERTIES)


def _info(config: BrokerConfig) -> int:
    """Print what the log directories hold; return 1 if there is a problem."""
    found: dict[str, MetaProperties] = {}
    present, problems = [], []
    for folder in sorted(config.log_dirs):
        if not os.path.isdir(folder):
            problems.append(f"{folder} is not a directory" if os.path.exists(folder) else f"{folder} does not exist")
            continue
        present.append(folder)
        try:
            meta = meta_properties.read(OsFiles(), _meta_path(folder))
        except (WrongDirectoryError, OSError) as error:
            problems.append(str(error))
            continue
        if meta is None:
            problems.append(f"{folder} is not formatted.")
        else:
            found[folder] = meta
    if present:
        _print_block("Found log directories:", present)
    for folder, meta in found.items():
        if meta != next(iter(found.values())):
            problems.append(f"{_meta_path(folder)} names broker {meta.broker_id} of cluster {meta.cluster_id}")
    if found:
        meta = next(iter(found.values()))
        entries = {"broker.id": meta.broker_id, "cluster.id": meta.cluster_id, "version": 0}
        text = ", ".join(f"{key}={value}" for key, value in entries.items() if value is not None)
        print(f"Found metadata: {{{text}}}\n")
    if problems:
        _print_block("Found problems:", problems)
    return 1 if problems else 0


def _print_block(title: str, lines: Sequence[str]) -> None:
    print("\n".join((title, *(f"  {line}" for line in lines), "")))


def _format(config: BrokerConfig, options: argparse.Namespace) -> None:
    """Raises StorageError, StoreFailed, UsageError, OSError."""
    for name in _NEEDS_KRAFT:
        if getattr(options, name):
            raise StorageError(f"--{name.replace('_', '-')} needs KRaft, and this broker runs without it")
    users = [_user(text) for text in options.add_scram]
    cluster_id = options.cluster_id
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", cluster_id):
        raise StorageError(f"Cluster ID string {cluster_id} is invalid, expected what kafka-storage random-uuid prints")
    broker_id = config[BROKER_ID]
    if broker_id < 0:
        raise StorageError("broker.id is missing, expected a number: a formatted directory names its broker")
    if options.add_scram and config[ZOOKEEPER_CONNECT]:
        raise StorageError("--add-scram is for the embedded store; use kafka-configs --zookeeper for a cluster")
    meta = MetaProperties(broker_id, cluster_id)
    unformatted = []
    for folder in config.log_dirs:
        found = meta_properties.read(OsFiles(), _meta_path(folder))
        if found is None:
            unformatted.append(folder)
            continue
        meta_properties.verify(found, _meta_path(folder), broker_id=broker_id, cluster_id=cluster_id)
        if not options.ignore_formatted:
            raise StorageError(
                f"Log directory {folder} is already formatted. Use --ignore-formatted to ignore this directory and "
                "format the others."
            )
    if not unformatted:
        print("All of the log directories are already formatted.")
    for folder in unformatted:
        print(f"Formatting {folder} for broker {broker_id} of cluster {cluster_id}.")
        os.makedirs(folder, exist_ok=True)
        meta_properties.write(OsFiles(), _meta_path(folder), meta)
    if not config[ZOOKEEPER_CONNECT]:
        asyncio.run(_create_store(config, cluster_id))
    for mechanism, name, credential in users:
        address = f"{EMBEDDED}{config.log_dirs[0]}"
        alter_stored(address, ZooKeeperSecurity(), [Entity(USERS, name)], {mechanism: credential}, [])
        print(f"Added user {name} with {mechanism}.")


async def _create_store(config: BrokerConfig, cluster_id: str) -> None:
    """Create the embedded store with the id of its cluster, unless it exists. Raises StorageError."""
    store = SqliteStore(_copies(config), SystemClock(), sleep=time.sleep)
    try:
        await store.open()
        await set_cluster_id(store, cluster_id)
    except (IdentityError, StoreError, StoreUnavailable) as error:
        raise StorageError(str(error)) from error
    finally:
        await store.close()


def _copies(config: BrokerConfig) -> list[Path]:
    """Return where the copies of the embedded store are: in each log directory."""
    return [Path(folder) / METADATA_FILE for folder in config.log_dirs]


def _user(text: str) -> tuple[str, str, str]:
    """Return mechanism, name and the other values of a credential. Raises UsageError, without the password."""
    match = _SCRAM.fullmatch(text)
    if match is None:
        raise UsageError("Invalid --add-scram, expected SCRAM-SHA-256=[name=USER,password=SECRET], or SCRAM-SHA-512")
    return match["mechanism"], match["name"], match["rest"]


def _backup(config: BrokerConfig, target: Path) -> None:
    """Raises StorageError, OSError."""
    if target.exists():
        raise StorageError(f"{target} exists, expected the name of a new file")
    copies = _copies(config)
    found = [copy for copy in copies if copy.exists()]
    if not found:
        raise StorageError(f"{', '.join(map(str, copies))} does not exist: no embedded store of this broker was found")
    try:
        backup = back_up(found, target)
    except BackupError as error:
        raise StorageError(str(error)) from error
    for path in backup.left_out:
        warn(f"{path} was left out: it is damaged, or belongs to no cluster")
    print(f"Copied {backup.source} up to transaction {backup.zxid} to {target}.")


def _migrate(config: BrokerConfig, options: argparse.Namespace) -> int:
    """Return the exit status of `metadata-copy`."""
    if (options.to is None) == (options.from_zookeeper is None):
        raise UsageError("kafka-storage: error: expected one of --to and --from")
    folders = ",".join(config.log_dirs)
    if options.to is not None:
        return metadata_copy.main(["--from-log-dir", folders, "--to-zookeeper", options.to])
    return metadata_copy.main(["--from-zookeeper", options.from_zookeeper, "--to-log-dir", folders])
