"""References to config providers in the settings of workers and connectors."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.herders.validation import validate
from spark_jobs.connect.worker.plugins import Plugins
from spark_jobs.connect.worker.providers import masked, with_references
from spark_jobs.connect.worker.settings import WorkerSettings

PACKAGE = "org.apache.kafka.common.config.provider"


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.properties"
    path.write_text("password=p4ssword\nbrokers=b1:9092\ntopic=lines\n")
    return path


@pytest.fixture
def worker(tmp_path: Path, secrets: Path) -> WorkerSettings:
    given = {
        "bootstrap.servers": f"${{file:{secrets}:brokers}}",
        "key.converter": "StringConverter",
        "value.converter": "StringConverter",
        "offset.storage.file.filename": str(tmp_path / "offsets"),
        "producer.sasl.password": f"${{file:{secrets}:password}}",
        "config.providers": "file",
        "config.providers.file.class": f"{PACKAGE}.FileConfigProvider",
    }
    return WorkerSettings(given, is_distributed=False)


def test_the_file_of_a_worker_is_resolved_when_it_is_read(worker: WorkerSettings) -> None:
    assert worker["bootstrap.servers"] == "b1:9092"
    assert worker.client("producer")["sasl.password"] == "p4ssword"


def test_a_provider_that_does_not_exist_is_named() -> None:
    given = {"config.providers": "vault", "config.providers.vault.class": "a.Vault"}
    with pytest.raises(ConfigError, match=r"Invalid value a\.Vault for configuration config\.providers\.vault\.class"):
        WorkerSettings(given, is_distributed=True)


def test_a_reference_without_a_value_is_named(worker: WorkerSettings, secrets: Path) -> None:
    with pytest.raises(ConfigError, match=r"Invalid value \$\{file:.*:none\} for configuration a: .*no such key"):
        worker.providers.resolved({"a": f"${{file:{secrets}:none}}"})


def test_a_connector_is_checked_with_values_and_shown_with_references(worker: WorkerSettings, secrets: Path) -> None:
    config = {
        "name": "lines",
        "connector.class": "FileStreamSource",
        "topic": f"${{file:{secrets}:topic}}",
        "batch.size": f"${{file:{secrets}:password}}",
    }
    result = validate(config, worker, Plugins())
    shown = {each["value"]["name"]: each["value"] for each in result["configs"]}
    assert shown["topic"]["value"] == config["topic"]
    assert not shown["topic"]["errors"]
    (error,) = shown["batch.size"]["errors"]
    assert f"Invalid value {config['batch.size']} for configuration batch.size" in error
    assert "p4ssword" not in str(result)


def test_what_a_connector_copies_into_its_tasks_has_references_again() -> None:
    stored = {"password": "${file:/s:p}", "topic": "${file:/s:t}", "name": "n"}
    resolved = {"password": "p4ssword", "topic": "lines", "name": "n"}
    derived = {"password": "p4ssword", "topic": "other", "name": "n", "task.index": "0"}
    assert with_references(stored, resolved, derived) == {**derived, "password": "${file:/s:p}"}
    assert masked(stored, resolved, "p4ssword of n") == "${file:/s:p} of n"
