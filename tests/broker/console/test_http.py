"""The JSON of resources, which is encoded in steps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.console.http import _json_in_steps
from tests.storage.builders import done, pause, steps_of


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"records": []},
        {"records": [1], "cursor": None},
        {"total": 2, "groups": [{"group": 'é"', "lags": [1, 2]}, {"group": "b", "lags": []}], "series": {"a": [1, 2]}},
        {'name"\\': "lone surrogate \ud800", "list": ["\ud800"]},
    ],
)
def test_steps_encode_the_same_json_as_one_step(result: dict[str, Any]) -> None:
    whole = json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
    assert done(_json_in_steps(result, pause)) == whole


def test_each_element_of_a_list_is_a_step() -> None:
    result = {"records": [{"offset": str(each)} for each in range(500)], "problems": ["a", "b"]}
    assert len(list(steps_of(_json_in_steps(result, pause)))) == 502
