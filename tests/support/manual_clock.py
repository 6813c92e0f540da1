"""A clock that stands still until a test moves it."""


class ManualClock:
    def __init__(self, now_ms: int = 1_795_228_739_867) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    def advance(self, milliseconds: int) -> None:
        self._now_ms += milliseconds
