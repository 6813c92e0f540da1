"""The recorded answers of Apache Kafka 4.1, and the cases that they answer.

`python -m tests.fixtures.record newer` records them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from tests.replay.newer import consumer_groups, share_groups, telemetry, transactions
from tests.replay.newer.conversation import Answer, Case
from tests.support.recorded import FIXTURES

RECORDING: Final = FIXTURES / "newer" / "kafka-4.1.0.jsonl"
"""One answer a line, so that a change shows what became different."""
CASES: Final[tuple[Case, ...]] = (
    *consumer_groups.CASES,
    *share_groups.CASES,
    *transactions.CASES,
    *telemetry.CASES,
)


def recorded() -> dict[str, dict[str, Answer]]:
    """Return the answers by the names of case and label."""
    found: dict[str, dict[str, Answer]] = {}
    for line in RECORDING.read_text(encoding="utf-8").splitlines():
        case, label, answer = json.loads(line)
        found.setdefault(case, {})[label] = answer
    return found


def record(answers: Mapping[str, Mapping[str, Answer]]) -> None:
    """Replace the recording."""
    lines = (
        json.dumps([case, label, answer]) + "\n"
        for case, answered in answers.items()
        for label, answer in answered.items()
    )
    RECORDING.write_text("".join(lines), encoding="utf-8")
