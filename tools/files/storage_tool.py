"""kafka-storage: the log directories of a broker: their owner, and its embedded metadata store.

A broker formats its directories when it starts. `format` is for a cluster id that was chosen before. `backup`, `repair`
and `migrate` are Milena's own; `migrate` is `metadata-copy` with the directories of a settings file. The broker may run
during `backup`, and during `repair` without `--keep`.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from protocol.ids import id_text, random_id
from tools.base.command_line import CommandLine, run_tool
from tools.base.sub_commands import SubCommand, SubCommands

PROGRAM: Final = "kafka-storage"

_CONFIG: Mapping[str, Any] = {"required": True, "metavar": "CONFIG", "help": "The settings of the broker."}
_FLAG: Mapping[str, Any] = {"action": "store_true"}

COMMANDS: Mapping[str, SubCommand] = {
    "info": SubCommand("Print the state of the log directories.", {"--config -c": _CONFIG}),
    "format": SubCommand(
        "Record the cluster and the broker in new log directories.",
        {
            "--config -c": _CONFIG,
            "--cluster-id -t": {"required": True, "metavar": "ID", "help": "The cluster, as random-uuid prints one."},
            "--ignore-formatted -g": {**_FLAG, "help": "Leave directories that are formatted for this cluster."},
            "--add-scram -S": {
                "action": "append",
                "default": [],
                "metavar": "MECHANISM=[name=USER,password=SECRET]",
                "help": "A user that exists before the first start; iterations=N may be added.",
            },
            "--standalone -s": {**_FLAG, "help": "Without effect: a broker without ZooKeeper is its own controller."},
            "--no-initial-controllers -N": {**_FLAG, "help": "Needs KRaft."},
            **{
                name: {"metavar": "VALUE", "help": "Needs KRaft."}
                for name in ("--release-version -r", "--feature -f", "--initial-controllers -I")
            },
        },
    ),
    "random-uuid": SubCommand("Print a random cluster id."),
    "backup": SubCommand(
        "Copy the embedded metadata store to a file.",
        {"--config -c": _CONFIG, "target": {"metavar": "FILE", "help": "A new file. The broker may run."}},
    ),
    "repair": SubCommand(
        "Show damaged records of the coordinators' topics, and cut them out if that changes nothing.",
        {
            "--config -c": _CONFIG,
            "--keep -k": {
                "metavar": "FOLDER",
                "help": "Cut the damaged records out, and keep their bytes in this folder. The broker must be stopped.",
            },
            "--only-copy": {
                **_FLAG,
                "help": "No other broker has the partition: an older commit may take the place of a lost one.",
            },
        },
    ),
    "migrate": SubCommand(
        "Copy the metadata between the embedded store and ZooKeeper.",
        {
            "--config -c": _CONFIG,
            "--to": {"metavar": "ZOOKEEPER", "help": "host:port,.../chroot to copy to."},
            "--from": {"metavar": "ZOOKEEPER", "dest": "from_zookeeper", "help": "host:port,.../chroot to copy from."},
        },
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    return SubCommands(PROGRAM, "This tool prepares and describes the log directories of a broker.", COMMANDS)


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    if options.command == "random-uuid":
        print(id_text(random_id(secrets.randbits)))
        return 0
    # It imports both stores of metadata, which neither the help nor a random id needs.
    from tools.files.log_dir_storage import run

    return run(options)


if __name__ == "__main__":
    raise SystemExit(main())
