"""CreateAcls, DescribeAcls and DeleteAcls with element numbers that are unknown, or have a meaning in filters only."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from config.broker_properties import AUTHORIZERS
from protocol.errors import ErrorCode
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.messages.describe_acls import DescribeAclsRequest
from tests.support.in_process import InProcessBroker, running_broker

ANY, MATCH = 1, 2
STORED = (ErrorCode.NONE, "")
UNKNOWN = (ErrorCode.INVALID_REQUEST, "Failed to create ACL")
FAILED = (ErrorCode.UNKNOWN_SERVER_ERROR, None)
FIELDS_OF_FILTERS = {"resource_type": "resource_type_filter", "resource_pattern_type": "pattern_type_filter"}


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    settings = {"authorizer.class.name": AUTHORIZERS[0], "super.users": "User:ANONYMOUS"}
    async with running_broker(tmp_path, settings) as broker:
        yield broker


def creation(**changes: Any) -> AclCreation:
    of_topic = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return AclCreation(**{**of_topic, **changes})


def filter_fields(field: str, number: int) -> dict[str, Any]:
    """Return a filter for all ACLs, but for one field."""
    fields = {"resource_type_filter": ANY, "pattern_type_filter": ANY, "operation": ANY, "permission_type": ANY}
    unset = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"), None)
    return {**fields, **unset, FIELDS_OF_FILTERS.get(field, field): number}


@pytest.mark.parametrize("field", ["resource_type", "resource_pattern_type", "operation", "permission_type"])
async def test_number_of_a_later_release_fails_alone_and_matches_nothing(secured: InProcessBroker, field: str) -> None:
    for number in (15, 100, -1):
        request = CreateAclsRequest(creations=[creation(), creation(**{field: number}), creation(host="::1")])
        created = await secured.ask(request)
        assert [(it.error_code, it.error_message) for it in created.results] == [STORED, UNKNOWN, STORED]
        wanted = filter_fields(field, number)
        described = await secured.ask(DescribeAclsRequest(**wanted))
        assert (described.error_code, described.error_message, described.resources) == (ErrorCode.NONE, "", [])
        deleted = await secured.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**wanted)]))
        (result,) = deleted.filter_results
        assert (result.error_code, result.error_message, result.matching_acls) == (ErrorCode.NONE, None, [])
    described = await secured.ask(DescribeAclsRequest(**filter_fields("operation", ANY)))
    assert [len(resource.acls) for resource in described.resources] == [2]


@pytest.mark.parametrize(
    ("field", "number"),
    [
        ("resource_type", ANY),
        ("resource_pattern_type", ANY),
        ("resource_pattern_type", MATCH),
        ("operation", ANY),
        ("permission_type", ANY),
    ],
)
async def test_number_for_filters_fails_the_whole_creation(secured: InProcessBroker, field: str, number: int) -> None:
    created = await secured.ask(CreateAclsRequest(creations=[creation(), creation(**{field: number})]))
    assert [(it.error_code, it.error_message) for it in created.results] == [FAILED, FAILED]
    described = await secured.ask(DescribeAclsRequest(**filter_fields("operation", ANY)))
    assert described.resources == []


@pytest.mark.parametrize(
    ("changes", "result"),
    [
        ({"operation": 13}, STORED),
        ({"host": ""}, STORED),
        ({"host": "localhost"}, STORED),
        ({"principal": "User:"}, STORED),
        ({"principal": "bob"}, FAILED),
        ({"resource_name": ".."}, FAILED),
        ({"resource_name": "a/b"}, UNKNOWN),
        ({"resource_name": ""}, (ErrorCode.INVALID_REQUEST, "Invalid empty resource name")),
        (
            {"resource_type": 4},
            (ErrorCode.INVALID_REQUEST, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ),
    ],
    ids=str,
)
async def test_creation_is_judged_as_by_kafka(
    secured: InProcessBroker, changes: dict[str, Any], result: tuple[ErrorCode, str | None]
) -> None:
    created = await secured.ask(CreateAclsRequest(creations=[creation(**changes)]))
    assert [(it.error_code, it.error_message) for it in created.results] == [result]
