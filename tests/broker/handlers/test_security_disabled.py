"""Requests about what a broker without security does not have: ACLs, delegation tokens, and finalized features."""

import pytest

from protocol.errors import ErrorCode, Malformed
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.messages.describe_acls import DescribeAclsRequest
from protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.in_process import InProcessBroker

ANY = 1
ACL_VERSIONS = TOKEN_VERSIONS = range(4)


@pytest.mark.parametrize("version", ACL_VERSIONS)
async def test_there_are_no_acls(served: InProcessBroker, version: int) -> None:
    wanted = {
        "resource_type_filter": 2,
        "resource_name_filter": "t",
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    described = await served.ask(DescribeAclsRequest(**wanted), version)
    assert (described.error_code, described.error_message, described.resources) == (
        ErrorCode.SECURITY_DISABLED,
        "No Authorizer is configured on the broker",
        [],
    )
    creation = AclCreation(
        resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
    )
    created = await served.ask(CreateAclsRequest(creations=[creation, creation]), version)
    deleted = await served.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**wanted)]), version)
    refused = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    assert [(it.error_code, it.error_message) for it in created.results] == [refused, refused]
    assert [(it.error_code, it.error_message) for it in deleted.filter_results] == [refused]


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
async def test_an_unknown_element_of_a_filter_closes_the_connection(served: InProcessBroker, field: str) -> None:
    wanted = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"), None)
    wanted |= {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": ANY, "permission_type": ANY, field: 0}
    for request in (DescribeAclsRequest(**wanted), DeleteAclsRequest(filters=[DeleteAclsFilter(**wanted)])):
        with pytest.raises(Malformed):
            await served.ask(request)


@pytest.mark.parametrize("field", ["resource_type", "resource_pattern_type", "operation", "permission_type"])
async def test_an_unknown_element_of_an_acl_closes_the_connection(served: InProcessBroker, field: str) -> None:
    wanted = {"resource_type": 2, "resource_pattern_type": 3, "operation": 3, "permission_type": 3, field: 0}
    creation = AclCreation(resource_name="t", principal="User:a", host="*", **wanted)
    with pytest.raises(Malformed):
        await served.ask(CreateAclsRequest(creations=[creation]))


@pytest.mark.parametrize("version", TOKEN_VERSIONS)
@pytest.mark.parametrize(
    ("principal", "code"),
    [
        ("User:ANONYMOUS", ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        ("User:alice", ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
    ],
)
async def test_there_are_no_tokens(served: InProcessBroker, version: int, principal: str, code: ErrorCode) -> None:
    served.channel.principal = principal
    created = await served.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), version)
    assert (created.error_code, created.token_id, created.hmac, created.issue_timestamp_ms) == (code, "", b"", -1)
    assert f"{created.principal_type}:{created.principal_name}" == principal
    described = await served.ask(DescribeDelegationTokenRequest(owners=None), version)
    assert (described.error_code, described.tokens) == (code, [])
    version = min(version, 2)
    renewed = await served.ask(RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1), version)
    expired = await served.ask(ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1), version)
    for response in (renewed, expired):
        assert (response.error_code, response.expiry_timestamp_ms) == (code, -1)


async def test_there_is_nothing_to_log_in_to(served: InProcessBroker) -> None:
    for version in range(2):
        agreed = await served.ask(SaslHandshakeRequest(mechanism="PLAIN"), version)
        assert (agreed.error_code, agreed.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    for version in range(3):
        response = await served.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), version)
        assert (response.error_code, response.error_message, response.auth_bytes, response.session_lifetime_ms) == (
            ErrorCode.ILLEGAL_SASL_STATE,
            "SaslAuthenticate request received after successful authentication",
            b"",
            0,
        )


@pytest.mark.parametrize(
    ("feature", "level", "upgrade_type", "message"),
    [
        ("", 1, 1, "Feature name can not be empty."),
        (
            "metadata.version",
            1,
            1,
            "Could not apply finalized feature update because the provided feature is not supported.",
        ),
        ("metadata.version", 0, 2, "Can not delete non-existing finalized feature."),
        (
            "metadata.version",
            0,
            1,
            "Can not provide versionLevel: 0 less than 1 without setting the SAFE downgradeType in the request.",
        ),
        ("metadata.version", 1, 0, "Received unknown upgrade type."),
    ],
)
async def test_no_feature_can_be_finalized(
    served: InProcessBroker, feature: str, level: int, upgrade_type: int, message: str
) -> None:
    update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=upgrade_type)
    again = FeatureUpdateKey(feature=feature, max_version_level=7, upgrade_type=3)
    response = await served.ask(UpdateFeaturesRequest(feature_updates=[update, again]))
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    (result,) = response.results
    assert (result.feature, result.error_code, result.error_message) == (feature, ErrorCode.INVALID_REQUEST, message)
