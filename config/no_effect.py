"""Log lines about settings that are accepted but have no effect.

The tables name these settings and the reason (`Property.no_effect`); a key may also have no effect because of its
prefix. Each line names the setting and the reason.

Owns the wording, and the limit of the number of lines. Must not know layers, or when the lines are logged.
"""

from collections.abc import Iterable, Iterator, Mapping

from config import broker_properties as broker
from config import topic_properties as topic
from config.definition import NoEffect, Property
from config.versions import is_at_least

LINES_MAX = 40
"""The number of settings with a line of their own; further settings share one line per reason."""

PER_LISTENER: frozenset[Property[object]] = frozenset(
    (
        broker.MAX_CONNECTIONS,
        broker.MAX_CONNECTION_CREATION_RATE,
        broker.CONNECTIONS_MAX_REAUTH_MS,
        broker.PRINCIPAL_BUILDER_CLASS,
        broker.SASL_CLIENT_CALLBACK_HANDLER_CLASS,
        broker.SASL_ENABLED_MECHANISMS,
        broker.SASL_JAAS_CONFIG,
        broker.SASL_MECHANISM_INTER_BROKER_PROTOCOL,
        broker.SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS,
        broker.SASL_OAUTHBEARER_EXPECTED_AUDIENCE,
        broker.SASL_OAUTHBEARER_EXPECTED_ISSUER,
        broker.SASL_OAUTHBEARER_JWKS_ENDPOINT_URL,
        broker.SASL_OAUTHBEARER_SCOPE_CLAIM_NAME,
        broker.SASL_OAUTHBEARER_SUB_CLAIM_NAME,
        broker.SASL_SERVER_CALLBACK_HANDLER_CLASS,
        broker.SASL_SERVER_MAX_RECEIVE_SIZE,
        broker.SASL_KERBEROS_MIN_TIME_BEFORE_RELOGIN,
        broker.SASL_KERBEROS_PRINCIPAL_TO_LOCAL_RULES,
        broker.SASL_KERBEROS_SERVICE_NAME,
        broker.SASL_KERBEROS_TICKET_RENEW_JITTER,
        broker.SASL_KERBEROS_TICKET_RENEW_WINDOW_FACTOR,
        broker.SASL_LOGIN_CALLBACK_HANDLER_CLASS,
        broker.SASL_LOGIN_CONNECT_TIMEOUT_MS,
        broker.SASL_LOGIN_READ_TIMEOUT_MS,
        broker.SASL_LOGIN_REFRESH_BUFFER_SECONDS,
        broker.SASL_LOGIN_REFRESH_MIN_PERIOD_SECONDS,
        broker.SASL_LOGIN_REFRESH_WINDOW_FACTOR,
        broker.SASL_LOGIN_REFRESH_WINDOW_JITTER,
        broker.SASL_LOGIN_RETRY_BACKOFF_MAX_MS,
        broker.SASL_LOGIN_RETRY_BACKOFF_MS,
        broker.SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL,
        broker.SSL_ALLOW_DN_CHANGES,
        broker.SSL_ALLOW_SAN_CHANGES,
        broker.SSL_CIPHER_SUITES,
        broker.SSL_CLIENT_AUTH,
        broker.SSL_ENABLED_PROTOCOLS,
        broker.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM,
        broker.SSL_KEYSTORE_CERTIFICATE_CHAIN,
        broker.SSL_KEYSTORE_KEY,
        broker.SSL_KEYSTORE_LOCATION,
        broker.SSL_KEYSTORE_PASSWORD,
        broker.SSL_KEYSTORE_TYPE,
        broker.SSL_KEY_PASSWORD,
        broker.SSL_PRINCIPAL_MAPPING_RULES,
        broker.SSL_PROTOCOL,
        broker.SSL_TRUSTSTORE_CERTIFICATES,
        broker.SSL_TRUSTSTORE_LOCATION,
        broker.SSL_TRUSTSTORE_PASSWORD,
        broker.SSL_TRUSTSTORE_TYPE,
    )
)
"""Settings that are also read with the prefix of a listener."""

PLUG_IN_PREFIXES: Mapping[str, NoEffect] = {
    "rsm.config.": NoEffect.TIERED_STORAGE,
    "rlmm.config.": NoEffect.TIERED_STORAGE,
}
"""Prefixes of settings that only a plug-in knows."""

REPORTERS = (broker.METRIC_REPORTERS, broker.KAFKA_METRICS_REPORTERS)


def unloaded_reporters(names: Iterable[str]) -> Iterator[str]:
    """Yield one line about those of `names` that are known reporters in Java."""
    if java := [name for name in dict.fromkeys(names) if name in broker.JAVA_REPORTERS]:
        yield (
            f"not loaded, because they are Java classes: {', '.join(java)}. The metrics are at "
            f"{broker.METRICS_HTTP_LISTENER.name} (docs/metrics.md)"
        )


_FIRST_OF_RECORD_FORMAT_2 = "0.11.0-IV0"
_FIRST_TO_IGNORE_FORMAT_VERSIONS = "3.0-IV1"


def why_without_effect(key: str, row: Property[object] | None) -> NoEffect | None:
    """Return why a broker setting has no effect, or None if it has one; `row` is that of the key without prefix."""
    if row is None:
        return next((reason for prefix, reason in PLUG_IN_PREFIXES.items() if key.startswith(prefix)), None)
    if row.no_effect is None and key != row.name and row not in PER_LISTENER:
        return NoEffect.NOT_PER_LISTENER
    return row.no_effect


def broker_lines(reasons: Mapping[str, NoEffect], settings: Mapping[str, str], protocol_version: str) -> list[str]:
    """Return a line for each key in `reasons`, grouped by reason. Beyond the limit, keys share lines."""
    order = list(NoEffect)
    keys = sorted(reasons, key=lambda key: (order.index(reasons[key]), key))
    lines = [_broker_line(key, reasons[key], settings[key].strip(), protocol_version) for key in keys[:LINES_MAX]]
    rest: dict[NoEffect, list[str]] = {}
    for key in keys[LINES_MAX:]:
        rest.setdefault(reasons[key], []).append(key)
    return lines + [f"{', '.join(others)} have no effect: {reason.value}" for reason, others in rest.items()]


def topic_lines(name: str, overrides: Mapping[str, str], protocol_version: str) -> Iterator[str]:
    """Yield a line for each override of the topic `name` without effect. All overrides must be valid."""
    for key in sorted(overrides):
        reason, text = topic.TOPIC_PROPERTIES[key].no_effect, overrides[key].strip()
        if reason is None:
            continue
        if key == topic.MESSAGE_FORMAT_VERSION.name and _is_for_old_records(text, protocol_version):
            yield _format_version_warning(f"Topic configuration {key}", text, f" for `{name}`", protocol_version)
        else:
            yield f"{key} of topic {name} has no effect: {reason.value}"


def _broker_line(key: str, reason: NoEffect, text: str, protocol_version: str) -> str:
    if key == broker.LOG_MESSAGE_FORMAT_VERSION.name and _is_for_old_records(text, protocol_version):
        return _format_version_warning(f"Broker configuration {key}", text, "", protocol_version)
    return f"{key} has no effect: {reason.value}"


def _is_for_old_records(format_version: str, protocol_version: str) -> bool:
    """Return whether Kafka warns: the format is older than version 2 and the protocol version ignores the setting."""
    return is_at_least(protocol_version, _FIRST_TO_IGNORE_FORMAT_VERSIONS) and not is_at_least(
        format_version, _FIRST_OF_RECORD_FORMAT_2
    )


def _format_version_warning(setting: str, value: str, where: str, protocol_version: str) -> str:
    """Return Kafka's own warning."""
    return (
        f"{setting} with value `{value}` is ignored{where} because the inter-broker protocol version "
        f"`{protocol_version}` is greater or equal than 3.0. This configuration is deprecated and it will be removed "
        "in Apache Kafka 4.0."
    )
