"""zookeeper-shell: reads and changes the nodes of ZooKeeper, or of a broker's embedded store.

    zookeeper-shell localhost:2181/chroot ls /brokers/ids
    zookeeper-shell sqlite:var/data get /cluster/id

Without a command it reads commands from standard input. Owns the commands and what they print, which are those of
ZooKeeper's own client. Must not know how a tree is reached.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from controller.store.state_store import ANY_VERSION, Create, Delete, SetData
from tools.base.command_line import UsageError, run_usage_tool
from tools.zookeeper.znode_trees import (
    EMBEDDED,
    AclEntry,
    NodeStat,
    Tree,
    TreeError,
    TreeUnavailableError,
    open_embedded,
    open_zookeeper,
    paths_below,
)
from tools.zookeeper.zookeeper_options import security_of

USAGE: Final = (
    "USAGE: zookeeper-shell zookeeper_host:port[/path] [-zk-tls-config-file file] [args...]\n"
    "       zookeeper-shell sqlite:log_directory[,log_directory...] [--write] [args...]"
)
_DEFAULT_ADDRESS: Final = "localhost:2181"
QUIT, HISTORY = "quit", "history"
HISTORY_MAX: Final = 11
"""How many commands `history` prints, as ZooKeeper's client."""
PERMISSIONS: Final = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}
"""ZooKeeper's bits, in the order in which its client prints the letters."""
_UNKNOWN_COMMAND_STATUS: Final = 127
# A word in quotes, or one that starts without: quotes inside of it are kept, so that JSON needs none around it.
_WORD = re.compile(r"""\s*("[^"]*"|'[^']*'|[^\s"']\S*)""")


class _CommandUsageError(Exception):
    """The arguments of a command are invalid; the text is its usage."""


class _UnknownCommandError(Exception):
    """No command has this name."""


class _Arguments(NamedTuple):
    """The arguments of one command: its flags, the value of `-v`, and the rest."""

    flags: frozenset[str]
    version: int
    words: Sequence[str]

    @property
    def path(self) -> str:
        return self.words[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: that of the command, or of the last one of standard input."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    return run_usage_tool(USAGE, _run, given)


def main_of_class(arguments: Sequence[str]) -> int:
    """Return the exit status for the arguments of Java's ZooKeeperMain: the address comes after `-server`."""
    match arguments:
        case ["-server", address, *command]:
            return main([address, *command])
        case ["--version" | "--help" | "-h", *_]:
            return main(arguments)
        case ["-server"]:
            return main([])
        case _:
            return main([_DEFAULT_ADDRESS, *arguments])


def _run(given: Sequence[str]) -> int:
    address, *command = given
    tls_file = None
    if command[:1] and command[0].lstrip("-") == "zk-tls-config-file":
        if len(command) < 2:
            print(USAGE, file=sys.stderr)
            return 1
        _, tls_file, *command = command
    is_embedded = address.startswith(EMBEDDED)
    is_writable = is_embedded and command[:1] == ["--write"]
    try:
        if is_embedded:
            tree = open_embedded(address.removeprefix(EMBEDDED), writable=is_writable)
        else:
            print(f"Connecting to {address}", file=sys.stderr)
            tree = open_zookeeper(address, security_of(tls_file))
    except (TreeUnavailableError, UsageError) as error:
        print(error, file=sys.stderr)
        return 1
    try:
        words = command[1:] if is_writable else command
        if words in ([QUIT], [HISTORY]):
            return 0  # one command has no history
        return _execute(tree, words) if words else _converse(tree, address)
    finally:
        tree.close()


def _converse(tree: Tree, address: str) -> int:
    """Execute the commands of standard input, with a prompt on a terminal."""
    status = 0
    history: list[str] = []
    prompt = f"[zk: {address}] " if sys.stdin.isatty() else ""
    while True:
        try:
            line = input(prompt)
        except EOFError:
            return status
        words = words_of(line)
        if words == [QUIT]:
            return status
        if words:
            history.append(line)
        if words == [HISTORY]:
            for number, text in list(enumerate(history))[-HISTORY_MAX:]:
                print(f"{number} - {text}")
            status = 0
        elif words:
            status = _execute(tree, words)


def words_of(line: str) -> list[str]:
    """Split a line into words, without the quotes around a word."""
    return [word[1:-1] if word[0] in "\"'" else word for word in _WORD.findall(line)]


def _execute(tree: Tree, words: Sequence[str]) -> int:
    """Execute a command, print its result or error, and return its exit status."""
    try:
        name, *arguments = words
        if name not in _COMMANDS:
            raise _UnknownCommandError
        command = _COMMANDS[name]
        for line in command.execute(tree, _parsed(command, arguments)):
            print(line)
    except _UnknownCommandError:
        print("ZooKeeper -server host:port cmd args", file=sys.stderr)
        for command in _COMMANDS.values():
            print(f"\t{command.usage}", file=sys.stderr)
        print(f"Command not found: Command not found {words[0]}", file=sys.stderr)
        return _UNKNOWN_COMMAND_STATUS
    except (_CommandUsageError, TreeError, TreeUnavailableError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


class _Command(NamedTuple):
    usage: str
    execute: Callable[[Tree, _Arguments], Iterator[str]]
    flags: str = ""
    words_min: int = 1
    words_max: int = 1
    begins_with_path: bool = True


def _parsed(command: _Command, arguments: Sequence[str]) -> _Arguments:
    """Return the arguments. Raises _CommandUsageError, and TreeError for an invalid path."""
    flags: set[str] = set()
    words: list[str] = []
    version = ANY_VERSION
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not re.fullmatch("-[A-Za-z]", argument):
            words.append(argument)
        elif argument[1] not in command.flags:
            raise _CommandUsageError(command.usage)
        elif argument == "-v":
            if not rest or not re.fullmatch("-?[0-9]+", rest[0]):
                raise _CommandUsageError(command.usage)
            version = int(rest.pop(0))
        else:
            flags.add(argument[1])
    if not command.words_min <= len(words) <= command.words_max:
        raise _CommandUsageError(command.usage)
    if words and command.begins_with_path:
        _check_path(words[0])
    return _Arguments(frozenset(flags), version, words)


def _check_path(path: str) -> None:
    if not path.startswith("/"):
        raise TreeError("Path must start with / character")
    if path != "/" and path.endswith("/"):
        raise TreeError("Path must not end with / character")
    if "//" in path:
        raise TreeError(f'Invalid path string "{path}" caused by empty node name specified @{path.index("//") + 1}')


def _ls(tree: Tree, given: _Arguments) -> Iterator[str]:
    if "R" in given.flags:
        yield from paths_below(tree, given.path)
        return
    yield f"[{', '.join(tree.children(given.path))}]"
    if "s" in given.flags:
        yield from _stat_lines(tree.get(given.path)[1])


def _ls2(tree: Tree, given: _Arguments) -> Iterator[str]:
    return _ls(tree, given._replace(flags=frozenset("s")))


def _get(tree: Tree, given: _Arguments) -> Iterator[str]:
    data, stat = tree.get(given.path)
    yield "null" if data is None else data.decode(errors="replace")
    if "s" in given.flags:
        yield from _stat_lines(stat)


def _stat(tree: Tree, given: _Arguments) -> Iterator[str]:
    return _stat_lines(tree.get(given.path)[1])


def _stat_lines(stat: NodeStat) -> Iterator[str]:
    """Return the lines of ZooKeeper's client; lines of values that a store does not keep are left out."""
    values: list[tuple[str, str | int | None]] = [
        ("cZxid", hex(stat.czxid)),
        ("ctime", _time_text(stat.ctime_ms)),
        ("mZxid", hex(stat.mzxid)),
        ("mtime", None if stat.mtime_ms is None else _time_text(stat.mtime_ms)),
        ("pZxid", None if stat.pzxid is None else hex(stat.pzxid)),
        ("cversion", stat.cversion),
        ("dataVersion", stat.data_version),
        ("aclVersion", stat.acl_version),
        ("ephemeralOwner", hex(stat.ephemeral_owner)),
        ("dataLength", stat.data_length),
        ("numChildren", stat.children_count),
    ]
    return (f"{name} = {value}" for name, value in values if value is not None)


def _time_text(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")


def _create(tree: Tree, given: _Arguments) -> Iterator[str]:
    data = given.words[1].encode() if len(given.words) > 1 else None
    acl = parse_acl(given.words[2]) if len(given.words) > 2 else None
    is_ephemeral, is_sequential, is_container = (flag in given.flags for flag in "esc")
    if is_container and (is_ephemeral or is_sequential):
        raise TreeError("-c cannot be combined with -s or -e. Containers cannot be ephemeral or sequential.")
    created = tree.create(Create(given.path, data, is_ephemeral, is_sequential), container=is_container, acl=acl)
    print(f"Created {created}", file=sys.stderr)
    return iter(())


def _set(tree: Tree, given: _Arguments) -> Iterator[str]:
    tree.apply([SetData(given.path, given.words[1].encode(), given.version)])
    if "s" in given.flags:
        yield from _stat_lines(tree.get(given.path)[1])


def _delete(tree: Tree, given: _Arguments) -> Iterator[str]:
    tree.apply([Delete(given.path, given.version)])
    return iter(())


def _delete_all(tree: Tree, given: _Arguments) -> Iterator[str]:
    for path in reversed(list(paths_below(tree, given.path))):
        tree.apply([Delete(path)])
    return iter(())


def _get_acl(tree: Tree, given: _Arguments) -> Iterator[str]:
    acl, stat = tree.acl(given.path)
    for entry in acl:
        yield f"'{entry.scheme},'{entry.id}"
        yield f": {''.join(letter for letter, bit in PERMISSIONS.items() if entry.permissions & bit)}"
    if "s" in given.flags:
        yield from _stat_lines(stat)


def _set_acl(tree: Tree, given: _Arguments) -> Iterator[str]:
    acl = parse_acl(given.words[1])
    paths = list(paths_below(tree, given.path)) if "R" in given.flags else [given.path]
    for path in paths:
        tree.set_acl(path, acl, given.version)
    if "s" in given.flags:
        yield from _stat_lines(tree.get(given.path)[1])


def _add_auth(tree: Tree, given: _Arguments) -> Iterator[str]:
    tree.add_auth(given.words[0], given.words[1] if len(given.words) > 1 else "")
    return iter(())


def _sync(tree: Tree, given: _Arguments) -> Iterator[str]:
    tree.sync(given.path)
    yield "Sync is OK"


def parse_acl(text: str) -> list[AclEntry]:
    """Parse `scheme:id:cdrwa,...`. Raises TreeError."""
    entries = []
    for part in text.split(","):
        scheme, first, rest = part.partition(":")
        name, last, letters = rest.rpartition(":")
        if not first or not last:
            raise TreeError(f"{part} does not have the form scheme:id:perm")
        if unknown := [letter for letter in letters if letter not in PERMISSIONS]:
            raise TreeError(f"Unknown perm type: {unknown[0]}")
        entries.append(AclEntry(scheme, name, sum({PERMISSIONS[letter] for letter in letters})))
    return entries


_COMMANDS: Final = {
    "addauth": _Command("addauth scheme auth", _add_auth, words_max=2, begins_with_path=False),
    "create": _Command("create [-s] [-e] [-c] path [data] [acl]", _create, "sec", words_max=3),
    "delete": _Command("delete [-v version] path", _delete, "v"),
    "deleteall": _Command("deleteall path", _delete_all),
    "get": _Command("get [-s] path", _get, "s"),
    "getAcl": _Command("getAcl [-s] path", _get_acl, "s"),
    "ls": _Command("ls [-s] [-R] path", _ls, "sR"),
    "ls2": _Command("ls2 path", _ls2),
    "rmr": _Command("rmr path", _delete_all),
    "set": _Command("set [-s] [-v version] path data", _set, "sv", words_min=2, words_max=2),
    "setAcl": _Command("setAcl [-s] [-v version] [-R] path acl", _set_acl, "svR", words_min=2, words_max=2),
    "stat": _Command("stat path", _stat),
    "sync": _Command("sync path", _sync),
}


if __name__ == "__main__":
    raise SystemExit(main())
