"""The command line that all jobs share: its flags, the checks of their values, and the object with the values.

An invalid value ends the process before the job starts, with a message on standard error and exit code 2. A job adds
its own flags to `job_parser` and its own fields to a subclass of `JobParameters`; flags and fields have the same names.

Owns the flags. Must not know any job, or the use of the values.
"""

import argparse
import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import available_timezones

from base import properties
from spark_jobs.skeleton.clients import client_settings, sink_options, source_options
from spark_jobs.skeleton.topics import TopicSpec

_INTERVAL = re.compile(r"[1-9]\d* (millisecond|second|minute|hour|day)s?")
_UNITS_MS = {"millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_ADDRESS = re.compile(r"(?:(?P<host>[^:\s]+):)?(?P<port>\d{1,5})")
_SQL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_LOOPBACK = "127.0.0.1"

EARLIEST = "earliest"
_WORDS_FOR_OFFSETS = frozenset({EARLIEST, "latest"})
NO_CONFIG: Mapping[str, str] = {}
VALUE_FORMATS = ("json", "json-envelope", "avro", "avro-registry")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobParameters:
    """The parameters of every streaming job. Each field has the value of the flag with the same name."""

    bootstrap_servers: str
    app_id: str
    checkpoint: str  # a folder of any file system that Spark knows, such as var/x, hdfs://... or s3a://...
    input: str
    output: str
    starting_offsets: str | None = None  # None stands for earliest
    from_group: bool = False
    trigger: Mapping[str, Any] = field(default_factory=dict)  # keyword arguments of DataStreamWriter.trigger
    watermark: str = ""
    time_field: str | None = None
    max_offsets_per_trigger: int | None = None
    on_error: str | None = None  # None stands for dlq with --dead-letter, and for fail without
    dead_letter: str | None = None
    value_format: str = "json"
    schema: str | None = None
    schema_registry: str | None = None
    commit_group: str | None = None
    metrics: tuple[str, int] | None = None
    create_topics: bool = False
    auto_create_topics: bool = False
    partitions: int = 4
    replication_factor: int = 1
    kafka_option: Mapping[str, str] = field(default_factory=dict)
    master: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    plot: str | None = None  # a file on this machine

    @property
    def error_action(self) -> str:
        """What a record that cannot be read does: `fail`, `skip` or `dlq`."""
        return self.on_error or ("dlq" if self.dead_letter else "fail")

    @property
    def client(self) -> dict[str, str]:
        """The settings of the job's own clients. Raises JobError for a login or a store that cannot be used."""
        return client_settings(self.bootstrap_servers, self.kafka_option)

    @property
    def input_topics(self) -> list[str]:
        return [topic for topic in self.input.split(",") if topic]

    def read_topics(self) -> list[str]:
        """Return the topics whose offsets `--commit-group` has; for a pattern of topics it asks the brokers."""
        return self.input_topics

    def source_options(self, topic: str | None = None) -> dict[str, str]:
        """Return the options of Spark's Kafka source; `topic` replaces `--input`."""
        options = {
            **source_options(self.bootstrap_servers, self.kafka_option),
            "subscribe": topic or self.input,
            "startingOffsets": self._starting_offsets(topic or self.input),
            "groupIdPrefix": self.app_id,
        }
        if self.max_offsets_per_trigger is not None:
            options["maxOffsetsPerTrigger"] = str(self.max_offsets_per_trigger)
        return options

    def sink_options(self, topic: str | None = None) -> dict[str, str]:
        """Return the options of Spark's Kafka sink, batch or stream; `topic` replaces `--output`."""
        client = sink_options(self.bootstrap_servers, self.kafka_option)
        return {**client, "includeHeaders": "true", "topic": topic or self.output}

    def topic(self, name: str, config: Mapping[str, str] = NO_CONFIG, partitions: int | None = None) -> TopicSpec:
        """Return a topic as --create-topics makes it."""
        return TopicSpec(name, partitions or self.partitions, self.replication_factor, config)

    def session_settings(self) -> dict[str, str]:
        """Return the settings of the Spark session that differ from its defaults."""
        return session_settings(self.master, self.spark_conf)

    def _starting_offsets(self, topics: str) -> str:
        """Return where a source of `topics` begins: Spark refuses offsets of topics that the source does not read.

        A job with several sources begins at earliest with topics that are not named. A mirror has no names of topics.
        """
        text = self.starting_offsets or EARLIEST
        if text in _WORDS_FOR_OFFSETS or not topics:
            return text
        of_source = {name: offsets for name, offsets in json.loads(text).items() if name in topics.split(",")}
        return json.dumps(of_source, separators=(",", ":")) if of_source else EARLIEST


def job_parser(
    job: str, description: str, *, input_topic: str, output_topic: str, watermark: str | None = None
) -> argparse.ArgumentParser:
    """Return a parser with the flags of `JobParameters`; the keywords are this job's defaults.

    A job without `watermark` does not use event time, and has neither --watermark nor --time-field.
    """
    parser = client_parser(job, description)
    _add_query_flags(parser, job, input_topic, output_topic)
    if watermark is not None:
        _add_event_time_flags(parser, watermark)
    _add_record_flags(parser)
    _add_process_flags(parser)
    return parser


def _add_query_flags(parser: argparse.ArgumentParser, job: str, input_topic: str, output_topic: str) -> None:
    add = parser.add_argument_group("query").add_argument
    add("--app-id", default=job, help="unique name: query, client ids and state carry it (default %(default)s)")
    add("--checkpoint", required=True, metavar="DIR", help="where Spark keeps offsets and state: a folder or a URI")
    add("--input", default=input_topic, metavar="TOPIC", help="topic to read (default %(default)s)")
    add("--output", default=output_topic, metavar="TOPIC", help="topic to write (default %(default)s)")
    add(
        "--starting-offsets",
        type=checked(is_starting_offsets, "earliest, latest or a JSON object"),
        help="where a new checkpoint begins: earliest, latest or Spark's JSON of offsets (default earliest)",
    )
    add("--from-group", action="store_true", help="a new checkpoint begins at the offsets of --commit-group")
    add(
        "--trigger",
        type=trigger,
        default=trigger("1 second"),
        help="an interval, or availableNow: read all existing records, then end (default '1 second')",
    )
    add("--max-offsets-per-trigger", type=positive, metavar="N", help="records a batch reads at most (default: all)")


def _add_event_time_flags(parser: argparse.ArgumentParser, watermark: str) -> None:
    add = parser.add_argument_group("event time").add_argument
    add(
        "--watermark",
        type=checked(is_interval, "an interval such as '2 days'"),
        default=watermark,
        help="how far behind the newest record one may still come; later ones are dropped and counted "
        "(default %(default)s)",
    )
    add("--time-field", metavar="NAME", help="JSON field with the event time (default: the record's timestamp)")


def _add_record_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("records").add_argument
    add(
        "--on-error",
        choices=("dlq", "skip", "fail"),
        help="what a record that cannot be read does: go to --dead-letter, be counted and dropped, or fail the job "
        "(default dlq with --dead-letter, fail without)",
    )
    add("--dead-letter", metavar="TOPIC", help="topic for records that cannot be read, with their place and the error")
    add(
        "--value-format",
        choices=VALUE_FORMATS,
        default="json",
        help="how values that are objects are written (default %(default)s)",
    )
    add("--schema", metavar="FILE", help="Avro schema of the values, for --value-format avro")
    add(
        "--schema-registry",
        type=web_url,
        metavar="URL",
        help="registry with Confluent's API, for --value-format avro-registry",
    )


def _add_process_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("process").add_argument
    add("--commit-group", metavar="GROUP", help="group that gets the end offsets of each batch, to show the lag")
    add(
        "--metrics",
        type=address,
        metavar="[HOST:]PORT",
        help="where to serve Prometheus metrics (default: nowhere; without a host on the loopback address)",
    )
    add_session_settings(add)


def add_session_settings(add: Callable[..., argparse.Action]) -> None:
    """Add `--master` and `--spark-conf` by the `add_argument` of a parser or of a group."""
    add("--master", metavar="URL", help="Spark cluster, such as spark://host:7077 or yarn (default local[2])")
    add("--spark-conf", action=StoreKeyValue, default={}, metavar="K=V", help="a setting of Spark; may be given often")


def session_settings(master: str | None, spark_conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the Spark session that the flags of `add_session_settings` contain."""
    return {**({"spark.master": master} if master else {}), **spark_conf}


def check_together(parser: argparse.ArgumentParser, parameters: JobParameters, topics: Collection[str]) -> None:
    """End the process with exit code 2 if flags contradict each other; `topics` are those of the job."""
    if parameters.on_error == "dlq" and parameters.dead_letter is None:
        parser.error("argument --on-error: dlq needs --dead-letter TOPIC")
    if parameters.dead_letter is not None and parameters.error_action != "dlq":
        parser.error(
            f"argument --dead-letter: {parameters.dead_letter!r} is unused with --on-error {parameters.on_error}"
        )
    if parameters.from_group and parameters.commit_group is None:
        parser.error("argument --from-group: needs --commit-group GROUP")
    if parameters.from_group and parameters.starting_offsets is not None:
        parser.error("argument --from-group: not allowed with --starting-offsets")
    if parameters.input and parameters.starting_offsets not in {None, *_WORDS_FOR_OFFSETS}:
        for topic in json.loads(str(parameters.starting_offsets)):
            if topic not in topics:
                parser.error(f"argument --starting-offsets: {topic!r} is not a topic of this job")
    if parameters.value_format == "avro" and parameters.schema is None:
        parser.error("argument --value-format: avro needs --schema FILE")
    if parameters.value_format == "avro-registry" and parameters.schema_registry is None:
        parser.error("argument --value-format: avro-registry needs --schema-registry URL")


def client_parser(job: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the flags of any program that connects to brokers, streaming or not."""
    parser = bare_parser(job, description)
    add = parser.add_argument
    add("--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="brokers to connect to first")
    add("--create-topics", action="store_true", help="make missing topics instead of waiting for them")
    add("--auto-create-topics", action="store_true", help="have the brokers make missing topics, if they do so")
    add("--partitions", type=positive, default=4, help="of topics made here (default %(default)s)")
    add("--replication-factor", type=positive, default=1, help="of topics made here (default %(default)s)")
    add_client_settings(parser.add_argument, "kafka", "the Kafka clients, such as compression.type=lz4")
    return parser


def add_client_settings(add: Callable[..., argparse.Action], name: str, clients: str) -> None:
    """Add `--NAME-option K=V` and `--NAME-config FILE` by the `add_argument` of a parser or of a group.

    Both set `NAME_option`. An option wins over a file, and a file over a later one.
    """
    option, file = f"--{name}-option", f"--{name}-config"
    add(option, action=StoreKeyValue, default={}, metavar="K=V", help=f"a setting of {clients}; may be given often")
    add(
        file,
        type=properties_file,
        action=_StoreProperties,
        default=argparse.SUPPRESS,
        dest=f"{name}_option",
        metavar="FILE",
        help=f"a .properties file with such settings, so that no password is on the command line; {option} wins",
    )


def bare_parser(job: str, description: str) -> argparse.ArgumentParser:
    """Return a parser without flags; messages contain the name of the job at its launcher."""
    return argparse.ArgumentParser(
        prog=f"spark-job {job}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


class StoreKeyValue(argparse.Action):
    """Collects `k=v` into a mapping; the last value of a key wins."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        key, separator, value = str(values).partition("=")
        if not separator or not key:
            parser.error(f"argument {option_string}: expected key=value, not {values!r}")
        setattr(namespace, self.dest, {**getattr(namespace, self.dest), key: value})


class _StoreProperties(argparse.Action):
    """Adds the properties of a file below the values that the mapping has already."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, {**values, **getattr(namespace, self.dest)})


def properties_file(path: str) -> dict[str, str]:
    """Return the content of a .properties file."""
    try:
        return properties.load(path)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"cannot read {path}: {error}") from error


def trigger(text: str) -> Mapping[str, Any]:
    """Return the keyword arguments of `DataStreamWriter.trigger` for a flag's text."""
    if text == "availableNow":
        return {"availableNow": True}
    return {"processingTime": checked(is_interval, "availableNow or an interval such as '1 second'")(text)}


def address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT or PORT, the latter on the loopback address."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 <= int(match["port"]) <= 65535:
        raise argparse.ArgumentTypeError(f"expected PORT or HOST:PORT, not {text!r}")
    return match["host"] or _LOOPBACK, int(match["port"])


def web_url(text: str) -> str:
    """Return an HTTP URL without its last slash. It has no login, because messages name it."""
    parts = urlsplit(text)
    if "@" in parts.netloc:
        raise argparse.ArgumentTypeError("expected a URL without a login")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise argparse.ArgumentTypeError(f"expected a URL such as http://localhost:8081, not {text!r}")
    return text.rstrip("/")


def positive(text: str) -> int:
    """Parse a whole number above zero."""
    return int(checked(is_positive, "a whole number above 0")(text))


def number(text: str) -> float:
    """Parse a finite number."""
    return float(checked(is_number, "a number")(text))


def interval(text: str) -> str:
    """Accept an interval such as '5 seconds'."""
    return checked(is_interval, "an interval such as '5 seconds'")(text)


def interval_ms(text: str) -> int:
    """Return the length of an interval that `interval` accepted."""
    count, unit = text.split()
    return int(count) * _UNITS_MS[unit.removesuffix("s")]


def checked(accepts: Callable[[str], bool], expected: str) -> Callable[[str], str]:
    """Return an argparse type that returns an accepted text, and otherwise reports what was expected."""

    def check(text: str) -> str:
        if not accepts(text):
            raise argparse.ArgumentTypeError(f"expected {expected}, not {text!r}")
        return text

    return check


def is_interval(text: str) -> bool:
    return _INTERVAL.fullmatch(text) is not None


def is_time_zone(text: str) -> bool:
    return text in available_timezones()


def is_positive(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text) > 0


def is_starting_offsets(text: str) -> bool:
    if text in _WORDS_FOR_OFFSETS:
        return True
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def is_sql_name(text: str) -> bool:
    """Whether `text` is the name of a table or column that needs no quotes."""
    return _SQL_NAME.fullmatch(text) is not None


def is_regex(text: str) -> bool:
    """Whether Python reads `text` as a regular expression. Spark evaluates those of Java: see `check_java_regex`."""
    try:
        re.compile(text)
    except re.error:
        return False
    return True


def is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
