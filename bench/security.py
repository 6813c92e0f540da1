"""What encryption, permissions and quotas cost, beside Apache Kafka in one run: `python -m bench.security`.

Milena and Kafka alternate. TLS 1.3 with one connection that keeps four requests in flight: MB/s and CPU seconds of the
broker per GB. Full handshakes, one after another, without resumption. One-record Produce, one in flight, with 10,000
ACLs and with quotas that are not reached, as a ratio to a broker with neither. Owns the clients and the table. The
client is the same for both servers; its own work on TLS limits MB/s.
"""

from __future__ import annotations

import argparse
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from bench.frames import FetchFrame, batch_of_one, batch_of_size, produce_frame
from bench.names import KAFKA, MILENA
from bench.processes import cpu_seconds
from bench.servers import Server, contenders
from bench.subject import now_ms
from protocol.frame import LENGTH
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from tests.interop.conftest import create_topic
from tests.support.certificates import STORE_PASSWORD, Stores
from tests.support.processes import listening_ports
from tests.support.wire_client import WireClient

PIECES = {"16 KB": 16 << 10, "1 MB": (1 << 20) - 20_000}
IN_FLIGHT = 4
GB = 1e9
ACLS_PER_RESOURCE, RESOURCES = 20, 500
AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
ONE_RECORD, NEITHER = "one record, ", "neither"
PLAIN_CASE = ONE_RECORD + NEITHER
Figures = dict[str, float]
Found = dict[tuple[str, str, str], list[float]]
"""Values by case, measure and server."""


class Connection:
    """One connection of the client, with TLS 1.3 or without."""

    def __init__(self, port: int, tls: ssl.SSLContext | None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self._buffer = bytearray(4 << 20)

    def receive(self) -> memoryview:
        """Return the next response, with its length in front."""
        view = memoryview(self._buffer)
        filled = 0
        while filled < LENGTH.size:
            filled += self._more(view[filled : LENGTH.size])
        end = LENGTH.size + LENGTH.unpack_from(view)[0]
        while filled < end:
            filled += self._more(view[filled:end])
        return view[:end]

    def _more(self, view: memoryview) -> int:
        count = self.socket.recv_into(view)
        if not count:
            raise ConnectionError("the broker closed the connection")
        return count


def repeated(connection: Connection, frame: bytes, seconds: float, in_flight: int) -> tuple[int, float, int]:
    """Send the frame again and again; return the number of responses, the time, and the size of a response."""
    for _ in range(in_flight):
        connection.socket.sendall(frame)
    begin = time.perf_counter()
    count = size = 0
    while time.perf_counter() - begin < seconds:
        size = len(connection.receive())
        count += 1
        connection.socket.sendall(frame)
    elapsed = time.perf_counter() - begin
    for _ in range(in_flight):
        connection.receive()
    return count, elapsed, size


def moved(
    server: Server, connection: Connection, frame: bytes, piece: int, seconds: float, *, response_size_min: int = 0
) -> Figures:
    before = cpu_seconds(server.pid)
    count, elapsed, size = repeated(connection, frame, seconds, IN_FLIGHT)
    used = cpu_seconds(server.pid) - before
    assert size >= response_size_min, f"a response has {size} bytes"
    byte_count = (count + IN_FLIGHT) * piece
    return {"MB/s": count * piece / elapsed / 1e6, "CPU s/GB": used * GB / byte_count}


def handshakes(server: Server, port: int, trust: Path, seconds: float) -> Figures:
    before, begin, count = cpu_seconds(server.pid), time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        Connection(port, client_context(trust)).socket.close()  # a new context has no session to resume
        count += 1
    elapsed = time.perf_counter() - begin
    return {"handshakes/s": count / elapsed, "CPU ms each": (cpu_seconds(server.pid) - before) * 1000 / count}


def client_context(trust: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(trust))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def tls_settings(stores: Stores, folder: Path) -> dict[str, str]:
    """Return settings of a plaintext listener and two with TLS, which differ in the kind of their keys."""
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,ECDSA://127.0.0.1:0,RSA://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ECDSA:SSL,RSA:SSL",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": STORE_PASSWORD,
    }
    for name, kind in (("ecdsa", trustme.KeyType.ECDSA), ("rsa", trustme.KeyType.RSA)):
        issued = stores.authority.issue_cert("localhost", "127.0.0.1", key_type=kind)
        pem = folder / f"{name}.pem"
        pem.write_bytes(issued.private_key_and_cert_chain_pem.bytes())
        settings[f"listener.name.{name}.ssl.keystore.location"] = str(stores.pkcs12(pem))
    return settings


def ports_of(server: Server) -> dict[str, int]:
    """Return the ports of both TLS listeners by their kind of key."""
    ports = {}
    for port in listening_ports(server.pid):
        if port != server.port:
            pem = ssl.get_server_certificate(("127.0.0.1", port), timeout=10)
            key = x509.load_pem_x509_certificate(pem.encode()).public_key()
            ports["ECDSA" if isinstance(key, EllipticCurvePublicKey) else "RSA"] = port
    return ports


@contextmanager
def running(name: str, folder: Path, settings: Mapping[str, str]) -> Iterator[Server]:
    with contenders([name], folder) as (player,), ExitStack() as undo:
        server = player.new_server(settings)
        undo.callback(server.stop)
        server.spawn()
        server.wait_until_ready()
        create_topic(f"127.0.0.1:{server.port}", "bench")
        yield server


def filled(port: int, piece: int, name: str) -> None:
    create_topic(f"127.0.0.1:{port}", name)
    connection = Connection(port, None)
    frame = bytes(produce_frame(name, 0, batch_of_size(piece, 1000, now_ms()), 1))
    for _ in range(2):
        connection.socket.sendall(frame)
        connection.receive()


def measure_tls(server: Server, trust: Path, seconds: float, record: Callable[[str, Figures], None]) -> None:
    ports = ports_of(server)
    for title, piece in PIECES.items():
        connection = Connection(ports["ECDSA"], client_context(trust))
        frame = bytes(produce_frame("bench", 0, batch_of_size(piece, 1000, now_ms()), 1))
        record(f"TLS produce {title}", moved(server, connection, frame, piece, seconds))
        fetch = FetchFrame(f"filled-{piece}", 0, piece)
        fetch.move_to(0)
        record(
            f"TLS fetch {title}", moved(server, connection, bytes(fetch.data), piece, seconds, response_size_min=piece)
        )
    for kind in ("ECDSA", "RSA"):
        record(f"handshakes {kind}", handshakes(server, ports[kind], trust, seconds))


def one_record(server: Server, seconds: float) -> Figures:
    frame = bytes(produce_frame("bench", 0, batch_of_one(100, now_ms()), 1))
    connection = Connection(server.port, None)
    repeated(connection, frame, 0.3, 1)
    before = cpu_seconds(server.pid)
    count, elapsed, _ = repeated(connection, frame, seconds, 1)
    return {"CPU us": (cpu_seconds(server.pid) - before) * 1e6 / (count + 1), "requests/s": count / elapsed}


def add_acls(server: Server) -> None:
    """Add 10,000 ACLs of topics, none of them for the cluster, one of which allows the client."""
    with WireClient(server.port) as client:
        for first in range(0, RESOURCES, 25):
            creations = [
                acl(f"other-{number}" if number % 2 else f"prefix-{number}", 3 if number % 2 else 4, f"User:u{user}")
                for number in range(first, first + 25)
                for user in range(ACLS_PER_RESOURCE)
            ]
            response = client.ask(CreateAclsRequest(creations=creations), 3)
            assert not any(result.error_code for result in response.results), response.results[0]
        client.ask(CreateAclsRequest(creations=[acl("bench", 3, "User:ANONYMOUS")]), 3)


def acl(name: str, pattern: int, principal: str) -> AclCreation:
    return AclCreation(
        resource_type=2,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host="*",
        operation=2,
        permission_type=3,
    )


def add_quotas(server: Server) -> None:
    keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
    entry = EntryData(
        entity=[EntityData(entity_type="user", entity_name=None)],
        ops=[OpData(key=key, value=1e12 if "byte" in key else 1e6, remove=False) for key in keys],
    )
    with WireClient(server.port) as client:
        response = client.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
        assert not any(result.error_code for result in response.entries), response.entries


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.security", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="time of each measurement")
    parser.add_argument("--part", choices=PARTS, action="append", help="both without it")
    options = parser.parse_args()
    found: Found = {}
    for part in options.part or PARTS:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
            PARTS[part](found, Path(folder), servers, options.rounds, options.seconds)
    _print_table(found)
    return 0


def compare_tls(found: Found, folder: Path, servers: ExitStack, rounds: int, seconds: float) -> None:
    stores = Stores(folder / "stores")
    settings = tls_settings(stores, folder)
    started = {name: servers.enter_context(running(name, folder / name, settings)) for name in (MILENA, KAFKA)}
    for server in started.values():
        for piece in PIECES.values():
            filled(server.port, piece, f"filled-{piece}")
        measure_tls(server, stores.ca, 1.0, lambda case, figures: None)  # warms up the JVM
    for number in range(rounds):
        for name in (MILENA, KAFKA) if number % 2 else (KAFKA, MILENA):
            measure_tls(started[name], stores.ca, seconds, recorder(found, name))


def compare_checks(found: Found, folder: Path, servers: ExitStack, rounds: int, seconds: float) -> None:
    variants: dict[str, Server] = {}
    for title, extra in ((NEITHER, {}), ("10,000 ACLs", AUTHORIZER), ("quotas", {})):
        variants[title] = servers.enter_context(running(MILENA, folder / title.replace(",", ""), extra))
    add_acls(variants["10,000 ACLs"])
    add_quotas(variants["quotas"])
    for number in range(rounds * 3):
        titles = list(variants)
        for title in titles if number % 2 else reversed(titles):
            recorder(found, MILENA)(f"{ONE_RECORD}{title}", one_record(variants[title], seconds / 2))


def recorder(found: Found, server: str) -> Callable[[str, Figures], None]:
    def record(case: str, figures: Figures) -> None:
        for measure, value in figures.items():
            found.setdefault((case, measure, server), []).append(value)

    return record


PARTS = {"tls": compare_tls, "checks": compare_checks}


def _print_table(found: Mapping[tuple[str, str, str], list[float]]) -> None:
    """Print medians, and ratios to Kafka; those of ACLs and quotas are ratios to a broker with neither."""
    print("| case | measure | Milena | Kafka | ratio |\n|---|---|---|---|---|")
    for case, measure in dict.fromkeys((case, measure) for case, measure, _ in found):
        ours, theirs = (found.get((case, measure, name), []) for name in (MILENA, KAFKA))
        base = theirs or found[PLAIN_CASE, measure, MILENA]
        ratio = f"{statistics.median(ours) / statistics.median(base):.2f} x"
        print(f"| {case} | {measure} | {_spread(ours)} | {_spread(theirs)} | {ratio} |")


def _spread(values: list[float]) -> str:
    """Return the median, and the smallest and largest value."""
    if not values:
        return ""
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


if __name__ == "__main__":
    sys.exit(main())
