"""The floor's server responds as a broker does, so that both get the same load."""

from pathlib import Path

from bench.client import connect, receive_frame
from bench.floor import VERSION, floor_server
from bench.frames import batch_of_one
from bench.request_loop import produce_request
from protocol.codec import decode
from protocol.frame import LENGTH
from protocol.headers import read_response_header
from protocol.messages.produce import ProduceResponse

NOW_MS = 1_700_000_000_000


def test_the_floor_appends_each_batch_to_its_partition_and_reports_the_offset(tmp_path: Path) -> None:
    batch = batch_of_one(100, NOW_MS)
    frame = produce_request("t", [3, 5], batch, VERSION).frame
    buffer = memoryview(bytearray(1 << 16))
    with floor_server(tmp_path) as floor, connect(floor.port) as connection:
        for offset in range(3):
            connection.sendall(frame)
            size = receive_frame(connection, buffer)
            _, position = read_response_header(0, VERSION, buffer[LENGTH.size : size])
            response = decode(ProduceResponse, VERSION, buffer[LENGTH.size : size], position)
            (topic,) = response.responses
            assert topic.name == "t"
            assert [(it.index, it.error_code, it.base_offset) for it in topic.partition_responses] == [
                (3, 0, offset),
                (5, 0, offset),
            ]
        assert (tmp_path / "t-3").stat().st_size == 3 * len(batch.data)
