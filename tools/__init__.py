"""The command-line programs, one module each: parse flags, call, print.

`base.command_line` is their shared command line, `client.admin_client` the connection to a cluster. `bin/kafka-x`
starts the module `x` of a room, whose `main()` returns the exit status.

A tool owns its options, its checks and its texts; shared code is in separate modules. A tool reaches a running broker
only over the protocol or by a signal, and reads files in the formats that `storage` and the coordinators own.
"""
