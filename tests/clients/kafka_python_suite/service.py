"""Stands in for the module `test.service` that kafka-python's source distribution leaves out.

Its fixtures want two classes of it: one for brokers that they start, which never happens here, and one for a broker
that runs already.
"""


class SpawnedService:
    """A broker started by the fixtures."""

    def __init__(self, *_: object, **__: object) -> None:
        raise RuntimeError("these tests run against an existing broker")


class ExternalService:
    """A broker that the fixture starts and stops."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def open(self) -> None:
        """Nothing to start."""

    def close(self) -> None:
        """Nothing to stop."""
