"""Topic ids as text."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.base.topic_ids import parse_topic_id, topic_id_text


def test_text_form_equals_that_of_kafka() -> None:
    assert topic_id_text(UUID("a5211eb4-d764-49b9-a1aa-1b8d2b7b2c23")) == "pSEetNdkSbmhqhuNK3ssIw"


@given(st.uuids())
def test_ids_survive_a_round_trip(topic_id: UUID) -> None:
    text = topic_id_text(topic_id)
    assert len(text) == 22
    assert parse_topic_id(text) == topic_id


@pytest.mark.parametrize("text", ["", "abc", "pSEetNdkSbmhqhuNK3ssI", "pSEetNdkSbmhqhuNK3ssIwAA", "?" * 22, "é" * 22])
def test_invalid_texts_are_rejected(text: str) -> None:
    assert parse_topic_id(text) is None
