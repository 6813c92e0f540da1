"""The command-line programs, one module each: parse flags, call, print.

`command_line` is their common front, `admin_client` the connection to a cluster. `bin/kafka-x` starts the module `x`,
whose `main()` returns the exit status.
"""
