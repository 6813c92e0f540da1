"""Two independent clients' record classes read what we write, and we read what they write."""

from typing import Any

import pytest
from aiokafka.record import default_records as aiokafka_records  # type: ignore[import-untyped]
from aiokafka.record import legacy_records as aiokafka_messages
from kafka.record import default_records as kafka_python_records
from kafka.record import legacy_records as kafka_python_messages

from protocol.records.batch import Record, batches, crc_is_valid, read_header, records
from protocol.records.builder import RecordData, build_batch
from protocol.records.compression import Compression
from protocol.records.legacy import build_message_set, messages, read_message_set

pytestmark = pytest.mark.usefixtures("form")

SIZE_MAX = 1 << 20

CONTENT: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (b"key", b"value", []),
    (None, b"value", [("a", b"1"), ("a", None), ("b", b"")]),
    (b"key", None, [("\u043a\u043b\u044e\u0447", b"\xff")]),
    (b"", b"", []),
    (b"k" * 63, b"v" * 64, []),
    (b"k" * 64, b"v" * 8191, []),
    (None, b"v" * 8192, []),
    *((b"%d" % n, b"text " * 50, []) for n in range(100)),
]
ROWS = [RecordData(1_700_000_000_000 + 997 * n, *content) for n, content in enumerate(CONTENT)]

PYTHON_CLIENTS = [
    pytest.param(kafka_python_records.DefaultRecordBatch, id="kafka-python"),
    pytest.param(aiokafka_records._DefaultRecordBatchPy, id="aiokafka"),
    pytest.param(aiokafka_records.DefaultRecordBatch, id="aiokafka-compiled"),
]
PYTHON_BUILDERS = [
    pytest.param(kafka_python_records.DefaultRecordBatchBuilder, id="kafka-python"),
    pytest.param(aiokafka_records._DefaultRecordBatchBuilderPy, id="aiokafka"),
    pytest.param(aiokafka_records.DefaultRecordBatchBuilder, id="aiokafka-compiled"),
]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_other_libraries_read_our_batches(client: Any, codec: Compression) -> None:
    batch = bytearray(
        build_batch(ROWS, base_offset=70, compression=codec, producer_id=5, producer_epoch=1, base_sequence=9)
    )
    theirs = client(batch)
    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (70, 5, 1, 9)
    assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in theirs] == [
        (70 + index, row.timestamp, row.key, row.value, list(row.headers)) for index, row in enumerate(ROWS)
    ]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("builder", PYTHON_BUILDERS)
def test_batches_of_other_libraries_are_read(builder: Any, codec: Compression) -> None:
    theirs = builder(
        magic=2,
        compression_type=codec,
        is_transactional=True,
        producer_id=5,
        producer_epoch=1,
        base_sequence=9,
        batch_size=1 << 20,
    )
    for index, row in enumerate(ROWS):
        assert theirs.append(index, row.timestamp, row.key, row.value, list(row.headers)) is not None
    batch = bytes(theirs.build())
    ((position, header),) = batches(batch)
    assert crc_is_valid(batch, position, header)
    assert header.is_transactional
    assert header.compression in (codec, Compression.NONE)  # they leave out a codec that does not pay
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 9)
    assert [record[1:] for record in records(batch, size_max=SIZE_MAX)] == [
        (row.timestamp, row.key, row.value, list(row.headers)) for row in ROWS
    ]
    if header.compression is Compression.NONE:
        ours = build_batch(ROWS, producer_id=5, producer_epoch=1, base_sequence=9, is_transactional=True)
        assert read_header(ours)[5:] == header[5:]
        assert ours[61:] == batch[61:]


OLD_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
MESSAGES = [Record(1000 + index, row.timestamp, row.key, row.value, []) for index, row in enumerate(ROWS)]

# None of them can do lz4 in magic 0 (kafka-python could with a package that we do not use).
old_formats = pytest.mark.parametrize(
    ("magic", "codec"), [(1, codec) for codec in OLD_CODECS] + [(0, codec) for codec in OLD_CODECS[:3]]
)

MESSAGE_CLIENTS = [
    pytest.param(kafka_python_messages.LegacyRecordBatch, id="kafka-python"),
    pytest.param(aiokafka_messages._LegacyRecordBatchPy, id="aiokafka"),
    pytest.param(aiokafka_messages.LegacyRecordBatch, id="aiokafka-compiled"),
]
MESSAGE_BUILDERS = [
    pytest.param(kafka_python_messages.LegacyRecordBatchBuilder, id="kafka-python"),
    pytest.param(aiokafka_messages._LegacyRecordBatchBuilderPy, id="aiokafka"),
    pytest.param(aiokafka_messages.LegacyRecordBatchBuilder, id="aiokafka-compiled"),
]


@old_formats
@pytest.mark.parametrize("client", MESSAGE_CLIENTS)
def test_other_libraries_read_our_messages(client: Any, codec: Compression, magic: int) -> None:
    data = build_message_set(MESSAGES, magic=magic, compression=codec)
    read = []
    for position, header in messages(data):
        entry = client(bytearray(data[position : position + header.size]), magic)
        assert entry.validate_crc()
        read += [(r.offset, r.timestamp, r.key, r.value) for r in entry]
    assert read == [(r.offset, r.timestamp if magic else None, r.key, r.value) for r in MESSAGES]


@old_formats
@pytest.mark.parametrize("builder", MESSAGE_BUILDERS)
def test_messages_of_other_libraries_are_read(builder: Any, codec: Compression, magic: int) -> None:
    theirs = builder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for index, row in enumerate(ROWS):
        assert theirs.append(index, timestamp=row.timestamp, key=row.key, value=row.value) is not None
    sent = read_message_set(bytes(theirs.build()), size_max=SIZE_MAX)
    assert sent.compression is codec
    assert [record[1:4] for run in sent.runs for record in run] == [
        (r.timestamp if magic else -1, r.key, r.value) for r in ROWS
    ]
