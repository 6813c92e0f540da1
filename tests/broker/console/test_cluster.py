"""The console of one broker shows the whole cluster: what others know, who is away, and what its principal may see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from broker.console import cluster_rates, figures, offset_growth
from broker.console.cluster_client import ClusterClient
from broker.network.outgoing import PeerUnavailable
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.console.conftest import ConsoleUser
from tests.broker.console.test_changes import USER, WRITING
from tests.broker.console.test_resources import numbers, records_of
from tests.broker.handlers.test_produce_and_fetch import produce
from tests.support.in_process_cluster import InProcessCluster, running_cluster, until

ANY = 1
AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
TOPIC, GROUP, CLUSTER, LITERAL, ALLOW = 2, 3, 4, 3, 3
READ, CREATE, DELETE, DESCRIBE = 3, 5, 6, 8
BROKERS = (1, 2, 3)


@asynccontextmanager
async def cluster_with_consoles(
    folder: Path, **overrides: str
) -> AsyncIterator[tuple[InProcessCluster, dict[int, ConsoleUser]]]:
    settings = {"metrics.http.listener": "127.0.0.1:0", **overrides}
    async with running_cluster(folder, BROKERS, settings) as cluster, aiohttp.ClientSession() as session:
        users = {each: ConsoleUser(broker, session) for each, broker in cluster.brokers.items()}
        for user in users.values():
            async with session.get(f"{user.address}/api/v1/openapi.json") as response:
                user.document = await response.json()
        yield cluster, users


async def create_spread_topic(cluster: InProcessCluster, name: str) -> None:
    """Create a topic with one partition on each broker."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=[broker])
                    for index, broker in enumerate(BROKERS)
                ],
                configs=[],
            )
        ]
    )
    response = await cluster.controller.ask(request)
    assert not response.topics[0].error_code, response
    await until(
        lambda: all(
            one.services.metadata_cache.has_leaders(name, len(BROKERS)) and one.services.metadata_cache.topics[name]
            for one in cluster.brokers.values()
        )
    )
    for index, broker in enumerate(BROKERS):
        await produce(cluster.brokers[broker], name, {index: records_of(10 * index, 10)})


async def coordinator_of(cluster: InProcessCluster, group: str) -> int:
    for _ in range(1_000):
        response = await cluster.brokers[1].ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
        if response.coordinators[0].node_id >= 0:
            return int(response.coordinators[0].node_id)
        await asyncio.sleep(0.01)
    raise AssertionError(f"group {group} has no coordinator")


async def commit(cluster: InProcessCluster, group: str, topic: str) -> int:
    """Commit offset 5 of each partition; return the coordinator."""
    coordinator = await coordinator_of(cluster, group)
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=each, committed_offset=5, committed_metadata="")
                    for each in range(len(BROKERS))
                ],
            )
        ],
    )

    async def is_committed() -> bool:
        response = await cluster.brokers[coordinator].ask(request)
        return not any(one.error_code for each in response.topics for one in each.partitions)

    for _ in range(1_000):
        if await is_committed():
            return coordinator
        await asyncio.sleep(0.01)
    raise AssertionError(f"group {group} cannot commit")


async def allow(cluster: InProcessCluster, kind: int, name: str, operation: int) -> None:
    """Allow the principal of the console an operation."""
    rule = AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=LITERAL,
        principal="User:console",
        host="*",
        operation=operation,
        permission_type=ALLOW,
    )
    response = await cluster.brokers[1].ask(CreateAclsRequest(creations=[rule]))
    assert not response.results[0].error_code, response


def sample_every_ms(monkeypatch: pytest.MonkeyPatch, interval_ms: int) -> None:
    for module in (offset_growth, cluster_rates):
        monkeypatch.setattr(module, "INTERVAL_MS", interval_ms)


async def next_interval(user: ConsoleUser) -> None:
    """Wait until a sample is older than an interval of one millisecond."""
    clock = user.broker.services.clock
    started_ms = clock.monotonic_ms()
    await until(lambda: clock.monotonic_ms() > started_ms + 1)


async def test_every_broker_shows_the_whole_cluster(tmp_path: Path) -> None:
    async with cluster_with_consoles(tmp_path) as (cluster, users):
        await create_spread_topic(cluster, "t")
        groups = {f"g{number}": await commit(cluster, f"g{number}", "t") for number in range(6)}
        assert len(set(groups.values())) > 1
        for user in users.values():
            overview = await user.get("/overview")
            assert [(each["id"], each["is_alive"]) for each in overview["brokers"]] == [(1, True), (2, True), (3, True)]
            async with asyncio.timeout(60):
                while any(each["log_dirs"] is None for each in overview["brokers"]):  # they are being collected
                    overview = await user.get("/overview")
            assert all(each["log_dirs"] for each in overview["brokers"])
            topic = await user.get("/topics/t")
            assert [each["end_offset"] for each in topic["partitions"]] == ["10"] * 3
            assert all(each["logs"] for each in topic["partitions"])
            page = await user.get("/topics/t/records", limit=25)
            assert numbers(page["records"]) == list(range(29, 4, -1))
            listed = await user.get("/groups")
            assert {each["group"]: each["coordinator"] for each in listed["groups"]} == groups
            assert {each["lag"] for each in listed["groups"]} == {15}
            group = await user.get("/groups/g0")
            assert group["lag"] == 15
            assert group["has_history"] == (groups["g0"] == user.broker.services.broker_id)
            configs = await user.get("/configs/broker/3")
            assert {each["name"]: each["value"] for each in configs["configs"]}["broker.id"] == "3"


async def test_figures_of_other_brokers_are_those_of_their_consoles(tmp_path: Path) -> None:
    async with cluster_with_consoles(tmp_path) as (_, users):
        urls = [users[2].address, "http://127.0.0.1:1", f"{users[3].address}/none", f"{users[1].address}/"]
        found, silent = await figures.reported(urls)
        assert [each["broker"] for each in found] == [2, 1]
        assert found[0] == await users[2].get("/figures") | {
            name: found[0][name] for name in ("loop_idle_percent", "loop_lag_p99_ms", "requests", "connections")
        }
        assert [each["address"] for each in silent] == urls[1:3]
        assert silent[0]["reason"] == "cannot connect: connection refused"
        assert silent[1]["reason"].startswith("it responded with status 404: no resource GET /none/api/v1/figures")
        page = await users[1].get("/figures/all")
        assert ([each["broker"] for each in page["brokers"]], page["silent"]) == ([1], [])


async def test_pages_show_the_rest_when_a_broker_is_away(tmp_path: Path) -> None:
    async with cluster_with_consoles(tmp_path) as (cluster, users):
        await create_spread_topic(cluster, "t")
        await cluster.stop(3)
        user = users[2]
        await until(lambda: 3 not in user.broker.services.metadata_cache.brokers)
        overview = await user.get("/overview")
        assert [(each["id"], each["is_alive"]) for each in overview["brokers"]] == [(1, True), (2, True), (3, False)]
        assert overview["offline"] >= 1
        topic = await user.get("/topics/t")
        assert [each["end_offset"] for each in topic["partitions"]] == ["10", "10", None]
        assert topic["unavailable"] == [{"broker": 3, "reason": "broker 3 is not alive"}]
        page = await user.get("/topics/t/records", limit=100)
        assert numbers(page["records"]) == list(range(19, -1, -1))
        assert page["problems"] == ["partition 2: its leader did not respond"]
        assert [each["topic"] for each in (await user.get("/partitions"))["bad"]] == ["t"]


async def test_the_principal_of_the_console_sees_what_its_acls_allow(tmp_path: Path) -> None:
    settings = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",  # the brokers themselves
        "console.principal": "User:console",
        "console.write.enable": "true",
    }
    async with cluster_with_consoles(tmp_path, **settings) as (cluster, users):
        for name in ("open", "closed"):
            await create_spread_topic(cluster, name)
            await commit(cluster, f"group-of-{name}", name)
        await allow(cluster, TOPIC, "open", READ)
        await allow(cluster, GROUP, "group-of-open", DESCRIBE)
        for user in users.values():
            authorizer = user.broker.services.authorizer
            await until(lambda authorizer=authorizer: authorizer.version >= 2)  # type: ignore[misc]
            assert [each["name"] for each in (await user.get("/topics"))["topics"]] == ["open"]
            assert [each["group"] for each in (await user.get("/groups"))["groups"]] == ["group-of-open"]
            assert len((await user.get("/topics/open/records"))["records"]) == 30
            assert (await user.error("/topics/closed/records"))[0] == 404
            assert (await user.error("/groups/group-of-closed"))[0] == 403
            overview = await user.get("/overview")
            assert {each["broker"] for each in overview["unavailable"]} <= set(BROKERS)
            assert overview["topics"] == 1
            body = {"partition": 0, "key": None, "value": "x", "headers": [], "encoding": "text"}
            assert (await user.send("POST", "/topics/open/records", body))[0] == 403
            security = await user.get("/security")
            assert security["acls"] == []
            assert any("CLUSTER_AUTHORIZATION_FAILED" in each for each in security["problems"])
            (row,) = (await user.get("/topics"))["topics"]
            assert [each["group"] for each in row["groups"]] == ["group-of-open"]
        revoked = DeleteAclsFilter(
            resource_type_filter=GROUP,
            resource_name_filter=None,
            pattern_type_filter=LITERAL,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        versions = {one: user.broker.services.authorizer.version for one, user in users.items()}
        await cluster.brokers[1].ask(DeleteAclsRequest(filters=[revoked]))
        for one, user in users.items():
            authorizer = user.broker.services.authorizer
            await until(lambda authorizer=authorizer, one=one: authorizer.version > versions[one])  # type: ignore[misc]
            (row,) = (await user.get("/topics"))["topics"]
            assert not row["groups"], "what was remembered under the old ACLs is not shown"


async def test_rates_of_the_cluster_include_what_other_brokers_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample_every_ms(monkeypatch, 1)
    async with cluster_with_consoles(tmp_path) as (cluster, users):
        user = users[1]

        async def produce_elsewhere(topic: str) -> None:
            await next_interval(user)
            for index, broker in enumerate(BROKERS[1:], 1):
                await produce(cluster.brokers[broker], topic, {index: records_of(0, 500)})
            await next_interval(user)

        for name in ("a-quiet", "busy"):
            await create_spread_topic(cluster, name)
        (row,) = (await user.get("/topics", limit=1))["topics"]
        assert (row["name"], row["cluster_messages_in"]) == ("a-quiet", None), "one sample gives no rate"
        assert (await user.get("/overview"))["rates"]["cluster_messages_in"] is None
        await produce_elsewhere("busy")
        page = await user.get("/topics", sort="messages_in", order="descending")
        assert [each["name"] for each in page["topics"]] == ["busy", "a-quiet"]
        await produce_elsewhere("busy")
        busy = {each["name"]: each for each in (await user.get("/topics"))["topics"]}["busy"]
        assert busy["cluster_messages_in"] > busy["messages_in"]
        await produce_elsewhere("busy")
        rates = (await user.get("/overview"))["rates"]
        assert rates["cluster_messages_in"] > rates["messages_in"]
        monkeypatch.setattr(cluster_rates, "PARTITIONS_ASKED_MAX", 3)
        await next_interval(user)
        assert (await user.get("/overview"))["rates"]["cluster_messages_in"] is None, "4 partitions are too many"


async def test_rates_of_the_cluster_leave_out_topics_that_the_principal_may_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample_every_ms(monkeypatch, 1)
    settings = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "console.principal": "User:console",
    }
    async with cluster_with_consoles(tmp_path, **settings) as (cluster, users):
        user = users[1]
        for name in ("open", "closed"):
            await create_spread_topic(cluster, name)
        await allow(cluster, TOPIC, "open", DESCRIBE)
        await until(lambda: user.broker.services.authorizer.version >= 1)

        async def growth_after_records_of(topic: str) -> float:
            for _ in range(2):  # the first sample of topics that were not sampled before gives no rate
                await user.get("/overview")
                await next_interval(user)
            await produce(cluster.brokers[2], topic, {1: records_of(0, 500)})
            await next_interval(user)
            rates = (await user.get("/overview"))["rates"]
            return float(rates["cluster_messages_in"] - rates["messages_in"])

        assert await growth_after_records_of("open") > 0
        assert await growth_after_records_of("closed") == 0


async def test_changes_reach_the_controller_and_say_what_a_lost_leader_may_have_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "console.write.enable": "true",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "console.principal": "User:console",
    }
    async with cluster_with_consoles(tmp_path, **settings) as (cluster, users):
        await create_spread_topic(cluster, "spread")
        controller = cluster.controller.services.broker_id
        other = next(each for each in BROKERS if each != controller)
        console = users[other]
        new = {"name": "new", "partitions": 1, "replication_factor": 1, "configs": {}, "confirm": ""}
        status, problem = await console.send("POST", "/topics", new)
        assert status == 403
        assert problem["error"].startswith("TOPIC_AUTHORIZATION_FAILED")
        await allow(cluster, CLUSTER, "kafka-cluster", CREATE)
        await allow(cluster, TOPIC, "spread", DELETE)
        await until(lambda: console.broker.services.authorizer.version >= 2)
        _, preview = await console.send("POST", "/topics", new)
        status, change = await console.send("POST", "/topics", {**new, "confirm": preview["confirm"]})
        assert (status, change.get("is_done")) == (200, True), change
        await until(lambda: "new" in console.broker.services.metadata_cache.topics)

        _, preview = await console.send("POST", "/topics/spread/empty", {"partition": -1, "confirm": ""})
        assert [each["after"] for each in preview["rows"]] == ["begins at offset 10"] * 3
        lost = next(each for each in BROKERS if each not in (other, controller))
        ask = ClusterClient.ask

        async def ask_but_one(client: ClusterClient, broker: int, request: object, **options: Any) -> Any:
            if broker == lost and isinstance(request, DeleteRecordsRequest):
                raise PeerUnavailable("the connection was lost")
            return await ask(client, broker, request, **options)

        monkeypatch.setattr(ClusterClient, "ask", ask_but_one)
        body = {"partition": -1, "confirm": preview["confirm"]}
        status, change = await console.send("POST", "/topics/spread/empty", body)
        assert (status, change.get("is_done")) == (200, True), change
        problems = {broker: each["problem"] for broker, each in zip(BROKERS, change["rows"], strict=True)}
        assert problems.pop(lost) == f"broker {lost} may have deleted them: the connection was lost"
        assert set(problems.values()) == {""}


async def test_users_are_those_of_the_controller_in_the_console_of_each_broker(tmp_path: Path) -> None:
    async with cluster_with_consoles(tmp_path, **WRITING) as (_, users):
        for user in users.values():
            assert (await user.get("/security"))["problems"] == []
            status, plan = await user.send("POST", "/security/users", {**USER, "confirm": ""})
            assert (status, plan["is_done"]) == (200, False), plan
