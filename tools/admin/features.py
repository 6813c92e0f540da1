"""kafka-features: prints the finalized features of a cluster, and tries to change them (KIP-584).

A cluster with its metadata in ZooKeeper has no features: `describe` prints nothing, and the broker refuses changes as
Kafka does. A broker with an embedded store has those of `config.features`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from config.features import FEATURES
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from tools.base.command_line import BOOTSTRAP_SERVER_ONLY, CommandLine, UsageError, run_tool
from tools.base.sub_commands import SubCommand, SubCommands
from tools.base.version import version_line
from tools.client.admin_client import AdminClient, CallTimedOut
from tools.client.admin_options import add_admin_options, admin_client

PROGRAM: Final = "kafka-features"
METADATA_VERSION: Final = "metadata.version"

METADATA_RELEASES: Final = (
    "3.0-IV1", "3.1-IV0", "3.2-IV0", "3.3-IV0", "3.3-IV1", "3.3-IV2", "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1",
    "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0",
    "3.9-IV0",
)  # fmt: skip
"""The releases by level of `metadata.version`, from level 1 on."""

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3  # kinds of changes

_FEATURE: Mapping[str, Any] = {"action": "append", "metavar": "NAME=LEVEL", "help": "A feature and its level."}
_METADATA: Mapping[str, Any] = {"metavar": "RELEASE", "help": f"The level of {METADATA_VERSION}, as a release."}
_RELEASE: Mapping[str, Any] = {"metavar": "RELEASE", "help": "A release, such as 3.9-IV0."}
_DRY_RUN: Mapping[str, Any] = {"action": "store_true", "help": "Only check whether the change is possible."}
_UNSAFE: Mapping[str, Any] = {"action": "store_true", "help": "Change the level even if metadata is lost."}

COMMANDS: Mapping[str, SubCommand] = {
    "describe": SubCommand("Print the finalized features."),
    "upgrade": SubCommand(
        "Raise levels.",
        {"--feature": _FEATURE, "--metadata": _METADATA, "--release-version": _RELEASE, "--dry-run": _DRY_RUN},
    ),
    "downgrade": SubCommand(
        "Lower levels.",
        {
            "--feature": _FEATURE,
            "--metadata": _METADATA,
            "--release-version": _RELEASE,
            "--unsafe": _UNSAFE,
            "--dry-run": _DRY_RUN,
        },
    ),
    "disable": SubCommand(
        "Lower levels to 0.",
        {
            "--feature": {"action": "append", "metavar": "NAME", "help": "A feature."},
            "--unsafe": _UNSAFE,
            "--dry-run": _DRY_RUN,
        },
    ),
    "version-mapping": SubCommand("Print the levels of a release.", {"--release-version": _RELEASE}),
    "feature-dependencies": SubCommand("Print what levels depend on.", {"--feature": _FEATURE}),
}


class _Failed(Exception):  # noqa: N818 - the name states the condition
    """Some changes failed; the text is for stderr."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 1 if a change failed."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = SubCommands(PROGRAM, "This tool manages feature flags in Kafka.", COMMANDS)
    add_admin_options(line, BOOTSTRAP_SERVER_ONLY)
    line.add_option("--bootstrap-controller", value="servers", help_text="Needs KRaft, which no broker here uses.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    match options.command:
        case "version-mapping":
            level = _level_of(options.release_version or METADATA_RELEASES[-1])
            print(f"{METADATA_VERSION}={level} ({METADATA_RELEASES[level - 1]})")
            return 0
        case "feature-dependencies":
            for name, level in _features(options.feature or ()):
                _require_known(name, level)
                print(f"{name}={level} has no dependencies.")
            return 0
    if options.bootstrap_controller is not None:
        raise UsageError(f"{PROGRAM}: error: --bootstrap-controller needs KRaft, expected --bootstrap-server")
    if options.bootstrap_server is None:
        raise UsageError(
            f"{PROGRAM}: error: one of the arguments --bootstrap-server --bootstrap-controller is required"
        )
    try:
        changes = [] if options.command == "describe" else _changes(options)
        with admin_client(options) as admin:
            if options.command == "describe":
                _describe(admin)
            else:
                _update(admin, options.command, changes, is_dry_run=options.dry_run)
    except (_Failed, CallTimedOut) as error:
        print(error, file=sys.stderr)
        return 1
    except KafkaError as error:
        print(error.message, file=sys.stderr)
        return 1
    return 0


def _describe(admin: AdminClient) -> None:
    request = ApiVersionsRequest(client_software_name=PROGRAM, client_software_version=version_line().split()[0])
    response = admin.call(request, ApiVersionsResponse)
    finalized = {feature.name: feature for feature in response.finalized_features}
    for feature in sorted(response.supported_features, key=lambda one: one.name):
        level = finalized[feature.name].max_version_level if feature.name in finalized else 0
        print(
            f"Feature: {feature.name}\tSupportedMinVersion: {_shown(feature.name, feature.min_version)}\t"
            f"SupportedMaxVersion: {_shown(feature.name, feature.max_version)}\t"
            f"FinalizedVersionLevel: {_shown(feature.name, level)}\tEpoch: {response.finalized_features_epoch}"
        )


def _changes(options: argparse.Namespace) -> list[FeatureUpdateKey]:
    """Return the changes of the options. Raises UsageError."""
    if options.command == "upgrade":
        kind = UPGRADE
    else:
        kind = UNSAFE_DOWNGRADE if options.unsafe else SAFE_DOWNGRADE
    if options.command == "disable":
        levels = [(name, 0) for name in options.feature or ()]
    else:
        levels = list(_features(options.feature or ()))
        releases = [release for release in (options.metadata, options.release_version) if release is not None]
        if len(releases) + bool(levels) > 1:
            raise UsageError("Only one of --feature, --metadata and --release-version can be specified.")
        levels += [(METADATA_VERSION, _level_of(release)) for release in releases]
    if not levels:
        raise UsageError(f"You must specify at least one feature to {options.command}")
    if duplicate := next((name for name, _ in levels if sum(name == other for other, _ in levels) > 1), None):
        raise UsageError(f"Feature {duplicate} was specified more than once.")
    return [FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level in levels]


def _update(admin: AdminClient, command: str, changes: Sequence[FeatureUpdateKey], *, is_dry_run: bool) -> None:
    """Raises _Failed if a change failed, KafkaError if all did."""
    request = UpdateFeaturesRequest(feature_updates=list(changes), validate_only=is_dry_run)
    response = admin.call_controller(request, UpdateFeaturesResponse, lambda found: [found.error_code])
    failures = {result.feature: result.error_message for result in response.results if result.error_code}
    if response.error_code and not failures:
        text = response.error_message or KafkaError(ErrorCode(response.error_code)).message
        failures = {change.feature: text for change in changes}
    for change in changes:
        does, done = (f"can {command}", f"can be {command}d") if is_dry_run else (command, f"was {command}d")
        to = "" if command == "disable" else f" to {change.max_version_level}"
        if change.feature in failures:
            verb = f"Can not {command}" if is_dry_run else f"Could not {does}"
            print(f"{verb} {change.feature}{to}. {failures[change.feature]}")
        else:
            print(f"{change.feature} {done}{to}.")
    if failures:
        raise _Failed(f"{len(failures)} out of {len(changes)} operation(s) failed.")


def _features(texts: Sequence[str]) -> list[tuple[str, int]]:
    """Return names and levels of `NAME=LEVEL`. Raises UsageError."""
    found = []
    for text in texts:
        name, equals, level = text.partition("=")
        if not name or not equals or not level.isdecimal():
            raise UsageError(f"Can't parse feature=level string {text}: expected NAME=LEVEL with a number")
        found.append((name, int(level)))
    return found


def _require_known(name: str, level: int) -> None:
    levels = range(1, len(METADATA_RELEASES) + 1) if name == METADATA_VERSION else FEATURES.get(name)
    if levels is None:
        raise UsageError(f"Unknown feature: {name}")
    if level not in levels:
        raise UsageError(f"No {name} with level {level}, expected {levels[0]} to {levels[-1]}")


def _level_of(release: str) -> int:
    """Return the level of `metadata.version` of a release; 3.9 stands for the newest of 3.9-IV0 and so on."""
    matching = [
        at for at, known in enumerate(METADATA_RELEASES, 1) if known == release or known.startswith(f"{release}-")
    ]
    if not matching:
        raise UsageError(
            f"Unknown {METADATA_VERSION} '{release}'. Supported {METADATA_VERSION}s are: {METADATA_RELEASES[0]} to "
            f"{METADATA_RELEASES[-1]}"
        )
    return matching[-1]


def _shown(name: str, level: int) -> str:
    is_release = name == METADATA_VERSION and 1 <= level <= len(METADATA_RELEASES)
    return METADATA_RELEASES[level - 1] if is_release else str(level)


if __name__ == "__main__":
    raise SystemExit(main())
