"""The requests of kcctl and of Kafbat UI, in the order in which a user causes them, and what they read in responses.

The shapes are those of the clients' own classes: a client that misses a field, or finds another type, shows an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.spark_jobs.connect.rest.workers import StandaloneWorker
from tests.spark_jobs.connect.worker.runs import new_topic, unique
from tests.support.broker import BrokerProcess

TEXT, NUMBER, FLAG = str, int, bool
TASK: Mapping[str, Any] = {"connector": TEXT, "task": NUMBER}
CONNECTOR: Mapping[str, Any] = {"name": TEXT, "config": {str: TEXT}, "tasks": [TASK], "type": TEXT}
STATE: Mapping[str, Any] = {"state": TEXT, "worker_id": TEXT}
STATUS: Mapping[str, Any] = {"name": TEXT, "connector": STATE, "tasks": [{"id": NUMBER, **STATE}]}
EXPANDED: Mapping[Any, Any] = {str: {"status": STATUS, "info": CONNECTOR}}
PLUGIN: Mapping[str, Any] = {"class": TEXT, "type": TEXT, "version": TEXT}
DEFINITION: Mapping[str, Any] = {
    "name": TEXT, "type": TEXT, "required": FLAG, "importance": TEXT, "documentation": TEXT, "width": TEXT,
    "display_name": TEXT, "dependents": [TEXT],
}  # fmt: skip
VALIDATION: Mapping[str, Any] = {
    "name": TEXT, "error_count": NUMBER, "groups": [TEXT],
    "configs": [{
        "definition": DEFINITION,
        "value": {"name": TEXT, "recommended_values": [TEXT], "errors": [TEXT], "visible": FLAG},
    }],
}  # fmt: skip
OFFSETS: Mapping[str, Any] = {"offsets": [{"partition": {str: object}, "offset": {str: object}}]}
LEVEL: Mapping[str, Any] = {"level": TEXT}
TOPICS: Mapping[Any, Any] = {str: {"topics": [TEXT]}}


class Call(NamedTuple):
    method: str
    path: str
    status: int
    shape: Any = None
    """What the body of the response is read as, None if nothing is read."""
    body: Any = None
    first: str | None = None
    """The state that the connector and its task have before the request."""


def assert_shape(found: Any, shape: Any) -> None:
    """Every field that a client reads is there, with its type; a client ignores others."""
    if isinstance(shape, type):
        assert isinstance(found, shape), (found, shape)
    elif isinstance(shape, list):
        assert isinstance(found, list), found
        for each in found:
            assert_shape(each, shape[0])
    elif str in shape:
        for name, value in found.items():
            assert isinstance(name, str)
            assert_shape(value, shape[str])
    else:
        for name, expected in shape.items():
            assert_shape(found[name], expected)


def kcctl(name: str, config: Mapping[str, Any]) -> list[Call]:
    of = f"/connectors/{name}"
    return [
        Call("GET", "/", 200, {"version": TEXT, "commit": TEXT, "kafka_cluster_id": TEXT}),
        Call("GET", "/connector-plugins?connectorsOnly=false", 200, [PLUGIN]),
        Call("GET", "/connector-plugins/FileStreamSource/config", 200, [DEFINITION]),
        Call("PUT", "/connector-plugins/FileStreamSource/config/validate", 200, VALIDATION, config),
        Call("GET", "/connectors/", 200, [TEXT]),
        Call("POST", "/connectors/", 201, CONNECTOR, {"name": name, "config": config}),
        Call("GET", of, 200, CONNECTOR, first="RUNNING"),
        Call("GET", "/connectors?expand=info&expand=status", 200, EXPANDED),
        Call("GET", f"{of}/status", 200, STATUS),
        Call("GET", f"{of}/topics", 200, TOPICS),
        Call("GET", f"{of}/config", 200, {str: TEXT}),
        Call("PUT", f"{of}/config", 200, CONNECTOR, {**config, "batch.size": "7"}),
        Call("GET", f"{of}/tasks", 200, [{"id": TASK, "config": {str: TEXT}}]),
        Call("POST", f"{of}/restart", 204, first="RUNNING"),
        Call("POST", f"{of}/restart?includeTasks=true&onlyFailed=false", 202, STATUS, first="RUNNING"),
        Call("POST", f"{of}/tasks/0/restart", 204, first="RUNNING"),
        Call("PUT", f"{of}/pause", 202, first="RUNNING"),
        Call("PUT", f"{of}/resume", 202, first="PAUSED"),
        Call("PUT", f"{of}/stop", 204, first="RUNNING"),
        Call("GET", f"{of}/offsets", 200, OFFSETS),
        Call("PATCH", f"{of}/offsets", 200, {"message": TEXT},
             {"offsets": [{"partition": {"filename": config["file"]}, "offset": {"position": 0}}]}),
        Call("DELETE", f"{of}/offsets", 200, {"message": TEXT}),
        Call("GET", "/admin/loggers", 200, {str: LEVEL}),
        Call("PUT", "/admin/loggers/org.apache.kafka.test", 200, [TEXT], {"level": "DEBUG"}),
        Call("PUT", "/admin/loggers/org.apache.kafka.test?scope=cluster", 204, None, {"level": "INFO"}),
        Call("GET", "/admin/loggers/org.apache.kafka.test", 200, LEVEL),
        Call("DELETE", of, 204),
    ]  # fmt: skip


def kafbat(name: str, config: Mapping[str, Any]) -> list[Call]:
    of = f"/connectors/{name}"
    return [
        Call("GET", "/", 200, {"version": TEXT, "commit": TEXT, "kafka_cluster_id": TEXT}),
        Call("GET", "/connectors?expand=info&expand=status&search=", 200, EXPANDED),
        Call("GET", "/connector-plugins", 200, [PLUGIN]),
        Call("PUT", "/connector-plugins/FileStreamSourceConnector/config/validate", 200, VALIDATION,
             {**config, "name": name}),
        Call("POST", "/connectors", 201, CONNECTOR, {"name": name, "config": {**config, "tasks.max": 1}}),
        Call("GET", of, 200, CONNECTOR, first="RUNNING"),
        Call("GET", f"{of}/status", 200, STATUS),
        Call("GET", f"{of}/tasks", 200, [{"id": TASK, "config": {str: TEXT}}]),
        Call("GET", f"{of}/tasks/0/status", 200, {"id": NUMBER, **STATE}),
        Call("GET", f"{of}/topics", 200, TOPICS),
        Call("PUT", f"{of}/config", 200, CONNECTOR, {**config, "batch.size": 7}),
        Call("POST", f"{of}/restart?includeTasks=false&onlyFailed=false", 204, first="RUNNING"),
        Call("POST", f"{of}/tasks/0/restart", 204, first="RUNNING"),
        Call("PUT", f"{of}/pause", 202, first="RUNNING"),
        Call("PUT", f"{of}/resume", 202, first="PAUSED"),
        Call("DELETE", f"{of}/offsets", 400, {"error_code": NUMBER, "message": TEXT}, first="RUNNING"),
        Call("PUT", f"{of}/stop", 204),
        Call("DELETE", f"{of}/offsets", 200, {"message": TEXT}),
        Call("DELETE", of, 204),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("clients"), {"offsets.topic.num.partitions": "1"}) as process:
        yield process


@pytest.mark.parametrize("calls", [kcctl, kafbat])
def test_every_request_is_served_and_every_field_is_there(
    broker: BrokerProcess, tmp_path: Path, calls: Callable[[str, Mapping[str, Any]], list[Call]]
) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("one\n")
    config = {"connector.class": "FileStreamSource", "file": str(file), "topic": new_topic(broker.bootstrap)}
    name = unique("connector")
    with StandaloneWorker(broker.bootstrap, tmp_path) as worker:
        for call in calls(name, config):
            if call.first is not None:
                worker.wait_for(name, call.first, call.first)
            response = worker.send(call.method, call.path, call.body, Accept="application/json")
            assert response.status == call.status, (call, response)
            if call.shape is not None:
                assert_shape(response.body, call.shape)
        assert worker.get("/connectors") == []
