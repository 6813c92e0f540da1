"""Checks of configurations: all errors at once, each at its setting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from spark_jobs.connect.base.definitions import HIDDEN
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.herders.validation import raise_problems, validate
from spark_jobs.connect.worker.settings import WorkerSettings
from tests.spark_jobs.connect.worker.runs import load_scripted

PLUGINS, scripted = load_scripted()
GIVEN = {"key.converter": "StringConverter", "value.converter": "StringConverter"}
SETTINGS = WorkerSettings({**GIVEN, "offset.storage.file.filename": "x"}, is_distributed=False)
TOPICS = {f"{each}.storage.topic": each for each in ("config", "offset", "status")}
EXACTLY_ONCE = WorkerSettings(
    {**GIVEN, **TOPICS, "group.id": "g", "exactly.once.source.support": "enabled"}, is_distributed=True
)
SINK = {"name": "c", "connector.class": "ScriptedSink", "topics": "t"}
SOURCE = {"name": "c", "connector.class": "ScriptedSource"}


def errors(config: Mapping[str, str | None], settings: WorkerSettings = SETTINGS) -> dict[str, list[str]]:
    """Return the errors by setting, as a response has them."""
    found = validate(config, settings, PLUGINS)
    by_name = {each["value"]["name"]: each["value"]["errors"] for each in found["configs"] if each["value"]["errors"]}
    assert found["error_count"] == sum(map(len, by_name.values()))
    return by_name


@pytest.fixture(autouse=True)
def _without_scripts() -> None:
    scripted.SCRIPTS.clear()


def test_a_valid_configuration_has_no_errors() -> None:
    assert errors(SINK) == errors(SOURCE) == {}
    raise_problems(validate(SINK, SETTINGS, PLUGINS))


def test_all_errors_are_found_at_once() -> None:
    scripted.SCRIPTS["c"] = scripted.Script(validate=lambda *_: {"starts": ["not there"], "of.nobody": ["why"]})
    config: dict[str, str | None] = {
        **SOURCE,
        "tasks.max": "0",
        "errors.tolerance": "some",
        "transforms": "t,u",
        "transforms.t.type": "NoSuch",
        "key.converter": "NoSuch",
    }
    found = errors(config)
    assert found.keys() == {
        "tasks.max", "errors.tolerance", "transforms.t.type", "transforms.u.type", "key.converter", "starts",
        "of.nobody",
    }  # fmt: skip
    with pytest.raises(ConfigError, match="contains the following 7 error") as raised:
        raise_problems(validate(config, SETTINGS, PLUGINS))
    for texts in found.values():
        assert texts[0] in str(raised.value)


def test_a_connector_with_invalid_settings_does_not_check_them_itself() -> None:
    script = scripted.SCRIPTS["c"] = scripted.Script()
    assert errors({**SOURCE, "tasks": "many"}).keys() == {"tasks"}
    assert script.count("validate") == 0


def test_a_connector_checks_with_the_converters_of_the_worker() -> None:
    script = scripted.SCRIPTS["c"] = scripted.Script()
    errors(SOURCE)
    assert script.arguments("validate")[0]["value.converter"] == "StringConverter"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"topics": None}, "Must configure one of topics or topics.regex"),
        ({"topics.regex": "x"}, "mutually exclusive"),
        ({"topics": None, "topics.regex": "("}, "Invalid regular expression"),
        ({"errors.deadletterqueue.topic.name": "t"}, "may not be included"),
    ],
)
def test_a_sink_names_its_topics_in_one_way(change: dict[str, str | None], message: str) -> None:
    (text,) = errors({**SINK, **change})["topics"]
    assert message in text


def test_a_setting_that_a_transform_refuses_is_an_error_of_the_transforms() -> None:
    config = {
        **SOURCE, "transforms": "t", "transforms.t.type": "RegexRouter", "transforms.t.regex": "(",
        "transforms.t.replacement": "x",
    }  # fmt: skip
    found = errors(config)
    assert len(found) == 1
    assert "regex" in str(found)


def test_a_predicate_that_does_not_exist_is_an_error() -> None:
    config = {**SOURCE, "transforms": "t", "transforms.t.type": "Refuse", "transforms.t.value": "x"}
    assert errors(config) == {}
    assert "names p" in errors({**config, "transforms.t.predicate": "p"})["transforms"][0]


def test_settings_of_transforms_are_shown_under_their_prefix() -> None:
    config = {**SOURCE, "transforms": "t", "transforms.t.type": "Refuse", "transforms.t.value": "x"}
    found = {each["value"]["name"]: each for each in validate(config, SETTINGS, PLUGINS)["configs"]}
    assert found["transforms.t.value"]["value"]["value"] == "x"
    assert found["transforms.t.value"]["definition"]["group"] == "Transforms: t"


def test_secrets_are_not_shown() -> None:
    found = validate({**SOURCE, "password": "hidden?"}, SETTINGS, PLUGINS)
    assert "hidden?" not in str(found)
    shown = {each["value"]["name"]: each["value"]["value"] for each in found["configs"]}
    assert shown["password"] == HIDDEN


@pytest.mark.parametrize(
    ("support", "message"), [(False, "does not support exactly-once semantics"), (True, "transaction boundaries")]
)
def test_a_source_that_does_not_support_what_is_required_is_refused(
    support: bool, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripted.ScriptedSource, "exactly_once_support", lambda *_: support)
    monkeypatch.setattr(scripted.ScriptedSource, "can_define_transaction_boundaries", lambda *_: not support)
    config = {**SOURCE, "exactly.once.support": "required", "transaction.boundary": "connector"}
    (texts,) = errors(config, EXACTLY_ONCE).values()
    assert message in texts[0]
    assert errors(config) == {}, "without exactly-once on the worker it is not asked for"


def test_a_connector_that_cannot_be_created_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_connector: Any) -> None:
        raise KeyError("x")

    monkeypatch.setattr(scripted.ScriptedSource, "__init__", fail)
    for settings in (SETTINGS, EXACTLY_ONCE):
        with pytest.raises(ConfigError, match="ScriptedSource cannot check its settings"):
            validate(SOURCE, settings, PLUGINS)


def test_a_configuration_without_a_class_shows_no_values() -> None:
    with pytest.raises(ConfigError, match="contains no connector type") as raised:
        validate({"password": "hidden?"}, SETTINGS, PLUGINS)
    assert "hidden?" not in str(raised.value)


def test_offsets_that_would_be_stored_elsewhere_than_they_are_read_are_refused() -> None:
    elsewhere = {**SOURCE, "offsets.storage.topic": "own-offsets"}
    assert errors(elsewhere).keys() == errors(elsewhere, EXACTLY_ONCE).keys() == {"offsets.storage.topic"}
    assert errors({**SOURCE, "offsets.storage.topic": "offset"}, EXACTLY_ONCE) == {}, "that of the worker"
    other = {**SOURCE, "producer.override.bootstrap.servers": "other:9092"}
    assert errors(other) == {}, "offsets are stored behind acknowledged records, whatever the cluster"
    found = errors(other, EXACTLY_ONCE)
    assert found.keys() == {"producer.override.bootstrap.servers"}
    assert "other:9092 is another cluster" in found["producer.override.bootstrap.servers"][0]
