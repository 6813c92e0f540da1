"""The key set of an identity provider, read from its URL from time to time.

Owns when it is read, and the last set that could be read. Must not know tokens. Reading blocks: it runs in a thread.
The URL is one of the broker's settings; nothing that a client sends is ever fetched (CVE-2025-27817).
"""

from __future__ import annotations

import logging

from broker.security.web_tokens import NO_KEYS, KeySet, parse_key_set

logger = logging.getLogger("kafka.security.oauthbearer.RefreshingHttpsJwks")

SIZE_MAX = 1 << 20
TIMEOUT_S = 10
SCHEMES = ("https://", "http://", "file://")


class RemoteKeys:
    """The keys behind one URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: KeySet = NO_KEYS
        self._read_ms: int | None = None
        self._is_key_missing = False
        self.failure_count = 0
        """Failed reads since the last one that did not fail."""

    def report_missing_key(self) -> None:
        """A token names a key that is not in the set: the provider may have added it since."""
        self._is_key_missing = True

    def is_due(self, now_ms: int, refresh_ms: int) -> bool:
        """Return whether to read the keys: they were never read, are older than `refresh_ms`, or one is missing."""
        return self._is_key_missing or self._read_ms is None or now_ms - self._read_ms >= refresh_ms

    def refresh(self, now_ms: int) -> None:
        """Read the keys; keep the present ones if that fails. Blocks."""
        self._is_key_missing = False
        # On demand: few brokers have an identity provider, and these modules cost every start.
        from urllib.request import Request

        from broker.security.url_reader import opened

        try:
            with opened(Request(self.url), timeout_s=TIMEOUT_S) as response:
                data = response.read(SIZE_MAX + 1)
            if len(data) > SIZE_MAX:
                raise ValueError(f"more than {SIZE_MAX} bytes")
            self.keys = parse_key_set(data)
            self._read_ms = now_ms
            self.failure_count = 0
        except Exception as error:  # the response may be anything, and a broker serves also without new keys
            self.failure_count += 1
            count = len(self.keys.verifiers)
            logger.error("cannot read the keys of %s, %d keys stay in use: %s", self.url, count, error)
