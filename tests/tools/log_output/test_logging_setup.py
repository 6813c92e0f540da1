"""What the environment says about levels and files of the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from config.log4j import LoggingPlan
from tools.log_output import logging_setup

CONFIGURATION = """\
log4j.rootLogger=INFO, F
log4j.logger.kafka.controller=INFO, C
log4j.appender.F=org.apache.log4j.FileAppender
log4j.appender.F.File=${kafka.logs.dir}/server.log
log4j.appender.C=org.apache.log4j.FileAppender
log4j.appender.C.File=own/controller.log
"""


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[LoggingPlan]:
    """The plans that were installed; none is put into effect."""
    installed: list[LoggingPlan] = []
    monkeypatch.setattr(logging_setup, "install_in_background", lambda plan, keep_count: installed.append(plan))
    monkeypatch.setattr(logging_setup, "install", installed.append)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return installed


QUIET = dict.fromkeys(("state.change.logger", "kafka.coordinator.group.GroupCoordinator"), logging.WARNING)


def levels(plan: LoggingPlan) -> Mapping[str, int | None]:
    return {name: logger.level for name, logger in plan.loggers.items()}


def test_levels_of_kafkas_images_count(plans: list[LoggingPlan], tmp_path: Path) -> None:
    variables = {
        "KAFKA_LOG4J_ROOT_LOGLEVEL": "warn",
        "KAFKA_LOG4J_LOGGERS": "kafka.controller=TRACE, kafka.x=LOUD,org.apache.kafka=ERROR",
        "LOG4J_LOGGER_KAFKA_REQUEST_LOGGER": "DEBUG, requestAppender",
    }
    logging_setup.start_logging(variables, 1)
    expected = {
        "": logging.WARNING,
        "kafka.controller": 5,
        "org.apache.kafka": logging.ERROR,
        "kafka.request.logger": logging.DEBUG,
    }
    assert levels(plans[-1]) == {**expected, **QUIET}
    assert plans[-1].loggers[""].appenders == ("console",)
    (warning,) = plans[-1].warnings
    assert warning.startswith("level in the environment: kafka.x: LOUD is no level; expected ALL, TRACE, DEBUG")
    logging_setup.start_logging({**variables, "LOG_DIR": str(tmp_path)}, 1)
    assert levels(plans[-1]).items() >= expected.items()
    assert plans[-1].loggers["kafka.controller"].appenders, "it keeps its file"


def test_state_changes_are_shown_on_a_console_on_request_only(plans: list[LoggingPlan], tmp_path: Path) -> None:
    logging_setup.start_logging({}, 1)
    assert levels(plans[-1]) == {"": logging.INFO, **QUIET}
    logging_setup.start_logging({"LOG4J_LOGGER_STATE_CHANGE_LOGGER": "INFO"}, 1)
    assert levels(plans[-1])["state.change.logger"] == logging.INFO
    logging_setup.start_logging({"LOG_DIR": str(tmp_path)}, 1)
    assert plans[-1].loggers["state.change.logger"].level == logging.INFO
    assert plans[-1].loggers["state.change.logger"].appenders == ("stateChange",)


def test_the_level_of_tools_is_another(plans: list[LoggingPlan], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logging_setup.start_tool_logging({"KAFKA_LOG4J_ROOT_LOGLEVEL": "TRACE", "KAFKA_TOOLS_LOG4J_LOGLEVEL": "ERROR"})
    assert levels(plans[-1])[""] == logging.ERROR


@pytest.mark.parametrize("log_dir", ["/var/log/kafka", "here", ""])
def test_relative_files_are_beside_those_of_a_daemon(plans: list[LoggingPlan], tmp_path: Path, log_dir: str) -> None:
    (tmp_path / "log4j.properties").write_text(CONFIGURATION)
    options = f"-Dlog4j.configuration=file:{tmp_path}/log4j.properties"
    logging_setup.start_logging({"KAFKA_LOG4J_OPTS": options, "LOG_DIR": log_dir}, 1)
    (plan,) = plans
    folder = tmp_path / (log_dir or "state/milena/logs")
    assert {name: appender.file for name, appender in plan.appenders.items()} == {
        "F": str(folder / "server.log"),
        "C": str(folder / "own" / "controller.log"),
    }
    assert list(plan.warnings) == ([] if log_dir else [f"LOG_DIR is not set, so log files are in {folder}"])
