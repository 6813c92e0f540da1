"""How a connector's configuration names its converters, transforms and predicates."""

from __future__ import annotations

import pytest

from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.base.records import SourceRecord
from spark_jobs.connect.converters.json import JsonConverter
from spark_jobs.connect.converters.simple import StringConverter
from spark_jobs.connect.worker.chain import Step, build_converters, build_steps, with_converters
from spark_jobs.connect.worker.plugins import Plugins

WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "header.converter": "SimpleHeaderConverter",
}
PLUGINS = Plugins()


def record(topic: str = "t") -> SourceRecord:
    return SourceRecord({}, {}, topic, {"a": 1})


def applied(steps: list[Step], record: SourceRecord) -> SourceRecord | None:
    for step in steps:
        if record is not None:
            record = step.apply(record)
    return record


def test_the_converters_of_the_worker_are_used_with_its_settings() -> None:
    found = build_converters({}, WORKER, PLUGINS)
    assert isinstance(found.key, StringConverter)
    assert isinstance(found.value, JsonConverter)
    assert found.value.from_data("t", None, {"a": 1}) == b'{"a":1}'


def test_a_converter_of_the_connector_has_only_the_connectors_settings() -> None:
    own = {"value.converter": "JsonConverter"}
    found = build_converters(own, WORKER, PLUGINS)
    assert found.value.from_data("t", None, {"a": 1}) == b'{"schema":null,"payload":{"a":1}}'
    assert with_converters(own, WORKER)["key.converter"] == WORKER["key.converter"]
    assert "value.converter.schemas.enable" not in with_converters(own, WORKER)


def test_settings_of_a_converter_that_is_not_named_are_those_of_the_worker() -> None:
    found = with_converters({"value.converter.schemas.enable": "true"}, WORKER)
    assert found["value.converter.schemas.enable"] == "false"


def test_the_name_of_a_setting_as_a_book_has_it_is_understood() -> None:
    own = {"value.converter": "JsonConverter", "value.converter.schema.enable": "false"}
    assert build_converters(own, WORKER, PLUGINS).value.from_data("t", None, 1) == b"1"


def test_a_converter_converts_headers() -> None:
    found = build_converters({"header.converter": "StringConverter"}, WORKER, PLUGINS)
    assert found.header.from_header("t", "h", None, "x") == b"x"


def test_an_unknown_converter_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"Class NoSuch could not be found: .*JsonConverter"):
        build_converters({"key.converter": "NoSuch"}, WORKER, PLUGINS)


ROUTE = {
    "transforms": "first, second",
    "transforms.first.type": "RegexRouter",
    "transforms.first.regex": "(.*)",
    "transforms.first.replacement": "$1-first",
    "transforms.second.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.second.regex": "(.*)",
    "transforms.second.replacement": "$1-second",
}


def test_transforms_apply_in_order() -> None:
    found = applied(build_steps(ROUTE, PLUGINS), record())
    assert found is not None
    assert found.topic == "t-first-second"


@pytest.mark.parametrize(("negate", "topics"), [("false", ["x-first", "other"]), ("TRUE", ["x", "other-first"])])
def test_a_predicate_chooses_the_records_of_a_transform(negate: str, topics: list[str]) -> None:
    config = {
        **ROUTE,
        "transforms": "first",
        "transforms.first.predicate": "named",
        "transforms.first.negate": negate,
        "predicates": "named",
        "predicates.named.type": "TopicNameMatches",
        "predicates.named.pattern": "x",
    }
    steps = build_steps(config, PLUGINS)
    assert [applied(steps, record(topic)).topic for topic in ("x", "other")] == topics  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"transforms.first.predicate": "unknown"}, "transforms.first.predicate names unknown"),
        ({"transforms.first.negate": "perhaps"}, "transforms.first.negate"),
        ({"transforms.first.type": "NoSuch"}, "Class NoSuch could not be found"),
        ({"transforms": "first,third"}, 'Missing required configuration "transforms.third.type"'),
        ({"transforms.first.regex": "("}, "transforms.first: .*regex"),
        ({"predicates": "p"}, 'Missing required configuration "predicates.p.type"'),
    ],
)
def test_a_mistake_is_an_error_that_names_the_setting(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_steps({**ROUTE, **change}, PLUGINS)
