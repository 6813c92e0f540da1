"""milena-completion: prints the completion of the tools' options for a shell, generated from their tables of options.

Owns the scripts of the shells. Must not know any tool: their options come from the tools themselves.

    source <(milena-completion bash)                                              also for zsh
    milena-completion fish > ~/.config/fish/completions/milena.fish
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module

from milena_broker import commands
from tools.base.command_line import CommandLine, run_tool


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the script and return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "milena-completion", "This tool prints the completion of the tools' options.", ("bash",), help_succeeds=True
    )
    line.add_argument("shell", nargs="?", help=", ".join(sorted(_SHELLS)))
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "shell")
    line.require_one_of(options, "shell", sorted(_SHELLS))
    sys.stdout.write(_SHELLS[options.shell](tool_options()))
    return 0


def tool_options() -> dict[str, list[tuple[str, str]]]:
    """Return the options of each tool that declares them in a table: (name, purpose)."""
    return {f"{name}{suffix}": found for name, found in _tools() for suffix in ("", ".sh")}


def _tools() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for command in vars(commands).values():
        if not isinstance(command, partial):
            continue
        module = import_module(command.args[0])
        make = getattr(module, "_command_line", None) or getattr(module, "parser", None)
        if callable(make):
            parser = make()
            yield parser.prog, sorted(_options(parser))


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if action.help is argparse.SUPPRESS:
            continue
        purpose = (action.help or "").partition(". ")[0].removesuffix(".")
        yield from ((option, purpose) for option in action.option_strings)


def _bash(tools: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    words = {name: " ".join(option for option, _ in found) for name, found in tools.items()}
    cases = "".join(f"    {name}) options='{options}' ;;\n" for name, options in words.items())
    return (
        f'_milena() {{\n  local options=\n  case "${{COMP_WORDS[0]##*/}}" in\n{cases}  esac\n'
        '  COMPREPLY=($(compgen -W "$options" -- "${COMP_WORDS[COMP_CWORD]}"))\n}\n'
        f"complete -o default -F _milena {' '.join(tools)}\n"
    )


def _zsh(tools: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    return "autoload -U +X bashcompinit && bashcompinit\n" + _bash(tools)


def _fish(tools: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    return "".join(
        f"complete -c {name} {'-l' if option.startswith('--') else '-o'} {option.lstrip('-')} -d {_quoted(purpose)}\n"
        for name, found in tools.items()
        for option, purpose in found
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_SHELLS: Mapping[str, Callable[[Mapping[str, Sequence[tuple[str, str]]]], str]] = {
    "bash": _bash,
    "fish": _fish,
    "zsh": _zsh,
}

if __name__ == "__main__":
    raise SystemExit(main())
