"""Asks the server of `warm_workers` for a process that runs a module, and waits for its end.

    python worker_request.py MODULE

Imports nothing that takes long: Spark starts this for each start of a query with state in Python.
"""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(os.environ["MILENA_WARM_WORKERS"])
    environment = {name: value for name, value in os.environ.items() if name.startswith("PYTHON_WORKER_")}
    request = json.dumps({"module": sys.argv[1], "environment": environment})
    socket.send_fds(connection, [request.encode()], [1, 2])
    connection.recv(1)
