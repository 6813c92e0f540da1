"""A real ZooKeeper, from the jars that pyspark ships."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.certificates import STORE_PASSWORD, Stores
from tests.support.java import java_command, pyspark_jars
from tests.support.kerberos import REALM, KeyDistributionCenter
from tests.support.processes import ServerProcess

ASK_TIMEOUT_S = 2.0


def server_command(settings: Path, options: Sequence[str] = ()) -> list[str]:
    """Return a command line with options for a quick start and little memory."""
    return java_command(
        [pyspark_jars() / "*"],
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


def _is_serving(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), ASK_TIMEOUT_S) as connection:
        connection.sendall(b"srvr")  # a server that responds to `ruok` may still drop connections
        return connection.recv(4096).startswith(b"Zookeeper version")


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

    def __init__(self, folder: Path, *, with_tls: bool = True) -> None:
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
            server_command(settings, [f"-Djava.security.auth.login.config={jaas}"]),
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
