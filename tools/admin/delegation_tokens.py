"""kafka-delegation-tokens: creates, renews, expires and lists delegation tokens (KIP-48, KIP-373)."""

import argparse
import sys
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from protocol.errors import KafkaError
from protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from tools.base.command_line import BOOTSTRAP_SERVER_ONLY, CommandLine, UsageError, run_tool
from tools.base.java_names import exception_text
from tools.client.admin_client import AdminClient, CallTimedOut, raise_for
from tools.client.admin_options import add_admin_options, admin_client

Principal = tuple[str, str]
"""Type and name."""

_COLUMNS = (
    ("TOKENID", 15),
    ("HMAC", 30),
    ("OWNER", 15),
    ("REQUESTER", 15),
    ("RENEWERS", 25),
    ("ISSUEDATE", 15),
    ("EXPIRYDATE", 15),
    ("MAXDATE", 15),
)
_ACTIONS = ("create", "renew", "expire", "describe")
_REQUIRED = {
    "create": ("--max-life-time-period",),
    "renew": ("--hmac", "--renew-time-period"),
    "expire": ("--hmac", "--expiry-time-period"),
    "describe": (),
}
_INVALID = {
    "create": ("--hmac", "--renew-time-period", "--expiry-time-period"),
    "renew": ("--renewer-principal", "--max-life-time-period", "--expiry-time-period", "--owner-principal"),
    "expire": ("--renew", "--max-life-time-period", "--renew-time-period", "--owner-principal"),
    "describe": ("--renew-time-period", "--max-life-time-period", "--hmac", "--expiry-time-period"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-delegation-tokens", "This tool helps to create, renew, expire, or describe delegation tokens."
    )
    add_admin_options(line, BOOTSTRAP_SERVER_ONLY)
    line.add_flag("--create", "Create a token for the user of --command-config, or for --owner-principal.")
    line.add_flag("--renew", "Renew the token of --hmac.")
    line.add_flag("--expire", "Expire the token of --hmac.")
    line.add_flag("--describe", "List the tokens of --owner-principal, or all that the user may see.")
    for name, words in (
        ("--owner-principal", "Owner of the token, as Type:name."),
        ("--renewer-principal", "Who may renew the token beside its owner, as Type:name."),
    ):
        line.add_option(name, value="principal", repeatable=True, help_text=words)
    for name, words in (
        (
            "--max-life-time-period",
            "Longest life of the token in ms; -1: delegation.token.max.lifetime.ms of the broker.",
        ),
        ("--renew-time-period", "Time in ms until the renewed token expires; -1: delegation.token.expiry.time.ms."),
        ("--expiry-time-period", "Time in ms until the token expires; -1: immediately."),
    ):
        line.add_option(name, value="ms", parse=int, help_text=words)
    line.add_option("--hmac", value="HMAC", help_text="HMAC of the token, in base64.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    actions = [action for action in _ACTIONS if getattr(options, action)]
    if len(actions) != 1:
        raise UsageError("Command must include exactly one action: --create, --renew, --expire or --describe")
    (action,) = actions
    line.require(options, "--bootstrap-server", "--command-config", *_REQUIRED[action])
    line.forbid(options, f"--{action}", *_INVALID[action])
    try:
        with admin_client(options) as admin:
            {"create": _create, "renew": _renew, "expire": _expire, "describe": _describe}[action](admin, options)
    except KafkaError as error:
        print(exception_text(error), file=sys.stderr)
    except CallTimedOut as error:
        print(error, file=sys.stderr)
    else:
        return 0
    return 1


def _create(admin: AdminClient, options: argparse.Namespace) -> None:
    owners, renewers = _principals(options.owner_principal), _principals(options.renewer_principal)
    life_ms = options.max_life_time_period
    print(f"Calling create token operation with renewers :{_listed(renewers)} , max-life-time-period :{life_ms}")
    owner_type, owner_name = owners[0] if owners else (None, None)
    request = CreateDelegationTokenRequest(
        owner_principal_type=owner_type,
        owner_principal_name=owner_name,
        renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in renewers],
        max_lifetime_ms=life_ms,
    )
    token = admin.call(request, CreateDelegationTokenResponse)
    raise_for(token.error_code)
    print(f"Created delegation token with tokenId : {token.token_id}")
    _print_table(
        [
            (
                token.token_id,
                b64encode(token.hmac).decode(),
                f"{token.principal_type}:{token.principal_name}",
                f"{token.token_requester_principal_type}:{token.token_requester_principal_name}",
                _listed(renewers),
                _date(token.issue_timestamp_ms),
                _date(token.expiry_timestamp_ms),
                _date(token.max_timestamp_ms),
            )
        ]
    )


def _renew(admin: AdminClient, options: argparse.Namespace) -> None:
    hmac, period_ms = _hmac(options), options.renew_time_period
    print(f"Calling renew token operation with hmac :{options.hmac} , renew-time-period :{period_ms}")
    response = admin.call(
        RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), RenewDelegationTokenResponse
    )
    raise_for(response.error_code)
    print(f"Completed renew operation. New expiry date : {_date(response.expiry_timestamp_ms)}")


def _expire(admin: AdminClient, options: argparse.Namespace) -> None:
    hmac, period_ms = _hmac(options), options.expiry_time_period
    print(f"Calling expire token operation with hmac :{options.hmac} , expire-time-period :{period_ms}")
    response = admin.call(
        ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), ExpireDelegationTokenResponse
    )
    raise_for(response.error_code)
    print(f"Completed expire operation. New expiry date : {_date(response.expiry_timestamp_ms)}")


def _describe(admin: AdminClient, options: argparse.Namespace) -> None:
    owners = _principals(options.owner_principal)
    if owners:
        print(f"Calling describe token operation for owners: {_listed(owners)}")
    else:
        print("Calling describe token operation for current user.")
    wanted = [DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in owners]
    response = admin.call(DescribeDelegationTokenRequest(owners=wanted or None), DescribeDelegationTokenResponse)
    raise_for(response.error_code)
    print(f"Total number of tokens : {len(response.tokens)}", end="")
    _print_table(
        (
            token.token_id,
            b64encode(token.hmac).decode(),
            f"{token.principal_type}:{token.principal_name}",
            f"{token.token_requester_principal_type}:{token.token_requester_principal_name}",
            _listed([(renewer.principal_type, renewer.principal_name) for renewer in token.renewers]),
            _date(token.issue_timestamp),
            _date(token.expiry_timestamp),
            _date(token.max_timestamp),
        )
        for token in response.tokens
    )


def _print_table(rows: Iterable[Sequence[str]]) -> None:
    for row in ([name for name, _ in _COLUMNS], *rows):
        print("\n" + " ".join(f"{cell:<{width}}" for cell, (_, width) in zip(row, _COLUMNS, strict=True)))


def _principals(texts: Iterable[str]) -> list[Principal]:
    """Raises UsageError."""
    principals = []
    for text in texts:
        kind, colon, name = text.strip().partition(":")
        if not colon or not kind or not name:
            raise UsageError(f"expected a string in format principalType:principalName but got {text.strip()}")
        principals.append((kind, name))
    return principals


def _listed(principals: Iterable[Principal]) -> str:
    return f"[{', '.join(f'{kind}:{name}' for kind, name in principals)}]"


def _hmac(options: argparse.Namespace) -> bytes:
    """Raises UsageError."""
    try:
        return b64decode(options.hmac, validate=True)
    except NotBase64:
        raise UsageError("The value of --hmac is not base64") from None


_LAST_MS = 253_402_214_400_000
"""A day before the end of the year 9999, the last of `datetime`."""


def _date(timestamp_ms: int) -> str:
    """Return a time to the minute, in the time zone of this machine; the number itself where there is no such date."""
    if timestamp_ms > _LAST_MS:
        return str(timestamp_ms)
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone().strftime("%Y-%m-%dT%H:%M")


if __name__ == "__main__":
    raise SystemExit(main())
