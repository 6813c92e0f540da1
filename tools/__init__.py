"""The command-line programs, one module each: parse options, call, print.

The modules are in rooms, whose order is in docs/architecture.md. The launcher `bin/<name>` names the room and the
module that it runs; the module's `main(arguments)` returns the exit status. `tools.base.command_line` is the command
line that all share, `tools.client.admin_client` the connection to a cluster.

A tool owns its options, its checks and its texts; shared code is in separate modules. A tool reaches a running broker
only over the protocol or by a signal, and reads files in the formats that `storage` and the coordinators own.
"""
