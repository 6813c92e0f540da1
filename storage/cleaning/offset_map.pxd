cimport cython

@cython.locals(
    stored=Py_ssize_t, added=Py_ssize_t, probes=Py_ssize_t, end=Py_ssize_t, low=cython.ulonglong,
    high=cython.ulonglong, position=Py_ssize_t, passed=Py_ssize_t,
)
cdef (Py_ssize_t, Py_ssize_t, Py_ssize_t) _put(
    unsigned long long[::1] table,
    const unsigned long long[::1] digests,
    object numbers,
    Py_ssize_t room,
    list superseded,
) except *

@cython.locals(
    numbers=list, probes=Py_ssize_t, at=Py_ssize_t, position=Py_ssize_t, passed=Py_ssize_t, number=cython.ulonglong,
)
cdef tuple _newest(unsigned long long[::1] table, const unsigned long long[::1] digests)

@cython.locals(size=Py_ssize_t, position=Py_ssize_t, probes=Py_ssize_t)
cdef inline (Py_ssize_t, Py_ssize_t) _find(
    unsigned long long[::1] table, unsigned long long low, unsigned long long high
) noexcept
