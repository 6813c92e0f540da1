"""A command line with sub-commands, each with options of its own, as argparse4j's in Kafka's newer tools.

Owns how they are parsed. Must not know any tool.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from tools.base.command_line import CommandLine, UsageError, wrapped

_PURPOSE_COLUMN, _TEXT_COLUMN = 25, 8


class SubCommand(NamedTuple):
    """A purpose, and the settings of `add_argument` by option; names of one option are separated by a space.

    A name without a dash is a required argument.
    """

    help_text: str
    options: Mapping[str, Mapping[str, Any]] = {}


class _Parser(argparse.ArgumentParser):
    """Names the tool, and not the sub-command, in errors."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog.split()[0]}: error: {message}")


class SubCommands(CommandLine):
    """`options.command` is the name of the sub-command."""

    def __init__(self, name: str, description: str, commands: Mapping[str, SubCommand]) -> None:
        super().__init__(name, description, help_succeeds=True)
        parsers = self.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
        self._commands = commands
        for command, (help_text, options) in commands.items():
            parser = parsers.add_parser(command, help=help_text)
            for names, settings in options.items():
                parser.add_argument(*names.split(), **settings)

    def format_help(self) -> str:
        """Return the help with the sub-commands and their options."""
        lines = [super().format_help().rstrip("\n"), "", "Commands:"]
        for command, (purpose, options) in self._commands.items():
            lines.append(wrapped(f"  {command:<22} {purpose}", _PURPOSE_COLUMN))
            for names, settings in options.items():
                is_argument = not names.startswith("-")
                shown = [] if is_argument else [", ".join(names.split())]
                if settings.get("action") != "store_true":
                    shown.append(f"<{settings.get('metavar', 'VALUE')}>")
                lines.append(f"    {' '.join(shown)}")
                texts = (("REQUIRED", is_argument or settings.get("required")), (settings.get("help"), True))
                if text := ": ".join(text for text, is_shown in texts if text and is_shown):
                    lines.append(wrapped(f"        {text}", _TEXT_COLUMN))
        return "\n".join((*lines, ""))

    def parse(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """Do the same as `CommandLine.parse`. Raises UsageError also without a sub-command."""
        options = super().parse(arguments)
        if options.command is None:
            raise UsageError(f"{self.prog}: error: too few arguments")
        return options
