"""Workers of a group as processes: they share work, and take over that of one that is killed."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from spark_jobs.connect.herders.assembly import distributed_herder
from spark_jobs.connect.herders.herder import Herder
from spark_jobs.connect.worker.plugins import Plugins
from spark_jobs.connect.worker.settings import WorkerSettings
from tests.spark_jobs.connect.worker.runs import PLUG_INS, load_scripted
from tests.support.broker import BrokerProcess
from tests.support.connect_workers import TOPICS, ConnectWorker, Response, group_settings
from tests.support.waiting import wait_until

GROUP = "shared"
SETTINGS = {
    "offset.storage.partitions": "2",
    "status.storage.partitions": "1",
    "session.timeout.ms": "2000",
    "heartbeat.interval.ms": "200",
    "plugin.path": str(PLUG_INS),
}
SOURCE = "scripted.ScriptedSource"


class Worker(ConnectWorker):
    """A worker in a process of its own."""

    def knows(self, connector: str) -> bool:
        return connector in self.get("/connectors")

    def has_forgotten(self, connector: str) -> bool:
        return not self.knows(connector)

    def end(self) -> int:
        """Stop the worker, unless it has ended, and return its exit code."""
        self.stop()
        return self.wait_for_exit()


class Group:
    """The workers of one group, and the connector that the tests share."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.starts = folder / "starts"
        self.workers: list[Worker] = []
        self._numbers = itertools.count()

    def add(self, count: int = 1, **settings: str) -> Worker:
        """Underscores in the names of settings stand for dots."""
        found = [self._spawned(settings) for _ in range(count)]
        for each in found:
            each.wait_until_ready()
        return found[-1]

    def _spawned(self, settings: Mapping[str, str]) -> Worker:
        overrides = {**SETTINGS, **{key.replace("_", "."): value for key, value in settings.items()}}
        folder = self.folder / f"worker-{next(self._numbers)}"
        worker = Worker(folder, self.bootstrap, GROUP, is_kafkas=False, overrides=overrides, ready_path="/health")
        worker.spawn()
        self.workers.append(worker)
        return worker

    def stop(self, worker: Worker) -> int:
        """Stop a worker and return its exit code."""
        self.workers.remove(worker)
        return worker.end()

    def kill(self, worker: Worker) -> None:
        self.workers.remove(worker)
        worker.kill()

    def shares(self, connector: str = "many") -> Counter[str]:
        """Return how many running tasks of a connector each worker has."""
        tasks = self.workers[0].get(f"/connectors/{connector}/status")["tasks"]
        return Counter(task["worker_id"] for task in tasks if task["state"] == "RUNNING")

    def wait_for_shares(self, *shares: int) -> None:
        """Wait until the workers have these numbers of tasks, in any order."""

        def is_shared() -> bool:
            found = self.shares()
            return sorted(found.values()) == sorted(shares) and set(found) <= {each.worker_id for each in self.workers}

        wait_until(is_shared, f"the tasks are shared as {shares}", timeout_s=30)

    def started(self) -> list[str]:
        """Return the process and the name of each start of a task, in order."""
        return self.starts.read_text().splitlines() if self.starts.exists() else []

    def has_started(self, count: int) -> bool:
        return len(self.started()) == count

    def follower(self) -> Worker:
        """Return a worker that does not lead."""
        return next(each for each in self.workers if "this worker follows" in each.log.read_text())

    def put(self, name: str, **settings: str) -> Response:
        config = {"connector.class": SOURCE, **{key.replace("_", "."): value for key, value in settings.items()}}
        return self.workers[0].send("PUT", f"/connectors/{name}/config", config)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    folder = tmp_path_factory.mktemp("distributed")
    with BrokerProcess(folder / "broker", {"offsets.topic.num.partitions": "1"}) as broker:
        found = Group(broker.bootstrap, folder)
        try:
            found.add(2)
            assert found.put("many", tasks_max="4", starts=str(found.starts)).status == 201
            found.wait_for_shares(2, 2)
            yield found
        finally:
            codes = {each.log: each.end() for each in found.workers}
            assert set(codes.values()) <= {0}, codes
            for log in folder.glob("worker-*/*.log"):
                assert "Traceback" not in log.read_text(), log


def test_two_workers_share_the_tasks_and_start_each_once(group: Group) -> None:
    group.wait_for_shares(2, 2)
    assert sorted(line.partition(" ")[2] for line in group.started()) == [f"many-{number}" for number in range(4)]


def test_the_topics_of_a_group_are_compacted(group: Group) -> None:
    admin = AdminClient({"bootstrap.servers": group.bootstrap})
    topics = [f"{GROUP}-{each}" for each in TOPICS]
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    for found in admin.describe_configs(resources).values():
        assert found.result(10)["cleanup.policy"].value == "compact"
    partitions = {topic: len(admin.list_topics(topic).topics[topic].partitions) for topic in topics}
    assert list(partitions.values()) == [1, 2, 1]


def test_a_follower_forwards_what_only_the_leader_may_do(group: Group) -> None:
    for number, worker in enumerate(group.workers):
        name = f"forwarded-{number}"
        body = {"name": name, "config": {"connector.class": SOURCE}}
        response = worker.send("POST", "/connectors", body)
        assert response.status == 201
        assert response.body["name"] == name
        assert worker.send("POST", "/connectors", body).status == 409
        wait_until(partial(worker.knows, name))
        worker.wait_for(name, "RUNNING", "RUNNING")
        assert worker.send("PUT", f"/connectors/{name}/pause").status == 202
        worker.wait_for(name, "PAUSED", "PAUSED")
        assert worker.send("DELETE", f"/connectors/{name}").status == 204
        wait_until(partial(worker.has_forgotten, name))


def test_every_worker_restarts_a_task_wherever_it_runs(group: Group) -> None:
    for worker in group.workers:
        before = len(group.started())
        assert worker.send("POST", "/connectors/many/tasks/0/restart").status == 204
        wait_until(partial(group.has_started, before + 1))
        assert group.started()[-1].endswith(" many-0")
    group.wait_for_shares(2, 2)


def test_requests_of_workers_without_a_signature_are_refused(group: Group) -> None:
    before = group.workers[0].get("/connectors/many/tasks")
    algorithm = "X-Connect-Request-Signature-Algorithm"
    for worker in group.workers:
        for method, path in (("POST", "/connectors/many/tasks"), ("PUT", "/connectors/many/fence")):
            unsigned = worker.send(method, path, [])
            assert unsigned.status == 400
            assert "X-Connect-Authorization" in unsigned.message
            for signature in ("bm90IHRoZSBrZXk=", "\xff"):
                signed = {"X-Connect-Authorization": signature, algorithm: "HmacSHA256"}
                assert worker.send(method, path, [], **signed).status == 403
    assert group.workers[0].get("/connectors/many/tasks") == before


def test_a_level_of_a_logger_reaches_all_workers(group: Group) -> None:
    assert group.follower().send("PUT", "/admin/loggers/shared.logger?scope=cluster", {"level": "ERROR"}).status == 204

    def has_level(worker: Worker) -> bool:
        response = worker.send("GET", "/admin/loggers/shared.logger")
        return response.status == 200 and response.body["level"] == "ERROR"

    wait_until(lambda: all(map(has_level, group.workers)))


def test_a_new_worker_gets_a_share_and_the_others_go_on(group: Group) -> None:
    before = group.started()
    new = group.add()
    group.wait_for_shares(2, 1, 1)
    moved = group.started()[len(before) :]
    assert [line.partition(" ")[0] for line in moved] == [str(new.pid)], "one task moves, no other restarts"


def test_the_work_of_a_killed_worker_moves_and_the_others_go_on(group: Group) -> None:
    killed = next(each for each in group.workers if group.shares()[each.worker_id] == 1)
    pid = str(killed.pid)
    last = {line.partition(" ")[2]: line.partition(" ")[0] for line in group.started()}
    before = group.started()
    group.kill(killed)
    group.wait_for_shares(2, 2)
    moved = group.started()[len(before) :]
    assert sorted(line.partition(" ")[2] for line in moved) == [
        name for name, owner in sorted(last.items()) if owner == pid
    ]


def test_a_worker_that_stops_leaves_its_work_to_the_others_at_once(group: Group) -> None:
    stopped = group.add()
    group.wait_for_shares(2, 1, 1)
    assert group.stop(stopped) == 0
    assert group.stop(group.workers[-1]) == 0
    group.wait_for_shares(4)


def test_a_worker_with_another_topic_of_configurations_is_reported(group: Group) -> None:
    stranger = group.add(config_storage_topic="other-configs")

    def is_reported() -> Any:
        return any("config.storage.topic must name the same topic" in each.log.read_text() for each in group.workers)

    wait_until(is_reported, "the mismatch is reported")
    assert group.stop(stranger) == 0
    group.wait_for_shares(4)


@contextmanager
def herder(group: Group, name: str, **settings: str) -> Iterator[Herder]:
    """Run a worker without a REST interface in this process, in a group of its own."""
    own = {key.replace("_", "."): value for key, value in settings.items()}
    given = {**group_settings(group.bootstrap, "in-process"), **SETTINGS, **own}
    found = distributed_herder(
        WorkerSettings(given, is_distributed=True), Plugins([PLUG_INS]), worker_id=name, url=f"http://{name}/"
    )
    try:
        found.start()
        yield found
    finally:
        found.stop()


def test_with_the_old_protocol_all_tasks_stop_before_a_round_and_none_runs_twice(group: Group) -> None:
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    lock = threading.Lock()

    def start(_task: Any, config: dict[str, str]) -> None:
        with lock:
            running[config["number"]] += 1
            most[config["number"]] = max(most[config["number"]], running[config["number"]])

    def stop(task: Any) -> None:
        with lock:
            running[task.config["number"]] -= 1

    _, scripted = load_scripted()
    scripted.SCRIPTS["old"] = scripted.Script(start=start, stop=stop)
    config = {"connector.class": SOURCE, "tasks.max": "4"}
    with herder(group, "one:1", connect_protocol="eager", scheduled_rebalance_max_delay_ms="60000") as one:
        wait_until(lambda: one.leader.is_here)
        one.submit(lambda: one.put_connector("old", config, replaces=False)).result(30)
        wait_until(lambda: sum(running.values()) == 4)
        with herder(group, "two:2", connect_protocol="eager", scheduled_rebalance_max_delay_ms="60000") as two:
            wait_until(lambda: len(two.worker.tasks) == len(one.worker.tasks) == 2)
            wait_until(lambda: sum(running.values()) == 4)
        wait_until(lambda: len(one.worker.tasks) == 4, "the work of a member that has left moves without delay")
    assert set(most.values()) == {1}
