"""Request and response headers, which precede every message.

Owns the versions of the headers, with their exceptions. Must not know messages beyond their key, versions and first
flexible version.

A request header is the API key, the API version, the correlation id, the client id and, in flexible versions, a tagged
section:

    int16 api key | int16 api version | int32 correlation id | int16 length, client id | tagged fields (flexible)

The exceptions exist so that any client and any broker can start a conversation:

* The client id has an int16 length also in flexible versions. * ControlledShutdown v0 has no client id. * The response
header of ApiVersions never has a tagged section: the client does not know the broker's versions yet.
"""

from collections.abc import Mapping
from struct import Struct as Layout
from struct import error as StructError  # noqa: N812 - it is an exception class
from types import MappingProxyType
from typing import NamedTuple

from protocol.api import APIS, Api
from protocol.api_key import ApiKey
from protocol.errors import Malformed
from protocol.reader import skip_tags
from protocol.schema import Records

_FIXED = Layout(">hhi")
_WITH_CLIENT_ID = Layout(">hhih")
_CORRELATION_ID = Layout(">i")
_CLIENT_ID_POSITION = _WITH_CLIENT_ID.size
_unpack_with_client_id = _WITH_CLIENT_ID.unpack_from

_WITHOUT_CLIENT_ID = (ApiKey.CONTROLLED_SHUTDOWN, 0)
_IS_FLEXIBLE: Mapping[tuple[int, int], bool] = MappingProxyType(
    {
        (api.key, version): api.flexible is not None and version >= api.flexible  # a start has no time for 370 calls
        for api in APIS.values()
        for version in api.versions
        if (api.key, version) != _WITHOUT_CLIENT_ID
    }
)
"""Whether requests have a tagged section in their header, by API key and version; without `_WITHOUT_CLIENT_ID`."""


class RequestHeader(NamedTuple):
    """The header of a request. The client id is free text for logs, metrics and quotas."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


class UnsupportedApi(Malformed):
    """The API key or version of a header is not in the registry.

    `header` is the part that could be read, for the log and for the only possible response: an ApiVersions request of
    an unknown version gets a v0 response with UNSUPPORTED_VERSION. `api` is None if the key is unknown.
    """

    def __init__(self, header: RequestHeader, api: Api | None) -> None:
        self.header = header
        self.api = api
        what = f"key {header.api_key}" if api is None else f"{api.name} version {header.api_version}"
        super().__init__(f"unsupported API {what} from client {header.client_id!r}, id {header.correlation_id}")

    @property
    def is_api_versions(self) -> bool:
        return self.header.api_key == ApiKey.API_VERSIONS


def read_request_header(buffer: Records) -> tuple[RequestHeader, int]:
    """Return the header of a request frame, and the position of the body. Raises as `scan_request_header` does."""
    api_key, api_version, correlation_id, client_id, position = scan_request_header(buffer)
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def scan_request_header(buffer: Records) -> tuple[int, int, int, str | None, int]:
    """Return the fields of a request's header, in the order of `RequestHeader`, and the position of the body.

    Raises:
        UnsupportedApi: the API key or version is not in the registry.
        Malformed: the header is damaged.
    """
    try:
        api_key, api_version, correlation_id, length = _unpack_with_client_id(buffer)
        is_flexible = _IS_FLEXIBLE.get((api_key, api_version))
        if is_flexible is None and (api_key, api_version) == _WITHOUT_CLIENT_ID:
            return api_key, api_version, correlation_id, None, _FIXED.size
        position = _CLIENT_ID_POSITION
        client_id = None
        if length >= 0:
            # The client id is only a label, so bytes that are not UTF-8 are no reason to reject the request.
            client_id = str(buffer[position : (position := position + length)], "utf-8", "replace")
            if position > len(buffer):
                left = len(buffer) - _CLIENT_ID_POSITION
                raise Malformed(f"client id of length {length}, but {left} bytes are left")
        elif length != -1:
            raise Malformed(f"client id of length {length}")
        if is_flexible:
            tag_count = buffer[position]
            position += 1
            if tag_count:
                position = skip_tags(buffer, position, tag_count)
    except (StructError, IndexError) as error:
        part = "before the client id ends" if isinstance(error, StructError) else "in its tagged fields"
        raise Malformed(f"a request header is cut short {part}: the frame has {len(buffer)} bytes") from error
    if is_flexible is None:
        raise UnsupportedApi(RequestHeader(api_key, api_version, correlation_id, client_id), APIS.get(api_key))
    return api_key, api_version, correlation_id, client_id, position


def request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Return the header of a request that this broker sends."""
    if api_key == ApiKey.CONTROLLED_SHUTDOWN and api_version == 0:
        return _FIXED.pack(api_key, api_version, correlation_id)
    text = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(text)
    header = _WITH_CLIENT_ID.pack(api_key, api_version, correlation_id, length) + text
    return header + b"\0" if APIS[api_key].is_flexible_in(api_version) else header


def response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Return the header of the response to a request of this API and version."""
    header = _CORRELATION_ID.pack(correlation_id)
    return header + b"\0" if _response_header_is_flexible(api_key, api_version) else header


def read_response_header(api_key: int, api_version: int, buffer: Records) -> tuple[int, int]:
    """Return the correlation id of a response that this broker received, and the position of the body.

    Raises:
        Malformed: the header is damaged.
    """
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(buffer)
        position = _CORRELATION_ID.size
        if _response_header_is_flexible(api_key, api_version):
            position = skip_tags(buffer, position + 1, buffer[position])
    except (StructError, IndexError) as error:
        part = "before the correlation id ends" if isinstance(error, StructError) else "in its tagged fields"
        raise Malformed(f"a response header is cut short {part}: the frame has {len(buffer)} bytes") from error
    return correlation_id, position


def _response_header_is_flexible(api_key: int, api_version: int) -> bool:
    return api_key != ApiKey.API_VERSIONS and APIS[api_key].is_flexible_in(api_version)
