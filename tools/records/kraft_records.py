"""The printed form of the records of KRaft's metadata log, for kafka-dump-log.

Must not know their layouts (`tools.kraft.metadata_records`).
"""

from protocol.codec import decode
from protocol.errors import Malformed
from protocol.records.batch import Record
from tools.base.java_names import json_text
from tools.kraft.frames import read_framed
from tools.kraft.metadata_records import CONTROL_RECORDS, METADATA_RECORDS
from tools.records.framed_records import fields_json
from tools.records.record_parsers import ParsedRecord


def parse_metadata_record(record: Record) -> ParsedRecord:
    """Parse a record of `__cluster_metadata`. Its key has no meaning."""
    try:
        framed = read_framed(record.value, METADATA_RECORDS)
    except Malformed as error:
        return ParsedRecord(None, f"Error at {record.offset}, skipping. {error}")
    data = fields_json(framed.fields, framed.version)
    name = json_text(_constant_name(type(framed.fields).__name__))
    return ParsedRecord(None, f'{{"type":{name},"version":{framed.version},"data":{data}}}')


def control_record_text(control_type: int, value: bytes | None) -> str | None:
    """Return the printed form of a KRaft control record; None if it has no fields to print. Raises Malformed."""
    known = CONTROL_RECORDS.get(control_type)
    if known is None:
        return None
    name, cls = known
    return f"{name} {fields_json(decode(cls, 0, value or b''), 0)}"


def _constant_name(class_name: str) -> str:
    """Convert `TopicRecord` to TOPIC_RECORD."""
    return "".join(f"_{letter}" if letter.isupper() else letter for letter in class_name).strip("_").upper()
