"""Serve only the API versions of an earlier release of Kafka, so that clients can be tested against it.

Owns the limit. Must not know how requests are served. It stands before a dispatcher, so that a broker without
`advertised.kafka.version` pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from broker.network.channel import Channel
from broker.network.connection import Dispatcher, Response
from broker.requests.dispatch import unsupported_version
from protocol.api import APIS, Api
from protocol.api_key import ApiKey
from protocol.headers import UnsupportedApi, read_request_header
from protocol.releases import newest_versions


def apis_of_release(served: Sequence[Api], release: str) -> Iterator[Api]:
    """Yield the APIs of `served` that the release had, with its versions."""
    newest = newest_versions(release)
    for api in served:
        if (version := newest.get(api.key)) is not None:
            yield replace(api, versions=range(api.versions.start, min(version + 1, api.versions.stop)))


class ReleaseGate:
    """A `Dispatcher` before another one. Requests that the release did not know close their connection."""

    def __init__(self, dispatcher: Dispatcher, apis: Sequence[Api]) -> None:
        """`apis` are those of the release."""
        self._dispatcher = dispatcher
        self._versions: Mapping[int, range] = {api.key: api.versions for api in apis}

    def dispatch(self, frame: memoryview, channel: Channel) -> Response:
        """Serve one frame. Raises Malformed, as `Dispatcher.dispatch` does."""
        try:
            header, _ = read_request_header(frame)
            if header.api_version not in self._versions.get(header.api_key, ()):
                raise UnsupportedApi(header, APIS[header.api_key])
        except UnsupportedApi as error:
            if ApiKey.API_VERSIONS not in self._versions:
                raise
            return unsupported_version(error, self._versions[ApiKey.API_VERSIONS])
        return self._dispatcher.dispatch(frame, channel)
