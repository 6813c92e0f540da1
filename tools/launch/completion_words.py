"""What completes the last word of a command line: sub-commands, options, their values, names of topics and groups.

Only the tool of the line is imported, and a broker is asked only if the line names one. A shell waits for the answer,
so each step is short, and whatever fails completes nothing.

Owns which words complete a line. Must not know shells.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import PurePath
from typing import NamedTuple

from milena_broker import commands
from tools.base.command_line import BOOTSTRAP_SERVER, UnreachableError, UsageError

TIMEOUT_MS = 700
"""How long a shell waits for the names of a broker."""
_TOPICS = frozenset({"--topic", "--topics-include"})
_GROUPS = frozenset({"--group", "--group-id"})
_ENTITY = "--entity-name"
_FILES_OF_CLIENT = ("--command-config", "--consumer.config", "--consumer-config", "--producer.config")
_OF_MILENA = ("certs", "completion")
_WITHOUT_PREFIX = ("coordination-server-start", "metadata-copy", "milena")
_OTHER_PREFIXES = ("connect-", "zookeeper-")


class Word(NamedTuple):
    """One way to complete a line."""

    text: str
    purpose: str = ""


def tool_names() -> list[str]:
    """Return the names of all tools, as launchers have them."""
    return sorted(_modules())


def completions(line: str) -> list[Word]:
    """Return the words that complete a command line whose cursor is at its end, sorted."""
    try:
        words = shlex.split(line)
    except ValueError:  # within quotes
        return []
    last = "" if not words or line[-1:].isspace() else words.pop()
    if not words or (parser := _parser(PurePath(words[0]).name.removesuffix(".sh"))) is None:
        return []
    commands = _sub_commands(parser)
    if (chosen := next((word for word in words if word in commands), None)) is not None:
        parser = commands[chosen]
    option = _option_with_value(parser, words)
    found: Iterator[Word]
    if option is not None:
        found = map(Word, _values(option, words))
    elif last.startswith("-"):
        found = _options(parser)
    elif chosen is None:
        found = map(Word, commands)
    else:
        return []
    return sorted(word for word in found if word.text.startswith(last))


def _modules() -> dict[str, str]:
    """Return the module of each tool, by the name of its launcher."""
    return {
        _launcher(name.replace("_", "-")): command.args[0]
        for name, command in vars(commands).items()
        if isinstance(command, partial)
    }


def _launcher(command: str) -> str:
    if command in _OF_MILENA:
        return f"milena-{command}"
    return command if command in _WITHOUT_PREFIX or command.startswith(_OTHER_PREFIXES) else f"kafka-{command}"


def _parser(name: str) -> argparse.ArgumentParser | None:
    """Return the options of a tool; None for a tool without a table of options."""
    if (path := _modules().get(name)) is None:
        return None
    module = import_module(path)
    make = getattr(module, "_command_line", None) or getattr(module, "parser", None)
    parser = make() if callable(make) else None
    return parser if isinstance(parser, argparse.ArgumentParser) else None


def _options(parser: argparse.ArgumentParser) -> Iterator[Word]:
    for action in parser._actions:
        if action.help is not argparse.SUPPRESS:
            purpose = (action.help or "").partition(". ")[0].removesuffix(".")
            yield from (Word(option, purpose) for option in action.option_strings)


def _sub_commands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return the options of each sub-command of a tool, by its name."""
    return next((action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)), {})


def _option_with_value(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Action | None:
    """Return the option that the next word is a value of."""
    action = parser._option_string_actions.get(words[-1])
    return action if action is not None and action.nargs != 0 else None


def _values(option: argparse.Action, words: Sequence[str]) -> list[str]:
    names = set(option.option_strings)
    kinds = _value_of(words, ("--entity-type",)) or ""
    if names & _TOPICS or (_ENTITY in names and kinds == "topics"):
        return _names(words, topics=True)
    if names & _GROUPS or (_ENTITY in names and kinds == "groups"):
        return _names(words, topics=False)
    return [str(choice) for choice in option.choices or ()]


def _value_of(words: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the value that a line gives to an option with one of several names."""
    return next((value for name, value in pairwise(words) if name in names), None)


def _names(words: Sequence[str], *, topics: bool) -> list[str]:
    """Return the topics or groups of the cluster that a line names; none if they cannot be read at once."""
    if (bootstrap := _value_of(words, BOOTSTRAP_SERVER)) is None:
        return []
    # Completing options needs neither the codec nor a socket.
    from protocol.errors import KafkaError, Malformed
    from tools.client.admin_client import CallTimedOut
    from tools.client.admin_options import admin_client

    options = argparse.Namespace(bootstrap_server=bootstrap, command_config=_value_of(words, _FILES_OF_CLIENT))
    try:
        with admin_client(options, timeout_ms=TIMEOUT_MS) as client:
            cluster = client.metadata(None if topics else [])
            if topics:
                return [topic.name or "" for topic in cluster.topics]
            from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

            brokers = (broker.node_id for broker in cluster.brokers)
            listed = [client.call_once(ListGroupsRequest(), ListGroupsResponse, broker_id=it) for it in brokers]
            return [group.group_id for response in listed for group in response.groups]
    except (UsageError, UnreachableError, CallTimedOut, KafkaError, Malformed, OSError):
        return []
