"""TLS and SASL of the console tools: the settings of Kafka's Java clients as those of the tools' client library.

Owns the translation of stores, which the library reads as PEM, and of login modules. Must not know any tool. The
library itself rejects a mechanism that it was built without, such as GSSAPI.
"""

from collections.abc import Callable, Mapping
from typing import Any

from base.jaas import is_true
from tools.base.command_line import InvalidSettingsError
from tools.client.client_security import login_module, login_settings, security_protocol, stores

_OAUTHBEARER = "OAUTHBEARER"
_OPTIONS: Mapping[str, str] = {
    "username": "sasl.username",
    "password": "sasl.password",
    "keyTab": "sasl.kerberos.keytab",
    "principal": "sasl.kerberos.principal",
    "serviceName": "sasl.kerberos.service.name",
}

TRANSLATED = frozenset(
    {
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "sasl.oauthbearer.token.endpoint.url",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""The settings that `library_security` reads."""


def library_security(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the library's settings for stores and logins. Raises InvalidSettingsError."""
    tls = _stores(settings) if security_protocol(settings).endswith("SSL") else {}
    return {**tls, **(_login(settings) if "sasl.jaas.config" in settings else {})}


def _stores(settings: Mapping[str, str]) -> dict[str, str]:
    from base.key_stores.material import PEM, InvalidStoreError, as_pem, read_identity, read_trusted

    key_store, trust_store = stores(settings)
    result: dict[str, str] = {}
    try:
        if trust_store.is_given:
            result["ssl.ca.pem"] = as_pem(read_trusted(trust_store))
        if key_store.type == PEM and key_store.location is not None:
            # From a file the library reads the whole chain, from a setting only the first certificate.
            result["ssl.certificate.location"] = result["ssl.key.location"] = key_store.location
            if key_store.key_password is not None:
                result["ssl.key.password"] = key_store.key_password
        elif key_store.is_given:
            identity = read_identity(key_store)
            result["ssl.certificate.pem"] = as_pem(identity.chain)
            result["ssl.key.pem"] = identity.key.decode()
    except InvalidStoreError as error:
        raise InvalidSettingsError(str(error)) from error
    return result


def _login(settings: Mapping[str, str]) -> dict[str, Any]:
    options = login_module(settings).options
    if settings.get("sasl.mechanism", "").strip() == _OAUTHBEARER:
        return {"oauth_cb": _tokens(settings, options)}
    if is_true(options.get("tokenauth")):
        raise InvalidSettingsError(
            "Invalid value [hidden] for configuration sasl.jaas.config: the client library of this tool does not log "
            "in by delegation tokens (tokenauth)"
        )
    return {_OPTIONS[key]: value for key, value in options.items() if key in _OPTIONS}


def _tokens(settings: Mapping[str, str], options: Mapping[str, str]) -> Callable[[str], tuple[Any, ...]]:
    """Return what the library calls for each token. Raises InvalidSettingsError."""
    from broker.security.token_source import token_extensions
    from broker.settings.client_login import InvalidLoginError, new_token_source

    try:
        source = new_token_source(options, *login_settings(settings))
    except InvalidLoginError as error:
        raise InvalidSettingsError(f"Invalid value [hidden] for configuration sasl.jaas.config: {error}") from error

    def next_token(config: str) -> tuple[Any, ...]:
        token = source.token()
        return token, source.expires_s, "", token_extensions(options)

    return next_token
