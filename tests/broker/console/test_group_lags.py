"""The groups of a topic on its page: in which order, and what their lag is."""

from broker.console.group_lags import groups_by_topic
from tests.storage.builders import pause

ENDS = {("t", 0): 100, ("t", 1): 50, ("u", 0): 7}


async def test_groups_of_a_topic_come_with_the_largest_lag_first_and_then_by_name() -> None:
    index = {
        "near": {("t", 0): 99},
        "unknown": {("t", 9): 1},
        "far": {("t", 0): 10, ("t", 1): 45},
        "b": {("t", 0): 100, ("u", 0): 9},
        "a": {("t", 1): 50, ("hidden", 0): 1},
    }
    found = await groups_by_topic(index, ["t", "u"], ENDS, pause)
    assert [(each["group"], each["lag"]) for each in found["t"]] == [
        ("far", 95),
        ("near", 1),
        ("a", 0),
        ("b", 0),
        ("unknown", None),
    ]
    assert found["u"] == [{"group": "b", "lag": 0}]
    assert found.keys() == {"t", "u"}
