"""milena-completion: prints the completion of the tools' command lines for a shell, or what completes one line.

Owns the scripts of the shells: each asks this tool again for every line. Must not know what completes a line.

    source <(milena-completion bash)                                              also for zsh
    milena-completion fish > ~/.config/fish/completions/milena.fish
"""

import argparse
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.base.command_line import CommandLine, run_tool
from tools.launch.completion_words import completions, tool_names

_ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the script, or what completes a line, and return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "milena-completion",
        "This tool prints the completion of the tools' options, and of the names of topics and groups.",
        ("bash", "fish --line 'kafka-topics --describe --topic ord'"),
        help_succeeds=True,
    )
    line.add_argument("shell", nargs="?", help=", ".join(sorted(_SHELLS)))
    line.add_option(
        "--line", value="text", help_text="Print what completes this command line, one word a line; scripts use it."
    )
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "shell")
    line.require_one_of(options, "shell", sorted(_SHELLS))
    if options.line is None:
        print(_SHELLS[options.shell](_launcher(), [f"{name}{end}" for name in tool_names() for end in ("", ".sh")]))
        return 0
    for word in completions(options.line):
        print(f"{word.text}\t{word.purpose}" if options.shell == _FISH and word.purpose else word.text)
    return 0


def _launcher() -> str:
    """Return how a shell calls this tool: by its place in a clone, by its name in a package."""
    path = _ROOT / "bin" / "milena-completion"
    return shlex.quote(str(path)) if path.exists() else path.name


def _bash(launcher: str, tools: Sequence[str]) -> str:
    return (
        "_milena() {\n"
        "  local word\n"
        "  COMPREPLY=()\n"
        "  while IFS= read -r word; do\n"
        '    COMPREPLY+=("$word")\n'
        f'  done < <({launcher} bash --line "${{COMP_LINE:0:COMP_POINT}}" 2>/dev/null)\n'
        "}\n"
        f"complete -o default -F _milena {' '.join(tools)}"
    )


def _zsh(launcher: str, tools: Sequence[str]) -> str:
    return "autoload -U +X bashcompinit && bashcompinit\n" + _bash(launcher, tools)


def _fish(launcher: str, tools: Sequence[str]) -> str:
    words = f"({launcher} fish --line (commandline -cp | string collect -N) 2>/dev/null)"
    return "\n".join(f"complete -c {name} -a {shlex.quote(words)}" for name in tools)


_FISH = "fish"
_SHELLS: Mapping[str, Callable[[str, Sequence[str]], str]] = {"bash": _bash, _FISH: _fish, "zsh": _zsh}

if __name__ == "__main__":
    raise SystemExit(main())
