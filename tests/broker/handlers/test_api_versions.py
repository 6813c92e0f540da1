"""ApiVersions: the served APIs are listed with Kafka's version ranges, in every version."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from broker.requests.routes import TABLE
from protocol.messages.api_versions import ApiVersionsRequest
from tests.support.in_process import InProcessBroker

KAFKAS_RANGES = Path(__file__).parents[2] / "fixtures" / "api-versions.csv"


@pytest.mark.parametrize("version", range(5))
async def test_served_apis_have_kafkas_version_ranges(served: InProcessBroker, version: int) -> None:
    with KAFKAS_RANGES.open() as lines:
        kafkas = {int(row["api_key"]): (int(row["min"]), int(row["max"])) for row in csv.DictReader(lines)}
    request = ApiVersionsRequest(client_software_name="probe", client_software_version="1")
    response = await served.ask(request, version)
    reported = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert reported == {key: kafkas[key] for key in TABLE}
    assert response.finalized_features_epoch == (0 if version >= 3 else -1)
