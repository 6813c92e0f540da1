"""What a shell runs in place of `python -P -m MODULE ARGUMENT...`: `typed_program.py SOCKET MODULE ARGUMENT...`.

Asks the tests (`tests/support/typed_programs.py`) to fork the program with the streams, variables and folder of this
process, waits for its end, and ends in the same way. It imports nothing that takes time.
"""

import _socket
import marshal
import os
import sys

connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
connection.connect(sys.argv[1])
request = marshal.dumps((sys.argv[2], sys.argv[3:], dict(os.environ), os.getcwd()))
streams = b"".join(stream.to_bytes(4, sys.byteorder) for stream in range(3))
connection.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
status = int(connection.recv(32))
if status < 0:
    os.kill(os.getpid(), -status)
os._exit(status)
