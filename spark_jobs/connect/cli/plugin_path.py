"""connect-plugin-path: lists the connectors and other plug-ins that a worker finds.

Java's tool also writes manifests, by which Java finds classes without loading them: Python needs none.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from base import properties
from spark_jobs.connect.base.definitions import Kind, parse
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.worker.plugins import SUFFIX, Plugin, Plugins
from tools.base.command_line import UsageError, run_tool
from tools.base.sub_commands import SubCommand, SubCommands

HEAD: Final = ("pluginName", "firstAlias", "secondAlias", "pluginVersion", "pluginType", "isLoadable", "hasManifest",
               "pluginLocation")  # fmt: skip
_ABSENT: Final = "N/A"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    line = SubCommands(
        "connect-plugin-path",
        "Lists the plug-ins of Connect's workers.",
        {
            "list": SubCommand(
                "Lists the plug-ins.",
                {
                    "--plugin-location": {"action": "append", "default": [], "help": "A folder of plug-ins."},
                    "--plugin-path": {"action": "append", "default": [], "help": "Folders, separated by commas."},
                    "--worker-config": {
                        "action": "append",
                        "default": [],
                        "help": "A worker's properties file with plugin.path.",
                    },
                },
            ),
            "sync-manifests": SubCommand("Is not needed for plug-ins in Python."),
        },
    )
    return run_tool(line, _run, arguments)


def _run(_line: object, options: argparse.Namespace) -> int:
    if options.command == "sync-manifests":
        raise UsageError("sync-manifests is not needed: plug-ins in Python have no manifests")
    print("\t".join(HEAD))
    for plugin in sorted(Plugins(_folders(options)).all):
        print("\t".join(_row(plugin)))
    return 0


def _folders(options: argparse.Namespace) -> list[Path]:
    found = list(options.plugin_location)
    for paths in options.plugin_path:
        found += parse("plugin.path", Kind.LIST, paths)
    for file in options.worker_config:
        try:
            found += parse("plugin.path", Kind.LIST, properties.load(file).get("plugin.path", ""))
        except (OSError, ValueError) as error:
            raise UsageError(f"Cannot read {file}: {getattr(error, 'strerror', None) or error}") from None
    return [Path(each) for each in found]


def _row(plugin: Plugin) -> Sequence[str]:
    short = plugin.name.rpartition(".")[2]
    alias = short.removesuffix(SUFFIX)
    try:
        version, is_loadable = str(getattr(plugin.load(), "version", "undefined")), "true"
    except ConfigError:
        version, is_loadable = "undefined", "false"
    second = alias if alias != short else _ABSENT
    module = plugin.target.partition(":")[0]
    return (plugin.name, short, second, version, plugin.kind, is_loadable, "false", module)


if __name__ == "__main__":
    raise SystemExit(main())
