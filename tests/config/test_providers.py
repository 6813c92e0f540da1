"""References to values outside the file."""

from pathlib import Path

import pytest

from config import broker_properties as rows
from config.broker import BrokerConfig
from config.definition import ConfigErrors

PACKAGE = "org.apache.kafka.common.config.provider"
PROVIDERS = {
    "config.providers": "env, file ,directory",
    "config.providers.env.class": f"{PACKAGE}.EnvVarConfigProvider",
    "config.providers.file.class": f"{PACKAGE}.FileConfigProvider",
    "config.providers.directory.class": f"{PACKAGE}.DirectoryConfigProvider",
}


def rack(value: str) -> str | None:
    return BrokerConfig.from_properties({**PROVIDERS, "broker.rack": value})[rows.BROKER_RACK]


def test_references_are_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILENA_RACK", "from-environment")
    (tmp_path / "secrets.properties").write_text("rack = from-file\nother = ${env:MILENA_RACK}\n")
    (tmp_path / "rack").write_text("from-directory")
    assert rack("${env:MILENA_RACK}") == "from-environment"
    assert rack("${env::MILENA_RACK}") == "from-environment"
    assert rack(f"${{file:{tmp_path}/secrets.properties:rack}}") == "from-file"
    assert rack(f"${{directory:{tmp_path}:rack}}") == "from-directory"
    assert rack("a-${env:MILENA_RACK}-${env:MILENA_RACK}") == "a-from-environment-from-environment"
    # What a provider returns is not searched again, and what names no provider is plain text.
    assert rack(f"${{file:{tmp_path}/secrets.properties:other}}") == "${env:MILENA_RACK}"
    assert rack("${vault:path:key}") == "${vault:path:key}"
    assert rack("${env}") == "${env}"


def test_without_providers_nothing_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILENA_RACK", "x")
    assert BrokerConfig.from_properties({"broker.rack": "${env:MILENA_RACK}"})[rows.BROKER_RACK] == "${env:MILENA_RACK}"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("${env:MILENA_NOT_SET}", "no such key"),
        ("${env:path:MILENA_NOT_SET}", "an environment variable has no path"),
        ("${file:/nowhere/secrets.properties:key}", "No such file or directory"),
        ("${directory:/etc:../etc/hostname}", "the key must be the name of a file in the folder"),
    ],
)
def test_unresolved_references_stop_the_start(value: str, reason: str) -> None:
    with pytest.raises(ConfigErrors) as failure:
        rack(value)
    (error,) = failure.value.errors
    assert error.key == "broker.rack"
    assert reason in str(error)


def test_unknown_provider_class_stops_the_start() -> None:
    with pytest.raises(ConfigErrors) as failure:
        BrokerConfig.from_properties({"config.providers": "vault", "config.providers.vault.class": "a.B"})
    assert [error.key for error in failure.value.errors] == ["config.providers.vault.class"]
