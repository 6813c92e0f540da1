"""The command line that all jobs share: its flags, the checks of their values, and the object with the values.

An invalid value ends the process before the job starts, with a message on standard error and exit code 2. A job adds
its own flags to `job_parser` and its own fields to a subclass of `JobParameters`; flags and fields have the same names.

Owns the flags. Must not know any job, or the use of the values.
"""

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import available_timezones

_INTERVAL = re.compile(r"[1-9]\d* (millisecond|second|minute|hour|day)s?")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobParameters:
    """The parameters of every streaming job. Each field has the value of the flag with the same name."""

    bootstrap_servers: str
    app_id: str
    checkpoint: Path
    input: str
    output: str
    starting_offsets: str
    trigger: Mapping[str, Any]  # keyword arguments of DataStreamWriter.trigger
    watermark: str
    max_offsets_per_trigger: int | None
    time_field: str | None
    on_error: str
    create_topics: bool
    partitions: int
    replication_factor: int
    kafka_option: Mapping[str, str]
    spark_conf: Mapping[str, str]

    def source_options(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source."""
        options = {
            **self._client_options(),
            "subscribe": self.input,
            "startingOffsets": self.starting_offsets,
            "groupIdPrefix": self.app_id,
        }
        if self.max_offsets_per_trigger is not None:
            options["maxOffsetsPerTrigger"] = str(self.max_offsets_per_trigger)
        return options

    def sink_options(self) -> dict[str, str]:
        """Return the options of Spark's Kafka sink, batch or stream."""
        return {**self._client_options(), "topic": self.output}

    def _client_options(self) -> dict[str, str]:
        client = {f"kafka.{key}": value for key, value in self.kafka_option.items()}
        return {"kafka.bootstrap.servers": self.bootstrap_servers, **client}


def job_parser(
    job: str, description: str, *, input_topic: str, output_topic: str, watermark: str
) -> argparse.ArgumentParser:
    """Return a parser with the flags of `JobParameters`; the keywords are this job's defaults."""
    parser = client_parser(job, description)
    add = parser.add_argument
    add("--app-id", default=job, help="unique name: query, client ids and state carry it (default %(default)s)")
    add("--checkpoint", type=Path, required=True, metavar="DIR", help="where Spark keeps offsets and state")
    add("--input", default=input_topic, metavar="TOPIC", help="topic to read (default %(default)s)")
    add("--output", default=output_topic, metavar="TOPIC", help="topic to write (default %(default)s)")
    add(
        "--starting-offsets",
        type=checked(is_starting_offsets, "earliest, latest or a JSON object"),
        default="earliest",
        help="where a new checkpoint begins: earliest, latest or Spark's JSON of offsets (default %(default)s)",
    )
    add("--trigger", type=trigger, default=trigger("1 second"), help="an interval such as '1 second', or availableNow")
    add(
        "--watermark",
        type=checked(is_interval, "an interval such as '2 days'"),
        default=watermark,
        help="how far behind the newest record one may still come; later ones are dropped and counted "
        "(default %(default)s)",
    )
    add("--max-offsets-per-trigger", type=positive, metavar="N", help="records a batch reads at most (default: all)")
    add("--time-field", metavar="NAME", help="JSON field with the event time (default: the record's timestamp)")
    add(
        "--on-error",
        choices=("fail", "skip"),
        default="fail",
        help="what a record that cannot be read does: fail the job, or be counted and dropped (default %(default)s)",
    )
    add("--spark-conf", action=StoreKeyValue, default={}, metavar="K=V", help="a setting of Spark; may be given often")
    return parser


def client_parser(job: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the flags of any program that connects to brokers, streaming or not."""
    parser = bare_parser(job, description)
    add = parser.add_argument
    add("--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="brokers to connect to first")
    add("--create-topics", action="store_true", help="make missing topics instead of waiting for them")
    add("--partitions", type=positive, default=4, help="of topics made here (default %(default)s)")
    add("--replication-factor", type=positive, default=1, help="of topics made here (default %(default)s)")
    add(
        "--kafka-option",
        action=StoreKeyValue,
        default={},
        metavar="K=V",
        help="a setting of the Kafka clients, such as compression.type=lz4; may be given often",
    )
    return parser


def bare_parser(job: str, description: str) -> argparse.ArgumentParser:
    """Return a parser without flags; messages contain the name of the job at its launcher."""
    return argparse.ArgumentParser(prog=f"spark-job {job}", description=description, allow_abbrev=False)


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


def trigger(text: str) -> Mapping[str, Any]:
    """Return the keyword arguments of `DataStreamWriter.trigger` for a flag's text."""
    if text == "availableNow":
        return {"availableNow": True}
    return {"processingTime": checked(is_interval, "availableNow or an interval such as '1 second'")(text)}


def positive(text: str) -> int:
    """Parse a whole number above zero."""
    return int(checked(is_positive, "a whole number above 0")(text))


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
    if text in {"earliest", "latest"}:
        return True
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
