"""Clocks that only a test advances."""


class ManualClock:
    """A clock that stands still until a test advances it."""

    def __init__(self, now_ms: int = 1_795_228_739_867) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return self._now_ms / 1000

    def processor_s(self) -> float:
        return 0.0

    def advance(self, milliseconds: int) -> None:
        self._now_ms += milliseconds


class SteppingClock:
    """A clock that advances by `step_ms` at each reading, so that all work takes time."""

    def __init__(self, step_ms: int) -> None:
        self._step_ms = step_ms
        self._now_ms = 0

    def monotonic_ms(self) -> int:
        self._now_ms += self._step_ms
        return self._now_ms

    def monotonic_s(self) -> float:
        return self.monotonic_ms() / 1000
