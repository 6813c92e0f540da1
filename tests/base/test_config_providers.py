"""The limits of config providers; `tests/config/test_providers.py` has what references become."""

from __future__ import annotations

from pathlib import Path

import pytest

from base.config_providers import ConfigProviders, Problem
from base.small_file import SIZE_MAX

PACKAGE = "org.apache.kafka.common.config.provider"
SETTINGS = {
    "config.providers": "env,file,directory",
    "config.providers.env.class": f"{PACKAGE}.EnvVarConfigProvider",
    "config.providers.file.class": f"{PACKAGE}.FileConfigProvider",
    "config.providers.directory.class": f"{PACKAGE}.DirectoryConfigProvider",
}


def resolved(value: str, limits: dict[str, str], environment: dict[str, str] | None = None) -> str | Problem:
    """Return the value of one setting, or why it has none."""
    providers = ConfigProviders({**SETTINGS, **limits}, environment or {})
    found, problems = providers.resolve({"key": value})
    return next(iter([*providers.problems, *problems]), found["key"])


def test_only_allowed_variables_are_read() -> None:
    limits = {"config.providers.env.param.allowlist.pattern": "MIRROR_.*"}
    environment = {"MIRROR_PASSWORD": "p", "PASSWORD": "q", "XMIRROR_PASSWORD": "r"}
    assert resolved("${env:MIRROR_PASSWORD}", limits, environment) == "p"
    for name in ("PASSWORD", "XMIRROR_PASSWORD"):
        problem = resolved(f"${{env:{name}}}", limits, environment)
        assert isinstance(problem, Problem)
        assert problem.reason.endswith("allowlist.pattern does not allow this variable")


def test_only_files_in_allowed_folders_are_read(tmp_path: Path) -> None:
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    for folder in (allowed, other):
        folder.mkdir()
        (folder / "secrets").write_text("password=p\n")
    limits = {f"config.providers.{name}.param.allowed.paths": str(allowed) for name in ("file", "directory")}
    assert resolved(f"${{file:{allowed}/secrets:password}}", limits) == "p"
    assert resolved(f"${{directory:{allowed}:secrets}}", limits) == "password=p\n"
    for reference in (
        f"${{file:{other}/secrets:password}}",
        f"${{file:{allowed}/../other/secrets:password}}",
        f"${{directory:{other}:secrets}}",
    ):
        problem = resolved(reference, limits)
        assert isinstance(problem, Problem)
        assert (problem.key, problem.value) == ("key", reference)
        assert "allowed.paths does not allow" in problem.reason


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("file.param.allowed.paths", "relative", "Expected absolute paths that exist, found relative"),
        ("directory.param.allowed.paths", "/does-not-exist", "Expected absolute paths that exist"),
        ("env.param.allowlist.pattern", "(", "Expected a regular expression"),
    ],
)
def test_a_limit_that_is_invalid_is_named_and_its_provider_reads_nothing(name: str, value: str, reason: str) -> None:
    providers = ConfigProviders({**SETTINGS, f"config.providers.{name}": value}, {"HOME": "/"})
    (problem,) = providers.problems
    assert (problem.key, problem.value) == (f"config.providers.{name}", value)
    assert reason in problem.reason
    assert providers.resolve({"key": "${env:HOME}"})[0]["key"] == ("${env:HOME}" if name.startswith("env") else "/")


def test_a_file_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (SIZE_MAX + 1))
    problem = resolved(f"${{directory:{tmp_path}:large}}", {})
    assert isinstance(problem, Problem)
    assert problem.reason.endswith(f"large has more than {SIZE_MAX} bytes")
