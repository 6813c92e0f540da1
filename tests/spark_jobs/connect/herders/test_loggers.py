"""Levels of loggers under Kafka's names."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from spark_jobs.connect.base.errors import ConfigError, NotFoundError
from spark_jobs.connect.herders.loggers import LEVELS, level_of, levels, set_level

NAME = "test.levels.one"


@pytest.fixture(autouse=True)
def _levels_return() -> Iterator[None]:
    """Give all loggers their levels back."""
    found = [
        logging.getLogger(),
        *(each for each in logging.Logger.manager.loggerDict.values() if isinstance(each, logging.Logger)),
    ]
    before = [(each, each.level) for each in found]
    yield
    for each, level in before:
        each.setLevel(level)
    for name in [each for each in logging.Logger.manager.loggerDict if each.startswith("test.levels")]:
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_is_shown_as_it_was_set(level: str) -> None:
    assert set_level(NAME, level.lower()) == [NAME]
    found = level_of(NAME)
    assert found["level"] == level
    assert isinstance(found["last_modified"], int)
    assert levels()[NAME] == found


def test_a_logger_sets_those_below_it_but_not_its_neighbours() -> None:
    for name in (f"{NAME}.below", f"{NAME}s"):
        set_level(name, "ERROR")
    assert set_level(NAME, "DEBUG") == [NAME, f"{NAME}.below"]
    assert level_of(f"{NAME}.below")["level"] == "DEBUG"
    assert level_of(f"{NAME}s")["level"] == "ERROR"


def test_the_root_sets_all_loggers() -> None:
    set_level(NAME, "ERROR")
    assert NAME in set_level("root", "WARN")
    assert level_of("root")["level"] == level_of(NAME)["level"] == "WARN"


def test_a_logger_without_a_level_has_that_of_the_one_above() -> None:
    set_level("test.levels", "ERROR")
    logging.getLogger("test.levels.inherits")
    assert level_of("test.levels.inherits") == {"level": "ERROR", "last_modified": None}
    assert "test.levels.inherits" not in levels()


def test_an_unknown_logger_is_not_found() -> None:
    with pytest.raises(NotFoundError, match=r"Logger no\.such not found"):
        level_of("no.such")


def test_an_unknown_level_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match="invalid log level 'LOUD': expected one of OFF, FATAL"):
        set_level(NAME, "LOUD")
