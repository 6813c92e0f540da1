"""Quotas of users, clients and addresses, and SCRAM credentials of users, for kafka-configs.

Owns the requests that describe and alter them, and the printed lines. Must not know options.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from config.definition import text_of
from protocol.errors import ErrorCode
from protocol.messages import alter_client_quotas, describe_client_quotas
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse, OpData
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from protocol.scram_credentials import ITERATIONS_DEFAULT, MECHANISMS
from tools.admin.configuration.entities import CLIENTS, DEFAULT_NAME, IPS, USERS, Entity
from tools.admin.configuration.resources import InvalidConfigs
from tools.base.command_line import UsageError, warn
from tools.client.admin_client import AdminClient, raise_for
from tools.client.scram_credentials import new_credential

_QUOTA_TYPES: Mapping[str, tuple[str, str]] = {
    USERS: ("user", "user-principal"),
    CLIENTS: ("client-id", "client-id"),
    IPS: ("ip", "ip"),
}
"""By type of entity: its name in requests, and its printed name."""

_CLIENT_KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
_KEYS: Mapping[str, tuple[str, ...]] = {
    USERS: _CLIENT_KEYS,
    CLIENTS: _CLIENT_KEYS,
    IPS: ("connection_creation_rate",),
}
_MISPRINTS: Mapping[str, str] = {
    "producer_bytes_rate": "producer_byte_rate",
    "consumer_bytes_rate": "consumer_byte_rate",
}
_CREDENTIAL = re.compile(r"(?:iterations=(?P<iterations>-?[0-9]*),)?password=(?P<password>.*)", re.DOTALL)
_EXACT, _DEFAULT, _ANY = 0, 1, 2
_KINDS: Mapping[str, str] = {USERS: "quota and SCRAM credential", IPS: "connection quota"}


def describe_quotas(admin: AdminClient, entities: Sequence[Entity]) -> Iterator[str]:
    """Return the lines of quotas, then those of credentials if only users are requested. Raises KafkaError."""
    for entity, values in _quotas(admin, entities):
        quotas = ", ".join(f"{key}={text_of(value)}" for key, value in sorted(values.items()))
        yield f"Quota configs for {_words(entity)} are {quotas}"
    if [entity.type for entity in entities] == [USERS] and entities[0].name != DEFAULT_NAME:
        yield from _describe_credentials(admin, entities[0].name)


def alter_quotas(
    admin: AdminClient, entities: Sequence[Entity], added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    """Set and delete quotas or credentials. Raises UsageError, InvalidConfigs and KafkaError."""
    added = {right_key(key): value for key, value in added.items()}
    deleted = [right_key(key) for key in deleted]
    credential_keys = [key for key in (*added, *deleted) if key in MECHANISMS]
    if credential_keys and [entity.type for entity in entities] == [USERS]:
        if len(credential_keys) != len(added) + len(deleted):
            raise UsageError("Cannot alter both quota and SCRAM credential configs simultaneously for users")
        _alter_credentials(admin, entities[0], added, deleted)
        return
    known = _KEYS[entities[0].type]
    if unknown := [key for key in (*added, *deleted) if key not in known]:
        kind = _KINDS.get(entities[0].type, "quota")
        raise UsageError(
            f"Only {kind} configs can be added for '{entities[0].type}' using --bootstrap-server. "
            f"Unexpected config names: {', '.join(unknown)}"
        )
    present = next((values for _, values in _quotas(admin, entities)), {})
    if missing := [key for key in deleted if key not in present]:
        raise InvalidConfigs(f"Invalid config(s): {','.join(missing)}")
    entry = alter_client_quotas.EntryData(
        entity=[
            alter_client_quotas.EntityData(entity_type=_QUOTA_TYPES[entity.type][0], entity_name=entity.name or None)
            for entity in entities
        ],
        ops=[
            *(OpData(key=key, value=quota_value(key, value), remove=False) for key, value in added.items()),
            *(OpData(key=key, value=0.0, remove=True) for key in deleted),
        ],
    )
    response = admin.call(AlterClientQuotasRequest(entries=[entry], validate_only=False), AlterClientQuotasResponse)
    for result in response.entries:
        raise_for(result.error_code, result.error_message)


def _quotas(
    admin: AdminClient, entities: Sequence[Entity]
) -> Iterator[tuple[list[describe_client_quotas.EntityData], dict[str, float]]]:
    """Return the quotas of exactly these entity types."""
    components = [_component(entity) for entity in entities]
    response = admin.call(DescribeClientQuotasRequest(components=components, strict=True), DescribeClientQuotasResponse)
    raise_for(response.error_code, response.error_message)
    for entry in response.entries or ():
        yield entry.entity, {value.key: value.value for value in entry.values}


def _component(entity: Entity) -> ComponentData:
    match_type = _ANY if entity.name is None else _DEFAULT if entity.name == DEFAULT_NAME else _EXACT
    return ComponentData(entity_type=_QUOTA_TYPES[entity.type][0], match_type=match_type, match=entity.name or None)


def _words(entity: Sequence[describe_client_quotas.EntityData]) -> str:
    """`user-principal 'U', the default client-id`: users before clients, as they nest."""
    names = {part.entity_type: part.entity_name for part in entity}
    return ", ".join(
        f"the default {words}" if names[quota_type] is None else f"{words} '{names[quota_type]}'"
        for quota_type, words in _QUOTA_TYPES.values()
        if quota_type in names
    )


def right_key(key: str) -> str:
    """Return a key under its right name, with a warning for a name that a book has wrong."""
    if key in _MISPRINTS:
        warn(f"{key} is a misprint of {_MISPRINTS[key]}, which is used instead")
    return _MISPRINTS.get(key, key)


def quota_value(key: str, text: str) -> float:
    """Parse the value of a quota. Raises UsageError."""
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"Cannot parse quota configuration value for {key}: {text}") from None


def _describe_credentials(admin: AdminClient, user: str | None) -> Iterator[str]:
    users = None if user is None else [UserName(name=user)]
    response = admin.call_controller(
        DescribeUserScramCredentialsRequest(users=users),
        DescribeUserScramCredentialsResponse,
        lambda response: [response.error_code],
    )
    raise_for(response.error_code, response.error_message)
    names = {number: name for name, number in MECHANISMS.items()}
    for result in sorted(response.results, key=lambda result: result.user):
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        raise_for(result.error_code, result.error_message)
        credentials = ", ".join(
            f"{names[info.mechanism]}=iterations={info.iterations}" for info in result.credential_infos
        )
        yield f"SCRAM credential configs for user-principal '{result.user}' are {credentials}"


def _alter_credentials(admin: AdminClient, user: Entity, added: Mapping[str, str], deleted: Sequence[str]) -> None:
    if not user.name:
        raise UsageError(
            "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials using "
            "--bootstrap-server."
        )
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=user.name, mechanism=MECHANISMS[key]) for key in deleted],
        upsertions=[credential(user.name, key, value) for key, value in added.items()],
    )
    response = admin.call_controller(
        request, AlterUserScramCredentialsResponse, lambda response: [result.error_code for result in response.results]
    )
    for result in response.results:
        raise_for(result.error_code, result.error_message)


def credential(user: str, mechanism: str, text: str) -> ScramCredentialUpsertion:
    """Parse `iterations=4096,password=secret` to a credential; the password does not leave this process."""
    match = _CREDENTIAL.fullmatch(text)
    if match is None:
        raise UsageError(f"Invalid credential for {mechanism}; expected [iterations=N,password=P] or [password=P]")
    iterations = int(match["iterations"] or -1)
    if iterations == -1:
        iterations = ITERATIONS_DEFAULT
    if iterations < ITERATIONS_DEFAULT:
        raise UsageError(
            f"Iterations {iterations} is less than the minimum {ITERATIONS_DEFAULT} required for {mechanism}"
        )
    return new_credential(user, mechanism, match["password"], iterations)
