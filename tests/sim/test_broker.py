"""One whole broker in the simulation: it serves clients, stops, starts again and is killed."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from storage.disk.files import Files, OsFiles
from tests.sim.client import Client
from tests.sim.disk import EPOCH_MS
from tests.sim.network import SimulatedHost, SimulatedNetwork
from tests.sim.process import PORT, BrokerProcess
from tests.sim.world import World

T = TypeVar("T")

MINUTE_US = 60_000_000


def run(world: World, loop: Any, main: Coroutine[Any, Any, T]) -> T:
    task = loop.start(main)
    assert world.run_until(task.done, limit_us=world.now_us + 10 * MINUTE_US), "stuck"
    return task.result()  # type: ignore[no-any-return]


def started(network: SimulatedNetwork, folder: Path, files: Files | None = None) -> BrokerProcess:
    broker = BrokerProcess(
        network, "broker", lambda loop: files or OsFiles(), {"broker.id": "0", "log.dirs": str(folder)}
    )
    broker.start()
    assert network.world.run_until(broker.started.done, limit_us=network.world.now_us + 10 * MINUTE_US), "stuck"
    broker.started.result()
    return broker


async def produce(client: Client, number: int) -> int:
    """Append a record to partition 0 of topic t; return its offset."""
    records = build_batch([RecordData(timestamp=EPOCH_MS, key=None, value=b"%d" % number)])
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])]
    response = await client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data), 9)
    (partition,) = response.responses[0].partition_responses
    assert not partition.error_code
    return int(partition.base_offset)


async def end_of_log_of(client: Client) -> int | None:
    """Return the high watermark of partition 0 of topic t; None if there is no such topic."""
    wanted = [FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)])]
    response = await client.ask(
        FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, session_id=0, session_epoch=-1, topics=wanted), 11
    )
    (partition,) = response.responses[0].partitions
    return None if partition.error_code else int(partition.high_watermark)


async def scenario(host: SimulatedHost, count: int) -> list[tuple[int, float]]:
    """Create topic t and append `count` records; return their offsets and the times of the responses."""
    client = await Client.connected(host, "broker", PORT)
    await client.ask(
        CreateTopicsRequest(
            topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])],
            timeout_ms=5000,
        ),
        5,
    )
    return [(await produce(client, number), host.loop.time()) for number in range(count)]


def test_broker_serves_a_client_in_virtual_time(tmp_path: Path) -> None:
    with World(1) as world:
        network = SimulatedNetwork(world)
        broker = started(network, tmp_path)
        loop = world.new_loop("client")
        appended = run(world, loop, scenario(network.host("client", loop), 20))
        assert [offset for offset, _ in appended] == list(range(20))
        broker.stop()
        assert world.run_until(broker.stopped.done, limit_us=world.now_us + MINUTE_US)
        assert not broker.loop.failures


def test_acknowledged_records_survive_a_restart(tmp_path: Path) -> None:
    with World(2) as world:
        network = SimulatedNetwork(world)
        broker = started(network, tmp_path)
        loop = world.new_loop("client")
        host = network.host("client", loop)
        run(world, loop, scenario(host, 5))
        broker.stop()
        assert world.run_until(broker.stopped.done, limit_us=world.now_us + MINUTE_US)
        started(network, tmp_path)

        async def again() -> int | None:
            return await end_of_log_of(await Client.connected(host, "broker", PORT))

        assert run(world, loop, again()) == 5


def test_clients_of_a_killed_broker_lose_their_connections(tmp_path: Path) -> None:
    with World(3) as world:
        network = SimulatedNetwork(world)
        broker = started(network, tmp_path)
        loop = world.new_loop("client")
        host = network.host("client", loop)

        async def main() -> None:
            client = await Client.connected(host, "broker", PORT)
            assert await end_of_log_of(client) is None
            world.after(5_000, broker.kill)
            while True:
                await end_of_log_of(client)

        with pytest.raises(ConnectionError):
            run(world, loop, main())
        with pytest.raises(ConnectionRefusedError):
            run(world, loop, Client.connected(host, "broker", PORT))


def test_messages_over_a_cut_link_arrive_when_it_is_mended(tmp_path: Path) -> None:
    with World(4) as world:
        network = SimulatedNetwork(world)
        started(network, tmp_path)
        loop = world.new_loop("client")
        host = network.host("client", loop)

        async def main() -> float:
            client = await Client.connected(host, "broker", PORT)
            network.cut("client", "broker")
            world.after(30_000_000, lambda: network.mend("client", "broker"))
            began_s = loop.time()
            await end_of_log_of(client)
            return loop.time() - began_s

        assert 30 <= run(world, loop, main()) < 31


def trace(seed: int, folder: Path) -> list[tuple[int, float]]:
    with World(seed) as world:
        network = SimulatedNetwork(world)
        started(network, folder)
        loop = world.new_loop("client")
        return run(world, loop, scenario(network.host("client", loop), 10))


def test_same_seed_gives_the_same_trace_of_a_whole_broker(tmp_path: Path) -> None:
    first = trace(5, tmp_path / "a")
    assert trace(5, tmp_path / "b") == first
    assert trace(6, tmp_path / "c") != first
