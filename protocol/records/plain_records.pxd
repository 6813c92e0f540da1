cimport cython

@cython.locals(value=cython.ulonglong, byte=cython.ulonglong, shift=cython.int)
cdef inline (long long, Py_ssize_t) varint(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, int bits
) noexcept

@cython.locals(
    end=Py_ssize_t, at=Py_ssize_t, record_end=Py_ssize_t, size=cython.longlong, headers=cython.longlong,
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

@cython.locals(size=cython.longlong, _=cython.longlong)
cdef Py_ssize_t _headers_end(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, long long count
) noexcept

@cython.locals(
    earliest=cython.longlong, latest=cython.longlong, delta=cython.longlong, size=cython.longlong,
    position=Py_ssize_t, end=Py_ssize_t, _=cython.longlong,
)
cpdef (long long, long long) timestamp_deltas(const unsigned char[::1] data, Py_ssize_t count) noexcept
