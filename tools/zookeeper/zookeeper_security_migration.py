"""zookeeper-security-migration: changes the access lists of a cluster's nodes in ZooKeeper.

`--zookeeper.acl=secure` gives each node the list that a broker with `zookeeper.set.acl=true` gives it; `unsecure` opens
all. Brokers may run at the same time. Owns which trees are changed. Must not know how access is decided
(`controller.zookeeper.security` does).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from controller.tree.acl_nodes import LITERAL_CHANGES, LITERAL_ROOT, PREFIXED_CHANGES
from controller.zookeeper.connection import ACL_OF_ACCESS, new_client
from controller.zookeeper.security import access_of
from tools.base.command_line import CommandLine, UsageError, run_tool
from tools.zookeeper.zookeeper_options import TLS_OPTION, add_tls_option, security_of

SECURE, UNSECURE = "secure", "unsecure"
ROOTS: Final = (
    "/admin",
    "/brokers",
    "/cluster",
    "/config",
    "/controller",
    "/controller_epoch",
    "/delegation_token",
    "/feature",
    "/feature_levels",
    "/isr_change_notification",
    "/kafka-acl-extended",
    LITERAL_CHANGES,
    LITERAL_ROOT,
    PREFIXED_CHANGES,
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/migration",
    "/milena",
)
"""The trees of a cluster. `/consumers` is missing: it stays open."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    line = CommandLine(
        "zookeeper-security-migration", "ZooKeeper Migration Tool Help. This tool updates the ACLs of znodes."
    )
    line.add_option("--zookeeper.acl", value="secure|unsecure", help_text="The access that all nodes get. Required.")
    line.add_option(
        "--zookeeper.connect",
        "--zookeeper.connection",  # of the documentation of 0.9
        value="host:port/chroot",
        default="localhost:2181",
        help_text="Servers of ZooKeeper (default: localhost:2181).",
    )
    for name in ("--zookeeper.session.timeout", "--zookeeper.connection.timeout"):
        line.add_option(name, value="ms", parse=int, default=30_000, help_text="Timeout in ms (default: 30000).")
    line.add_flag("--enable.path.check", "Fail if ZooKeeper has no node of a cluster, before any change.")
    add_tls_option(line)
    return run_tool(line, _run, arguments)


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--zookeeper.acl")
    line.require_one_of(options, "--zookeeper.acl", (SECURE, UNSECURE))
    is_secure = options.zookeeper_acl == SECURE
    security = security_of(options.zk_tls_config_file)
    if is_secure and not security.is_identified:
        raise UsageError(
            "ZooKeeper would not know who may change the nodes: expected a login (KAFKA_OPTS with "
            "-Djava.security.auth.login.config= of a file that has a section Client), or a client certificate in the "
            f"file of {TLS_OPTION}"
        )
    hosts, slash, chroot = options.zookeeper_connect.partition("/")
    client = new_client(hosts, security, session_timeout_seconds=options.zookeeper_session_timeout / 1000)
    client.chroot = slash + chroot.rstrip("/")
    try:
        client.start(options.zookeeper_connection_timeout / 1000)
        return _migrate(client, is_secure=is_secure, checks_paths=options.enable_path_check)
    except KazooTimeoutError:
        print(f"Unable to connect to ZooKeeper {hosts}, or its login is refused", file=sys.stderr)
    except KazooException as error:
        print(f"ZooKeeper refuses the change: {type(error).__name__} {error}", file=sys.stderr)
    finally:
        client.stop()
        client.close()
    return 1


def _migrate(client: KazooClient, *, is_secure: bool, checks_paths: bool) -> int:
    roots = [root for root in ROOTS if client.exists(root) is not None]
    if not roots and checks_paths:
        print(f"{client.chroot or '/'} has no nodes of a cluster, expected some of {', '.join(ROOTS)}", file=sys.stderr)
        return 1
    count = 0
    for path in ("/", *(path for root in roots for path in _below(client, root))):
        try:
            client.set_acls(path, ACL_OF_ACCESS[access_of(path, is_secure=is_secure)])
            count += 1
        except NoNodeError:
            continue  # deleted at the same time
    print(f"{count} nodes are {'secure' if is_secure else 'open to everyone'} now")
    return 0


def _below(client: KazooClient, root: str) -> Iterator[str]:
    """Yield the path and all paths below it."""
    pending = [root]
    while pending:
        path = pending.pop()
        yield path
        try:
            pending += [f"{path}/{name}" for name in client.get_children(path)]
        except NoNodeError:
            continue


if __name__ == "__main__":
    raise SystemExit(main())
