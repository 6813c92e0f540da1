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

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "tools"
INDEX = "README.md"


def pages() -> Mapping[str, str]:
    """Return the text of each page by its file name."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    found: dict[str, str] = {}
    rows = []
    for name, target in sorted(scripts.items()):
        (module,) = getattr(commands, target.partition(":")[2]).args
        found[f"{name}.md"] = f"# {name}\n\n{_purpose(name)}\n\n```text\n{_help(module)}\n```\n"
        rows.append(f"| [`{name}`]({name}.md) | {_purpose(name)} |")
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
            "| tool | purpose |",
            "|---|---|",
            *rows,
            "",
        )
    )
    return found


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
