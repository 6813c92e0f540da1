"""The client's side of SCRAM, against our server and against an independent one."""

import pytest
from scramp import ScramMechanism

from broker.network.sasl.clients import ScramClient, ServerNotTrusted
from broker.network.sasl.exchange import Login
from broker.network.sasl.scram import Digest
from tests.broker.network.sasl.test_scram import exchange


@pytest.mark.parametrize("digest", Digest)
@pytest.mark.parametrize("user", ["alice", "a,b=c"])
def test_client_logs_in_to_our_server(digest: Digest, user: str) -> None:
    server, client = exchange(digest, **{user: "pencil"}), ScramClient(digest, user, "pencil", "nonce")
    final = client.respond(server.evaluate(client.first()).token)
    assert final is not None
    last = server.evaluate(final)
    assert last.login == Login(user)
    assert client.respond(last.token) is None


@pytest.mark.parametrize("digest", Digest)
def test_client_logs_in_to_an_independent_server(digest: Digest) -> None:
    mechanism = ScramMechanism(digest.mechanism)
    salt, stored_key, server_key, iterations = mechanism.make_auth_info("pencil", iteration_count=4096)
    server = mechanism.make_server(lambda user: (salt, stored_key, server_key, iterations))
    client = ScramClient(digest, "alice", "pencil", "nonce")
    server.set_client_first(client.first().decode())
    final = client.respond(server.get_server_first().encode())
    assert final is not None
    server.set_client_final(final.decode())
    assert client.respond(server.get_server_final().encode()) is None


@pytest.mark.parametrize(
    "challenge",
    [b"", b"r=other,s=AAAA,i=4096", b"r=nonce,s=AAAA,i=4096", b"r=nonceX,s=AAAA,i=1", b"r=nonceX,s=AAAA", b"\xff"],
)
def test_server_with_an_invalid_challenge_is_not_trusted(challenge: bytes) -> None:
    with pytest.raises(ServerNotTrusted):
        ScramClient(Digest.SCRAM_SHA_256, "alice", "pencil", "nonce").respond(challenge)


def test_server_that_does_not_know_the_password_is_not_trusted() -> None:
    client = ScramClient(Digest.SCRAM_SHA_256, "alice", "pencil", "nonce")
    client.respond(b"r=nonceX,s=AAAA,i=4096")
    with pytest.raises(ServerNotTrusted, match="does not know"):
        client.respond(b"v=AAAA")
