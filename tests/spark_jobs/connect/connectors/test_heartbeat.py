"""The heartbeat is sent once per interval, and names its connector."""

import threading

import pytest

from spark_jobs.connect.base.data import validate
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.connectors.heartbeat import HeartbeatSourceConnector, HeartbeatSourceTask
from tests.spark_jobs.connect.contexts import poll_until, start_connector, start_source


def test_a_heartbeat_has_name_and_time() -> None:
    task = start_source(HeartbeatSourceTask, {"name": "pulse", "topic": "beats", "emit.interval.ms": "1"})
    first, second = poll_until(task, 2)
    task.stop()
    validate(first.value_schema, first.value)
    assert (first.topic, first.key) == ("beats", "pulse")
    assert first.value["timestamp"] == first.timestamp_ms == first.source_offset["timestamp"]
    assert first.value["timestamp"] <= second.value["timestamp"]
    assert first.source_partition == {"heartbeat": "pulse"}


def test_the_next_heartbeat_waits_for_its_interval_or_for_the_end() -> None:
    task = start_source(HeartbeatSourceTask, {"name": "pulse", "topic": "beats", "emit.interval.ms": "600000"})
    assert len(task.poll()) == 1
    found: list[object] = []
    poll = threading.Thread(target=lambda: found.extend(task.poll()))
    poll.start()
    task.stop()
    poll.join()
    assert found == []


@pytest.mark.parametrize(
    ("config", "setting"), [({}, "topic"), ({"topic": "beats", "emit.interval.ms": "0"}, r"emit\.interval\.ms")]
)
def test_a_wrong_setting_is_named(config: dict[str, str], setting: str) -> None:
    with pytest.raises(ConfigError, match=setting):
        start_connector(HeartbeatSourceConnector, config)
