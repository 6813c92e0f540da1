"""Authentication of one connection by SASL: which message is due next, and what becomes of it.

Owns the states of KIP-43, KIP-152 and KIP-368, the lifetime of a login, and the texts of failures. Must not know
sockets, message classes or credentials. Pure: times are arguments, in milliseconds of a monotonic clock.

    HANDSHAKE  SaslHandshake names the mechanism       (ApiVersions is served as well)
        -> TOKENS after v1: each token arrives in SaslAuthenticate
        -> RAW_TOKENS after v0: each token is a frame of its own
    TOKENS, RAW_TOKENS -> COMPLETE, or FAILED, after which the connection closes
    COMPLETE -> HANDSHAKE again, if the login has a lifetime
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum, auto

from base.dataclass import dataclass
from base.pause import InThread
from broker.network.sasl.exchange import AuthenticationFailed, Exchange, InvalidCredentials, Login, Step

REAUTHENTICATION_INTERVAL_MS_MIN = 1000


Evaluation = Callable[[], Step | AuthenticationFailed]
"""Evaluates one token and returns the outcome."""


class Stage(Enum):
    """What is due next."""

    HANDSHAKE = auto()
    TOKENS = auto()
    RAW_TOKENS = auto()
    COMPLETE = auto()
    FAILED = auto()


@dataclass(slots=True)
class AuthenticationCounts:
    """Totals of one listener."""

    successes: int = 0
    failures: int = 0
    reauthentications: int = 0
    failed_reauthentications: int = 0
    expired_connections: int = 0
    """Connections closed because their login had expired."""


@dataclass(frozen=True, slots=True)
class SaslMechanism:
    """A mechanism as one listener offers it."""

    new_exchange: Callable[[], Exchange]
    session_ms_max: int = 0
    """`connections.max.reauth.ms`; 0: logins have no lifetime of their own."""
    in_thread: InThread | None = None
    """Runs evaluations in a thread, because they read files; None: they only compute."""


@dataclass(slots=True)
class SaslListener:
    """What all sessions of one listener share. `mechanisms` may be replaced; sessions keep what they began with."""

    mechanisms: Mapping[str, SaslMechanism]
    """By name, in the configured order."""
    receive_size_max: int
    """Longest frame, in bytes, of a client that has not authenticated itself."""
    failure_delay_ms: int
    """How long the response to a failed authentication is held back."""
    counts: AuthenticationCounts = field(default_factory=AuthenticationCounts)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one token."""

    step: Step | None
    """None if the authentication has failed."""
    error: str = ""
    """The text for the client if the authentication has failed."""
    lifetime_ms: int = 0
    """How long a completed login is valid; 0: it does not expire."""


class WrongState(Exception):  # noqa: N818 - the name states the condition
    """The message is not due now (ILLEGAL_SASL_STATE); the session has failed."""


class SaslSession:
    """The authentication of one connection."""

    __slots__ = (
        "_exchange",
        "_has_wrong_mechanism",
        "_listener",
        "_login",
        "_mechanism_name",
        "_session_ms_max",
        "_since_ms",
        "expires_ms",
        "failure",
        "in_thread",
        "stage",
    )

    def __init__(self, listener: SaslListener) -> None:
        self._listener = listener
        self._exchange: Exchange | None = None
        self._mechanism_name = ""
        self._session_ms_max = 0
        self._login: Login | None = None
        self._has_wrong_mechanism: str | None = None
        self._since_ms = 0
        self.stage = Stage.HANDSHAKE
        self.expires_ms: int | None = None
        """When a completed login ends (monotonic); None: it does not."""
        self.in_thread: InThread | None = None
        """Runs `evaluation` of the chosen mechanism in a thread; None: that is not necessary."""
        self.failure = ""
        """Why the authentication has failed, for the log."""

    @property
    def login(self) -> Login | None:
        """The present login; None before the first."""
        return self._login

    @property
    def mechanism(self) -> str:
        return self._mechanism_name

    @property
    def failure_delay_ms(self) -> int:
        return self._listener.failure_delay_ms

    @property
    def offered(self) -> list[str]:
        """The mechanisms of the listener."""
        return list(self._listener.mechanisms)

    def choose(self, mechanism: str, *, is_raw: bool) -> bool:
        """Begin with a mechanism; `is_raw`: the tokens follow as bare frames. Returns False if it is not offered.

        Raises WrongState.
        """
        self._expect(Stage.HANDSHAKE, "SaslHandshake")
        chosen = self._listener.mechanisms.get(mechanism)
        if chosen is None:
            self._fail(f"Unsupported SASL mechanism {mechanism!r}")
            return False
        if self._login is not None and mechanism != self._mechanism_name:
            self._has_wrong_mechanism = mechanism
        else:
            self._exchange = chosen.new_exchange()
            self._mechanism_name = mechanism
            self._session_ms_max = chosen.session_ms_max
            self.in_thread = chosen.in_thread
        self.stage = Stage.RAW_TOKENS if is_raw else Stage.TOKENS
        return True

    def authenticate(self, token: bytes, now_ms: int, wall_ms: int, *, is_raw: bool) -> Verdict:
        """Evaluate a token of the client; `wall_ms` is the time since the epoch. Raises WrongState."""
        return self.conclude(self.evaluation(token, is_raw=is_raw)(), now_ms, wall_ms)

    def evaluation(self, token: bytes, *, is_raw: bool) -> Evaluation:
        """Return the work of evaluating a token of the client, for `conclude`. Raises WrongState.

        The work uses nothing but the exchange, so a thread may run it while the connection serves no other request.
        """
        self._expect(Stage.RAW_TOKENS if is_raw else Stage.TOKENS, "SaslAuthenticate")
        exchange, wrong_mechanism = self._exchange, self._has_wrong_mechanism

        def evaluate() -> Step | AuthenticationFailed:
            if wrong_mechanism is not None:
                return AuthenticationFailed(
                    f"SASL mechanism '{wrong_mechanism}' requested by client is not supported for "
                    f"re-authentication of mechanism '{self._mechanism_name}'"
                )
            assert exchange is not None, "tokens follow a handshake"
            try:
                return exchange.evaluate(token)
            except AuthenticationFailed as error:
                return error

        return evaluate

    def conclude(self, outcome: Step | AuthenticationFailed, now_ms: int, wall_ms: int) -> Verdict:
        """Apply the outcome of an evaluation; `wall_ms` is the time since the epoch."""
        before = self._login
        if isinstance(outcome, Step) and outcome.login is not None and before is not None:
            user = outcome.login.user
            if user != before.user:
                outcome = AuthenticationFailed(
                    f"Cannot change principals during re-authentication from User.{before.user}: User.{user}"
                )
        match outcome:
            case InvalidCredentials():
                again = "re-authentication" if before is not None else "authentication"
                self._fail(f"{self._mechanism_name}: {outcome}")
                text = f"Authentication failed during {again} due to invalid credentials with SASL mechanism "
                return Verdict(None, text + self._mechanism_name)
            case AuthenticationFailed():
                self._fail(str(outcome))
                return Verdict(None, str(outcome))
        if outcome.login is None:
            return Verdict(outcome)
        return Verdict(outcome, lifetime_ms=self._complete(outcome.login, now_ms, wall_ms))

    def begin_again(self, now_ms: int) -> bool:
        """Start a re-authentication (KIP-368). Returns False, and changes nothing, if it is not allowed now."""
        if self.expires_ms is None or now_ms - self._since_ms < REAUTHENTICATION_INTERVAL_MS_MIN:
            return False
        self._since_ms = now_ms
        self.stage = Stage.HANDSHAKE
        return True

    def is_expired(self, now_ms: int) -> bool:
        """Return whether the login has ended. The first call that returns True counts it."""
        if self.expires_ms is None or now_ms < self.expires_ms:
            return False
        self._listener.counts.expired_connections += 1
        return True

    def _complete(self, login: Login, now_ms: int, wall_ms: int) -> int:
        counts = self._listener.counts
        if self._login is None:
            counts.successes += 1
            self._since_ms = now_ms
        else:
            counts.reauthentications += 1
        self._login = login
        self._exchange = None
        self.stage = Stage.COMPLETE
        limits = [self._session_ms_max] if self._session_ms_max else []
        if login.expires_ms is not None:
            limits.append(max(login.expires_ms - wall_ms, 0))
        self.expires_ms = now_ms + min(limits) if limits else None
        return min(limits, default=0)

    def _expect(self, stage: Stage, message: str) -> None:
        if self.stage is not stage:
            before = self.stage.name
            self._fail(f"{message} while {before} is due")
            raise WrongState(f"{message} while {before} is due")

    def _fail(self, reason: str) -> None:
        counts = self._listener.counts
        if self._login is None:
            counts.failures += 1
        else:
            counts.failed_reauthentications += 1
        self.stage = Stage.FAILED
        self._exchange = None
        self.failure = reason
