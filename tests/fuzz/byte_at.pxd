cpdef int byte_at(const unsigned char[::1] data, Py_ssize_t at) noexcept
