"""A compiled module that reads where it is told to: `sanitized_loops` shows with it that a bad read is noticed."""


def byte_at(data: bytes, at: int) -> int:
    return data[at]
