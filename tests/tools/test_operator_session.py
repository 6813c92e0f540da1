"""An operator brings the production settings of a broker of Kafka 2.8, and runs the commands of a week."""

from __future__ import annotations

import json
from pathlib import Path

from tests.tools.terminal import Terminal

PRODUCTION = """\
# Brought from Kafka 2.8
broker.id=11
num.network.threads=8
num.io.threads={io_threads}
socket.send.buffer.bytes=1048576
socket.receive.buffer.bytes=1048576
log.dirs={disks}
num.partitions=8
num.recovery.threads.per.data.dir=4
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
unclean.leader.election.enable=false
log.retention.hours={hours}
log.segment.bytes=536870912
log.message.format.version=2.8
queued.max.requests=500
{last}
"""
SERVER = "--bootstrap-server localhost:9092"
RECORDS = [f"order {number}" for number in range(100)]


def test_week_of_an_operator(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    file = tmp_path / "production.properties"
    disks = [tmp_path / "disk-1", tmp_path / "disk-2"]
    both = ",".join(map(str, disks))

    # The file has mistakes at first: all are reported in one run, with their lines.
    file.write_text(PRODUCTION.format(disks=both, io_threads=0, hours="seven", last="log.retention.hour=168"))
    mistakes = terminal.type_wrongly("bin/kafka-server-start.sh --check production.properties")
    assert [line.split(":")[1] for line in mistakes] == ["4", "15"]
    assert "num.io.threads" in mistakes[0]
    assert "log.retention.hours" in mistakes[1]

    file.write_text(PRODUCTION.format(disks=both, io_threads=8, hours=168, last=""))
    assert terminal.type("bin/kafka-server-start.sh --check production.properties")[-1].endswith(": no error")
    with terminal.running("bin/kafka-server-start.sh production.properties"):
        # A topic, its settings, and more partitions.
        topics = f"bin/kafka-topics.sh {SERVER}"
        assert terminal.type(f"{topics} --create --topic orders --config retention.ms=86400000") == [
            "Created topic orders."
        ]
        assert "PartitionCount: 8" in terminal.type(f"{topics} --describe --topic orders")[0]
        terminal.type(f"{topics} --alter --topic orders --partitions 10")
        assert "PartitionCount: 10" in terminal.type(f"{topics} --describe --topic orders")[0]
        configs = f"bin/kafka-configs.sh {SERVER}"
        terminal.type(
            f"{configs} --alter --entity-type topics --entity-name orders --add-config cleanup.policy=compact"
        )
        terminal.type(f"{configs} --alter --entity-type topics --entity-name orders --delete-config cleanup.policy")
        described = terminal.type(f"{configs} --describe --entity-type topics --entity-name orders")
        assert "  retention.ms=86400000" in described[1]
        assert len(described) == 2

        # A setting of the broker changes while it runs.
        terminal.type(f"{configs} --alter --entity-type brokers --entity-name 11 --add-config num.io.threads=4")
        broker = terminal.type(f"{configs} --describe --entity-type brokers --entity-name 11")
        assert any("num.io.threads=4 " in line and "STATIC_BROKER_CONFIG:num.io.threads=8" in line for line in broker)

        # Records, a group that has read them, and its offsets set back.
        terminal.type(f"bin/kafka-console-producer.sh {SERVER} --topic orders", RECORDS)
        consumer = f"bin/kafka-console-consumer.sh {SERVER} --topic orders --group billing --from-beginning"
        assert sorted(terminal.type(f"{consumer} --max-messages 100")) == sorted(RECORDS)
        groups = f"bin/kafka-consumer-groups.sh {SERVER} --group billing"
        lag = terminal.type(f"{groups} --describe")
        assert sum(int(line.split()[5]) for line in lag if line.startswith("billing")) == 0
        terminal.type(f"{groups} --reset-offsets --topic orders --to-earliest --execute")
        lag = terminal.type(f"{groups} --describe")
        assert sum(int(line.split()[5]) for line in lag if line.startswith("billing")) == 100

        # Disks: what is where, and a partition moves to the other one.
        directories = json.loads(terminal.type(f"bin/kafka-log-dirs.sh {SERVER} --describe --topic-list orders")[-1])
        by_disk = {
            row["logDir"]: [each["partition"] for each in row["partitions"]]
            for row in directories["brokers"][0]["logDirs"]
        }
        assert set(by_disk) == set(map(str, disks))
        source, target = map(str, disks if "orders-0" in by_disk[str(disks[0])] else reversed(disks))
        assert "orders-0" in by_disk[source]
        move = {"topic": "orders", "partition": 0, "replicas": [11], "log_dirs": [target]}
        (tmp_path / "move.json").write_text(json.dumps({"version": 1, "partitions": [move]}))
        reassign = f"bin/kafka-reassign-partitions.sh {SERVER} --reassignment-json-file move.json"
        terminal.type(f"{reassign} --execute")
        terminal.repeat_until(f"{reassign} --verify", "completed")
        assert (Path(target) / "orders-0").is_dir()

        # The files are readable with the dump tool; old records go on demand.
        segments = [path for disk in disks for path in disk.glob("orders-[0-9]/*.log") if path.stat().st_size]
        dumped = terminal.type(f"bin/kafka-dump-log.sh --files {','.join(map(str, segments))} --print-data-log")
        assert sum("payload: order " in line for line in dumped) == len(RECORDS)
        offsets = {"topic": "orders", "partition": 0, "offset": -1}
        (tmp_path / "delete.json").write_text(json.dumps({"version": 1, "partitions": [offsets]}))
        deleted = terminal.type(f"bin/kafka-delete-records.sh {SERVER} --offset-json-file delete.json")
        earliest = terminal.type(f"bin/kafka-get-offsets.sh {SERVER} --topic-partitions orders:0 --time -2")
        assert deleted[-1] == f"partition: orders-0\tlow_watermark: {earliest[0].split(':')[2]}"
        terminal.type(f"{topics} --delete --topic orders")
        assert "orders" not in terminal.type(f"{topics} --list")
