"""Checks of the entries of a log: batches of magic 2 and messages of magic 0 and 1."""

from protocol.records.batch import crc_is_valid
from protocol.records.compression import Buffer
from protocol.records.entries import Entry
from protocol.records.legacy import MessageHeader, message_crc_is_valid


def entry_crc_is_valid(buffer: Buffer, entry: Entry) -> bool:
    """Return whether the CRC in the header of one entry, in any format, matches its bytes."""
    if isinstance(entry.header, MessageHeader):
        return message_crc_is_valid(buffer, entry.position, entry.header)
    return crc_is_valid(buffer, entry.position, entry.header)
