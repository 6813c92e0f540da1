"""Folders of files, on this machine and on servers: what is there, reading a file, and what becomes of it afterwards.

| folder | by |
|---|---|
| a path or `file://` URL | the operating system |
| `ftp://`, `ftps://` | ftplib; the server has MLSD |
| `sftp://` | paramiko, an optional package; the server's key is in `~/.ssh/known_hosts` |

Only files directly in the folder count: no folders, no links, no hidden files. A file of a server is read as a local
copy without a name.

Owns paths and connections. Must not know formats or records. A password is in no message.
"""

from __future__ import annotations

import ftplib
import importlib
import os
import shutil
import ssl
import stat
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import SplitResult, unquote, urlsplit

from spark_jobs.connect.base.definitions import HIDDEN, invalid
from spark_jobs.connect.base.errors import ConfigError, ConnectError

_TIMEOUT_S = 30
_CHUNK_BYTES = 64 << 10
_NO_FILE = "550"  # the code of FTP


@dataclass(frozen=True, slots=True)
class Found:
    """A file in a folder. `modified` is a time in the notation of the folder: it is compared, not computed with."""

    name: str
    size: int
    modified: str | int
    identity: str | int = ""
    """What tells it from another file of this name, size and time, if the folder knows: an inode, for example."""


class Folder(ABC):
    """One folder. Connections are opened when they are needed. OSError is what may succeed later."""

    url: str
    """The folder's name in partitions and messages, without user and password."""

    def path(self, name: str) -> str:
        return f"{self.url}/{name}"

    @abstractmethod
    def files(self) -> Iterable[Found]: ...

    @abstractmethod
    def find(self, name: str) -> Found | None:
        """Return the file that has this name now; None if there is none."""

    @abstractmethod
    def open(self, name: str) -> BinaryIO:
        """Raises FileNotFoundError if another program has removed it."""

    @abstractmethod
    def move(self, name: str, target: str) -> None:
        """Move a file into another folder; one of this name there remains, the moved one gets another name."""

    @abstractmethod
    def delete(self, name: str) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Close the connection; another call opens it again."""


class LocalFolder(Folder):
    def __init__(self, path: Path) -> None:
        self._path = path
        self.url = str(path)

    def files(self) -> Iterable[Found]:
        with os.scandir(self._path) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # removed since
                    if entry.is_file(follow_symlinks=False):
                        yield self._found(entry.name, entry.stat(follow_symlinks=False))

    def find(self, name: str) -> Found | None:
        try:
            state = (self._path / name).lstat()
        except FileNotFoundError:
            return None
        return self._found(name, state) if stat.S_ISREG(state.st_mode) else None

    def _found(self, name: str, state: os.stat_result) -> Found:
        return Found(name, state.st_size, state.st_mtime_ns // 1_000_000, state.st_ino)

    def open(self, name: str) -> BinaryIO:
        return os.fdopen(os.open(self._path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")

    def move(self, name: str, target: str) -> None:
        folder = Path(target)
        folder.mkdir(parents=True, exist_ok=True)
        free = next(each for each in _names(name) if not (folder / each).exists())
        shutil.move(self._path / name, folder / free)

    def delete(self, name: str) -> None:
        (self._path / name).unlink()

    def close(self) -> None: ...


class _RemoteFolder(Folder):
    """A folder of a server: `_client` connects."""

    def __init__(self, parts: SplitResult, user: str, password: str) -> None:
        port = f":{parts.port}" if parts.port else ""
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        self.url = f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"
        self._host = parts.hostname or ""
        self._port = parts.port
        self._folder = unquote(parts.path) or "/"
        self._user = user
        self._password = password

    def _remote(self, name: str, folder: str | None = None) -> str:
        return f"{(folder or self._folder).rstrip('/')}/{name}"


class FtpFolder(_RemoteFolder):
    def __init__(
        self,
        parts: SplitResult,
        user: str,
        password: str,
        new_client: Callable[[], ftplib.FTP],
    ) -> None:
        super().__init__(parts, user or "anonymous", password)
        self._new_client = new_client
        self._connected: ftplib.FTP | None = None

    @contextmanager
    def _client(self) -> Iterator[ftplib.FTP]:
        """Yield a client that is logged in. After any error the next call connects anew."""
        try:
            if self._connected is None:
                self._connected = self._new_client()
                self._connected.connect(self._host, self._port or ftplib.FTP_PORT, _TIMEOUT_S)
                self._connected.login(self._user, self._password)
                if isinstance(self._connected, ftplib.FTP_TLS):
                    self._connected.prot_p()
            yield self._connected
        except ftplib.error_perm as error:
            self.close()
            raise ConnectError(f"{self.url}: {error}") from error
        except (ftplib.Error, EOFError) as error:
            self.close()
            raise OSError(f"{self.url}: {str(error) or 'the connection was closed'}") from error
        except OSError:
            self.close()
            raise

    def files(self) -> Iterable[Found]:
        with self._client() as client:
            listed = list(client.mlsd(self._folder))
        for name, facts in listed:
            if "/" not in name and (found := self._found(name, facts)) is not None:
                yield found

    def find(self, name: str) -> Found | None:
        with self._client() as client:
            try:
                reply = client.sendcmd(f"MLST {self._remote(name)}")
            except ftplib.error_perm as error:
                if not str(error).startswith(_NO_FILE):
                    raise
                return None
        _, line, *_ = reply.splitlines()  # the facts stand between two lines with the code of the reply
        facts = (each.partition("=") for each in line.lstrip().partition(" ")[0].split(";"))
        return self._found(name, {fact.lower(): value for fact, _, value in facts})

    def _found(self, name: str, facts: Mapping[str, str]) -> Found | None:
        if facts.get("type") != "file":
            return None
        return Found(name, int(facts.get("size", -1)), facts.get("modify", ""), facts.get("unique", ""))

    def open(self, name: str) -> BinaryIO:
        with self._client() as client:
            return _copy(lambda copy: self._retrieve(client, name, copy))

    def _retrieve(self, client: ftplib.FTP, name: str, copy: BinaryIO) -> None:
        try:
            client.retrbinary(f"RETR {self._remote(name)}", copy.write, _CHUNK_BYTES)
        except ftplib.error_perm as error:
            if not str(error).startswith(_NO_FILE):
                raise
            raise FileNotFoundError(f"{self.path(name)}: {error}") from error

    def move(self, name: str, target: str) -> None:
        with self._client() as client:
            with suppress(ftplib.error_perm):  # it exists
                client.mkd(target)
            taken = {each for each, _ in client.mlsd(target)}
            free = next(each for each in _names(name) if each not in taken)
            client.rename(self._remote(name), self._remote(free, target))

    def delete(self, name: str) -> None:
        with self._client() as client:
            client.delete(self._remote(name))

    def close(self) -> None:
        if self._connected is not None:
            self._connected.close()
            self._connected = None


class SftpFolder(_RemoteFolder):
    def __init__(self, parts: SplitResult, user: str, password: str, paramiko: Any) -> None:
        super().__init__(parts, user, password)
        self._paramiko = paramiko
        self._ssh: Any = None
        self._connected: Any = None

    @contextmanager
    def _client(self) -> Iterator[Any]:
        try:
            if self._connected is None:
                self._ssh = self._paramiko.SSHClient()
                self._ssh.load_system_host_keys()
                self._ssh.set_missing_host_key_policy(self._paramiko.RejectPolicy())
                login = {"username": self._user or None, "password": self._password or None}
                self._ssh.connect(self._host, self._port or 22, timeout=_TIMEOUT_S, **login)
                self._connected = self._ssh.open_sftp()
            yield self._connected
        except self._paramiko.AuthenticationException as error:
            self.close()
            raise ConnectError(f"{self.url}: {error}") from error
        except (self._paramiko.SSHException, EOFError) as error:
            self.close()
            raise OSError(f"{self.url}: {str(error) or 'the connection was closed'}") from error
        except FileNotFoundError:
            raise
        except OSError:
            self.close()
            raise

    def files(self) -> Iterable[Found]:
        with self._client() as client:
            listed = client.listdir_attr(self._folder)
        for each in listed:
            if "/" not in each.filename and (found := self._found(each.filename, each)) is not None:
                yield found

    def find(self, name: str) -> Found | None:
        with self._client() as client:
            try:
                state = client.lstat(self._remote(name))
            except FileNotFoundError:
                return None
        return self._found(name, state)

    def _found(self, name: str, state: Any) -> Found | None:
        return Found(name, state.st_size, state.st_mtime) if stat.S_ISREG(state.st_mode) else None

    def open(self, name: str) -> BinaryIO:
        with self._client() as client:
            return _copy(lambda copy: client.getfo(self._remote(name), copy))

    def move(self, name: str, target: str) -> None:
        with self._client() as client:
            with suppress(OSError):  # it exists
                client.mkdir(target)
            taken = set(client.listdir(target))
            free = next(each for each in _names(name) if each not in taken)
            client.rename(self._remote(name), self._remote(free, target))

    def delete(self, name: str) -> None:
        with self._client() as client:
            client.remove(self._remote(name))

    def close(self) -> None:
        if self._ssh is not None:
            self._ssh.close()
        self._ssh = self._connected = None


def _copy(retrieve: Callable[[BinaryIO], object]) -> BinaryIO:
    """Return a local copy of what `retrieve` writes."""
    with ExitStack() as on_error:
        copy = on_error.enter_context(tempfile.TemporaryFile())
        retrieve(copy)
        copy.seek(0)
        on_error.pop_all()
    return copy


def _names(name: str) -> Iterator[str]:
    """Yield the names that a moved file may get: `a.csv`, `a.csv.1`, `a.csv.2` and so on."""
    yield name
    number = 1
    while True:
        yield f"{name}.{number}"
        number += 1


def open_folder(url: str, user: str, password: str) -> Folder:
    """Return the folder of the setting `folder`. Raises ConfigError."""
    parts = split_url(url)
    if parts.scheme in ("", "file"):
        return LocalFolder(Path(unquote(parts.path) if parts.scheme else url).absolute())
    return _REMOTE[parts.scheme](parts, user, password)


def split_url(url: str) -> SplitResult:
    """Return the parts of a folder's URL or path. Raises ConfigError if it is none, or has a user."""
    parts = urlsplit(url)
    if parts.scheme not in ("", "file", *_REMOTE):
        known = ", ".join(f"{scheme}://" for scheme in ("file", *_REMOTE))
        raise invalid("folder", f"{parts.scheme}://", f"Expected a path, or a URL with {known}")
    if "@" in parts.netloc:
        raise invalid("folder", HIDDEN, "Expected no user in the URL: set folder.user and folder.password")
    if parts.scheme in _REMOTE and not parts.hostname:
        raise invalid("folder", url, "Expected a host in the URL")
    return parts


def _ftp(parts: SplitResult, user: str, password: str) -> Folder:
    return FtpFolder(parts, user, password, ftplib.FTP)


def _ftps(parts: SplitResult, user: str, password: str) -> Folder:
    return FtpFolder(parts, user, password, lambda: ftplib.FTP_TLS(context=ssl.create_default_context()))


def _sftp(parts: SplitResult, user: str, password: str) -> Folder:
    try:
        paramiko = importlib.import_module("paramiko")
    except ImportError as error:
        raise ConfigError(
            f"folder is {parts.scheme}://...: this needs the package paramiko: pip install paramiko"
        ) from (error)
    return SftpFolder(parts, user, password, paramiko)


_REMOTE: Mapping[str, Callable[[SplitResult, str, str], Folder]] = {"ftp": _ftp, "ftps": _ftps, "sftp": _sftp}
