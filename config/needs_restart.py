"""Settings that are dynamic in Kafka and can change with a restart only here, with the reasons.

Owns the list. Must not know how a change is requested or refused.
"""

from collections.abc import Mapping
from typing import Final

from config import broker_properties as rows
from config.broker_properties import BROKER_PROPERTIES
from config.definition import Property

PLUG_INS: Final[tuple[Property[object], ...]] = (rows.METRIC_REPORTERS, rows.PRINCIPAL_BUILDER_CLASS)

_RENEWALS = (
    rows.SASL_KERBEROS_MIN_TIME_BEFORE_RELOGIN,
    rows.SASL_KERBEROS_TICKET_RENEW_JITTER,
    rows.SASL_KERBEROS_TICKET_RENEW_WINDOW_FACTOR,
    rows.SASL_LOGIN_REFRESH_BUFFER_SECONDS,
    rows.SASL_LOGIN_REFRESH_MIN_PERIOD_SECONDS,
    rows.SASL_LOGIN_REFRESH_WINDOW_FACTOR,
    rows.SASL_LOGIN_REFRESH_WINDOW_JITTER,
)
"""When a broker renews the ticket or token of its logins to others: read at each renewal."""

_WHY_PLUG_INS = "a client with the right to alter the broker could have it import any module"
_WHY_LOGINS = "open listeners and the logins between brokers are set up once; a listener that is added may have its own"

NEEDS_RESTART: Final[Mapping[str, str]] = {
    row.name: _WHY_PLUG_INS if row in PLUG_INS else _WHY_LOGINS
    for row in BROKER_PROPERTIES.values()
    if row in PLUG_INS or (row.name.startswith("sasl.") and row.no_effect is None and row not in _RENEWALS)
}
"""The reasons by name, of settings without the prefix of a listener."""
