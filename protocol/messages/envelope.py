"""Envelope (58): a broker forwards a client's request to the controller (KIP-590)."""

from protocol.api_key import ApiKey
from protocol.schema import bytes_, int16, message


@message(ApiKey.ENVELOPE, versions=range(0, 1), flexible=0)
class EnvelopeRequest:
    request_data: bytes_
    request_principal: bytes_ | None
    client_host_address: bytes_


@message(ApiKey.ENVELOPE, versions=range(0, 1), flexible=0)
class EnvelopeResponse:
    response_data: bytes_ | None = None
    error_code: int16 = 0
