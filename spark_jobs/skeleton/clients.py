"""Settings of the jobs' own Kafka clients, from the settings of Java's clients that `--kafka-option` passes to Spark.

Spark's source and sink are Java clients. The clients that create topics, commit offsets, mirror and send files are
librdkafka's: they have other names for some settings, and read keys and certificates as PEM only.

Owns this translation. Must not know what a client does. Passwords never appear in an error.
"""

from collections.abc import Mapping

from spark_jobs.skeleton.errors import JobError

Options = Mapping[str, str]
"""Settings under the names of Java's clients."""

_SAME = (
    "client.dns.lookup",
    "client.id",
    "client.rack",
    "metadata.max.age.ms",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "sasl.kerberos.service.name",
    "security.protocol",
    "ssl.cipher.suites",
)
_SAME_OF_PRODUCERS = (
    "acks",
    "batch.size",
    "compression.type",
    "delivery.timeout.ms",
    "enable.idempotence",
    "linger.ms",
    "max.in.flight.requests.per.connection",
    "request.timeout.ms",
    "retries",
    "retry.backoff.ms",
    "transaction.timeout.ms",
)
LINGER_MS = "5"
"""`linger.ms` of the jobs' producers: without, Java producers send many requests of a few records each."""
LARGEST_REQUEST_BYTES = "2097152"
"""`max.request.size` of Spark's sink, and `max.message.bytes` of topics of dead letters: twice the brokers' default, so
that a record of the largest size can get headers. Other topics have their own limits.
"""

_SOURCE_DEFAULTS: Options = {
    # Spark reads only offsets that exist, so its fetches never need to wait. After a task has read a partition to its
    # end, it lists offsets through the same connection. The broker responds in order, so first to the fetch that waits
    # for further records: by default half a second per partition and batch.
    "fetch.max.wait.ms": "10",
    # Spark asks for the start and the end of the partition each time it takes records from its consumer, by default for
    # each 500. The size of a fetch limits them as well: at Java's default of 1 MB these are all if they have 100 bytes.
    "max.poll.records": "10000",
}
_SINK_DEFAULTS: Options = {
    # A job that is behind fills batches of Java's default of 16 KB in no time, and client and broker spend most of
    # their time on the batches. A batch that is too large for its topic is split (KIP-126).
    "batch.size": "131072",
    "linger.ms": LINGER_MS,
    "max.request.size": LARGEST_REQUEST_BYTES,
}
_LARGEST_REQUEST = "max.request.size"
_LARGEST_MESSAGE = "1048588"
"""The brokers' default: that of librdkafka is less, so that it would refuse records which Java's producers send."""
_PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_TOKEN_MECHANISM = "OAUTHBEARER"
_LOG_LEVEL = "5"
"""syslog's "notice". librdkafka then logs nothing about itself, such as events that nobody received at the end."""

_HOST_CHECK = "ssl.endpoint.identification.algorithm"


def client_settings(bootstrap_servers: str, options: Options) -> dict[str, str]:
    """Return the settings of a client of these brokers.

    Raises JobError, which names the option, for a login or a store that cannot be used.
    """
    settings = {key: options[key] for key in _SAME if key in options}
    if _HOST_CHECK in options:
        settings[_HOST_CHECK] = options[_HOST_CHECK] or "none"
    protocol = options.get("security.protocol", "PLAINTEXT").upper()
    if protocol.startswith("SASL"):
        settings.update(_login(options))
    if protocol.endswith("SSL"):
        settings.update(_stores(options))
    return {**settings, "bootstrap.servers": bootstrap_servers, "log_level": _LOG_LEVEL}


def producer_settings(bootstrap_servers: str, options: Options) -> dict[str, str]:
    """Return the settings of a producer: those of a client, and those about batches. Raises JobError."""
    settings = {key: options[key] for key in _SAME_OF_PRODUCERS if key in options}
    settings["message.max.bytes"] = options.get(_LARGEST_REQUEST, _LARGEST_MESSAGE)
    return {**settings, **client_settings(bootstrap_servers, options)}


def source_options(bootstrap_servers: str, options: Options) -> dict[str, str]:
    """Return the options of Spark's source for its consumers: `options` and the jobs' defaults."""
    return _prefixed({**_SOURCE_DEFAULTS, **options, "bootstrap.servers": bootstrap_servers})


def sink_options(bootstrap_servers: str, options: Options) -> dict[str, str]:
    """Return the options of Spark's sink for its producers: `options` and the jobs' defaults."""
    own = dict(_SINK_DEFAULTS)
    if "delivery.timeout.ms" in options:
        del own["linger.ms"]  # with it, producers refuse a delivery.timeout.ms that equals request.timeout.ms
    return _prefixed({**own, **options, "bootstrap.servers": bootstrap_servers})


def _prefixed(settings: Options) -> dict[str, str]:
    return {f"kafka.{key}": value for key, value in settings.items()}


def _login(options: Options) -> dict[str, str]:
    mechanism = options.get("sasl.mechanism", "GSSAPI")
    settings = {"sasl.mechanisms": mechanism}
    if mechanism in _PASSWORD_MECHANISMS:
        login = _login_options(options, "username", "password")
        return {**settings, "sasl.username": login["username"], "sasl.password": login["password"]}
    if mechanism == _TOKEN_MECHANISM:
        login = _login_options(options, "clientId", "clientSecret")
        url = options.get("sasl.oauthbearer.token.endpoint.url")
        if url is None:
            raise JobError("sasl.oauthbearer.token.endpoint.url is missing: OAUTHBEARER gets its tokens there")
        return {
            **settings,
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": login["clientId"],
            "sasl.oauthbearer.client.secret": login["clientSecret"],
            "sasl.oauthbearer.token.endpoint.url": url,
            **({"sasl.oauthbearer.scope": login["scope"]} if "scope" in login else {}),
        }
    return settings


def _login_options(options: Options, *required: str) -> Mapping[str, str]:
    from base.jaas import JaasError, parse_entry  # only jobs that log in need it

    try:
        module = parse_entry(options.get("sasl.jaas.config", ""))
    except JaasError as error:
        raise JobError(f"sasl.jaas.config: {error}") from error
    if missing := [name for name in required if name not in module.options]:
        raise JobError(f"sasl.jaas.config: {module.short_name} needs {' and '.join(missing)}")
    return module.options


def _stores(options: Options) -> dict[str, str]:
    """Return keys and certificates as PEM; without a trust store, the authorities of the system are trusted."""
    from cryptography.hazmat.primitives.serialization import Encoding  # only jobs with TLS need its library

    from base.key_stores.material import InvalidStoreError, StoreSource, read_identity, read_trusted

    def source(store: str, certificates: str) -> StoreSource:
        return StoreSource(
            options.get(f"ssl.{store}.type", "JKS").upper(),
            options.get(f"ssl.{store}.location"),
            options.get(f"ssl.{store}.password"),
            options.get("ssl.key.password"),
            options.get("ssl.keystore.key") if store == "keystore" else None,
            options.get(certificates),
        )

    key_store = source("keystore", "ssl.keystore.certificate.chain")
    trust_store = source("truststore", "ssl.truststore.certificates")
    settings = {}
    try:
        if trust_store.is_given:
            trusted = read_trusted(trust_store)
            settings["ssl.ca.pem"] = "".join(each.public_bytes(Encoding.PEM).decode() for each in trusted)
        if key_store.is_given:
            identity = read_identity(key_store)
            settings["ssl.key.pem"] = identity.key.decode()
            settings["ssl.certificate.pem"] = "".join(
                each.public_bytes(Encoding.PEM).decode() for each in identity.chain
            )
    except InvalidStoreError as error:
        raise JobError(str(error)) from error
    return settings
