cimport cython

@cython.locals(
    end=Py_ssize_t, read_end=Py_ssize_t, size_max=Py_ssize_t, key_position=Py_ssize_t, messages=list,
    largest_size=Py_ssize_t, attributes=cython.int, lacks_timestamp=cython.bint,
    timestamp=cython.longlong, size=cython.longlong, message_end=Py_ssize_t, key_at=Py_ssize_t,
    key_size=cython.longlong, value_at=Py_ssize_t, value_size=cython.longlong,
)
cpdef tuple read_messages(
    bytes content, Py_ssize_t position, int magic, bint has_append_time, long long append_time
)

@cython.locals(high=cython.longlong, low=cython.longlong)
cdef inline long long _uint32(bytes data, Py_ssize_t at) noexcept

@cython.locals(value=cython.longlong)
cdef inline long long _int32(bytes data, Py_ssize_t at) noexcept

cdef inline long long _int64(bytes data, Py_ssize_t at) noexcept

@cython.locals(start=bytes, length=bytes, body=bytes)
cpdef object write_message(
    bytearray target, object offset, object timestamp, object key, object value, int magic, int attributes
)
