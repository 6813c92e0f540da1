"""Ids as text."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.ids import id_text, parse_id, random_id


def test_text_form_equals_that_of_kafka() -> None:
    assert id_text(UUID("a5211eb4-d764-49b9-a1aa-1b8d2b7b2c23")) == "pSEetNdkSbmhqhuNK3ssIw"


@given(st.uuids())
def test_ids_survive_a_round_trip(topic_id: UUID) -> None:
    text = id_text(topic_id)
    assert len(text) == 22
    assert parse_id(text) == topic_id


@pytest.mark.parametrize("text", ["", "abc", "pSEetNdkSbmhqhuNK3ssI", "pSEetNdkSbmhqhuNK3ssIwAA", "?" * 22, "é" * 22])
def test_invalid_texts_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id"):
        parse_id(text)


def test_text_of_a_random_id_does_not_begin_with_a_dash() -> None:
    bits = iter((0xF8 << 120, 1))
    assert id_text(random_id(lambda _: next(bits))) == "AAAAAAAAQACAAAAAAAAAAQ"
