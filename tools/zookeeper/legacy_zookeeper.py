"""`--zookeeper` of the tools: the brokers come from ZooKeeper, and the output has the form that it had then.

Owns the option, the choice of addresses and what else a tool may read there. Must not know any tool. ZooKeeper's
client is imported when the option is used.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tools.base.command_line import CommandLine, UnreachableError, UsageError, warn
from tools.zookeeper.zookeeper_options import add_tls_option

if TYPE_CHECKING:
    from tools.zookeeper.znode_trees import Tree

ZOOKEEPER: Final = "--zookeeper"
DEPRECATED: Final = "--zookeeper is deprecated. Use --bootstrap-server instead to specify a broker to connect to."
DEFAULT_PORT: Final = "2181"
_BROKERS: Final = "/brokers/ids"
_PLAINTEXT: Final = "PLAINTEXT"


def add_zookeeper_option(line: CommandLine) -> None:
    """Add `--zookeeper`, and the option for TLS to it."""
    line.add_option(
        ZOOKEEPER,
        value="urls",
        help_text="DEPRECATED: ZooKeeper, as host:port,host:port/chroot. The tool asks it for the brokers, and prints "
        "what it printed when it used ZooKeeper.",
    )
    add_tls_option(line)


def use_zookeeper(line: CommandLine, options: argparse.Namespace) -> Tree | None:
    """Set `--bootstrap-server` to the brokers that are registered in ZooKeeper; return its tree.

    Returns None without the option. Raises UsageError, UnreachableError.
    """
    if options.zookeeper is None:
        return None
    line.forbid(options, ZOOKEEPER, "--bootstrap-server")
    warn(DEPRECATED)
    tree = open_tree(options.zookeeper, options.zk_tls_config_file)
    options.bootstrap_server = ",".join(broker_addresses(tree, options.zookeeper))
    return tree


def use_brokers_of_zookeeper(line: CommandLine, options: argparse.Namespace) -> None:
    """Do the same as `use_zookeeper` for a tool that reads nothing else there."""
    tree = use_zookeeper(line, options)
    if tree is not None:
        tree.close()


def open_tree(address: str, tls_file: str | None = None) -> Tree:
    """Connect to `host:port,host:port/chroot`; `tls_file` has settings of TLS. Raises UsageError, UnreachableError."""
    from tools.zookeeper.znode_trees import NO_SERVER_HINT, TreeUnavailableError, open_zookeeper
    from tools.zookeeper.zookeeper_options import security_of

    try:
        return open_zookeeper(with_ports(address), security_of(tls_file))
    except TreeUnavailableError as error:
        raise UnreachableError(f"{error}. {NO_SERVER_HINT}") from None


def with_ports(address: str) -> str:
    """Return `host:port,host:port/chroot` with a port for each host: the last one holds for hosts without.

    Raises:
        UsageError: The address has another form.
    """
    addresses, slash, chroot = address.partition("/")
    hosts = [host.strip() for host in addresses.split(",") if host.strip()]
    port = hosts[-1].rpartition(":")[2] if hosts and ":" in hosts[-1] else DEFAULT_PORT
    named = ",".join(host if ":" in host else f"{host}:{port}" for host in hosts)
    if not hosts or not all(host.rpartition(":")[2].isdecimal() for host in named.split(",")):
        raise UsageError(f"Invalid zookeeper {address!r}: expected host:port,host:port/chroot")
    return named + slash + chroot


def broker_addresses(tree: Tree, address: str) -> Sequence[str]:
    """Return an address of each registered broker, one without security if it has one. Raises UnreachableError."""
    from controller.tree.paths import Undecodable, decode_broker
    from tools.zookeeper.znode_trees import TreeError

    found = []
    try:
        for name in sorted(tree.children(_BROKERS), key=int):
            broker = decode_broker(int(name), tree.get(f"{_BROKERS}/{name}")[0], 0)
            endpoints = sorted(broker.endpoints, key=lambda one: one.security_protocol != _PLAINTEXT)
            found.append(f"{endpoints[0].host}:{endpoints[0].port}")
    except (TreeError, Undecodable, ValueError) as error:
        raise UnreachableError(f"No brokers can be read from ZooKeeper {address}: {error}") from None
    if not found:
        raise UnreachableError(f"No broker is registered in ZooKeeper {address}")
    return found
