"""Every request in every state: its result, and the state of the group afterwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.groups.machine import group, joins, rebalance
from broker.groups.machine.events import JoinResult
from broker.groups.machine.group import Group
from broker.groups.machine.rebalance import COMPLETING, DEAD, EMPTY, PREPARING, STABLE
from broker.groups.machine.states import VALID_PREVIOUS, GroupState
from protocol.errors import ErrorCode
from tests.broker.groups.support import T0, Harness, completing_group, join_request, protocols, stable_group

PARKED = "parked"
NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
FENCED = ErrorCode.FENCED_INSTANCE_ID
OLD = ErrorCode.ILLEGAL_GENERATION


def group_in(state: GroupState) -> Harness:
    """Members a-1 (leader) and static s-1 (instance i), where the state has members; no request is parked.

    In PreparingRebalance a new member n-1 caused the rebalance, and its join is parked.
    """
    if state is EMPTY:
        return Harness()
    if state is COMPLETING:
        return completing_group("a", "s", instance_ids={"s": "i"})
    harness = stable_group("a", "s", instance_ids={"s": "i"})
    if state is PREPARING:
        harness.join("n")
    elif state is DEAD:
        harness.group.resign()
    assert harness.group.state is state
    return harness


def code(result: object) -> object:
    return PARKED if result is None else getattr(result, "error", result)


REQUESTS: dict[str, Callable[[Harness], object]] = {
    "join of a new member": lambda h: h.join("b"),
    "join without an id that needs one": lambda h: h.join("b", requires_id=True),
    "join of a new static member": lambda h: h.join("b", instance_id="other"),
    "join of an unknown id": lambda h: h.join("b", member_id="nobody"),
    "join of the leader": lambda h: h.join("a", member_id="a-1"),
    "join of a follower": lambda h: h.join("s", member_id="s-1", instance_id="i"),
    "join of a follower that changed": lambda h: h.join(
        "s", member_id="s-1", instance_id="i", offers=protocols("range", topics=("u",))
    ),
    "join of a static member that is back": lambda h: h.join("s2", instance_id="i"),
    "join with a fenced id": lambda h: h.join("s", member_id="old", instance_id="i"),
    "join with an unknown instance": lambda h: h.join("a", member_id="a-1", instance_id="other"),
    "join with another protocol type": lambda h: h.join("b", protocol_type="connect"),
    "join with no common protocol": lambda h: h.join("b", offers=protocols("sticky")),
    "join without a protocol": lambda h: h.join("b", offers=()),
    "sync of the leader": lambda h: h.sync("a-1", {"a-1": b"A", "s-1": b"S"}),
    "sync of a follower": lambda h: h.sync("s-1", instance_id="i"),
    "sync of an unknown member": lambda h: h.sync("nobody"),
    "sync with a fenced id": lambda h: h.sync("old", instance_id="i"),
    "sync of an old generation": lambda h: h.sync("a-1", generation_id=1),
    "sync with another protocol": lambda h: h.sync("a-1", protocol_name="sticky"),
    "heartbeat": lambda h: h.heartbeat("a-1"),
    "heartbeat of an unknown member": lambda h: h.heartbeat("nobody"),
    "heartbeat with a fenced id": lambda h: h.heartbeat("old", instance_id="i"),
    "heartbeat of an old generation": lambda h: h.heartbeat("a-1", 1),
    "commit of a member": lambda h: h.commit("a-1", 2),
    "commit of an old generation": lambda h: h.commit("a-1", 1),
    "commit of an unknown member": lambda h: h.commit("nobody", 2),
    "commit of an unknown member in generation 0": lambda h: h.commit("nobody", 0),
    "commit with a fenced id": lambda h: h.commit("old", 2, "i"),
    "commit without a member": lambda h: h.commit(),
    "transactional commit without a member": lambda h: h.commit(is_transactional=True),
    "transactional commit of a member": lambda h: h.commit("a-1", 2, is_transactional=True),
    "leave": lambda h: h.leave("a-1"),
    "leave of an unknown member": lambda h: h.leave("nobody"),
    "leave by instance": lambda h: h.leave(instance_id="i"),
    "leave by unknown instance": lambda h: h.leave(instance_id="other"),
    "leave with a fenced id": lambda h: h.leave("old", "i"),
    "leave without a member": lambda h: h.leave(),
    "delete": lambda h: h.group.delete(),
}

# request -> per state in this order: (result, state afterwards)
STATES = (EMPTY, PREPARING, COMPLETING, STABLE, DEAD)
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
NEEDS_ID = ErrorCode.MEMBER_ID_REQUIRED
IN_USE = ErrorCode.NON_EMPTY_GROUP
E_, P_, C_, S_, D_ = STATES
dead = (UNAVAILABLE, D_)
EXPECTED: dict[str, tuple[tuple[object, GroupState], ...]] = {
    "join of a new member": ((NONE, C_), (PARKED, P_), (PARKED, P_), (PARKED, P_), dead),
    "join without an id that needs one": ((NEEDS_ID, E_), (NEEDS_ID, P_), (NEEDS_ID, C_), (NEEDS_ID, S_), dead),
    "join of a new static member": ((NONE, C_), (PARKED, P_), (PARKED, P_), (PARKED, P_), dead),
    "join of an unknown id": ((UNKNOWN, E_), (UNKNOWN, P_), (UNKNOWN, C_), (UNKNOWN, S_), dead),
    "join of the leader": ((UNKNOWN, E_), (PARKED, P_), (NONE, C_), (PARKED, P_), dead),
    "join of a follower": ((UNKNOWN, E_), (PARKED, P_), (NONE, C_), (NONE, S_), dead),
    "join of a follower that changed": ((UNKNOWN, E_), (PARKED, P_), (PARKED, P_), (PARKED, P_), dead),
    "join of a static member that is back": ((NONE, C_), (PARKED, P_), (PARKED, P_), (NONE, S_), dead),
    "join with a fenced id": ((UNKNOWN, E_), (FENCED, P_), (FENCED, C_), (FENCED, S_), dead),
    "join with an unknown instance": ((UNKNOWN, E_), (UNKNOWN, P_), (UNKNOWN, C_), (UNKNOWN, S_), dead),
    "join with another protocol type": ((NONE, C_), (INCONSISTENT, P_), (INCONSISTENT, C_), (INCONSISTENT, S_), dead),
    "join with no common protocol": ((NONE, C_), (INCONSISTENT, P_), (INCONSISTENT, C_), (INCONSISTENT, S_), dead),
    "join without a protocol": ((INCONSISTENT, E_), (INCONSISTENT, P_), (INCONSISTENT, C_), (INCONSISTENT, S_), dead),
    "sync of the leader": ((UNKNOWN, E_), (REBALANCING, P_), (NONE, S_), (NONE, S_), dead),
    "sync of a follower": ((UNKNOWN, E_), (REBALANCING, P_), (PARKED, C_), (NONE, S_), dead),
    "sync of an unknown member": ((UNKNOWN, E_), (UNKNOWN, P_), (UNKNOWN, C_), (UNKNOWN, S_), dead),
    "sync with a fenced id": ((UNKNOWN, E_), (FENCED, P_), (FENCED, C_), (FENCED, S_), dead),
    "sync of an old generation": ((UNKNOWN, E_), (OLD, P_), (OLD, C_), (OLD, S_), dead),
    "sync with another protocol": ((UNKNOWN, E_), (INCONSISTENT, P_), (INCONSISTENT, C_), (INCONSISTENT, S_), dead),
    "heartbeat": ((UNKNOWN, E_), (REBALANCING, P_), (NONE, C_), (NONE, S_), dead),
    "heartbeat of an unknown member": ((UNKNOWN, E_), (UNKNOWN, P_), (UNKNOWN, C_), (UNKNOWN, S_), dead),
    "heartbeat with a fenced id": ((UNKNOWN, E_), (FENCED, P_), (FENCED, C_), (FENCED, S_), dead),
    "heartbeat of an old generation": ((UNKNOWN, E_), (OLD, P_), (OLD, C_), (OLD, S_), dead),
    "commit of a member": ((UNKNOWN, E_), (NONE, P_), (REBALANCING, C_), (NONE, S_), dead),
    "commit of an old generation": ((UNKNOWN, E_), (OLD, P_), (OLD, C_), (OLD, S_), dead),
    "commit of an unknown member": ((UNKNOWN, E_), (UNKNOWN, P_), (UNKNOWN, C_), (UNKNOWN, S_), dead),
    "commit of an unknown member in generation 0": ((UNKNOWN, E_), (UNKNOWN, P_), (UNKNOWN, C_), (UNKNOWN, S_), dead),
    "commit with a fenced id": ((UNKNOWN, E_), (FENCED, P_), (FENCED, C_), (FENCED, S_), dead),
    "commit without a member": ((NONE, E_), (UNKNOWN, P_), (UNKNOWN, C_), (UNKNOWN, S_), dead),
    "transactional commit without a member": ((NONE, E_), (NONE, P_), (NONE, C_), (NONE, S_), dead),
    "transactional commit of a member": ((UNKNOWN, E_), (NONE, P_), (NONE, C_), (NONE, S_), dead),
    "leave": ((UNKNOWN, E_), (NONE, P_), (NONE, P_), (NONE, P_), dead),
    "leave of an unknown member": ((UNKNOWN, E_), (UNKNOWN, P_), (UNKNOWN, C_), (UNKNOWN, S_), dead),
    "leave by instance": ((UNKNOWN, E_), (NONE, P_), (NONE, P_), (NONE, P_), dead),
    "leave by unknown instance": ((UNKNOWN, E_), (UNKNOWN, P_), (UNKNOWN, C_), (UNKNOWN, S_), dead),
    "leave with a fenced id": ((UNKNOWN, E_), (FENCED, P_), (FENCED, C_), (FENCED, S_), dead),
    "leave without a member": ((UNKNOWN, E_), (UNKNOWN, P_), (UNKNOWN, C_), (UNKNOWN, S_), dead),
    "delete": ((NONE, D_), (IN_USE, P_), (IN_USE, C_), (IN_USE, S_), (ErrorCode.GROUP_ID_NOT_FOUND, D_)),
}


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.value)
@pytest.mark.parametrize("request_name", REQUESTS)
def test_request_in_each_state_returns_the_code_of_kafka(request_name: str, state: GroupState) -> None:
    harness = group_in(state)
    result = code(REQUESTS[request_name](harness))
    assert (result, harness.group.state) == EXPECTED[request_name][STATES.index(state)]


def test_every_request_is_expected_in_every_state() -> None:
    assert REQUESTS.keys() == EXPECTED.keys()
    assert set(STATES) == set(GroupState)
    assert {len(results) for results in EXPECTED.values()} == {len(STATES)}


@pytest.mark.parametrize(
    "table",
    [
        value
        for module in (group, joins, rebalance)
        for name, value in vars(module).items()
        if name.startswith(("ON_", "AFTER_"))
    ],
)
def test_tables_cover_every_state(table: dict[GroupState, object]) -> None:
    assert set(table) == set(GroupState)


@pytest.mark.parametrize("state", GroupState, ids=lambda state: state.value)
def test_only_valid_previous_states_lead_to_a_state(state: GroupState) -> None:
    for previous in GroupState:
        group = Group("g", Harness().settings, T0)
        group.state = previous
        if previous in VALID_PREVIOUS[state]:
            group._enter(state, T0)
            assert group.state is state
        else:
            with pytest.raises(AssertionError):
                group._enter(state, T0)


def test_a_static_member_cannot_exist_in_an_empty_group() -> None:
    reaction = joins.ON_JOIN_OF_RETURNING_STATIC_MEMBER[EMPTY]
    assert callable(reaction)
    with pytest.raises(AssertionError, match="has static members"):
        reaction(Harness().group, join_request("m", instance_id="i"), "ticket", T0)


def test_of_more_pending_member_ids_than_a_group_keeps_the_oldest_is_unknown() -> None:
    harness = Harness()
    for number in range(joins.PENDING_MEMBERS_MAX + 1):
        harness.join(f"m{number}", requires_id=True)
    assert harness.join("m0", member_id="m0-1") == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "m0-1")
    harness.join("m1", member_id="m1-1")
    assert list(harness.group.members) == ["m1-1"]
