"""The command-line programs, one module each: parse flags, call, print.

`command_line` is their common front, `admin_client` the connection to a cluster. `bin/kafka-x` starts the module `x`,
whose `main()` returns the exit status.

A tool owns its options, its checks and its words; what is the same for all is in a module of its own. None of them
must know a running broker but over the protocol; files are read by the formats that `storage` and the coordinators own.
"""
