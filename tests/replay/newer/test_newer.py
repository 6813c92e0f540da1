"""Milena answers requests of newer clients as Apache Kafka 4.1 does, and Kafka does as was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replay.newer import servers
from tests.replay.newer.conversation import answers, differences
from tests.replay.newer.differences import EXPLAINED
from tests.replay.newer.recording import CASES, recorded
from tests.support.apache_kafka import kraft_jars
from tests.support.parts import skip_when_unavailable


def test_milena_answers_as_kafka_except_for_what_is_explained(tmp_path: Path) -> None:
    with servers.milena(tmp_path / "milena") as port:
        found = differences(recorded(), answers(port, CASES))
    assert not {row: texts for row, texts in found.items() if row not in EXPLAINED}
    assert EXPLAINED.keys() == found.keys(), "what is explained differs"


@pytest.mark.soak
def test_kafka_answers_as_recorded(tmp_path: Path) -> None:
    with skip_when_unavailable():
        kraft_jars()
    with servers.kafka(tmp_path / "kafka") as port:
        found = answers(port, CASES)
    assert not differences(recorded(), found)
    assert found == recorded(), "the texts are where they were"
