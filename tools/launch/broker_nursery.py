"""Starts the brokers of a test process: has everything imported that a broker needs, and forks one on request.

So only the first broker of a test run pays for the imports, a later one starts in less than a tenth of a second. This
process has one thread and no event loop, therefore a fork is safe. It ends when the test process closes its socket.

Owns the fork. Must not know what a broker does (`tools.launch.broker_host`).
"""

import gc
import os
import signal
import socket
import sys
from collections.abc import Sequence

from milena_broker.testing.nursery import CLUSTER

MESSAGE_SIZE_MAX = 64 << 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the parent process, which passes the number of an inherited socket; return when it has closed it."""
    (descriptor,) = sys.argv[1:] if arguments is None else arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the tests, and they stop their brokers
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel forgets brokers that have ended
    gc.disable()
    from tools.launch import broker_host

    broker_host.preload()
    gc.freeze()  # shared with the children, as long as no collection writes into it
    requests = socket.socket(fileno=int(descriptor))
    while True:
        # A request is a byte and the path of the log file, with the socket of the new broker.
        request, descriptors, _, _ = socket.recv_fds(requests, MESSAGE_SIZE_MAX, 1)
        if not descriptors:
            return 0
        if request[:1] == CLUSTER:
            broker_host.preload_cluster()
            gc.freeze()
        pid = os.fork()
        if pid == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _log_to(request[1:])
            return broker_host.main([str(descriptors[0])])
        os.close(descriptors[0])
        requests.sendall(b"%d\n" % pid)


def _log_to(path: bytes) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for standard in (1, 2):
        os.dup2(log, standard)
    os.close(log)


if __name__ == "__main__":
    raise SystemExit(main())
