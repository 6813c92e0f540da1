"""An FTP server with one user, for tests: the commands that ftplib needs for a folder of files."""

import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

USER, PASSWORD = "me", "hidden-word"


class FtpServer:
    """Serves the files below `root`; `refuses` are commands that fail with 451."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.refuses: set[str] = set()
        self.logins = 0
        server = self

        class Handler(_Session):
            ftp = server

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.url = f"ftp://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Session(socketserver.StreamRequestHandler):
    """One client."""

    ftp: FtpServer

    def handle(self) -> None:
        self._user, self._from = "", Path()
        self._data: socket.socket | None = None
        self._say("220 ready")
        commands: Mapping[str, Callable[[str], str]] = {
            "USER": self._set_user,
            "PASS": self._log_in,
            "TYPE": lambda _: "200 ok",
            "EPSV": self._listen,
            "PASV": self._listen,
            "MLSD": self._list,
            "MLST": self._describe,
            "RETR": self._retrieve,
            "MKD": self._make_folder,
            "RNFR": self._rename_from,
            "RNTO": self._rename_to,
            "DELE": self._delete,
        }
        while line := self.rfile.readline().decode().strip():
            name, _, argument = line.partition(" ")
            if name in self.ftp.refuses:
                self._close_data()
                self._say("451 not now")
                continue
            try:
                self._say(commands[name](argument) if name in commands else "502 what?")
            except OSError as error:
                self._say(f"550 {error.strerror}")

    def _say(self, reply: str) -> None:
        self.wfile.write(f"{reply}\r\n".encode())

    def _close_data(self) -> None:
        if self._data is not None:
            self._data.close()

    def _path(self, name: str) -> Path:
        return self.ftp.root / name.strip("/")

    def _set_user(self, name: str) -> str:
        self._user = name
        return "331 the password?"

    def _log_in(self, password: str) -> str:
        self.ftp.logins += 1
        return "230 welcome" if (self._user, password) == (USER, PASSWORD) else "530 no"

    def _listen(self, _argument: str) -> str:
        self._data = socket.create_server(("127.0.0.1", 0))
        port = self._data.getsockname()[1]
        return f"227 (127,0,0,1,{port >> 8},{port & 255})"

    def _transfer(self, content: bytes) -> str:
        assert self._data is not None
        self._say("150 now")
        with self._data, self._data.accept()[0] as connection:
            connection.sendall(content)
        return "226 done"

    def _list(self, folder: str) -> str:
        return self._transfer("".join(map(self._facts, self._path(folder).iterdir())).encode())

    def _describe(self, name: str) -> str:
        return f"250-the facts\r\n {self._facts(self._path(name))}250 done"

    def _facts(self, path: Path) -> str:
        state = path.stat()
        kind = "file" if path.is_file() else "dir"
        return f"type={kind};size={state.st_size};modify={int(state.st_mtime)}; {path.name}\r\n"

    def _retrieve(self, name: str) -> str:
        return self._transfer(self._path(name).read_bytes())

    def _make_folder(self, name: str) -> str:
        self._path(name).mkdir()
        return f'257 "{name}"'

    def _rename_from(self, name: str) -> str:
        self._from = self._path(name)
        return "350 and to?"

    def _rename_to(self, name: str) -> str:
        self._from.rename(self._path(name))
        return "250 done"

    def _delete(self, name: str) -> str:
        self._path(name).unlink()
        return "250 done"
