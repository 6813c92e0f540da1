"""kafka-dump-log: byte for byte the output of Kafka's own tool for the same files, and errors of damaged files."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from broker.share.machine.deliveries import StateBatch
from broker.share.machine.records import ShareKey, snapshot_key, snapshot_value
from broker.share.machine.stored_states import ShareState
from protocol.records.builder import RecordData, build_batch
from tests.tools.conftest import Outcome, RunTool
from tools.files import dump_log

FIXTURES = Path(__file__).parents[2] / "fixtures" / "dump-log"
FIRST = "00000000000000000000"

CASES: dict[str, tuple[str, ...]] = {
    "batches": ("--files", f"golden-0/{FIRST}.log,golden-compact-0/{FIRST}.log,old-v0-0/{FIRST}.log"),
    "two-batches": ("--files", f"two-batches-0/{FIRST}.log", "--print-data-log"),
    "records": ("--files", "golden-0/00000000000000000040.log", "--deep-iteration"),
    "contents": ("--files", f"golden-0/{FIRST}.log,golden-compact-0/{FIRST}.log", "--print-data-log"),
    "contents-alone": ("--files", f"golden-0/{FIRST}.log", "--print-data-log", "--skip-record-metadata"),
    "some-bytes": ("--files", f"golden-0/{FIRST}.log", "--max-bytes=1000", "--deep-iteration"),
    "old-formats": (
        "--files",
        f"old-v0-0/{FIRST}.log,old-v1-0/{FIRST}.log,old-v1-lat-0/{FIRST}.log",
        "--print-data-log",
    ),
    "mixed": ("--files", "mixed-0/00000000000000000005.log", "--print-data-log"),
    "indexes": (
        "--files",
        ",".join(
            f"{segment}{suffix}"
            for segment in (
                "golden-1/00000000000000000055",
                "golden-0/00000000000000000040",
                f"golden-compact-0/{FIRST}",
                "golden-compact-0/00000000000000000121",
            )
            for suffix in (".index", ".timeindex")
        ),
    ),
    "sane-indexes": (
        "--files",
        "golden-1/00000000000000000055.index,golden-1/00000000000000000055.timeindex",
        "--index-sanity-check",
    ),
    "verified-indexes": (
        "--files",
        "golden-1/00000000000000000055.index,golden-1/00000000000000000055.timeindex",
        "--verify-index-only",
    ),
    "mismatches": ("--files", f"mismatched-0/{FIRST}.index,mismatched-0/{FIRST}.timeindex"),
    "transaction-index": ("--files", "golden-0/00000000000000000040.txnindex"),
    "snapshots": (
        "--files",
        "golden-1/00000000000000000232.snapshot,golden-compact-0/00000000000000000121.snapshot",
    ),
    "offsets": ("--files", f"__consumer_offsets-0/{FIRST}.log", "--offsets-decoder"),
    "offsets-of-all-versions": ("--files", f"groups-0/{FIRST}.log", "--offsets-decoder"),
    "offsets-of-newer-groups": ("--files", f"newer-groups-0/{FIRST}.log", "--offsets-decoder"),
    "transactions": ("--files", f"__transaction_state-0/{FIRST}.log", "--transaction-log-decoder"),
    "transactions-with-many-partitions": ("--files", f"transactions-0/{FIRST}.log", "--transaction-log-decoder"),
    "cluster-metadata": ("--files", f"__cluster_metadata-0/{FIRST}.log", "--cluster-metadata-decoder"),
    "cluster-metadata-snapshots": (
        "--files",
        "__cluster_metadata-0/00000000000000000042-0000000007.checkpoint,__cluster_metadata-0/bootstrap.checkpoint",
        "--cluster-metadata-decoder",
    ),
    "unknown-files": ("--files", "golden-0//meta.properties,golden-0/leader-epoch.txt,"),
}
"""Arguments by the name of the file with Kafka's output, relative to the folder of partitions."""


def as_of_kafka_4(printed: str) -> str:
    """Return what Kafka 3.9 has printed, with the one record that Kafka 4.1 knows, and cannot read either."""
    return printed.replace(
        "Unknown record type 12 at offset 34, skipping.",
        "Error at offset 34, skipping. ShareTargetEpochValue v0: bytes are missing from "
        "ShareTargetEpochValue.assignment_epoch on",
    )


@pytest.fixture
def dump(run: RunTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunTool:
    """Runs the tool in its own folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run(dump_log.main, *arguments)


@pytest.fixture
def in_fixtures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FIXTURES / "partitions")


@pytest.mark.usefixtures("in_fixtures")
@pytest.mark.parametrize(("name", "arguments"), CASES.items(), ids=CASES)
def test_dump_equals_that_of_kafka(run: RunTool, name: str, arguments: Sequence[str]) -> None:
    outcome = run(dump_log.main, *arguments)
    assert outcome.stdout == as_of_kafka_4((FIXTURES / "expected" / f"{name}.txt").read_text())
    assert outcome.status == 0


@pytest.mark.usefixtures("in_fixtures")
def test_differences_are_printed_on_stderr(run: RunTool) -> None:
    folder = FIXTURES / "partitions" / "mismatched-0"
    assert run(dump_log.main, *CASES["mismatches"]).stderr == (
        f"Mismatches in :{folder}/{FIRST}.index\n"
        "  Index offset: 3, log offset: 1\n"
        "  Index offset: 1, log offset: 0\n"
        f"Found timestamp mismatch in :{folder}/{FIRST}.timeindex\n"
        "  Index timestamp: 1001, log timestamp: 1003\n"
        f"Found out of order timestamp in :{folder}/{FIRST}.timeindex\n"
        "  Index timestamp: 1001, Previously indexed timestamp: 1002\n"
        "The following indexed offsets are not found in the log.\n"
        "Indexed offset: 7, found log offset: -1\n"
    )
    assert run(dump_log.main, *CASES["mixed"]).stderr == (
        f"Non-consecutive offsets in {folder.parent}/mixed-0/00000000000000000005.log\n  7 is followed by 20\n"
    )
    assert run(dump_log.main, *CASES["unknown-files"]).stderr == (
        "Ignoring unknown file golden-0/meta.properties\nIgnoring unknown file golden-0/leader-epoch.txt\n"
    )


@pytest.mark.usefixtures("in_fixtures")
@pytest.mark.parametrize(
    ("decoder", "payload"),
    [
        ("org.apache.kafka.tools.api.StringDecoder", "payload: value-none-0 "),
        ("tests.tools.files.test_dump_log:ShoutingDecoder", "payload: VALUE-NONE-0 "),
    ],
)
def test_decoder_classes_print_keys_and_values(run: RunTool, decoder: str, payload: str) -> None:
    outcome = run(
        dump_log.main, "--files", f"golden-0/{FIRST}.log", "--max-bytes", "601", "--value-decoder-class", decoder
    )
    assert outcome.status == 0
    assert payload in outcome.stdout


class ShoutingDecoder:
    """A plug-in."""

    def __call__(self, data: bytes) -> bytes:
        return data.upper()


def test_decoders_of_the_old_package_print_numbers(dump: RunTool) -> None:
    Path("7.log").write_bytes(build_batch([RecordData(0, (5).to_bytes(4), (6).to_bytes(8))]))
    decoders = ("--key-decoder-class", "kafka.serializer.IntegerDecoder", "--value-decoder-class")
    outcome = dump("--files", "7.log", *decoders, "org.apache.kafka.tools.api.LongDecoder")
    assert outcome.stdout.endswith(" key: 5 payload: 6\n")
    assert outcome.stderr == (
        "kafka.serializer.IntegerDecoder is deprecated. Please use org.apache.kafka.tools.api.IntegerDecoder instead\n"
    )
    failed = dump("--files", "7.log", *decoders, "org.apache.kafka.tools.api.IntegerDecoder")
    assert failed.status == 1
    assert failed.stderr.endswith("7.log: offset 0: Size of data received by IntegerDeserializer is not 4\n")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nonexist.log", None, "nonexist.log: expected a name that begins with an offset"),
        (f"{FIRST}.log", None, f"{FIRST}.log: No such file or directory"),
        (f"{FIRST}.log", bytes(100), f"{FIRST}.log: no batch at position 0: magic 0 and length 0 are no batch"),
        (f"{FIRST}.index", b"", f"{FIRST}.log: No such file or directory"),
        (f"{FIRST}.timeindex", b"", f"{FIRST}.log: No such file or directory"),
        (f"{FIRST}.txnindex", b"abc", f"{FIRST}.txnindex has 3 bytes, expected a multiple of 34"),
        (f"{FIRST}.snapshot", b"abc", f"{FIRST}.snapshot has 3 bytes, expected at least 10"),
    ],
)
def test_unreadable_files_are_reported(dump: RunTool, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        Path(name).write_bytes(content)
    Path("9.log").write_bytes(b"")
    outcome = dump("--files", f"{name},9.log")
    assert outcome.status == 1
    assert outcome.stderr.splitlines()[0].startswith(message)
    assert len(outcome.stderr.splitlines()) == 1
    assert outcome.stdout.endswith("Dumping 9.log\nLog starting offset: 9\n"), "the other files are printed"


@pytest.mark.parametrize(
    ("suffix", "content", "message"),
    [
        (".index", bytes(7) + b"\x01" * 6, "is corrupt, found 13 bytes which is neither positive nor a multiple of 8"),
        (".index", b"\xff" * 8, "but the last offset is -1 which is less than the base offset 0"),
        (".timeindex", bytes(13), "is corrupt, found 13 bytes which is neither positive nor a multiple of 12"),
        (
            ".timeindex",
            (9).to_bytes(8) + (1).to_bytes(4) + (8).to_bytes(8) + (2).to_bytes(4),
            "but the last timestamp is 8 which is less than the first timestamp 9",
        ),
    ],
)
def test_corrupt_indexes_fail_the_sanity_check(dump: RunTool, suffix: str, content: bytes, message: str) -> None:
    Path(f"{FIRST}.log").write_bytes(b"")
    Path(f"{FIRST}{suffix}").write_bytes(content)
    outcome = dump("--files", f"{FIRST}{suffix}", "--index-sanity-check")
    assert (outcome.status, outcome.stdout) == (1, f"Dumping {FIRST}{suffix}\n")
    assert message in outcome.stderr


@pytest.mark.parametrize(
    ("fixture", "decoder", "message"),
    [
        ("mixed-0/00000000000000000005.log", "--transaction-log-decoder", "offset 5"),
        (f"old-v1-0/{FIRST}.log", "--offsets-decoder", "using offset topic decoder (message had a missing key)"),
    ],
)
def test_decoder_reports_records_of_another_topic(dump: RunTool, fixture: str, decoder: str, message: str) -> None:
    path = FIXTURES / "partitions" / fixture
    outcome = dump("--files", str(path), decoder)
    assert outcome.status == 1
    assert outcome.stderr.startswith(f"{path}: ")
    assert message in outcome.stderr


def test_damage_inside_a_batch_is_reported(dump: RunTool) -> None:
    batch = bytearray(build_batch([RecordData(0, b"key", b"value")]))
    batch[61] ^= 0x40  # the length of the record
    Path(f"{FIRST}.log").write_bytes(batch)
    outcome = dump("--files", f"{FIRST}.log", "--deep-iteration")
    assert outcome.status == 1
    assert outcome.stdout.rstrip().endswith("isvalid: false")
    assert outcome.stderr.startswith(f"{FIRST}.log: batch at position 0: ")


DECODERS = ("--print-data-log", "--offsets-decoder", "--transaction-log-decoder", "--share-group-state-decoder")


@pytest.mark.parametrize("seed", range(40))
def test_each_damaged_file_ends_with_one_line(dump: RunTool, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    source = random.choice(sorted(path for path in (FIXTURES / "partitions").glob("*/*") if path.stat().st_size))
    shutil.copytree(source.parent, tmp_path / "damaged")
    content = bytearray(source.read_bytes()[:2000])
    for _ in range(random.choice((1, 2, 5))):
        content[random.randrange(len(content))] = random.randrange(256)
    (tmp_path / "damaged" / source.name).write_bytes(content[: random.choice((len(content), len(content) // 2))])
    decoder = random.choice(DECODERS)
    outcome = dump("--files", f"damaged/{source.name}", decoder)
    if outcome.status == 1:
        (line,) = [line for line in outcome.stderr.splitlines() if line.startswith("damaged/")]
        assert source.stem in line
    assert "Traceback" not in outcome.stderr


def test_files_are_not_changed(dump: RunTool, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "partitions" / "golden-1", tmp_path / "golden-1")
    (tmp_path / "golden-1" / "00000000000000000055.index").unlink()
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "golden-1").iterdir()}
    dump("--files", "golden-1/00000000000000000055.timeindex,golden-1/00000000000000000055.log")
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "golden-1").iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "This tool helps to parse a log file"),
        (("--nosuch",), "nosuch is not a recognized option"),
        (("--print-data-log",), 'Missing required argument "[files]"'),
        (("--files",), "Option files requires an argument"),
        (("--files", "a.log", "--max-bytes", "x"), "Cannot parse argument 'x' of option max-bytes"),
        (("--files", "a.log", "--value-decoder-class", "no.such.Decoder"), "Unknown deserializer no.such.Decoder"),
    ],
)
def test_invalid_options_are_usage_errors(dump: RunTool, arguments: Sequence[str], line: str) -> None:
    outcome: Outcome = dump(*arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(line)
    assert "--files <file1, file2, ...>" in outcome.stderr


def test_states_of_share_groups_are_printed(dump: RunTool) -> None:
    key = ShareKey("orders", UUID(int=7), 3)
    state = ShareState(1, 5, [StateBatch(5, 6, 0, 2)], 4, 2, 1000).to_stored(2000)
    records = [
        RecordData(2000, snapshot_key(key), snapshot_value(state)),
        RecordData(2001, snapshot_key(key), None),
        RecordData(2002, b"\x00\x09", b"x"),
        RecordData(2003, snapshot_key(key), b"\x00\x01"),
    ]
    Path(f"{FIRST}.log").write_bytes(build_batch(records))
    outcome = dump("--files", f"{FIRST}.log", "--share-group-state-decoder", "--skip-record-metadata")
    shown = [line.partition("key: ")[2] for line in outcome.stdout.splitlines() if "key: " in line]
    name = '{"type":"0","data":{"groupId":"orders","topicId":"AAAAAAAAAAAAAAAAAAAABw","partition":3}}'
    data = (
        '"snapshotEpoch":2,"stateEpoch":1,"leaderEpoch":4,"startOffset":5,"createTimestamp":1000,"writeTimestamp":2000,'
        '"stateBatches":[{"firstOffset":5,"lastOffset":6,"deliveryState":0,"deliveryCount":2}]'
    )
    assert shown == [
        f'{name} payload: {{"version":"0","data":{{{data}}}}}',
        f"{name} payload: <DELETE>",
        "Unknown record type 9 at offset 2, skipping.",
        "Error at offset 3, skipping. value of version 1, expected 0",
    ]
