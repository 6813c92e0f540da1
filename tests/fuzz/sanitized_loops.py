"""Runs the compiled loops over mutated bytes, in a process whose modules were built with AddressSanitizer:

    python -P -m tests.fuzz.sanitized_loops MODULES SEED COUNT
    python -P -m tests.fuzz.sanitized_loops MODULES read-beyond

MODULES is a JSON file with the file of each compiled module by name. The sanitizer ends the process at the first read
or write outside an object. A `bytes` object has a terminator behind its content, which a loop could read unnoticed, so
that of each input is poisoned. `environment` returns the variables that the process needs.

Owns what each module is called with. Must not know how modules are built.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from types import ModuleType

from base import compiled

BYTE_AT = "tests.fuzz.byte_at"
READ_BEYOND = "read-beyond"
NEW_BYTES_AFTER = 20
"""How many inputs are mutated from the same bytes."""
_BYTES_START = bytes.__basicsize__ - 1


def environment(library: Path) -> dict[str, str]:
    """Return the variables of a process whose modules need the sanitizer's library.

    Python's own allocator takes many objects from one block, between which a bad read would not be noticed.
    """
    return {
        **os.environ,
        "LD_PRELOAD": str(library),
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter frees little at its end
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(compiled.ROOT),
    }


def poisoned(data: bytes) -> bytes:
    """Return the same bytes in an object of their own, whose terminator must not be read."""
    if len(data) < 2:  # the interpreter has one object for all equal ones
        return data
    copy = bytes(bytearray(data))
    _poison(id(copy) + _BYTES_START + len(copy))
    return copy


def poisoned_buffer(data: bytes) -> memoryview:
    """Return the same bytes in memory that can be changed, whose terminator must not be read."""
    copy = bytearray(data)
    _poison(ctypes.addressof(ctypes.c_char.from_buffer(copy)) + len(copy))
    return memoryview(copy)


def _poison(address: int) -> None:
    ctypes.CDLL(None).__asan_poison_memory_region(ctypes.c_void_p(address), 1)


def records(form: ModuleType, random: Random) -> Callable[[], None]:
    """Return a function that passes, reads, copies and renumbers mutated records."""
    from protocol.records.batch import HEADER_SIZE, read_header
    from tests.protocol.records.test_plain_records import make_batch, outcomes
    from tests.support.forms import mutated

    content = make_batch(random, 4)
    count = read_header(content).records_count

    def run() -> None:
        plain = poisoned(mutated(content[HEADER_SIZE:], random))
        outcomes(form, plain, count)
        end = random.randrange(len(plain) + 1)
        position = random.randrange(end + 1)
        form.varint(plain, position, end, random.choice((32, 64)))
        form.pass_headers(plain, position, end, random.choice((1, 3, 2**40)))
        form.pass_regular(plain, position, 0, 2**40, 2**40, True)
        written = bytearray()
        number = random.randrange(-(2**63), 2**63) >> random.randrange(64)
        form.write_varint(written, number)
        assert len(written) == form.varint_size(number)
        assert form.varint(poisoned(bytes(written)), 0, len(written), 64) == (number, len(written))

    return run


def messages(form: ModuleType, random: Random) -> Callable[[], None]:
    """Return a function that reads mutated messages, and writes again what it read."""
    from tests.protocol.records.test_plain_messages import some_messages
    from tests.support.forms import mutated

    magic = random.randrange(2)
    content = some_messages(random, magic)

    def run() -> None:
        found, *_ = form.read_messages(poisoned(mutated(content, random)), 0, magic, random.random() < 0.5, 5)
        target = bytearray()
        for offset, timestamp, key, value, _ in found:
            form.write_message(target, offset, timestamp, key, value, magic, 0)

    return run


def offset_map(form: ModuleType, random: Random) -> Callable[[], None]:
    """Return a function that fills a small table, also beyond what it can hold."""
    entry = form.ENTRY_SIZE
    offsets = form.OffsetMap(random.choice((entry - 1, 2 * entry, 3 * entry + 1, 50 * entry)), random.random())
    # Its own table ends within a page, all of which can be read.
    offsets._table = poisoned_buffer(bytes(offsets._table)).cast("Q")
    numbers = iter(range(sys.maxsize))

    def run() -> None:
        keys = [random.randbytes(random.randrange(3)) for _ in range(random.randrange(20))]
        offsets.put_all(keys, [next(numbers) for _ in keys], [])
        offsets.newest(keys)

    return run


def appends(random: Random) -> Callable[[], None]:
    """Return a function that validates and converts a batch with mutated records, or an old set, from a producer."""
    from protocol.records.batch import HEADER_SIZE, read_header
    from protocol.records.builder import assemble
    from protocol.records.compression import Compression
    from storage.batches.validation import AppendOrigin, AppendRules, prepare
    from tests.protocol.records.test_plain_messages import some_messages
    from tests.protocol.records.test_plain_records import TIME, make_batch
    from tests.support.forms import mutated

    content = make_batch(random, 4)
    header = read_header(content)
    old_set = some_messages(random, random.randrange(2))

    def run() -> None:
        rules = AppendRules(
            is_compacted=random.random() < 0.2,
            compression=random.choice((None, Compression.NONE, Compression.GZIP, Compression.LZ4)),
            is_log_append_time=random.random() < 0.2,
        )
        if random.random() < 0.3:
            sent = old_set if random.random() < 0.5 else mutated(old_set, random)
        else:
            sent = assemble(header, mutated(content[HEADER_SIZE:], random))
        prepare(poisoned_buffer(sent), rules, now_ms=TIME, origin=AppendOrigin.OLD_CLIENT)

    return run


def pieces(random: Random) -> Callable[[], None]:
    """Return a function that parses and renumbers mutated records that lie in several pieces."""
    from protocol.errors import Malformed
    from protocol.records.batch import HEADER_SIZE, Parts, parse_records, read_header
    from protocol.records.builder import renumbered
    from tests.protocol.records.test_plain_records import make_batch
    from tests.support.forms import mutated

    content = make_batch(random, 4)
    header = read_header(content)

    def run() -> None:
        plain = mutated(content[HEADER_SIZE:], random)
        size = random.randrange(1, len(plain) + 1)
        cut = [poisoned(plain[at : at + size]) for at in range(0, len(plain), size)]
        with suppress(Malformed):
            list(parse_records(cut, header, random.choice(list(Parts))))
            list(renumbered(cut, header.records_count))  # requires whole records

    return run


LOOPS: Mapping[str, Callable[[ModuleType, Random], Callable[[], None]]] = {
    "protocol.records.plain_records": records,
    "protocol.records.plain_messages": messages,
    "storage.cleaning.offset_map": offset_map,
}
"""What runs each compiled module over inputs that it draws; called anew for other bytes to mutate."""
CALLERS = (appends, pieces)
"""The same for what calls compiled modules, and decides at which positions they begin and end."""


def main(arguments: list[str]) -> int:
    files = {name: Path(file) for name, file in json.loads(Path(arguments[0]).read_text()).items()}
    if arguments[1] == READ_BEYOND:
        data = poisoned(bytes(range(1, 30)))
        print(_loaded(BYTE_AT, files[BYTE_AT]).byte_at(data, len(data)))
        return 0
    sys.meta_path.insert(0, compiled._Finder(files))
    forms = [(import_module(name), loop) for name, loop in LOOPS.items()]
    for form, _ in forms:
        assert not str(form.__file__).endswith(".py"), f"{form.__name__} is interpreted"
    seed, count = map(int, arguments[1:])
    random = Random(seed)
    runs: list[Callable[[], None]] = []
    for number in range(count):
        if number % (NEW_BYTES_AFTER * (len(forms) + len(CALLERS))) == 0:
            runs = [*(loop(form, random) for form, loop in forms), *(caller(random) for caller in CALLERS)]
        runs[number % len(runs)]()
    print(f"{count} inputs")
    return 0


def _loaded(name: str, file: Path) -> ModuleType:
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
