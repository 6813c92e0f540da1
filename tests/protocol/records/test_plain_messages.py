"""Both forms of the reader of plain messages, on valid and on damaged bytes."""

from random import Random

import pytest

from protocol.records.batch import Record
from protocol.records.legacy import build_message_set
from tests.support.forms import both_forms, mutated

TIME = 1_700_000_000_000


def some_messages(random: Random, magic: int) -> bytes:
    def text() -> bytes | None:
        return random.choice((None, b"", b"\xff" * 3, random.randbytes(random.randrange(200))))

    offset = random.choice((0, 2**31, 2**63 - 9))
    return build_message_set(
        [
            Record(offset + number, random.choice((-1, TIME, -(2**63), 2**63 - 1)), text(), text(), [])
            for number in range(random.randint(1, 4))
        ],
        magic=magic,
    )


@pytest.mark.parametrize(
    "count", [3000, pytest.param(1_000_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])], ids=str
)
def test_both_forms_do_the_same_with_mutated_messages(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_form, interpreted_form = both_forms("protocol.records.plain_messages", monkeypatch)
    random = Random(count)
    read = 0
    for number in range(count):
        magic = number & 1
        content = some_messages(random, magic)
        if number % 5:
            content = mutated(content, random)
        append_time = random.choice((None, TIME))
        arguments = (content, 0, magic, append_time is not None, append_time or 0)
        expected = interpreted_form.read_messages(*arguments)
        assert compiled_form.read_messages(*arguments) == expected, content.hex()
        read += len(expected[0])
    assert read > count
