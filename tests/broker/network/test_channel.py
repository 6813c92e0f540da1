"""The state of a connection apart from its socket."""

from broker.network.channel import Authentication, Channel, Hold


def test_channel_is_released_with_its_last_hold() -> None:
    channel = Channel("127.0.0.1", 5, "A")
    channel.hold(Hold.THROTTLED)
    channel.hold(Hold.REQUEST_QUEUE)
    channel.hold(Hold.THROTTLED)
    assert not channel.release(Hold.THROTTLED)
    assert channel.release(Hold.REQUEST_QUEUE)
    assert channel.release(Hold.TURN_OVER)


def test_requests_are_sent_once_in_order() -> None:
    sent = []

    class Request:
        def __init__(self, name: str) -> None:
            self.name = name

        def sent(self, now_s: float, sending_since_s: float) -> None:
            sent.append((self.name, now_s, sending_since_s))

    channel = Channel("127.0.0.1", 5, "A")
    channel.completed += [Request("a"), Request("b")]
    channel.sent(2.0, 1.0)
    channel.sent(3.0, 3.0)
    assert sent == [("a", 2.0, 1.0), ("b", 2.0, 1.0)]


def test_a_client_of_a_listener_without_authentication_is_anonymous() -> None:
    channel = Channel("127.0.0.1", 5, "A")
    assert (channel.principal, channel.authentication) == ("User:ANONYMOUS", Authentication.COMPLETE)
    assert str(channel) == "127.0.0.1:5 on A"
