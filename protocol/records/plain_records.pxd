cimport cython

ctypedef const unsigned char[::1] Bytes

@cython.locals(value=cython.ulonglong, byte=cython.ulonglong, shift=cython.int)
cpdef inline (long long, Py_ssize_t) varint(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, int bits
) noexcept

@cython.locals(
    size=cython.longlong, at=Py_ssize_t, record_end=Py_ssize_t, timestamp_delta=cython.longlong,
    timestamp_end=Py_ssize_t, offset_delta=cython.longlong, key_at=Py_ssize_t, key_size=cython.longlong,
    value_at=Py_ssize_t, value_size=cython.longlong, headers_at=Py_ssize_t, headers_count=cython.longlong,
    left=cython.longlong,
)
cdef inline (
    Py_ssize_t, long long, Py_ssize_t, long long, Py_ssize_t, long long, Py_ssize_t, long long, Py_ssize_t, long long
) record_at(const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long headers_max) noexcept

@cython.locals(size=cython.longlong, at=Py_ssize_t)
cpdef (Py_ssize_t, long long) pass_headers(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long count
) noexcept

@cython.locals(
    end=Py_ssize_t, at=Py_ssize_t, record_end=Py_ssize_t, size=cython.longlong, left=cython.longlong,
    headers_met=cython.longlong, offset_delta=cython.longlong, timestamp_delta=cython.longlong,
    size_min=cython.longlong, delta_max=cython.longlong,
)
cpdef (Py_ssize_t, Py_ssize_t, long long) pass_regular(
    const unsigned char[::1] data,
    Py_ssize_t position,
    Py_ssize_t number,
    Py_ssize_t count,
    long long headers_max,
    bint needs_keys,
) noexcept

@cython.locals(
    earliest=cython.longlong, latest=cython.longlong, delta=cython.longlong, size=cython.longlong,
    position=Py_ssize_t, end=Py_ssize_t, _=cython.longlong,
)
cpdef (long long, long long) timestamp_deltas(const unsigned char[::1] data, Py_ssize_t count) noexcept

@cython.locals(
    data=Bytes, end=Py_ssize_t, read_end=Py_ssize_t, lowest=cython.longlong, highest=cython.longlong,
    headers_met=cython.longlong, records=list, record_end=Py_ssize_t, timestamp=cython.longlong,
    timestamp_delta=cython.longlong, offset_delta=cython.longlong, key_at=Py_ssize_t, key_size=cython.longlong,
    value_at=Py_ssize_t, value_size=cython.longlong, headers_at=Py_ssize_t, headers_count=cython.longlong,
    _=cython.longlong,
)
cpdef tuple read_records(
    bytes content,
    Py_ssize_t position,
    Py_ssize_t count,
    long long headers_max,
    object base_offset,
    long long base_timestamp,
    bint is_append_time,
    bint has_fields,
    bint has_headers,
)

@cython.locals(size=cython.longlong, headers=list)
cdef list _headers(
    bytes content, const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long count
)

@cython.locals(
    data=Bytes, end=Py_ssize_t, any_number=cython.longlong, keys=list, tombstones=list, position=Py_ssize_t,
    number=Py_ssize_t, record_end=Py_ssize_t, key_at=Py_ssize_t, key_size=cython.longlong,
    value_size=cython.longlong, _=cython.longlong,
)
cpdef tuple read_keys(bytes content, Py_ssize_t count)

@cython.locals(rest=cython.ulonglong)
cpdef inline int write_varint(bytearray target, long long value) except -1

@cython.locals(rest=cython.ulonglong, size=cython.int)
cpdef inline int varint_size(long long value) noexcept

cpdef inline int write_field(bytearray target, object field) except -1

@cython.locals(body=bytearray)
cpdef object write_record(
    bytearray target, long long timestamp_delta, long long offset_delta, object key, object value, object headers
)

@cython.locals(target=bytearray)
cpdef bytes encode_records(object records, object base_offset, object base_timestamp)

@cython.locals(
    data=Bytes, end=Py_ssize_t, any_number=cython.longlong, size_max=Py_ssize_t, record_end=Py_ssize_t,
    timestamp_delta=cython.longlong, timestamp_end=Py_ssize_t, rest=Py_ssize_t, _=cython.longlong,
)
cpdef (Py_ssize_t, Py_ssize_t) renumber(
    bytes content, Py_ssize_t position, Py_ssize_t number, Py_ssize_t count, bytearray target
) except *

@cython.locals(
    data=Bytes, end=Py_ssize_t, any_number=cython.longlong, position=Py_ssize_t, kept=cython.uchar,
    record_end=Py_ssize_t, timestamp_delta=cython.longlong, _=cython.longlong,
)
cpdef long long first_timestamp_delta(bytes content, bytes is_kept) except? -1

@cython.locals(
    data=Bytes, end=Py_ssize_t, any_number=cython.longlong, lowest=cython.longlong, highest=cython.longlong,
    largest=cython.longlong, target=bytearray, position=Py_ssize_t, kept=cython.uchar, record_end=Py_ssize_t,
    timestamp_delta=cython.longlong, timestamp_end=Py_ssize_t, at=Py_ssize_t, _=cython.longlong,
)
cpdef tuple copy_kept(bytes content, bytes is_kept, long long base_delta)
