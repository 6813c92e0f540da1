"""The routes of the REST interface, with a standalone worker in this process and a real broker."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.base.records import SourceRecord
from tests.spark_jobs.connect.rest.workers import StandaloneWorker
from tests.spark_jobs.connect.worker.runs import load_scripted, new_topic, send, unique
from tests.support.broker import BrokerProcess
from tests.support.waiting import wait_until

_, scripted = load_scripted()
SOURCE, SINK = "scripted.ScriptedSource", "scripted.ScriptedSink"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("rest"), {"offsets.topic.num.partitions": "1"}) as process:
        yield process


@pytest.fixture(scope="module")
def worker(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneWorker]:
    with StandaloneWorker(broker.bootstrap, tmp_path_factory.mktemp("worker")) as found:
        yield found


def config_of(connector_class: str = SOURCE, **settings: str) -> dict[str, str]:
    return {"connector.class": connector_class, **{key.replace("_", "."): value for key, value in settings.items()}}


def create(
    worker: StandaloneWorker, connector_class: str = SOURCE, script: Any = None, running: int = 1, **settings: str
) -> str:
    """Create a connector with as many running tasks, and return its name."""
    name = unique("connector")
    scripted.SCRIPTS[name] = script or scripted.Script()
    response = worker.send("POST", "/connectors", {"name": name, "config": config_of(connector_class, **settings)})
    assert response.status == 201, response
    if running:
        worker.wait_for(name, "RUNNING", *["RUNNING"] * running)
    return name


def test_the_root_shows_version_and_cluster(worker: StandaloneWorker) -> None:
    found = worker.get("/")
    assert found.keys() == {"version", "commit", "kafka_cluster_id"}
    assert (found["version"], found["kafka_cluster_id"]) == ("3.9.1", "cluster")


def test_a_worker_that_has_started_is_healthy(worker: StandaloneWorker) -> None:
    assert worker.get("/health")["status"] == "healthy"


def test_a_created_connector_is_shown_with_its_tasks(worker: StandaloneWorker) -> None:
    name = create(worker, tasks_max="2", running=2)
    config = {"name": name, "connector.class": SOURCE, "tasks.max": "2"}
    tasks = [{"connector": name, "task": number} for number in (0, 1)]
    assert worker.get(f"/connectors/{name}") == {"name": name, "config": config, "tasks": tasks, "type": "source"}
    assert name in worker.get("/connectors")
    assert worker.get(f"/connectors/{name}/config") == config
    assert worker.get(f"/connectors/{name}/tasks") == [
        {"id": each, "config": {**config, "number": str(each["task"]), "task.class": "scripted.ScriptedSourceTask"}}
        for each in tasks
    ]
    assert worker.get(f"/connectors/{name}/tasks-config").keys() == {f"{name}-0", f"{name}-1"}
    status = worker.get(f"/connectors/{name}/status")
    worker_id = worker.herder.worker_id
    assert status == {
        "name": name,
        "connector": {"state": "RUNNING", "worker_id": worker_id},
        "tasks": [{"id": number, "state": "RUNNING", "worker_id": worker_id} for number in (0, 1)],
        "type": "source",
    }
    assert worker.get(f"/connectors/{name}/tasks/1/status") == status["tasks"][1]
    expanded = worker.get("/connectors?expand=status&expand=info")
    assert expanded[name] == {"status": status, "info": worker.get(f"/connectors/{name}")}


def test_creating_responds_with_the_connector_and_its_address(worker: StandaloneWorker) -> None:
    name = f"with space and ü {unique('c')}"
    scripted.SCRIPTS[name] = scripted.Script()
    body = {"name": name, "config": {"connector.class": SOURCE, "tasks.max": 1}}
    response = worker.send("POST", "/connectors", body)
    assert response.status == 201
    assert response.body["config"] == {"connector.class": SOURCE, "tasks.max": "1", "name": name}
    assert response.body["type"] == "source"
    location = response.headers["Location"]
    assert worker.get(location)["name"] == name
    assert worker.send("DELETE", location).status == 204


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 404),
        ({"Content-Type": "application/json; charset=utf-8"}, 404),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Sec-Fetch-Site": "same-origin"}, 404),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://127.0.0.1", "Host": "127.0.0.1"}, 404),
        ({"Origin": "http://ui.example"}, 403),
        ({"Origin": "http://ui.example", "Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_pages_of_other_sites_cannot_change_anything(
    worker: StandaloneWorker, headers: dict[str, str], status: int
) -> None:
    assert worker.send("POST", "/connectors/none/restart", "{}", **headers).status == status


def test_the_message_of_a_refused_origin_names_the_setting(worker: StandaloneWorker) -> None:
    response = worker.send("GET", "/connectors", Origin="http://ui.example")
    assert (response.status, response.message) == (
        403,
        "A request from the origin 'http://ui.example' is not served: access.control.allow.origin does not allow it",
    )
    assert worker.send("DELETE", "/connectors/none", "x", **{"Content-Type": "text/plain"}).message == (
        "HTTP 415 Unsupported Media Type"
    )


@pytest.mark.parametrize("allowed", ["http://ui.example", "http://other.example, http://ui.example", "*"])
def test_an_allowed_origin_is_served(broker: BrokerProcess, tmp_path: Path, allowed: str) -> None:
    settings = {"access_control_allow_origin": allowed, "access_control_allow_methods": "PUT,POST"}
    with StandaloneWorker(broker.bootstrap, tmp_path, **settings) as worker:
        headers = {"Origin": "http://ui.example", "Sec-Fetch-Site": "cross-site"}
        response = worker.send("GET", "/connectors", **headers)
        assert response.status == 200
        assert response.headers["Access-Control-Allow-Origin"] == "http://ui.example"
        preflight = worker.send("OPTIONS", "/connectors", **headers)
        assert preflight.status == 200
        assert preflight.headers["Access-Control-Allow-Methods"] == "PUT,POST"
        assert "Content-Type" in preflight.headers["Access-Control-Allow-Headers"]


def test_a_second_connector_of_a_name_is_a_conflict(worker: StandaloneWorker) -> None:
    name = create(worker)
    response = worker.send("POST", "/connectors", {"name": name, "config": config_of()})
    assert (response.status, response.message) == (409, f"Connector {name} already exists")


@pytest.mark.parametrize(
    ("state", "states"),
    [("RUNNING", ["RUNNING", "RUNNING"]), ("paused", ["PAUSED", "PAUSED"]), ("STOPPED", ["STOPPED"])],
)
def test_a_connector_is_created_in_a_state(worker: StandaloneWorker, state: str, states: list[str]) -> None:
    name = unique("initial")
    scripted.SCRIPTS[name] = scripted.Script()
    body = {"name": name, "config": config_of(), "initial_state": state}
    assert worker.send("POST", "/connectors", body).status == 201
    wait_until(lambda: worker.states(name) == states or (state == "paused" and worker.states(name) == ["PAUSED"]))
    assert scripted.SCRIPTS[name].count("poll") == 0 or state == "RUNNING"


def test_a_deleted_connector_ends_and_is_unknown(worker: StandaloneWorker) -> None:
    name = create(worker)
    script = scripted.SCRIPTS[name]
    assert worker.send("DELETE", f"/connectors/{name}").status == 204
    wait_until(lambda: (script.count("stop"), script.count("stop_connector")) == (1, 1))
    assert name not in worker.get("/connectors")
    wait_until(lambda: worker.herder.states.status(name) is None and not worker.herder.states.tasks(name))


UNKNOWN: list[tuple[str, str, Any]] = [
    ("GET", "", None),
    ("DELETE", "", None),
    ("GET", "/config", None),
    ("PATCH", "/config", {"a": "b"}),
    ("GET", "/status", None),
    ("POST", "/restart", None),
    ("POST", "/restart?includeTasks=true", None),
    ("PUT", "/pause", None),
    ("PUT", "/resume", None),
    ("PUT", "/stop", None),
    ("GET", "/tasks", None),
    ("GET", "/tasks-config", None),
    ("GET", "/tasks/0/status", None),
    ("POST", "/tasks/0/restart", None),
    ("GET", "/topics", None),
    ("PUT", "/topics/reset", None),
    ("GET", "/offsets", None),
    ("PATCH", "/offsets", {"offsets": [{"partition": {}, "offset": {}}]}),
    ("DELETE", "/offsets", None),
]


@pytest.mark.parametrize(("method", "path", "body"), UNKNOWN)
def test_an_unknown_connector_is_not_found(worker: StandaloneWorker, method: str, path: str, body: Any) -> None:
    response = worker.send(method, f"/connectors/nobody{path}", body)
    assert response.status == 404
    assert response.message


@pytest.mark.parametrize("number", ["7", "x", "-1", "٣", "9" * 5000])
def test_an_unknown_task_is_not_found(worker: StandaloneWorker, number: str) -> None:
    name = create(worker)
    assert worker.send("GET", f"/connectors/{name}/tasks/{quote(number)}/status").status == 404
    assert worker.send("POST", f"/connectors/{name}/tasks/{quote(number)}/restart").status == 404


def test_an_unknown_path_and_an_unknown_method_are_errors_in_json(worker: StandaloneWorker) -> None:
    assert worker.send("GET", "/nowhere").message == "HTTP 404 Not Found"
    response = worker.send("PUT", "/connectors")
    assert response.message == "HTTP 405 Method Not Allowed"
    assert "POST" in response.headers["Allow"]


NESTED = '{"name": "n", "config": {"connector.class": ' + "[" * 100_000 + "]" * 100_000 + "}}"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "no body"),
        ("{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (NESTED, "not valid JSON"),
        ("[]", "not a JSON object"),
        ("{}", "configuration of a connector is missing"),
        ('{"name": "n"}', "configuration of a connector is missing"),
        ('{"name": "n", "config": []}', "configuration of a connector is missing"),
        ('{"config": {"connector.class": "x"}}', "name of a connector is missing"),
        ('{"name": 5, "config": {"connector.class": "x"}}', "name of a connector is missing"),
        ('{"name": "n", "config": {}}', "contains no connector type"),
        ('{"name": "n", "config": {"name": "other", "connector.class": "x"}}', "doesn't match connector name"),
        ('{"name": "n", "config": {"a": {"b": "c"}}}', "The value of a is not a text"),
        ('{"name": "n", "config": {"connector.class": "\\ud800"}}', "not valid JSON"),
        ('{"name": "n\\u0000", "config": {"connector.class": "scripted.ScriptedSource"}}', "control sequences"),
        ('{"name": "n", "config": {"connector.class": "x"}, "initial_state": "ASLEEP"}', "expected one of RUNNING"),
        ('{"name": "n", "config": {"tasks.max": ' + "1" * 5_000 + "}}", "not valid JSON"),
        (
            '{"name": "' + "n" * 1_001 + '", "config": {"connector.class": "scripted.ScriptedSource"}}',
            "at most 1000 bytes",
        ),
        ('{"name": "n", "config": {"connector.class": "scripted.ScriptedSink", "tasks.max": 2147483647}}', "10000"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(worker: StandaloneWorker, body: str | bytes, message: str) -> None:
    response = worker.send("POST", "/connectors", body)
    assert response.status == 400
    assert message in response.message


def test_a_body_that_is_too_large_is_refused(worker: StandaloneWorker) -> None:
    assert worker.send("POST", "/connectors", b" " * (4 << 20) + b"{}").status == 413


def test_an_unknown_class_is_refused_with_those_that_exist(worker: StandaloneWorker) -> None:
    response = worker.send("POST", "/connectors", {"name": "n", "config": config_of("NoSuch")})
    assert response.status == 400
    assert "which name matches NoSuch, available connectors are: " in response.message
    assert "org.apache.kafka.connect.file.FileStreamSourceConnector" in response.message
    assert "scripted.ScriptedSource" in response.message


def test_all_errors_of_a_configuration_are_named_at_once(worker: StandaloneWorker) -> None:
    config = config_of(SINK, tasks_max="0", transforms="t", transforms_t_type="NoSuch", tasks="many", key_converter="K")
    response = worker.send("POST", "/connectors", {"name": "n", "config": config})
    assert response.status == 400
    assert "contains the following 5 error(s)" in response.message
    for part in (
        "tasks.max",
        "transforms.t.type",
        "Must configure one of topics",
        "for configuration tasks",
        "Class K",
    ):
        assert part in response.message


# Configurations


def test_putting_a_configuration_creates_replaces_and_restarts_the_tasks(worker: StandaloneWorker) -> None:
    name = unique("put")
    script = scripted.SCRIPTS[name] = scripted.Script(task_configs=lambda connector, _: [{"always": "the same"}])
    path = f"/connectors/{name}/config"
    assert worker.send("PUT", path, config_of()).status == 201
    worker.wait_for(name, "RUNNING", "RUNNING")
    script.methods["start"] = lambda task, config: script.call("header", task, task.context.config)
    response = worker.send("PUT", path, config_of(header_converter="SimpleHeaderConverter"))
    assert response.status == 200
    assert response.body["config"]["header.converter"] == "SimpleHeaderConverter"
    wait_until(lambda: script.count("header"), "the task starts again, although its own configuration is as before")
    worker.wait_for(name, "RUNNING", "RUNNING")


def test_a_configuration_of_another_name_is_refused(worker: StandaloneWorker) -> None:
    response = worker.send("PUT", "/connectors/one/config", config_of(name="other"))
    assert response.status == 400
    assert "(other) doesn't match connector name in the URL (one)" in response.message


def test_a_patch_changes_adds_and_removes_settings(worker: StandaloneWorker) -> None:
    name = create(worker, tasks_max="1", tasks="1")
    response = worker.send("PATCH", f"/connectors/{name}/config", {"tasks.max": 2, "tasks": None, "a": "b"})
    assert response.status == 200
    expected = {"name": name, "connector.class": SOURCE, "tasks.max": "2", "a": "b"}
    assert response.body["config"] == worker.get(f"/connectors/{name}/config") == expected
    worker.wait_for(name, "RUNNING", "RUNNING", "RUNNING")


def test_fewer_tasks_stop_the_others(worker: StandaloneWorker) -> None:
    name = create(worker, tasks_max="3", running=3)
    worker.send("PATCH", f"/connectors/{name}/config", {"tasks.max": "1"})
    worker.wait_for(name, "RUNNING", "RUNNING")
    wait_until(lambda: len(worker.herder.states.tasks(name)) == 1)


# States


def test_pause_resume_and_stop(worker: StandaloneWorker) -> None:
    name = create(worker)
    for action, status, states in [
        ("pause", 202, ["PAUSED", "PAUSED"]),
        ("resume", 202, ["RUNNING", "RUNNING"]),
        ("stop", 204, ["STOPPED"]),
        ("resume", 202, ["RUNNING", "RUNNING"]),
    ]:
        assert worker.send("PUT", f"/connectors/{name}/{action}").status == status
        worker.wait_for(name, *states)


def test_a_failed_task_shows_its_trace_and_others_go_on(worker: StandaloneWorker) -> None:
    going_on = create(worker)

    def fail(*_: Any) -> None:
        raise ConnectError("the source is gone")

    name = create(worker, script=scripted.Script(poll=fail), running=0)
    worker.wait_for(name, "RUNNING", "FAILED")
    status = worker.get(f"/connectors/{name}/tasks/0/status")
    assert "the source is gone" in status["trace"]
    assert status["trace"].startswith("Traceback")
    assert worker.states(going_on) == ["RUNNING", "RUNNING"]
    script = scripted.SCRIPTS[name]
    del script.methods["poll"]
    assert worker.send("POST", f"/connectors/{name}/tasks/0/restart").status == 204
    worker.wait_for(name, "RUNNING", "RUNNING")
    assert "trace" not in worker.get(f"/connectors/{name}/tasks/0/status")


def test_only_what_has_failed_is_restarted(worker: StandaloneWorker) -> None:
    failing = {"0"}

    def fail(_task: Any, config: dict[str, str]) -> None:
        if config["number"] in failing:
            raise ConnectError("no")

    script = scripted.Script(start=fail)
    name = create(worker, script=script, tasks_max="2", running=0)
    worker.wait_for(name, "RUNNING", "FAILED", "RUNNING")
    failing.clear()
    starts = script.count("start")
    response = worker.send("POST", f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true")
    assert response.status == 202
    assert response.body["connector"]["state"] == "RUNNING"
    assert [task["state"] for task in response.body["tasks"]] == ["RESTARTING", "RUNNING"]
    worker.wait_for(name, "RUNNING", "RUNNING", "RUNNING")
    assert script.count("start") == starts + 1
    assert script.count("start_connector") == 1


def test_a_restart_of_the_connector_alone_leaves_its_tasks(worker: StandaloneWorker) -> None:
    name = create(worker)
    script = scripted.SCRIPTS[name]
    assert worker.send("POST", f"/connectors/{name}/restart").status == 204
    wait_until(lambda: script.count("start_connector") == 2)
    worker.wait_for(name, "RUNNING", "RUNNING")
    assert script.count("start") == 1
    assert worker.send("POST", f"/connectors/{name}/restart?includeTasks=perhaps").status == 400


def raises(*_: Any) -> Any:
    raise SystemExit("of the connector")


def test_a_connector_whose_every_method_raises_fails_and_can_be_deleted(worker: StandaloneWorker) -> None:
    methods = ("start_connector", "stop_connector", "task_configs", "start", "poll", "stop")
    name = create(worker, script=scripted.Script(**dict.fromkeys(methods, raises)), running=0)
    worker.wait_for(name, "FAILED")
    assert "of the connector" in worker.get(f"/connectors/{name}/status")["connector"]["trace"]
    assert worker.send("DELETE", f"/connectors/{name}").status == 204
    assert worker.send("GET", f"/connectors/{name}").status == 404


def test_a_connector_that_cannot_configure_tasks_fails(worker: StandaloneWorker) -> None:
    name = create(worker, script=scripted.Script(task_configs=raises), running=0)
    worker.wait_for(name, "FAILED")


def test_a_connector_that_cannot_configure_tasks_is_asked_again(worker: StandaloneWorker) -> None:
    answers = iter([raises, raises, lambda *_: [{}]])
    name = create(worker, script=scripted.Script(task_configs=lambda *_: next(answers)()), running=0)
    worker.wait_for(name, "RUNNING", "RUNNING")


def test_a_connector_that_makes_too_many_tasks_fails(worker: StandaloneWorker) -> None:
    name = create(worker, script=scripted.Script(task_configs=lambda *_: [{"a": "b"}] * 2), running=0)
    worker.wait_for(name, "FAILED")
    assert (
        "has generated 2 tasks, which is greater than 1"
        in worker.get(f"/connectors/{name}/status")["connector"]["trace"]
    )


def test_a_validation_that_raises_is_an_error_of_the_configuration(worker: StandaloneWorker) -> None:
    name = unique("raising")
    scripted.SCRIPTS[name] = scripted.Script(validate=lambda *_: 1 / 0)
    response = worker.send("PUT", f"/connectors/{name}/config", config_of())
    assert response.status == 400
    assert "cannot check its settings: division by zero" in response.message


def test_a_validation_that_ends_the_process_is_an_error_of_the_request(worker: StandaloneWorker) -> None:
    def end(*_: Any) -> None:
        raise SystemExit(3)

    name = unique("ending")
    scripted.SCRIPTS[name] = scripted.Script(validate=end)
    response = worker.send("PUT", f"/connectors/{name}/config", config_of())
    assert (response.status, response.message) == (500, "SystemExit: 3")
    create(worker)


def test_a_task_that_never_returns_is_abandoned_and_the_worker_goes_on(worker: StandaloneWorker) -> None:
    hanging, ended = threading.Event(), threading.Event()

    def hang(*_: Any) -> None:
        hanging.set()
        ended.wait(30)

    going_on = create(worker)
    name = create(worker, script=scripted.Script(poll=hang))
    assert hanging.wait(20)
    assert worker.send("DELETE", f"/connectors/{name}").status == 204
    wait_until(lambda: not worker.herder.states.tasks(name) and worker.herder.states.status(name) is None)
    create(worker)
    assert worker.states(going_on) == ["RUNNING", "RUNNING"]
    ended.set()


def test_a_connector_whose_start_never_returns_disturbs_no_other(worker: StandaloneWorker) -> None:
    ended = threading.Event()
    name = create(worker, script=scripted.Script(start_connector=lambda *_: ended.wait(30)), running=0)
    create(worker)
    assert worker.states(name) == ["UNASSIGNED"]
    assert worker.send("DELETE", f"/connectors/{name}").status == 204
    ended.set()


def test_a_connector_asks_for_other_tasks(worker: StandaloneWorker) -> None:
    counts = {"tasks": 1}
    found: list[Any] = []
    script = scripted.Script(
        start_connector=lambda connector, _: found.append(connector),
        task_configs=lambda *_: [{"number": number} for number in range(counts["tasks"])],
    )
    name = create(worker, script=script, tasks_max="3")
    counts["tasks"] = 3
    found[0].context.request_reconfiguration()
    worker.wait_for(name, *["RUNNING"] * 4)
    found[0].context.fail(ConnectError("the source is gone"))
    worker.wait_for(name, "FAILED", *["RUNNING"] * 3)


# Topics


def test_the_topics_of_a_connector_are_recorded_until_they_are_reset(
    worker: StandaloneWorker, broker: BrokerProcess
) -> None:
    topic = new_topic(broker.bootstrap)
    send(broker.bootstrap, topic, ["a"])
    name = create(worker, SINK, topics=topic)
    wait_until(lambda: worker.get(f"/connectors/{name}/topics") == {name: {"topics": [topic]}})
    assert worker.send("PUT", f"/connectors/{name}/topics/reset").status == 202
    assert worker.get(f"/connectors/{name}/topics") == {name: {"topics": []}}


# Offsets


def stopped(worker: StandaloneWorker, name: str) -> str:
    assert worker.send("PUT", f"/connectors/{name}/stop").status == 204
    worker.wait_for(name, "STOPPED")
    return f"/connectors/{name}/offsets"


def test_the_offsets_of_a_source_are_shown_altered_and_reset(worker: StandaloneWorker, broker: BrokerProcess) -> None:
    topic = new_topic(broker.bootstrap)
    waiting = iter([[SourceRecord({"file": "a"}, {"at": 3}, topic, "v")]])
    script = scripted.Script(poll=lambda _: next(waiting, None))
    name = create(worker, script=script)
    path = f"/connectors/{name}/offsets"
    offsets = {"offsets": [{"partition": {"file": "a"}, "offset": {"at": 3}}]}
    wait_until(lambda: worker.get(path) == offsets)
    refused = worker.send("PATCH", path, offsets)
    assert refused.status == 400
    assert "must be in the STOPPED state" in refused.message
    assert worker.send("DELETE", path).status == 400
    stopped(worker, name)
    changes = {
        "offsets": [{"partition": {"file": "a"}, "offset": {"at": 1}}, {"partition": {"file": "b"}, "offset": None}]
    }
    response = worker.send("PATCH", path, changes)
    assert response.status == 200
    assert "framework-managed offsets for this connector have been altered" in response.body["message"]
    assert script.arguments("alter_offsets") == [[({"file": "a"}, {"at": 1}), ({"file": "b"}, None)]]
    assert worker.get(path) == {"offsets": [{"partition": {"file": "a"}, "offset": {"at": 1}}]}
    script.methods["alter_offsets"] = lambda *_: True
    response = worker.send("DELETE", path)
    assert response.body == {"message": "The offsets for this connector have been reset successfully"}
    assert worker.get(path) == {"offsets": []}


def test_offsets_are_altered_when_the_tasks_of_a_stopped_connector_have_ended(worker: StandaloneWorker) -> None:
    ended = threading.Event()
    name = create(worker, script=scripted.Script(stop=lambda *_: ended.wait(10)))
    assert worker.send("PUT", f"/connectors/{name}/stop").status == 204
    threading.Timer(0.2, ended.set).start()
    changes = {"offsets": [{"partition": {"file": "a"}, "offset": {"at": 1}}]}
    assert worker.send("PATCH", f"/connectors/{name}/offsets", changes).status == 200
    assert ended.is_set()


def test_the_offsets_of_a_sink_are_those_of_its_group(worker: StandaloneWorker, broker: BrokerProcess) -> None:
    topic = new_topic(broker.bootstrap, partitions=2)
    for partition in (0, 1):
        send(broker.bootstrap, topic, ["a", "b"], partition)
    name = create(worker, SINK, topics=topic)
    path = f"/connectors/{name}/offsets"

    def found() -> dict[int, int]:
        return {
            each["partition"]["kafka_partition"]: each["offset"]["kafka_offset"] for each in worker.get(path)["offsets"]
        }

    wait_until(lambda: sum(found().values()) == 4)
    stopped(worker, name)

    def change(partition: int, offset: Any) -> dict[str, Any]:
        return {"partition": {"kafka_topic": topic, "kafka_partition": partition}, "offset": offset}

    wait_until(lambda: worker.send("PATCH", path, {"offsets": [change(0, {"kafka_offset": 1})]}).status == 200)
    assert found()[0] == 1
    assert worker.send("PATCH", path, {"offsets": [change(0, None), change(1, {"kafka_offset": 0})]}).status == 200
    assert found() == {1: 0}
    assert worker.send("DELETE", path).status == 200
    assert found() == {}
    assert worker.send("DELETE", path).status == 200


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"offsets": []},
        {"offsets": [{"partition": "x"}]},
        {"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": "x"}, "offset": {"kafka_offset": 1}}]},
        {"offsets": [{"partition": {"kafka_topic": "t"}, "offset": {"kafka_offset": 1}}]},
        {"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": {"kafka_offset": -1}}]},
        {"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": 1}]},
        {"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": 1 << 31}, "offset": {"kafka_offset": 1}}]},
        {"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": {"kafka_offset": 1 << 63}}]},
    ],
)
def test_offsets_that_make_no_sense_are_refused(worker: StandaloneWorker, body: Any) -> None:
    name = "stopped-sink"
    scripted.SCRIPTS[name] = scripted.Script()
    if name not in worker.get("/connectors"):
        request = {"name": name, "config": config_of(SINK, topics="t"), "initial_state": "STOPPED"}
        assert worker.send("POST", "/connectors", request).status == 201
    response = worker.send("PATCH", f"/connectors/{name}/offsets", body)
    assert response.status == 400
    assert response.message


# Plug-ins


def test_plug_ins_are_listed_with_class_type_and_version(worker: StandaloneWorker) -> None:
    found = worker.get("/connector-plugins")
    assert {"class": SOURCE, "type": "source", "version": "1.5"} in found
    assert {each["type"] for each in found} == {"source", "sink"}
    kinds = {each["type"] for each in worker.get("/connector-plugins?connectorsOnly=false")}
    assert kinds == {"source", "sink", "converter", "header_converter", "transformation", "predicate"}


@pytest.mark.parametrize("name", ["ScriptedSink", "SimpleHeaderConverter", "JsonConverter", "Refuse", "HasHeaderKey"])
def test_the_settings_of_a_plug_in_are_shown(worker: StandaloneWorker, name: str) -> None:
    found = worker.get(f"/connector-plugins/{name}/config")
    assert isinstance(found, list)
    if name == "ScriptedSink":
        assert {"name", "connector.class", "topics", "starts", "errors.tolerance"} <= {each["name"] for each in found}


def test_the_settings_of_an_unknown_plug_in_are_not_found(worker: StandaloneWorker) -> None:
    assert worker.send("GET", "/connector-plugins/NoSuch/config").status == 404


KEYS = {
    "name", "type", "required", "default_value", "importance", "documentation", "group", "order_in_group", "width",
    "display_name", "dependents", "order",
}  # fmt: skip


@pytest.mark.parametrize("body", [{}, []])
def test_a_validation_of_nothing_returns_definitions_and_errors(worker: StandaloneWorker, body: Any) -> None:
    response = worker.send("PUT", "/connector-plugins/FileStreamSource/config/validate", body)
    assert response.status == 200
    found = response.body
    assert found.keys() == {"name", "error_count", "groups", "configs"}
    values = {each["value"]["name"]: each["value"] for each in found["configs"]}
    assert values["topic"]["errors"] == ['Missing required configuration "topic" which has no default value.']
    assert values["tasks.max"] == {
        "name": "tasks.max", "value": "1", "recommended_values": [], "errors": [], "visible": True
    }  # fmt: skip
    assert found["error_count"] == sum(len(each["errors"]) for each in values.values())
    assert all(each["definition"].keys() == KEYS for each in found["configs"])
    assert {"Common", "Transforms", "Error Handling"} <= set(found["groups"])


def test_a_validation_names_the_class_by_its_address(worker: StandaloneWorker) -> None:
    path = "/connector-plugins/FileStreamSource/config/validate"
    response = worker.send("PUT", path, config_of("FileStreamSinkConnector"))
    assert response.status == 400
    assert response.message == (
        "Included connector type FileStreamSinkConnector does not match request type FileStreamSource"
    )


# Loggers


def test_levels_of_loggers_are_shown_and_set(worker: StandaloneWorker) -> None:
    root = worker.get("/admin/loggers/root")
    assert root.keys() == {"level", "last_modified"}
    assert "root" in worker.get("/admin/loggers")
    name = unique("test.logger")
    assert worker.send("GET", f"/admin/loggers/{name}").status == 404
    response = worker.send("PUT", f"/admin/loggers/{name}", {"level": "debug"})
    assert (response.status, response.body) == (200, [name])
    assert worker.get(f"/admin/loggers/{name}")["level"] == "DEBUG"
    assert worker.get(f"/admin/loggers/{name}")["last_modified"] > 0
    assert worker.send("PUT", f"/admin/loggers/{name}?scope=cluster", {"level": "WARN"}).status == 204
    wait_until(lambda: worker.get(f"/admin/loggers/{name}")["level"] == "WARN")


@pytest.mark.parametrize("body", [{}, {"level": "LOUD"}, {"level": 5}])
def test_an_unknown_level_is_refused(worker: StandaloneWorker, body: Any) -> None:
    assert worker.send("PUT", "/admin/loggers/root", body).status == 404
    assert worker.send("PUT", "/admin/loggers/root?scope=cluster", json.dumps(body)).status == 404


def test_admin_can_be_disabled_and_errors_have_the_allowed_origin(broker: BrokerProcess, tmp_path: Path) -> None:
    with StandaloneWorker(
        broker.bootstrap, tmp_path, admin_listeners="", access_control_allow_origin="http://console"
    ) as worker:
        for path, status in (("/admin/loggers", 404), ("/connectors/nobody", 404), ("/connectors", 200)):
            response = worker.send("GET", path, Origin="http://console")
            assert response.status == status
            assert response.headers["Access-Control-Allow-Origin"] == "http://console"


def test_a_validation_that_never_returns_does_not_stop_the_interface(worker: StandaloneWorker) -> None:
    ended, began = threading.Event(), threading.Event()
    name = unique("hanging")

    def hang(*_: Any) -> None:
        began.set()
        ended.wait(30)

    scripted.SCRIPTS[name] = scripted.Script(validate=hang)
    request = threading.Thread(target=worker.send, args=("PUT", f"/connectors/{name}/config", config_of()))
    request.start()
    assert began.wait(10)
    create(worker)
    ended.set()
    request.join()
    worker.wait_for(name, "RUNNING", "RUNNING")
