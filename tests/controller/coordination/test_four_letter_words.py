"""What the words say of how long clients have waited."""

from __future__ import annotations

import pytest

from controller.coordination.four_letter_words import Latency, ServerState, response

STATE = ServerState(
    connections=1,
    clients=[],
    latency=Latency(),
    received=3,
    sent=3,
    outstanding=0,
    zxid=2,
    nodes=5,
    ephemerals=0,
    watches=0,
    sessions=1,
    data_bytes=0,
)


def test_latency_is_that_of_all_responses() -> None:
    latency = Latency()
    assert (latency.min_ms, latency.average_ms, latency.max_ms) == (0, 0, 0)
    for seconds in (0.003, 0.001, 0.004):
        latency.add(seconds)
    assert (latency.min_ms, latency.max_ms) == (1, 4)
    assert latency.average_ms == pytest.approx(8 / 3)
    STATE.latency.add(0.002)
    values = dict(line.split("\t") for line in response("mntr", lambda: STATE).splitlines())
    assert (values["zk_min_latency"], values["zk_avg_latency"], values["zk_max_latency"]) == ("2", "2.0000", "2")
    assert "Latency min/avg/max: 2/2.0000/2\n" in response("srvr", lambda: STATE)
