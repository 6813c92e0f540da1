"""Translates settings that all connectors with Spark jobs share into flags of the jobs.

Owns the formats that converters stand for, the flags for brokers, errors, Spark and progress, and which settings of
Connect no job has. Must not know a single connector, or how a job is run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from spark_jobs.connect.base.api import JobTaskContext
from spark_jobs.connect.base.connector_settings import (
    CREATION_GROUPS,
    DEAD_LETTERS,
    PREDICATES,
    SINK_SETTINGS,
    TASKS_MAX,
    TOLERANCE,
    TOPICS_REGEX,
    TRANSFORMS,
    VALUE_CONVERTER,
)
from spark_jobs.connect.base.definitions import HIDDEN, Kind, invalid, parse
from spark_jobs.connect.base.errors import ConfigError

CHECKPOINTS: Final = "spark.checkpoint.folder"
MASTER: Final = "spark.master"
SPARK_CONF: Final = "spark.conf."

Errors = dict[str, list[str]]
"""Texts by setting."""

NOT_OF_JOBS: Final[Mapping[str, str]] = {
    TRANSFORMS: "a Spark job applies no transforms",
    PREDICATES: "a Spark job applies no transforms, so it has no predicates",
    CREATION_GROUPS: "a Spark job creates all its topics alike",
}
NOT_OF_SINKS: Final[Mapping[str, str]] = {
    **NOT_OF_JOBS,
    TOPICS_REGEX: "a Spark job reads the topics that 'topics' names",
}

FORMATS: Final[Mapping[str, str]] = {
    "StringConverter": "text",
    "ByteArrayConverter": "bytes",
    "AvroConverter": "avro-registry",
}
"""What the bytes of a converter are, by the last part of its name. JsonConverter has two formats."""
OBJECT_FORMATS: Final = ("json", "json-envelope", "avro-registry")
"""Of values that are objects."""

_SAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST_LENGTH: Final = 12
_START: Final = "auto.offset.reset"
_GROUP: Final = "group.id"
_SERVERS: Final = "bootstrap.servers"
_REGISTRY: Final = f"{VALUE_CONVERTER}.schema.registry.url"


class Command(NamedTuple):
    """The command line of a job."""

    job: str
    flags: Sequence[str]
    secrets: Mapping[str, str]
    """The content of the file that each further flag names."""


def refusals(config: Mapping[str, str], reasons: Mapping[str, str]) -> Errors:
    """Return an error for each given setting that has a reason against it."""
    return {name: [str(invalid(name, config[name], why))] for name, why in reasons.items() if config.get(name)}


def problems(*found: Errors) -> Errors:
    """Return the errors of several checks."""
    joined: Errors = {}
    for errors in found:
        for name, texts in errors.items():
            joined.setdefault(name, []).extend(texts)
    return joined


def format_of(config: Mapping[str, str], converter: str) -> str:
    """Return the format that a converter, by the name of its setting, writes and reads."""
    short = config[converter].rpartition(".")[2]
    if short == "JsonConverter":
        old = config.get(f"{converter}.schema.enable", "true")
        with_schemas = parse(converter, Kind.BOOLEAN, config.get(f"{converter}.schemas.enable", old))
        return "json-envelope" if with_schemas else "json"
    return FORMATS.get(short, short)


def check_format(config: Mapping[str, str], converter: str, job: str, known: Collection[str]) -> Errors:
    """Return an error unless the format of a converter is one of `known`."""
    found = format_of(config, converter)
    if found not in known:
        why = f"the job {job} has no format {found}; expected a converter for one of {', '.join(sorted(known))}"
        return {converter: [str(invalid(converter, config[converter], why))]}
    if found == "avro-registry" and converter == VALUE_CONVERTER:
        url = config.get(_REGISTRY, "")
        if not url or "," in url or "@" in url:
            return {_REGISTRY: [str(invalid(_REGISTRY, url and HIDDEN, "Expected one URL without a login"))]}
    return {}


def format_flags(config: Mapping[str, str]) -> Iterator[str]:
    """Yield the flags of a job that reads objects."""
    found = format_of(config, VALUE_CONVERTER)
    yield from ("--value-format", found)
    if found == "avro-registry":
        yield from ("--schema-registry", config[_REGISTRY])


def error_flags(parsed: Mapping[str, Any]) -> Sequence[str]:
    """Return what a sink does with a record that cannot be read."""
    if parsed[TOLERANCE].lower() == "none":
        return ["--on-error", "fail"]
    return ["--dead-letter", parsed[DEAD_LETTERS]] if parsed[DEAD_LETTERS] else ["--on-error", "skip"]


def check_start(config: Mapping[str, str]) -> Errors:
    """Return an error for a place to start at that a job does not have."""
    name = f"consumer.override.{_START}"
    if config.get(name, "earliest") in ("earliest", "latest"):
        return {}
    return {name: [str(invalid(name, config[name], "Expected earliest or latest"))]}


def source_command(job: str, context: JobTaskContext, own: Sequence[str], secrets: Mapping[str, str]) -> Command:
    """Return the command of a job that is not a streaming query. Raises ConfigError without a place for progress."""
    client = dict(context.client)
    folder = checkpoint_folder(context)
    flags = ["--bootstrap-servers", client.pop(_SERVERS), "--checkpoint", folder, *_session_flags(context.worker), *own]
    return Command(job, flags, _with_client(secrets, client))


def sink_command(
    job: str,
    context: JobTaskContext,
    config: Mapping[str, str],
    topics: Sequence[str],
    own: Sequence[str],
    secrets: Mapping[str, str],
    part: str = "",
) -> Command:
    """Return the command of a streaming query. `part` names the work of the task, if the connector has several.

    Raises ConfigError without a place for progress.
    """
    client = dict(context.client)
    parsed = SINK_SETTINGS.parse(config)
    folder = checkpoint_folder(context)
    name = f"connect-{safe_name(context.task_id.connector)}"
    flags = [
        "--bootstrap-servers", client.pop(_SERVERS), "--input", ",".join(topics),
        "--app-id", f"{name}-{safe_name(part)}" if part else name,
        "--checkpoint", f"{folder}/{safe_name(part)}" if part else folder,
        "--commit-group", client.pop(_GROUP, f"connect-{context.task_id.connector}"),
        *error_flags(parsed), *_session_flags(context.worker, parsed[TASKS_MAX]), *own,
    ]  # fmt: skip
    if (start := client.pop(_START, "earliest")) != "earliest":
        flags += ["--starting-offsets", start]
    return Command(job, flags, _with_client(secrets, client))


def checkpoint_folder(context: JobTaskContext) -> str:
    """Return where the progress of a connector is kept. Raises ConfigError if the worker names no folder."""
    worker = context.worker
    root = worker.get(CHECKPOINTS)
    if not root:
        offsets = worker.get("offset.storage.file.filename")
        if "config.storage.topic" in worker or not offsets:
            raise ConfigError(
                f'Missing required configuration "{CHECKPOINTS}" of the worker: expected a folder or a URI that all '
                "workers of the group reach, because a job continues there on another worker"
            )
        root = f"{offsets}.checkpoints"
    return f"{root.rstrip('/')}/{safe_name(context.task_id.connector)}"


def safe_name(name: str) -> str:
    """Return a name for folders, queries and tables. Different names stay different."""
    safe = _SAFE.sub("_", name)
    return safe if safe == name else f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]}"


def properties_text(properties: Mapping[str, str]) -> str:
    """Return the text of a .properties file."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(text: str) -> str:
    marked = re.sub(r"[\\=:#! ]", lambda found: f"\\{found[0]}", text)
    return marked.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r").replace("\f", "\\f")


def _session_flags(worker: Mapping[str, str], cores: int | None = None) -> Iterator[str]:
    """Yield the flags of the Spark session; `cores` is the parallelism on this machine."""
    master = worker.get(MASTER) or (None if cores is None else f"local[{cores}]")
    if master is not None:
        yield from ("--master", master)
    for name in sorted(worker):
        if name.startswith(SPARK_CONF):
            yield from ("--spark-conf", f"{name.removeprefix(SPARK_CONF)}={worker[name]}")


def _with_client(secrets: Mapping[str, str], client: Mapping[str, str]) -> dict[str, str]:
    return {**secrets, "--kafka-config": properties_text(client)} if client else dict(secrets)
