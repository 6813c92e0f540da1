"""What a controller knows of its cluster: each invariant is noticed when it is broken."""

from collections.abc import Callable
from uuid import UUID

import pytest

from controller.machine import context as context_module
from controller.machine.context import ControllerContext
from controller.machine.model import Broker, ReplicaAssignment, Topic
from controller.machine.partition_states import PartitionState
from tests.support.invariants import broken, stated

T0, U0 = ("t", 0), ("u", 0)
T_ID, U_ID = UUID(int=1), UUID(int=2)


def known() -> ControllerContext:
    """Return a context of broker 1 and topic t."""
    context = ControllerContext(1)
    context.live_brokers[1] = Broker(1, ())
    context.put_topic("t", Topic(T_ID, {0: ReplicaAssignment((1,))}))
    context.move_partition(T0, PartitionState.NEW)
    return context


BREAKS: dict[str, Callable[[ControllerContext], object]] = {
    "A partition that has a state is in `assignments`": lambda it: it.move_partition(U0, PartitionState.NEW),
    "A partition that has a leadership is in `assignments`": lambda it: it.leaderships.update({U0: None}),  # type: ignore[dict-item]
    "`topic_names` is the inverse of `topic_ids`": lambda it: it.topic_ids.update(u=U_ID),
    "`taken_names` are the names in `topic_ids`": lambda it: it.taken_names.remove("t"),
    "Brokers that are shutting down are alive": lambda it: it.shutting_down.add(2),
    "Brokers with a replica in an offline directory are alive": lambda it: it.offline_directory_replicas.update(
        {2: {T0}}
    ),
}


def test_every_stated_invariant_is_checked() -> None:
    assert list(BREAKS) == stated(context_module)


@pytest.mark.parametrize("invariant", BREAKS)
def test_broken_invariant_is_named(invariant: str) -> None:
    context = known()
    assert broken(context.check) is None
    BREAKS[invariant](context)
    assert broken(context.check) == invariant


def test_wrong_name_of_a_topic_is_noticed() -> None:
    context = known()
    context.topic_names[T_ID] = "u"
    assert broken(context.check) == "`topic_names` is the inverse of `topic_ids`"


def test_topic_that_grows_takes_its_name_once() -> None:
    context = known()
    context.put_topic("t", context.topic("t"))
    assert broken(context.check) is None
    context.remove_topic("t")
    assert broken(context.check) is None
    assert "t" not in context.taken_names


def test_two_topics_may_have_one_id() -> None:
    context = known()
    context.put_topic("u", Topic(T_ID, {}))
    assert broken(context.check) is None
    context.remove_topic("t")
    assert broken(context.check) is None
