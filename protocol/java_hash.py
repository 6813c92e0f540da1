"""Java's hash of a string, by which Kafka spreads groups over partitions and partitions over fetchers. Pure."""

import struct


def string_hash(text: str) -> int:
    """Return what Java's `String.hashCode` returns: an int32 over the UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return to_int32(value)


def to_int32(value: int) -> int:
    """Return the low 32 bits of `value` as Java's int."""
    value &= 0xFFFFFFFF
    return value - 0x100000000 if value >= 0x80000000 else value


def absolute(value: int) -> int:
    """Return the absolute value of an int32 as Kafka computes it: Java has none of -2^31, Kafka uses 0."""
    return 0 if value == -0x80000000 else abs(value)
