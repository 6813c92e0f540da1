"""The bytes of the group against those of Kafka's workers."""

from __future__ import annotations

from typing import Any

import pytest

from spark_jobs.connect.base.errors import DataError
from spark_jobs.connect.base.states import TaskId
from spark_jobs.connect.group.member import protocols_up_to
from spark_jobs.connect.group.protocol import (
    NO_WORK,
    Assignment,
    MemberState,
    Work,
    decode_assignment,
    decode_state,
    encode_assignment,
    encode_state,
)
from tests.spark_jobs.connect.golden.record_group import recorded

CASES = [(version, case) for case in recorded("assignments") for version in (0, 1, 2)]


def work(case: dict[str, Any], prefix: str = "") -> Work:
    names = [name.rpartition("-") for name in case[f"{prefix}tasks"]]
    tasks = frozenset(TaskId(connector, int(number)) for connector, _, number in names)
    return Work(frozenset(case[f"{prefix}connectors"]), tasks)


def assignment(case: dict[str, Any], version: int) -> Assignment:
    more = (work(case, "revoked_"), case["delay_ms"]) if version else ()
    return Assignment(case["error"], case["leader"], case["url"], case["offset"], work(case), *more)


@pytest.mark.parametrize(("version", "case"), CASES)
def test_an_assignment_is_that_of_kafka(version: int, case: dict[str, Any]) -> None:
    expected = bytes.fromhex(case["bytes"][str(version)]["assignment"])
    assert encode_assignment(assignment(case, version), version) == expected
    assert decode_assignment(expected) == assignment(case, version)


@pytest.mark.parametrize(("version", "case"), CASES)
def test_the_state_of_a_member_is_that_of_kafka(version: int, case: dict[str, Any]) -> None:
    current = assignment(case, version) if version else None
    state = MemberState(case["url"], case["offset"], current)
    expected = bytes.fromhex(case["bytes"][str(version)]["state"])
    assert encode_state(state, version) == expected
    assert decode_state(expected) == state


@pytest.mark.parametrize("version", [1, 2])
def test_a_member_without_work_sends_no_assignment(version: int) -> None:
    case = recorded("assignments")[0]
    idle = MemberState(case["url"], case["offset"])
    assert encode_state(idle, version) == bytes.fromhex(case["bytes"][str(version)]["idle"])


def test_bytes_that_end_early_are_refused() -> None:
    whole = bytes.fromhex(recorded("assignments")[2]["bytes"]["2"]["state"])
    for length in range(len(whole)):
        with pytest.raises(DataError):
            decode_state(whole[:length])


@pytest.mark.parametrize(
    "content",
    [
        "0001 0000 ffff",
        "0001 0000 0001ff 0000",
        "0001 0000 0000 0000 0000000000000000 7fffffff",
        "0001 0000 0000 0000 0000000000000000 00000001 0000 7fffffff",
    ],
)
def test_hostile_bytes_are_refused(content: str) -> None:
    with pytest.raises(DataError):
        decode_assignment(bytes.fromhex(content))


def test_a_null_array_is_no_work() -> None:
    found = decode_assignment(bytes.fromhex("0001 0000 0000 0000 0000000000000000 ffffffff ffffffff 00000000"))
    assert found.assigned == found.revoked == NO_WORK


def test_the_newest_protocol_is_preferred() -> None:
    assert protocols_up_to("sessioned") == ["sessioned", "compatible", "default"]
    assert protocols_up_to("Compatible") == ["compatible", "default"]
    assert protocols_up_to("eager") == ["default"]
