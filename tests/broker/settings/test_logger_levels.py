"""Levels of loggers in Kafka's words."""

import logging
from collections.abc import Iterator

import pytest

from broker.settings.logger_levels import LEVELS_BY_WORD, ROOT, change_levels, describe_loggers, level_of
from protocol.errors import ErrorCode, KafkaError

PARENT, CHILD = "kafka.test.levels", "kafka.test.levels.child"


@pytest.fixture(autouse=True)
def _loggers() -> Iterator[None]:
    root_level = logging.root.level
    for name in (PARENT, CHILD):
        logging.getLogger(name)
    yield
    logging.root.setLevel(root_level)
    for name in (PARENT, CHILD):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.mark.parametrize("word", LEVELS_BY_WORD)
def test_level_is_inherited_and_returned_as_it_was_set(word: str) -> None:
    change_levels({PARENT: word, ROOT: word})
    assert level_of(PARENT) == level_of(CHILD) == level_of(ROOT) == word


def test_a_level_between_two_is_the_stricter_one() -> None:
    logging.getLogger(PARENT).setLevel(logging.INFO + 1)
    assert level_of(PARENT) == "WARN"


def test_without_a_level_of_its_own_a_logger_follows_its_parent() -> None:
    change_levels({PARENT: "ERROR", CHILD: "TRACE"})
    change_levels({CHILD: None})
    assert level_of(CHILD) == "ERROR"


@pytest.mark.parametrize(
    ("name", "word", "code"),
    [
        ("kafka.test.absent", "DEBUG", ErrorCode.INVALID_CONFIG),
        ("kafka.test.absent", None, ErrorCode.INVALID_CONFIG),
        (CHILD, "debug", ErrorCode.INVALID_CONFIG),
        (CHILD, "", ErrorCode.INVALID_CONFIG),
        (ROOT, None, ErrorCode.INVALID_REQUEST),
    ],
)
def test_refusals_change_nothing(name: str, word: str | None, code: ErrorCode) -> None:
    before = level_of(PARENT)
    with pytest.raises(KafkaError) as refused:
        change_levels({PARENT: "FATAL", name: word})
    assert refused.value.code is code
    assert level_of(PARENT) == before


def test_a_refusal_names_the_levels_there_are() -> None:
    with pytest.raises(KafkaError, match=r"Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN$"):
        change_levels({PARENT: "NOISE"})


def test_description_lists_known_loggers_with_their_levels() -> None:
    change_levels({CHILD: "TRACE"})
    assert [(row.name, row.value) for row in describe_loggers([CHILD, "kafka.test.absent"])] == [(CHILD, "TRACE")]
    assert {ROOT, PARENT, CHILD} <= {row.name for row in describe_loggers()}


def test_the_names_that_are_asked_for_are_looked_up_and_not_searched() -> None:
    """A request may have half a million of them."""

    class Names(list[str]):
        def __contains__(self, name: object) -> bool:
            raise AssertionError("a search through all of them")

    assert [row.name for row in describe_loggers(Names([CHILD, "kafka.test.absent", PARENT]))] == [PARENT, CHILD]
