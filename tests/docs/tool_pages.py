"""Writes docs/tools: a page for each tool, from the help that the tool prints.

    python -m tests.docs.tool_pages

Owns the form of the pages. `test_tool_pages` checks that they are current.
"""

from __future__ import annotations

import contextlib
import io
import tomllib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from milena_broker import commands
from tests.support import command_lines

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "tools"
INDEX = "README.md"
COMPARISON = "comparison.md"


def pages() -> Mapping[str, str]:
    """Return the text of each page by its file name."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    found: dict[str, str] = {}
    rows = []
    for name, target in sorted(scripts.items()):
        (module,) = getattr(commands, target.partition(":")[2]).args
        found[f"{name}.md"] = f"# {name}\n\n{_purpose(name)}\n\n```text\n{_help(module)}\n```\n"
        rows.append(f"| [`{name}`]({name}.md) | {_purpose(name)} |")
    found[COMPARISON] = _comparison()
    found[INDEX] = "\n".join(
        (
            "# Tools",
            "",
            "For users of the command line: the tools in `bin/`. A page shows what `--help` prints. The tools of",
            "Kafka and ZooKeeper also exist under their names with `.sh`. [pipelines.md](../pipelines.md) describes",
            "`spark-job`, and [wire-codec.md](../formats/wire-codec.md#from-declaration-to-code) `dump-codec`;",
            "`kafka-run-class` runs the tool of a Java class name. [not-yet.md](../not-yet.md#tools) lists the tools",
            "of Kafka that are missing.",
            "",
            "`--help` ends as with Kafka's tools: on stderr with exit status 1. Tools with sub-commands,",
            "`kafka-server-start`, `kafka-producer-perf-test`, `kafka-verifiable-producer`,",
            "`kafka-verifiable-consumer` and Milena's own",
            "print it to stdout and exit with 0. [comparison.md](comparison.md) compares the tools with Kafka's.",
            "",
            "| tool | purpose |",
            "|---|---|",
            *rows,
            "",
        )
    )
    return found


def _comparison() -> str:
    """Return the page about the sessions of command lines: how many lines are equal, and why the others differ."""
    sessions = {name: command_lines.read(name) for name in command_lines.names()}
    lines = [
        "# Comparison with Kafka's tools",
        "",
        f"{sum(map(len, sessions.values()))} command lines run with the tools of Apache Kafka 3.9.1 and with Milena's,",
        "against Kafka and against Milena. The tests compare output, errors and exit status. Ids, times, measurements,",
        "log lines and the tables of options are masked. `bin/test` compares what Milena's tools print, with Milena as",
        "the broker, with the recorded output of Kafka's; `bin/test --soak` runs all four pairs.",
        "",
        "| session | command lines | equal | tool differs | broker differs |",
        "|---|---|---|---|---|",
    ]
    for name, entries in sessions.items():
        counts = [len(entries), sum(not entry.reasons for entry in entries)]
        counts += [sum(part in entry.reasons for entry in entries) for part in ("tool", "broker")]
        link = f"[{name}](../../tests/fixtures/command-lines/{name}.txt)"
        lines.append(f"| {' | '.join([link, *map(str, counts)])} |")
    lines += ["", "What differs, and why:", "", "| command line | differs | reason |", "|---|---|---|"]
    lines += [
        f"| `{entry.command.line}` | {part} | {reason} |".replace("' | ", "' \\| ")
        for entries in sessions.values()
        for entry in entries
        for part, reason in entry.reasons.items()
    ]
    return "\n".join((*lines, ""))


def _purpose(name: str) -> str:
    """Return the comment that a launcher begins with."""
    comment = (ROOT / "bin" / name).read_text().splitlines()[1]
    return comment.removeprefix("# ")


def _help(module: str) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), contextlib.suppress(SystemExit):
        import_module(module).main(["--help"])
    return output.getvalue().strip("\n")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
