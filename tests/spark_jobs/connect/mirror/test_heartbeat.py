"""The heartbeat connector and its task."""

from __future__ import annotations

import threading

import pytest

from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.mirror.formats import Heartbeat
from spark_jobs.connect.mirror.heartbeat import MirrorHeartbeatConnector, MirrorHeartbeatTask
from tests.spark_jobs.connect.contexts import FakeOffsets
from tests.spark_jobs.connect.mirror.flows import Flow, TaskWorker, partition_counts, stored


def test_heartbeats_name_the_flow_and_the_time_in_one_partition(flow: Flow) -> None:
    config = flow.config(emit_heartbeats_interval_seconds=0, enabled="false")
    (task_config,) = flow.start(MirrorHeartbeatConnector(), config)
    assert partition_counts(flow.target)["heartbeats"] == 1
    with TaskWorker(MirrorHeartbeatTask(), task_config, FakeOffsets(), flow.target) as task:
        (record,) = task.step()
    assert record.source_partition == {"sourceClusterAlias": flow.source_alias, "targetClusterAlias": flow.target_alias}
    assert record.source_offset == {"offset": 0}
    copy = stored(flow.target, "heartbeats")[-1]
    beat = Heartbeat.from_record(copy.key(), copy.value())
    assert beat == Heartbeat(flow.source_alias, flow.target_alias, copy.timestamp()[1])


def test_a_flow_that_sends_no_heartbeats_has_no_task(flow: Flow) -> None:
    assert flow.start(MirrorHeartbeatConnector(), flow.config(emit_heartbeats_enabled="false")) == []


def test_a_task_that_waits_for_its_interval_ends_at_once(flow: Flow) -> None:
    task = MirrorHeartbeatTask()
    task.start(flow.config(emit_heartbeats_interval_seconds=3600))
    threading.Timer(0.05, task.stop).start()
    assert task.poll() == []


def test_other_offsets_than_zero_are_refused() -> None:
    partition = {"sourceClusterAlias": "A", "targetClusterAlias": "B"}
    connector = MirrorHeartbeatConnector()
    assert connector.alter_offsets({}, [(partition, {"offset": 0}), ({}, None)])
    with pytest.raises(ConnectError, match="invalid value 3 for the 'offset' key: expected 0"):
        connector.alter_offsets({}, [(partition, {"offset": 3})])
    with pytest.raises(ConnectError, match="missing the 'sourceClusterAlias' key"):
        connector.alter_offsets({}, [({}, {"offset": 0})])
