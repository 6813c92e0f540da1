"""A real ZooKeeper, from the jars that pyspark ships."""

from __future__ import annotations

import socket
import ssl
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Self

from kazoo.client import KazooClient

from tests.support.certificates import STORE_PASSWORD, Stores
from tests.support.class_archive import archive_options
from tests.support.ivy import CACHE
from tests.support.java import java_command, pyspark_jars
from tests.support.kerberos import REALM, KeyDistributionCenter
from tests.support.ports import free_ports
from tests.support.processes import ServerProcess

ASK_TIMEOUT_S = 2.0
JARS = ("zookeeper-", "slf4j-api-", "metrics-core-", "snappy-java-", "netty-")
"""How the names of the jars begin that a server needs. To look for classes in all of pyspark's, and to start a logging
library, takes as much processor time as the rest of a start: the servers of tests log nothing."""


def server_command(settings: Path, options: Sequence[str] = ()) -> list[str]:
    """Return a command line with options for a quick start and little memory."""
    return _command(settings, [*_archive_options(), *options])


@cache
def _archive_options() -> tuple[str, ...]:
    """Return the options for an archive of the classes that a server with a client has loaded."""

    def run(option: str) -> None:
        with (
            tempfile.TemporaryDirectory() as folder,
            ZooKeeperProcess(Path(folder), command=lambda settings: _command(settings, [option])) as server,
        ):
            client = KazooClient(server.connect)
            client.start()
            client.create("/node")
            client.stop()
            client.close()

    return tuple(archive_options("zookeeper", _jars(), CACHE / "archives", run))


@cache
def _secured_archive_options() -> tuple[str, ...]:
    """Return the same for a server with TLS, whose classes are others."""

    def run(option: str) -> None:
        with tempfile.TemporaryDirectory() as folder, SecuredZooKeeper(Path(folder), archive=(option,)):
            pass

    return tuple(archive_options("zookeeper-secured", _jars(), CACHE / "archives", run))


def _jars() -> list[Path]:
    return sorted(jar for jar in pyspark_jars().glob("*.jar") if jar.name.startswith(JARS))


def _command(settings: Path, options: Sequence[str]) -> list[str]:
    return java_command(
        _jars(),
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        [str(settings)],
        options=["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *options],
    )


class ZooKeeperProcess(ServerProcess):
    """One standalone server on 127.0.0.1 with all files below `folder`."""

    def __init__(self, folder: Path, *, command: Callable[[Path], Sequence[str]] = server_command) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        settings = folder / "zoo.cfg"
        super().__init__(
            "ZooKeeper",
            command(settings),
            folder / "zookeeper.log",
            _is_serving,
            settings=settings,
            properties=lambda port: _properties(folder / "data", port),
        )

    @property
    def connect(self) -> str:
        """The value of `zookeeper.connect`."""
        return self.bootstrap


class ZooKeeperEnsemble:
    """Three servers on 127.0.0.1 that elect a leader. A context manager that starts and kills all."""

    def __init__(self, folder: Path, size: int = 3) -> None:
        clients, quorum, elections = (free_ports(size) for _ in range(3))
        members = {f"server.{number}": f"127.0.0.1:{quorum[number]}:{elections[number]}" for number in range(size)}
        self.servers: list[ServerProcess] = []
        for number in range(size):
            own = folder / f"server-{number}"
            (own / "data").mkdir(parents=True)
            (own / "data" / "myid").write_text(f"{number}")
            settings = {**_properties(own / "data", clients[number]), **members, "initLimit": "20", "syncLimit": "10"}
            self.servers.append(
                ServerProcess(
                    f"ZooKeeper {number}",
                    server_command(own / "zoo.cfg"),
                    own / "zookeeper.log",
                    _is_serving,
                    settings=own / "zoo.cfg",
                    properties=lambda port, settings=settings: settings,  # type: ignore[misc]
                    port=clients[number],
                )
            )

    def __enter__(self) -> Self:
        self.start(*self.servers)
        return self

    def __exit__(self, *exception: object) -> None:
        for server in self.servers:
            server.kill()

    @property
    def connect(self) -> str:
        return ",".join(server.bootstrap for server in self.servers)

    def start(self, *servers: ServerProcess) -> None:
        """Start servers at the same time, and wait until they are members of a quorum."""
        for server in servers:
            server.spawn()
        for server in servers:
            server.wait_until_ready()

    @property
    def has_quorum(self) -> bool:
        """Whether any server serves."""
        for server in self.servers:
            with suppress(OSError):
                if _is_serving(server.port):
                    return True
        return False

    def leader(self) -> ServerProcess:
        """Return the server that leads; all must be running."""
        (found,) = (server for server in self.servers if b"Mode: leader" in _state(server.port))
        return found


def _is_serving(port: int) -> bool:
    return _state(port).startswith(b"Zookeeper version")


def _state(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), ASK_TIMEOUT_S) as connection:
        connection.sendall(b"srvr")  # a server that responds to `ruok` may still drop connections
        return connection.recv(4096)


def _properties(data: Path, port: int) -> Mapping[str, str]:
    return {
        "dataDir": str(data),
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "tickTime": "500",
        "minSessionTimeout": "1000",
        "maxSessionTimeout": "60000",
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "*",
    }


SASL_USER, SASL_PASSWORD = "kafka", 'kafka "secret"'


class SecuredZooKeeper(ServerProcess):
    """A server with one port, which has TLS and asks for a client certificate, and logins by DIGEST-MD5."""

    def __init__(self, folder: Path, *, with_tls: bool = True, archive: Sequence[str] | None = None) -> None:
        """`archive` are options of the JVM, by default those for the archive of such a server."""
        folder.mkdir(parents=True, exist_ok=True)
        self.stores = Stores(folder / "stores")
        self._with_tls = with_tls
        server = self.stores.pkcs12(self.stores.issue("zookeeper", "zookeeper"))
        jaas = folder / "server.jaas"
        escaped = SASL_PASSWORD.replace('"', '\\"')
        jaas.write_text(
            "Server { org.apache.zookeeper.server.auth.DigestLoginModule required\n"
            f'  user_{SASL_USER}="{escaped}"; }};\n'
        )
        settings = folder / "zoo.cfg"
        if archive is None:
            archive = _secured_archive_options() if with_tls else _archive_options()
        plain = "secureClientPort" if with_tls else "clientPort"

        def properties(port: int) -> Mapping[str, str]:
            own = dict(_properties(folder / "data", port))
            address = own.pop("clientPortAddress")
            del own["clientPort"]
            own |= {
                plain: str(port),
                f"{plain}Address": address,
                "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            }
            if with_tls:
                own |= {
                    "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                    "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
                    "ssl.keyStore.location": str(server),
                    "ssl.keyStore.password": STORE_PASSWORD,
                    "ssl.trustStore.location": str(self.stores.ca),
                    "ssl.trustStore.type": "PEM",
                    "ssl.clientAuth": "want",
                    "ssl.enabledProtocols": "TLSv1.2,TLSv1.3",  # by default 1.3 alone, Kafka's client has 1.2 alone
                }
            return own

        super().__init__(
            "ZooKeeper",
            _command(settings, [*archive, f"-Djava.security.auth.login.config={jaas}"]),
            folder / "zookeeper.log",
            self._serves,
            settings=settings,
            properties=properties,
        )

    @property
    def connect(self) -> str:
        """The value of `zookeeper.connect`."""
        return self.bootstrap

    @property
    def tls_settings(self) -> dict[str, str]:
        """The settings of a client that trusts the server."""
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.truststore.location": str(self.stores.ca),
        }

    @property
    def login(self) -> str:
        """A JAAS string with the login of the one user."""
        return digest_login(SASL_USER, SASL_PASSWORD)

    def _serves(self, port: int) -> bool:
        if not self._with_tls:
            return _is_serving(port)
        context = ssl.create_default_context(cafile=str(self.stores.ca))
        with (
            socket.create_connection(("127.0.0.1", port), ASK_TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            connection.sendall(b"srvr")
            return connection.recv(4096).startswith(b"Zookeeper version")


class KerberosZooKeeper(ServerProcess):
    """A server that accepts logins by Kerberos, as the principal `zookeeper/127.0.0.1`."""

    def __init__(self, folder: Path, center: KeyDistributionCenter) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        principal = f"zookeeper/127.0.0.1@{REALM}"
        jaas = folder / "server.jaas"
        jaas.write_text(
            "Server { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true\n"
            f'  isInitiator=false keyTab="{center.keytab("zookeeper", [principal])}" principal="{principal}"; }};\n'
        )
        settings = folder / "zoo.cfg"
        options = [f"-Djava.security.auth.login.config={jaas}", f"-Djava.security.krb5.conf={center.configuration}"]
        super().__init__(
            "ZooKeeper",
            server_command(settings, options),
            folder / "zookeeper.log",
            _is_serving,
            settings=settings,
            properties=lambda port: {
                **_properties(folder / "data", port),
                "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            },
        )

    @property
    def connect(self) -> str:
        """The value of `zookeeper.connect`."""
        return self.bootstrap


def digest_login(user: str, password: str) -> str:
    """Return the JAAS string of a login to ZooKeeper."""
    escaped = password.replace('"', '\\"')
    return f'org.apache.zookeeper.server.auth.DigestLoginModule required username="{user}" password="{escaped}";'
