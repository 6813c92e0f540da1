"""Settings and topics in the environment of a container, as the images of Apache, Confluent, Bitnami and others do it.

Owns the names of variables: which setting each gives, which give topics or logging, and which give nothing. Must not
know what settings mean.

A user's variable wins over the image's default of the same setting, whatever its prefix. The image gives its defaults
in variables of its own prefix, so that they can be told apart.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from config import old_names
from config.broker import LISTENER_PREFIX, base_row
from config.broker_properties import (
    ADVERTISED_LISTENERS,
    BROKER_ID,
    BROKER_PROPERTIES,
    BROKER_RACK,
    LISTENERS,
    SSL_KEY_PASSWORD,
    SSL_KEYSTORE_LOCATION,
    SSL_KEYSTORE_PASSWORD,
    SSL_TRUSTSTORE_LOCATION,
    SSL_TRUSTSTORE_PASSWORD,
    ZOOKEEPER_CONNECT,
)
from config.definition import ConfigError
from config.topic_properties import CLEANUP_POLICY
from tools.launch.container_users import VARIABLES as VARIABLES_OF_USERS
from tools.launch.container_users import ContainerUsers, read_users
from tools.launch.java_options import metrics_listener, system_properties
from tools.launch.start_options import NAMES_OF_ADVERTISED, NAMES_OF_BOUND, without_overruled

_PREFIX, _LONG_PREFIX, _DEFAULT_PREFIX, _FILE = "KAFKA_", "KAFKA_CFG_", "DEFAULT_KAFKA_", "_FILE"
_PREFIXES_OF_SETTINGS = (LISTENER_PREFIX, "config.providers.")
CREATE_TOPICS, _SEPARATOR = "KAFKA_CREATE_TOPICS", "KAFKA_CREATE_TOPICS_SEPARATOR"
_JMX_PORT, _OPTS = "KAFKA_JMX_PORT", "KAFKA_OPTS"
_OF_LOGGING = {"KAFKA_LOG4J_OPTS", "KAFKA_LOG4J_ROOT_LOGLEVEL", "KAFKA_LOG4J_LOGGERS", "KAFKA_TOOLS_LOG4J_LOGLEVEL"}
_CLUSTER_ID = "CLUSTER_ID"

_SPELLED_OTHERWISE: Final[Mapping[str, str]] = {
    **{name.lower(): name for name in BROKER_PROPERTIES if name != name.lower()},
    "zookeeper.client.cnxn.socket": "zookeeper.clientCnxnSocket",
}

SECRETS_FOLDER = Path("/etc/kafka/secrets")
_FILES_OF_SECRETS: Final = {
    "KAFKA_SSL_KEYSTORE_FILENAME": SSL_KEYSTORE_LOCATION.name,
    "KAFKA_SSL_TRUSTSTORE_FILENAME": SSL_TRUSTSTORE_LOCATION.name,
}
_CONTENTS_OF_SECRETS: Final = {
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": SSL_KEYSTORE_PASSWORD.name,
    "KAFKA_SSL_KEY_CREDENTIALS": SSL_KEY_PASSWORD.name,
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": SSL_TRUSTSTORE_PASSWORD.name,
}
"""Variables with the names of files in `SECRETS_FOLDER`; the second table is of files with passwords."""

_COMMANDS: Final = {"BROKER_ID_COMMAND": BROKER_ID.name, "RACK_COMMAND": BROKER_RACK.name}
_COMMANDS_IN_VALUES: Final = ("HOSTNAME_COMMAND", "PORT_COMMAND")
COMMAND_TIMEOUT_S: Final = 30

_ENTRY = r"(?P<name>[^:/]*)://(?P<host>.*):(?P<port>[0-9]+)"
_EVERY_ADDRESS = "0.0.0.0"


NO_USERS: Final = ContainerUsers()


class NewTopic(NamedTuple):
    """One topic of KAFKA_CREATE_TOPICS."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


class ContainerEnvironment(NamedTuple):
    """What the variables say."""

    settings: Mapping[str, str] = {}
    variables: Mapping[str, str] = {}
    """The name of the variable that gave each setting."""
    defaults: Mapping[str, str] = {}
    """The settings of the image, which any other source replaces."""
    topics: Sequence[NewTopic] = ()
    users: ContainerUsers = NO_USERS
    warnings: Sequence[str] = ()

    def with_variable(self, warning: str) -> str:
        """Return a warning about an unknown key with the variable that gave it."""
        key = warning.removeprefix("Unknown key ").partition(" ")[0]
        variable = self.variables.get(key)
        return warning if variable is None else warning.replace(f"Unknown key {key}", f"Unknown key {key} ({variable})")


def read_environment(variables: Mapping[str, str]) -> ContainerEnvironment:
    """Return what `KAFKA_*` and `KAFKA_CFG_*` say. May run the commands that variables name. Raises ConfigError.

    As in Kafka's image, `_` stands for a dot, `__` for an underscore and `___` for a hyphen. A variable with the longer
    prefix is always a setting; one with the shorter is if its name is known. `NAME_FILE` names a file with the value.
    """
    found: dict[str, tuple[str, str]] = {}
    warnings: list[str] = []
    unused = [_CLUSTER_ID] if _CLUSTER_ID in variables else []
    for variable, value in sorted(_with_outputs(variables).items(), key=lambda item: _rank(item[0])):
        if not variable.startswith(_PREFIX) or variable in (
            CREATE_TOPICS,
            _SEPARATOR,
            *_OF_LOGGING,
            *VARIABLES_OF_USERS,
        ):
            continue
        if (setting := _setting(variable, value)) is None:
            if variable != _OPTS or not system_properties(variables):
                unused.append(variable)
            continue
        key, text = setting
        if key in found and found[key][1] != text:
            warnings.append(f"{found[key][0]} and {variable} are both {key}: the value of {variable} counts")
        found[key] = variable, text
    if unused:
        warnings.append(
            f"without effect in the environment: {', '.join(sorted(unused))} (docs/operations.md lists what is read)"
        )
    return ContainerEnvironment(
        {key: text for key, (_, text) in found.items()},
        {key: variable for key, (variable, _) in found.items()},
        {
            _setting_name(variable.removeprefix(_DEFAULT_PREFIX)): value
            for variable, value in variables.items()
            if variable.startswith(_DEFAULT_PREFIX)
        },
        _topics(variables.get(CREATE_TOPICS, ""), variables.get(_SEPARATOR, ",")),
        read_users(variables),
        warnings,
    )


def without_shared_id(defaults: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the defaults without the broker id if the broker is one of several, which would all have it."""
    is_clustered = bool(given.get(ZOOKEEPER_CONNECT.name, "").strip())
    return {key: value for key, value in defaults.items() if not (is_clustered and key == BROKER_ID.name)}


def derived_addresses(given: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return listeners on all addresses for advertised ones that are given alone, as Kafka's images do.

    For listeners on all addresses that are given alone, return advertised ones with the host that the image advertises.
    Empty otherwise, and for values that cannot be parsed.
    """
    if ADVERTISED_LISTENERS.name in given and NAMES_OF_BOUND.isdisjoint(given):
        entries = _entries(given[ADVERTISED_LISTENERS.name])
        changed = [f"{entry['name']}://{_EVERY_ADDRESS}:{entry['port']}" for entry in entries]
        return {LISTENERS.name: ",".join(changed)} if changed else {}
    usual = _entries(defaults.get(ADVERTISED_LISTENERS.name, ""))
    if LISTENERS.name in given and NAMES_OF_ADVERTISED.isdisjoint(given) and usual:
        entries = _entries(given[LISTENERS.name])
        if any(entry["host"] == _EVERY_ADDRESS for entry in entries):
            hosts = [usual[0]["host"] if entry["host"] == _EVERY_ADDRESS else entry["host"] for entry in entries]
            changed = [f"{entry['name']}://{host}:{entry['port']}" for entry, host in zip(entries, hosts, strict=True)]
            return {ADVERTISED_LISTENERS.name: ",".join(changed)}
    return {}


def _entries(text: str) -> list[re.Match[str]]:
    """Return the name, host and port of each listener; nothing if one of them cannot be parsed."""
    found = [re.fullmatch(_ENTRY, entry.strip()) for entry in text.split(",") if entry.strip()]
    return [entry for entry in found if entry is not None] if all(found) else []


def _rank(variable: str) -> tuple[bool, str]:
    """Variables with the longer prefix come last, so they count."""
    return variable.startswith(_LONG_PREFIX), variable


def _setting(variable: str, value: str) -> tuple[str, str] | None:
    """Return the setting and its value; None if the variable gives none. Raises ConfigError."""
    if (key := _FILES_OF_SECRETS.get(variable)) is not None:
        return key, str(SECRETS_FOLDER / value)
    if (key := _CONTENTS_OF_SECRETS.get(variable)) is not None:
        return key, _content(variable, SECRETS_FOLDER / value)
    if variable == _JMX_PORT:
        return metrics_listener(variable, value)
    is_any = variable.startswith(_LONG_PREFIX)
    name = variable.removeprefix(_LONG_PREFIX if is_any else _PREFIX)
    key = _setting_name(name)
    if _is_known(key) and not _is_service_link(key, value):
        return key, value
    if name.endswith(_FILE) and _is_known(of_file := _setting_name(name.removesuffix(_FILE))):
        return of_file, _content(variable, Path(value))
    return (key, value) if is_any else None


def _is_known(key: str) -> bool:
    return base_row(key) is not None or key.startswith(_PREFIXES_OF_SETTINGS) or old_names.is_known(key)


def _is_service_link(key: str, value: str) -> bool:
    """Return whether Kubernetes made the variable, as it does for a service that is named kafka."""
    return key == "port" and "://" in value


def _content(variable: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{variable} (environment)", str(path), f"The file cannot be read: {reason}") from error


def _setting_name(text: str) -> str:
    name = text.lower().replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")
    if name.startswith(LISTENER_PREFIX):
        name = name.replace("scram_sha_", "scram-sha-")  # no mechanism has underscores, some images write hyphens so
    return _SPELLED_OTHERWISE.get(name, name)


def _with_outputs(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with the outputs of the commands that some of them are. Raises ConfigError."""
    result = dict(variables)
    given = {_setting_name(_name(variable)) for variable in variables if variable.startswith(_PREFIX)}
    for command, key in _COMMANDS.items():
        if variables.get(command) and without_overruled({key: ""}, given):
            result[_PREFIX + key.upper().replace(".", "_")] = _output(command, variables[command])
    for command in _COMMANDS_IN_VALUES:
        if not variables.get(command):
            continue
        output, placeholder = _output(command, variables[command]), f"_{{{command}}}"
        for variable, value in result.items():
            if variable.startswith(_PREFIX):
                result[variable] = value.replace(placeholder, output)
        if command == "HOSTNAME_COMMAND" and NAMES_OF_ADVERTISED.isdisjoint(given):
            result["KAFKA_ADVERTISED_HOST_NAME"] = output
    return result


def _name(variable: str) -> str:
    return variable.removeprefix(_LONG_PREFIX if variable.startswith(_LONG_PREFIX) else _PREFIX)


def _output(variable: str, command: str) -> str:
    """Return the output of a command of the shell. Raises ConfigError."""
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command], stdout=subprocess.PIPE, text=True, timeout=COMMAND_TIMEOUT_S, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise ConfigError(f"{variable} (environment)", command, f"The command fails: {error}") from error
    if not done.stdout.strip():
        raise ConfigError(f"{variable} (environment)", command, "Expected a command with an output")
    return done.stdout.strip()


def _topics(text: str, separator: str) -> list[NewTopic]:
    """Return the topics: name:partitions:replicas:cleanup policy, of which all but the name may be missing.

    Each character of `separator` separates them, or each that `$'...'` quotes, as in a shell. Raises ConfigError.
    """
    if quoted := re.fullmatch(r"\$'(.*)'", separator, re.DOTALL):
        separator = quoted[1].replace("\\n", "\n").replace("\\t", "\t")
    entries = re.split(f"[{re.escape(separator)}]", text) if separator else [text]
    return [_topic(entry) for entry in map(str.strip, entries) if entry]


def _topic(entry: str) -> NewTopic:
    name, *rest = entry.split(":", 3)
    numbers, words = rest[:2], rest[2].split() if len(rest) > 2 else []
    options = words[0 if words and words[0].startswith("-") else 1 :]
    policy = words[: len(words) - len(options)]
    configs = [option.removeprefix("--config=").partition("=") for option in options]
    if (
        not name
        or not all(number.isdecimal() for number in numbers)
        or any(":" in word for word in policy)
        or not all(option.startswith("--config=") for option in options)
        or not all(key and equals for key, equals, _ in configs)
    ):
        expected = "Expected name:partitions:replicas:cleanup.policy, of which all but the name may be missing"
        raise ConfigError(f"{CREATE_TOPICS} (environment)", entry, expected)
    partitions, replication_factor, *_ = [*map(int, numbers), *[-1] * 2]
    settings = dict([*((CLEANUP_POLICY.name, word) for word in policy), *((key, value) for key, _, value in configs)])
    return NewTopic(name, partitions, replication_factor, settings)
