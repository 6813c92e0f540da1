"""The table of broker settings: every name Kafka 3.9 knows, and the few that only its file parser knows.

A row is a typed constant, so that `config[LOG_SEGMENT_BYTES]` is an int to the type checker, and carries all there
is to know about a setting, `no_effect` included: why the broker accepts it and does nothing with it. Parsing,
DescribeConfigs, the log of the start and docs/configuration.md derive from `BROKER_PROPERTIES`. How rows depend on each
other is in `checks`; how old names map to these in `old_names`.

Owns the rows. Must not know which code reads them.
"""

from collections.abc import Mapping
from types import MappingProxyType

from config.addresses import host_and_port_problem, http_urls_problem, named_urls_problem
from config.definition import ConfigType, Importance, NoEffect, Password, Property, Rows, UpdateMode, Visibility
from config.validators import Check, KnownClass, NotEmpty, OneOf, Principals, PythonClass, Range, RangeOr
from config.versions import RELEASED_VERSIONS, version_problem

boolean = Rows[bool](ConfigType.BOOLEAN)
integer = Rows[int](ConfigType.INT)
short = Rows[int](ConfigType.SHORT)
long = Rows[int](ConfigType.LONG)
double = Rows[float](ConfigType.DOUBLE)
string = Rows[str](ConfigType.STRING)
string_list = Rows[tuple[str, ...]](ConfigType.LIST)
class_name = Rows[str](ConfigType.CLASS)
password = Rows[Password](ConfigType.PASSWORD)

READ_ONLY, CLUSTER_WIDE, PER_BROKER = UpdateMode.READ_ONLY, UpdateMode.CLUSTER_WIDE, UpdateMode.PER_BROKER
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
WHEN_SET, FOREIGN, INTERNAL = Visibility.WHEN_SET, Visibility.FOREIGN, Visibility.INTERNAL

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
DOUBLE_MAX = 1.7976931348623157e308

POSITIVE = Range(1)
NOT_NEGATIVE = Range(0)
POSITIVE_OR_UNSET = RangeOr(POSITIVE, -1, "[-1] or [1,...]", "Value must be at least 1 or equal to -1")
NON_EMPTY_STRING = NotEmpty("non-empty string")
NON_EMPTY_LIST = NotEmpty("non-empty list")
HOST_AND_PORT = Check(host_and_port_problem, "host:port")
HTTP_URLS = Check(http_urls_problem, "http://host:port,...")
NAMED_URLS = Check(named_urls_problem, "name=http://host:port,...")
RELEASED_VERSION = Check(version_problem, f"[{', '.join(RELEASED_VERSIONS)}]")
PYTHON_CLASS = PythonClass()
JMX_REPORTERS = (
    "org.apache.kafka.common.metrics.JmxReporter",
    "org.apache.kafka.server.metrics.KafkaYammerMetrics",
)
"""Kafka's own reporters, which files may name; `metrics.http.listener` serves what they show."""
JAVA_REPORTERS = (
    "com.linkedin.kafka.cruisecontrol.metricsreporter.CruiseControlMetricsReporter",
    "io.confluent.metrics.reporter.ConfluentMetricsReporter",
    "io.confluent.telemetry.reporter.TelemetryReporter",
    "io.strimzi.kafka.metrics.KafkaPrometheusMetricsReporter",
    "io.strimzi.kafka.metrics.YammerPrometheusMetricsReporter",
    "io.strimzi.kafka.metrics.prometheus.ServerKafkaMetricsReporter",
    "io.strimzi.kafka.metrics.prometheus.ServerYammerMetricsReporter",
)
"""Reporters in Java that files from other distributions name; a warning says that they are not loaded."""
METRICS_REPORTERS = PythonClass((*JMX_REPORTERS, *JAVA_REPORTERS))
SASL_PLUG_IN = KnownClass("SASL is supported; classes of your own for the logins between brokers are")
DEFAULT_PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
TOKEN_VALIDATORS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
TOKEN_LOGINS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
AUTHORIZERS = (
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
TRUST_MANAGERS = KnownClass(
    "Trust managers with rules of their own are", ("PKIX", "SunPKIX", "X509", "X.509", "SunX509", "IbmPKIX", "IbmX509")
)
"""Names of Java's own trust managers, which only verify the chain of certificates, as the broker does."""
TLS_ENGINES = KnownClass(
    "Other factories of TLS engines are", ("org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",)
)
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
UNIFORM_ASSIGNOR = "org.apache.kafka.coordinator.group.assignor.UniformAssignor"
RANGE_ASSIGNOR = "org.apache.kafka.coordinator.group.assignor.RangeAssignor"
OWN_ASSIGNORS = (UNIFORM_ASSIGNOR, RANGE_ASSIGNOR, "uniform", "range")

ROLL_AGE = ("log.roll.ms", "log.roll.hours")
ROLL_JITTER = ("log.roll.jitter.ms", "log.roll.jitter.hours")
RETENTION_AGE = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
FLUSH_AGE = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")

# The formatter would spread each row over seven lines; two are easier to scan.
# fmt: off

# The identity of this broker, and where the cluster's metadata lives
BROKER_ID = integer("broker.id", -1, READ_ONLY, HIGH,
    doc="Number of this broker in its cluster; -1 takes that of the log directories, or a new one.")
NODE_ID = integer("node.id", -1, READ_ONLY, HIGH,
    doc="Another name of broker.id; if both are set, they must be equal.")
BROKER_ID_GENERATION_ENABLE = boolean("broker.id.generation.enable", True, READ_ONLY, MEDIUM,
    doc="Whether a broker without an id may generate one.")
RESERVED_BROKER_MAX_ID = integer("reserved.broker.max.id", 1000, READ_ONLY, MEDIUM, NOT_NEGATIVE,
    doc="Largest id that an operator assigns by hand; generated ids start above it.")
BROKER_RACK = string("broker.rack", None, READ_ONLY, MEDIUM,
    doc="Rack or zone of this broker, for placing replicas and for reading from the nearest replica.")
ZOOKEEPER_CONNECT = string("zookeeper.connect", None, READ_ONLY, HIGH,
    doc="ZooKeeper ensemble as host:port,host:port/chroot; without it the embedded store serves a single broker.")
ZOOKEEPER_SESSION_TIMEOUT_MS = integer("zookeeper.session.timeout.ms", 18000, READ_ONLY, HIGH,
    doc="Time without a heartbeat after which ZooKeeper ends this broker's session.")
ZOOKEEPER_REGISTRATION_WAIT_MS = integer("zookeeper.registration.wait.ms", None, READ_ONLY, LOW, NOT_NEGATIVE,
    visibility=FOREIGN,
    doc="Longest time that a start waits while the broker id is registered, as it is until the session of a killed "
        "process is over; 0 ends the start. Unset means zookeeper.session.timeout.ms and 5 s more. Milena's own "
        "setting.")
ZOOKEEPER_CONNECTION_TIMEOUT_MS = integer("zookeeper.connection.timeout.ms", None, READ_ONLY, HIGH,
    doc="Longest time to wait for the first connection to ZooKeeper; unset means the session timeout.")
ZOOKEEPER_MAX_IN_FLIGHT_REQUESTS = integer("zookeeper.max.in.flight.requests", 10, READ_ONLY, HIGH, POSITIVE,
    doc="Requests sent to ZooKeeper before a response must arrive.")
ZOOKEEPER_SET_ACL = boolean("zookeeper.set.acl", False, READ_ONLY, HIGH,
    doc="Whether znodes are created so that only brokers may change them.")
ZOOKEEPER_CLIENT_CNXN_SOCKET = string("zookeeper.clientCnxnSocket", None, READ_ONLY, MEDIUM,
    no_effect=NoEffect.ZOOKEEPER, doc="Java socket class of the ZooKeeper client.")
ZOOKEEPER_SSL_CLIENT_ENABLE = boolean("zookeeper.ssl.client.enable", False, READ_ONLY, MEDIUM,
    doc="Whether the connection to ZooKeeper uses TLS.")
ZOOKEEPER_SSL_KEYSTORE_LOCATION = string("zookeeper.ssl.keystore.location", None, READ_ONLY, MEDIUM,
    doc="Keystore that identifies this broker to ZooKeeper.")
ZOOKEEPER_SSL_KEYSTORE_PASSWORD = password("zookeeper.ssl.keystore.password", None, READ_ONLY, MEDIUM,
    doc="Password of the keystore used towards ZooKeeper.")
ZOOKEEPER_SSL_KEYSTORE_TYPE = string("zookeeper.ssl.keystore.type", None, READ_ONLY, MEDIUM,
    doc="Format of the keystore used towards ZooKeeper; unset means by file name.")
ZOOKEEPER_SSL_TRUSTSTORE_LOCATION = string("zookeeper.ssl.truststore.location", None, READ_ONLY, MEDIUM,
    doc="Trusted certificates for ZooKeeper servers.")
ZOOKEEPER_SSL_TRUSTSTORE_PASSWORD = password("zookeeper.ssl.truststore.password", None, READ_ONLY, MEDIUM,
    doc="Password of the truststore used towards ZooKeeper.")
ZOOKEEPER_SSL_TRUSTSTORE_TYPE = string("zookeeper.ssl.truststore.type", None, READ_ONLY, MEDIUM,
    doc="Format of the truststore used towards ZooKeeper; unset means by file name.")
ZOOKEEPER_SSL_PROTOCOL = string("zookeeper.ssl.protocol", "TLSv1.2", READ_ONLY, LOW,
    doc="TLS version offered to ZooKeeper first.")
ZOOKEEPER_SSL_ENABLED_PROTOCOLS = string_list("zookeeper.ssl.enabled.protocols", None, READ_ONLY, LOW,
    doc="TLS versions allowed towards ZooKeeper; unset means the one of zookeeper.ssl.protocol.")
ZOOKEEPER_SSL_CIPHER_SUITES = string_list("zookeeper.ssl.cipher.suites", None, READ_ONLY, LOW,
    doc="Cipher suites allowed towards ZooKeeper; unset means those of the library.")
ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = string(
    "zookeeper.ssl.endpoint.identification.algorithm", "HTTPS", READ_ONLY, LOW,
    doc="HTTPS checks the ZooKeeper server's host name; an empty value does not.")
ZOOKEEPER_SSL_CRL_ENABLE = boolean("zookeeper.ssl.crl.enable", False, READ_ONLY, LOW,
    doc="Whether revocation lists are consulted for ZooKeeper's certificates.")
ZOOKEEPER_SSL_OCSP_ENABLE = boolean("zookeeper.ssl.ocsp.enable", False, READ_ONLY, LOW,
    doc="Whether the online status protocol is consulted for ZooKeeper's certificates.")
ZOOKEEPER_SASL_CLIENT = boolean("zookeeper.sasl.client", True, READ_ONLY, LOW, visibility=FOREIGN,
    doc="Whether the broker logs in to ZooKeeper if it has a login; in Kafka a system property.")
ZOOKEEPER_SASL_CLIENTCONFIG = string("zookeeper.sasl.clientconfig", "Client", READ_ONLY, LOW, visibility=FOREIGN,
    doc="Section of the file of java.security.auth.login.config with the login to ZooKeeper; in Kafka a system "
        "property.")
ZOOKEEPER_SASL_CLIENT_USERNAME = string("zookeeper.sasl.client.username", "zookeeper", READ_ONLY, LOW,
    visibility=FOREIGN,
    doc="Service of ZooKeeper's Kerberos principal, which is followed by the name of its host; in Kafka a system "
        "property.")
ZOOKEEPER_SASL_JAAS_CONFIG = password("zookeeper.sasl.jaas.config", None, READ_ONLY, MEDIUM, visibility=FOREIGN,
    doc="Login to ZooKeeper in the form of sasl.jaas.config, instead of a section of a file. Milena's own setting.")
ZOOKEEPER_METADATA_MIGRATION_ENABLE = boolean("zookeeper.metadata.migration.enable", False, READ_ONLY, HIGH,
    no_effect=NoEffect.KRAFT, doc="Migration to Raft metadata; true stops the start.")

# Listeners and connections
LISTENERS = string("listeners", "PLAINTEXT://:9092", PER_BROKER, HIGH,
    doc="Addresses to bind, as NAME://host:port; an empty host is every address, port 0 any free one.")
ADVERTISED_LISTENERS = string("advertised.listeners", None, PER_BROKER, HIGH,
    doc="Addresses that clients and other brokers connect to; unset means those of listeners.")
LISTENER_SECURITY_PROTOCOL_MAP = string(
    "listener.security.protocol.map",
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    PER_BROKER, LOW,
    doc="Which security protocol each listener name uses, as NAME:PROTOCOL pairs.")
INTER_BROKER_LISTENER_NAME = string("inter.broker.listener.name", None, READ_ONLY, MEDIUM,
    doc="Listener that other brokers connect to; unset means the one of security.inter.broker.protocol.")
SECURITY_INTER_BROKER_PROTOCOL = string("security.inter.broker.protocol", "PLAINTEXT", READ_ONLY, MEDIUM,
    OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    doc="Security protocol between brokers when no listener is named for it.")
CONTROL_PLANE_LISTENER_NAME = string("control.plane.listener.name", None, READ_ONLY, HIGH,
    doc="Listener that the controller sends its requests to. It is read also while requests on the others wait.")
EARLY_START_LISTENERS = string("early.start.listeners", None, READ_ONLY, HIGH,
    no_effect=NoEffect.KRAFT, doc="Listeners opened before authorisation data is loaded.")
SOCKET_SEND_BUFFER_BYTES = integer("socket.send.buffer.bytes", 102_400, READ_ONLY, HIGH,
    doc="Send buffer of accepted sockets; -1 leaves it to the operating system. "
    "Responses sent from files, which take no memory, may fill 256 KiB.")
SOCKET_RECEIVE_BUFFER_BYTES = integer("socket.receive.buffer.bytes", 102_400, READ_ONLY, HIGH,
    doc="Receive buffer of accepted sockets; -1 leaves it to the operating system.")
SOCKET_REQUEST_MAX_BYTES = integer("socket.request.max.bytes", 104_857_600, READ_ONLY, HIGH, POSITIVE,
    doc="Largest request accepted; a larger frame closes its connection.")
SOCKET_LISTEN_BACKLOG_SIZE = integer("socket.listen.backlog.size", 50, READ_ONLY, MEDIUM, POSITIVE,
    doc="Connections the operating system may queue before they are accepted.")
SOCKET_CONNECTION_SETUP_TIMEOUT_MS = long("socket.connection.setup.timeout.ms", 10000, READ_ONLY, MEDIUM,
    doc="First timeout of an attempt to connect to another broker.")
SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS = long("socket.connection.setup.timeout.max.ms", 30000, READ_ONLY, MEDIUM,
    doc="Longest timeout of an attempt to connect to another broker, after attempts that took too long.")
MAX_CONNECTIONS = integer("max.connections", INT_MAX, CLUSTER_WIDE, MEDIUM, NOT_NEGATIVE,
    doc="Open connections allowed on this broker, or on one listener with its prefix.")
MAX_CONNECTIONS_PER_IP = integer("max.connections.per.ip", INT_MAX, CLUSTER_WIDE, MEDIUM, NOT_NEGATIVE,
    doc="Open connections allowed from one address.")
MAX_CONNECTIONS_PER_IP_OVERRIDES = string("max.connections.per.ip.overrides", "", CLUSTER_WIDE, MEDIUM,
    doc="Limits for single addresses, as host:count pairs.")
MAX_CONNECTION_CREATION_RATE = integer("max.connection.creation.rate", INT_MAX, CLUSTER_WIDE, MEDIUM, NOT_NEGATIVE,
    doc="Connections accepted per second, for the broker or one listener with its prefix.")
CONNECTIONS_MAX_IDLE_MS = long("connections.max.idle.ms", 600_000, READ_ONLY, MEDIUM,
    doc="Time without a request after which a connection is closed.")
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS = integer("connection.failed.authentication.delay.ms", 100, READ_ONLY, LOW,
    NOT_NEGATIVE,
    doc="Delay before a connection is closed after failed authentication.")
CONNECTIONS_MAX_REAUTH_MS = long("connections.max.reauth.ms", 0, READ_ONLY, MEDIUM,
    doc="Longest time a SASL session may live without authenticating again; 0 is no limit.")
NUM_NETWORK_THREADS = integer("num.network.threads", 3, CLUSTER_WIDE, HIGH, POSITIVE,
    no_effect=NoEffect.ONE_EVENT_LOOP,
    doc="Threads that read and write sockets in Kafka.")
NUM_IO_THREADS = integer("num.io.threads", 8, CLUSTER_WIDE, HIGH, POSITIVE,
    doc="Threads for requests that wait for a disk, such as reads of data that is not in the page cache.")
BACKGROUND_THREADS = integer("background.threads", 10, CLUSTER_WIDE, HIGH, POSITIVE,
    doc="Threads for housekeeping off the event loop: flushes, checkpoints, removal of deleted files.")
QUEUED_MAX_REQUESTS = integer("queued.max.requests", 500, READ_ONLY, HIGH, POSITIVE,
    doc="Requests that may wait for a thread before reading from sockets pauses.")
QUEUED_MAX_REQUEST_BYTES = long("queued.max.request.bytes", -1, READ_ONLY, MEDIUM,
    doc="Limit of the bytes of requests being received. Above it no further request is read; -1 is no limit.")
REQUEST_TIMEOUT_MS = integer("request.timeout.ms", 30000, READ_ONLY, HIGH,
    doc="Time this broker waits for the response to its own requests.")
FETCH_MAX_BYTES = integer("fetch.max.bytes", 57_671_680, READ_ONLY, MEDIUM, Range(1024),
    doc="Largest fetch response, whatever the client requests.")
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS = integer(
    "max.incremental.fetch.session.cache.slots", 1000, READ_ONLY, MEDIUM,
    NOT_NEGATIVE,
    doc="Number of incremental fetch sessions kept.")
MAX_INCREMENTAL_FETCH_SESSION_CACHE_PARTITIONS = integer(
    "max.incremental.fetch.session.cache.partitions", 200_000, READ_ONLY, MEDIUM, NOT_NEGATIVE,
    visibility=FOREIGN,
    doc="Number of partitions kept in all incremental fetch sessions; each takes up to 1 KB. Clients for which there "
        "is no room name all their partitions in each request. Milena's own setting.")
MAX_REQUEST_PARTITION_SIZE_LIMIT = integer("max.request.partition.size.limit", 2000, READ_ONLY, MEDIUM, POSITIVE,
    doc="Partitions in one DescribeTopicPartitions response. A broker in a cluster with ZooKeeper does not serve it.")

# Topics and their placement
AUTO_CREATE_TOPICS_ENABLE = boolean("auto.create.topics.enable", True, READ_ONLY, HIGH,
    doc="Whether a metadata request for an unknown topic creates it.")
DELETE_TOPIC_ENABLE = boolean("delete.topic.enable", True, READ_ONLY, HIGH,
    doc="Whether topics can be deleted.")
NUM_PARTITIONS = integer("num.partitions", 1, READ_ONLY, MEDIUM, POSITIVE,
    doc="Partitions of a topic created without a count.")
DEFAULT_REPLICATION_FACTOR = integer("default.replication.factor", 1, READ_ONLY, MEDIUM,
    doc="Replicas of a topic created without a factor.")
MIN_INSYNC_REPLICAS = integer("min.insync.replicas", 1, CLUSTER_WIDE, HIGH, POSITIVE,
    doc="In-sync replicas that must exist for acks=all to be accepted and for records to be committed.")
UNCLEAN_LEADER_ELECTION_ENABLE = boolean("unclean.leader.election.enable", False, CLUSTER_WIDE, HIGH,
    doc="Whether an out-of-sync replica may become leader if no in-sync replica is left; this can lose records.")
AUTO_LEADER_REBALANCE_ENABLE = boolean("auto.leader.rebalance.enable", True, READ_ONLY, HIGH,
    doc="Whether the controller moves leadership back to preferred replicas.")
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = long("leader.imbalance.check.interval.seconds", 300, READ_ONLY, HIGH,
    POSITIVE,
    doc="How often the controller checks leader.imbalance.per.broker.percentage.")
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE = integer("leader.imbalance.per.broker.percentage", 10, READ_ONLY, HIGH,
    doc="Share of partitions led by another than the preferred leader, per broker, above which the controller moves "
        "leadership.")
CONTROLLED_SHUTDOWN_ENABLE = boolean("controlled.shutdown.enable", True, READ_ONLY, MEDIUM,
    doc="Whether a stopping broker first moves its leadership to other brokers.")
CONTROLLED_SHUTDOWN_MAX_RETRIES = integer("controlled.shutdown.max.retries", 3, READ_ONLY, MEDIUM,
    doc="Attempts of a controlled shutdown after which the broker stops without it.")
CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS = long("controlled.shutdown.retry.backoff.ms", 5000, READ_ONLY, MEDIUM,
    doc="Pause between attempts of a controlled shutdown.")
CONTROLLER_SOCKET_TIMEOUT_MS = integer("controller.socket.timeout.ms", 30000, READ_ONLY, MEDIUM,
    doc="Time the controller waits for a broker's response.")
INTER_BROKER_PROTOCOL_VERSION = string("inter.broker.protocol.version", "3.9-IV0", READ_ONLY, MEDIUM, RELEASED_VERSION,
    doc="Release whose protocol is spoken between brokers, for rolling upgrades.")
CREATE_TOPIC_POLICY_CLASS_NAME = class_name("create.topic.policy.class.name", None, READ_ONLY, LOW,
    PYTHON_CLASS,
    doc="Plug-in that may reject the creation of a topic: a Python class, as package.module:Class (docs/plug-ins.md).")
ALTER_CONFIG_POLICY_CLASS_NAME = class_name("alter.config.policy.class.name", None, READ_ONLY, LOW,
    PYTHON_CLASS,
    doc="Plug-in that may reject a change of configuration: a Python class, as package.module:Class "
        "(docs/plug-ins.md).")

# Replication
NUM_REPLICA_FETCHERS = integer("num.replica.fetchers", 1, CLUSTER_WIDE, HIGH,
    doc="Fetchers per leader from which this broker replicates partitions.")
REPLICA_FETCH_MIN_BYTES = integer("replica.fetch.min.bytes", 1, READ_ONLY, HIGH,
    doc="Minimum bytes of a leader's response to a follower.")
REPLICA_FETCH_MAX_BYTES = integer("replica.fetch.max.bytes", 1_048_576, READ_ONLY, MEDIUM, NOT_NEGATIVE,
    doc="Bytes that a follower requests per partition.")
REPLICA_FETCH_RESPONSE_MAX_BYTES = integer("replica.fetch.response.max.bytes", 10_485_760, READ_ONLY, MEDIUM,
    NOT_NEGATIVE,
    doc="Bytes that a follower requests per response.")
REPLICA_FETCH_WAIT_MAX_MS = integer("replica.fetch.wait.max.ms", 500, READ_ONLY, HIGH,
    doc="Longest time a leader may hold a follower's fetch.")
REPLICA_FETCH_BACKOFF_MS = integer("replica.fetch.backoff.ms", 1000, READ_ONLY, MEDIUM, NOT_NEGATIVE,
    doc="Longest pause after a failed fetch of a partition; the first lasts 20 ms, each further one twice as long.")
REPLICA_LAG_TIME_MAX_MS = long("replica.lag.time.max.ms", 30000, READ_ONLY, HIGH,
    doc="Time that a follower may lag before the leader removes it from the in-sync replicas.")
REPLICA_SOCKET_TIMEOUT_MS = integer("replica.socket.timeout.ms", 30000, READ_ONLY, HIGH,
    doc="Time a follower waits on its socket; at least replica.fetch.wait.max.ms.")
REPLICA_SOCKET_RECEIVE_BUFFER_BYTES = integer("replica.socket.receive.buffer.bytes", 65536, READ_ONLY, HIGH,
    doc="Receive buffer of a follower's socket.")
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = long(
    "replica.high.watermark.checkpoint.interval.ms", 5000, READ_ONLY, HIGH,
    doc="How often high watermarks are written to disk.")
REPLICA_SELECTOR_CLASS = string("replica.selector.class", None, READ_ONLY, MEDIUM,
    PythonClass((LEADER_SELECTOR, RACK_AWARE_SELECTOR)),
    doc="Class that chooses the replica a consumer reads from: one of Kafka's two, or a Python class as "
        "package.module:Class; unset means the leader.")
FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS = integer("fetch.purgatory.purge.interval.requests", 1000, READ_ONLY, MEDIUM,
    doc="Finished fetches that may stay in the purgatory before it is purged, or as many as are waiting.")
PRODUCER_PURGATORY_PURGE_INTERVAL_REQUESTS = integer(
    "producer.purgatory.purge.interval.requests", 1000, READ_ONLY, MEDIUM,
    doc="Finished produce requests that may stay in the purgatory before it is purged, or as many as are waiting.")
DELETE_RECORDS_PURGATORY_PURGE_INTERVAL_REQUESTS = integer(
    "delete.records.purgatory.purge.interval.requests", 1, READ_ONLY, MEDIUM,
    doc="Finished record deletions that may stay in the purgatory before it is purged, or as many as are waiting.")

# Logs
LOG_DIR = string("log.dir", "/tmp/kafka-logs", READ_ONLY, HIGH,
    doc="Directory of the partition logs if log.dirs is unset.")
LOG_DIRS = string("log.dirs", None, READ_ONLY, HIGH,
    doc="Directories of the partition logs, comma-separated.")
LOG_DIRS_ACCEPT_CHANGED = boolean("log.dirs.accept.changed", False, READ_ONLY, LOW, visibility=FOREIGN,
    doc="Whether a start accepts a log directory that has changed: it is empty although it was in use, as below a "
        "mount that failed, or another one replaces it. Partitions that only such a directory can hold then begin "
        "empty; otherwise the directory is offline. For one start, on the command line. Milena's own setting.")
LOG_SEGMENT_BYTES = integer("log.segment.bytes", 1_073_741_824, CLUSTER_WIDE, HIGH, Range(14),
    doc="Size at which a new segment is rolled.")
LOG_ROLL_MS = long("log.roll.ms", None, CLUSTER_WIDE, HIGH,
    doc="Age at which a new segment is rolled; unset means log.roll.hours.", synonyms=ROLL_AGE)
LOG_ROLL_HOURS = integer("log.roll.hours", 168, READ_ONLY, HIGH, POSITIVE,
    doc="Age in hours at which a new segment is rolled.", synonyms=ROLL_AGE)
LOG_ROLL_JITTER_MS = long("log.roll.jitter.ms", None, CLUSTER_WIDE, HIGH,
    doc="Random time subtracted from the roll age, so that logs do not roll at the same time; unset means "
        "log.roll.jitter.hours.",
    synonyms=ROLL_JITTER)
LOG_ROLL_JITTER_HOURS = integer("log.roll.jitter.hours", 0, READ_ONLY, HIGH, NOT_NEGATIVE,
    doc="Random hours subtracted from the roll age.", synonyms=ROLL_JITTER)
LOG_RETENTION_MS = long("log.retention.ms", None, CLUSTER_WIDE, HIGH,
    doc="Age after which segments are deleted, -1 for never; unset means log.retention.minutes.",
    synonyms=RETENTION_AGE)
LOG_RETENTION_MINUTES = integer("log.retention.minutes", None, READ_ONLY, HIGH,
    doc="Age in minutes after which segments are deleted; unset means log.retention.hours.", synonyms=RETENTION_AGE)
LOG_RETENTION_HOURS = integer("log.retention.hours", 168, READ_ONLY, HIGH,
    doc="Age in hours after which segments are deleted.", synonyms=RETENTION_AGE)
LOG_RETENTION_BYTES = long("log.retention.bytes", -1, CLUSTER_WIDE, HIGH,
    doc="Size of a partition above which its oldest segments are deleted; -1 is no limit.")
LOG_RETENTION_CHECK_INTERVAL_MS = long("log.retention.check.interval.ms", 300_000, READ_ONLY, MEDIUM, POSITIVE,
    doc="How often segments are checked for deletion.")
LOG_CLEANUP_POLICY = string_list("log.cleanup.policy", ("delete",), CLUSTER_WIDE, MEDIUM, OneOf(("compact", "delete")),
    doc="What happens to old data of a topic: delete, compact, or both.")
LOG_SEGMENT_DELETE_DELAY_MS = long("log.segment.delete.delay.ms", 60000, CLUSTER_WIDE, HIGH, NOT_NEGATIVE,
    doc="Time a deleted segment's files stay on disk.")
LOG_INDEX_SIZE_MAX_BYTES = integer("log.index.size.max.bytes", 10_485_760, CLUSTER_WIDE, MEDIUM, Range(4),
    doc="Largest size of an offset index.")
LOG_INDEX_INTERVAL_BYTES = integer("log.index.interval.bytes", 4096, CLUSTER_WIDE, MEDIUM, NOT_NEGATIVE,
    doc="Bytes of log between two index entries.")
LOG_FLUSH_INTERVAL_MESSAGES = long("log.flush.interval.messages", LONG_MAX, CLUSTER_WIDE, HIGH, POSITIVE,
    doc="Number of records after which a log is flushed to disk.")
LOG_FLUSH_INTERVAL_MS = long("log.flush.interval.ms", None, CLUSTER_WIDE, HIGH,
    doc="Time after which a log is flushed to disk; unset means log.flush.scheduler.interval.ms.", synonyms=FLUSH_AGE)
LOG_FLUSH_SCHEDULER_INTERVAL_MS = long("log.flush.scheduler.interval.ms", LONG_MAX, READ_ONLY, HIGH,
    doc="How often logs are checked for a timed flush, at least once a second.")
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = integer("log.flush.offset.checkpoint.interval.ms", 60000, READ_ONLY, HIGH,
    NOT_NEGATIVE,
    doc="How often recovery points are written to disk.")
LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS = integer(
    "log.flush.start.offset.checkpoint.interval.ms", 60000, READ_ONLY, HIGH,
    NOT_NEGATIVE,
    doc="How often log start offsets are written to disk.")
LOG_PREALLOCATE = boolean("log.preallocate", False, CLUSTER_WIDE, MEDIUM,
    doc="Whether the file of a new segment is preallocated with its full size.")
LOG_MESSAGE_TIMESTAMP_TYPE = string("log.message.timestamp.type", "CreateTime", CLUSTER_WIDE, MEDIUM,
    OneOf(("CreateTime", "LogAppendTime")),
    doc="Whether records keep the producer's timestamp or get the broker's.")
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS = long("log.message.timestamp.before.max.ms", LONG_MAX, CLUSTER_WIDE, MEDIUM,
    NOT_NEGATIVE,
    doc="How far a record's timestamp may lie before the broker's time.")
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS = long("log.message.timestamp.after.max.ms", LONG_MAX, CLUSTER_WIDE, MEDIUM,
    NOT_NEGATIVE,
    doc="How far a record's timestamp may lie after the broker's time.")
LOG_MESSAGE_TIMESTAMP_DIFFERENCE_MAX_MS = long(
    "log.message.timestamp.difference.max.ms", LONG_MAX, CLUSTER_WIDE, MEDIUM,
    NOT_NEGATIVE,
    doc="Both limits in one; replaced by the before and after ones.")
LOG_MESSAGE_FORMAT_VERSION = string("log.message.format.version", "3.0-IV1", READ_ONLY, MEDIUM, RELEASED_VERSION,
    no_effect=NoEffect.RECORD_FORMAT, doc="Old format of stored records.")
LOG_MESSAGE_DOWNCONVERSION_ENABLE = boolean("log.message.downconversion.enable", True, CLUSTER_WIDE, LOW,
    doc="Whether records are converted for clients that support only older formats.")
MESSAGE_MAX_BYTES = integer("message.max.bytes", 1_048_588, CLUSTER_WIDE, HIGH, NOT_NEGATIVE,
    doc="Largest record batch accepted.")
COMPRESSION_TYPE = string("compression.type", "producer", CLUSTER_WIDE, HIGH,
    OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
    doc="How stored batches are compressed; producer keeps what the producer chose.")
COMPRESSION_GZIP_LEVEL = integer("compression.gzip.level", -1, CLUSTER_WIDE, MEDIUM,
    RangeOr(Range(1, 9), -1, "[1,...,9] or -1", "Value must be between 1 and 9 or equal to -1"),
    doc="Level used when the broker compresses with gzip; -1 is the library's default.")
COMPRESSION_LZ4_LEVEL = integer("compression.lz4.level", 9, CLUSTER_WIDE, MEDIUM, Range(1, 17),
    doc="Level used when the broker compresses with lz4.")
COMPRESSION_ZSTD_LEVEL = integer("compression.zstd.level", 3, CLUSTER_WIDE, MEDIUM, Range(-131_072, 22),
    doc="Level used when the broker compresses with zstd.")
NUM_RECOVERY_THREADS_PER_DATA_DIR = integer("num.recovery.threads.per.data.dir", 1, CLUSTER_WIDE, HIGH, POSITIVE,
    doc="Threads that load and recover the logs of one log directory at start.")
NUM_REPLICA_ALTER_LOG_DIRS_THREADS = integer("num.replica.alter.log.dirs.threads", None, READ_ONLY, HIGH,
    doc="Threads that move replicas between log directories; unset means one per directory.")
LOG_DIR_FAILURE_TIMEOUT_MS = long("log.dir.failure.timeout.ms", 30000, READ_ONLY, LOW, POSITIVE,
    no_effect=NoEffect.KRAFT, doc="Time after which a broker stops if it cannot report a failed log directory.")
PRODUCER_ID_EXPIRATION_MS = integer("producer.id.expiration.ms", 86_400_000, CLUSTER_WIDE, LOW, POSITIVE,
    doc="Time after which the state of an idle producer is removed.")

# Log cleaning
LOG_CLEANER_ENABLE = boolean("log.cleaner.enable", True, READ_ONLY, MEDIUM,
    doc="Whether compacted topics are cleaned.")
LOG_CLEANER_THREADS = integer("log.cleaner.threads", 1, CLUSTER_WIDE, MEDIUM, NOT_NEGATIVE,
    doc="Workers that clean logs.")
LOG_CLEANER_DEDUPE_BUFFER_SIZE = long("log.cleaner.dedupe.buffer.size", 134_217_728, CLUSTER_WIDE, MEDIUM,
    doc="Memory of the offset maps of all cleaner threads together.")
LOG_CLEANER_IO_BUFFER_SIZE = integer("log.cleaner.io.buffer.size", 524_288, CLUSTER_WIDE, MEDIUM, NOT_NEGATIVE,
    doc="Memory of the read and write buffers of all cleaner threads.")
LOG_CLEANER_IO_BUFFER_LOAD_FACTOR = double("log.cleaner.io.buffer.load.factor", 0.9, CLUSTER_WIDE, MEDIUM,
    doc="Share of an offset map that may be filled.")
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND = double("log.cleaner.io.max.bytes.per.second", DOUBLE_MAX, CLUSTER_WIDE, MEDIUM,
    doc="Reading and writing rate of all cleaner threads together.")
LOG_CLEANER_BACKOFF_MS = long("log.cleaner.backoff.ms", 15000, CLUSTER_WIDE, MEDIUM, NOT_NEGATIVE,
    doc="Pause when nothing needs cleaning.")
LOG_CLEANER_MIN_CLEANABLE_RATIO = double("log.cleaner.min.cleanable.ratio", 0.5, CLUSTER_WIDE, MEDIUM, Range(0, 1),
    doc="Share of uncleaned bytes from which on a log is cleaned.")
LOG_CLEANER_MIN_COMPACTION_LAG_MS = long("log.cleaner.min.compaction.lag.ms", 0, CLUSTER_WIDE, MEDIUM, NOT_NEGATIVE,
    doc="Age below which a record is never compacted.")
LOG_CLEANER_MAX_COMPACTION_LAG_MS = long("log.cleaner.max.compaction.lag.ms", LONG_MAX, CLUSTER_WIDE, MEDIUM, POSITIVE,
    doc="Age above which a record must become compactable.")
LOG_CLEANER_DELETE_RETENTION_MS = long("log.cleaner.delete.retention.ms", 86_400_000, CLUSTER_WIDE, MEDIUM,
    NOT_NEGATIVE,
    doc="Time for which a tombstone stays readable after its log was cleaned.")

# Consumer groups and their offsets
GROUP_MIN_SESSION_TIMEOUT_MS = integer("group.min.session.timeout.ms", 6000, READ_ONLY, MEDIUM,
    doc="Shortest session timeout that a member may request.")
GROUP_MAX_SESSION_TIMEOUT_MS = integer("group.max.session.timeout.ms", 1_800_000, READ_ONLY, MEDIUM,
    doc="Longest session timeout that a member may request.")
GROUP_INITIAL_REBALANCE_DELAY_MS = integer("group.initial.rebalance.delay.ms", 3000, READ_ONLY, MEDIUM,
    doc="Time to wait for more members before the first rebalance of an empty group.")
GROUP_MAX_SIZE = integer("group.max.size", INT_MAX, READ_ONLY, MEDIUM, POSITIVE,
    doc="Members allowed in one group.")
GROUP_COORDINATOR_REBALANCE_PROTOCOLS = string_list(
    "group.coordinator.rebalance.protocols", ("classic",), READ_ONLY, MEDIUM,
    OneOf(("consumer", "classic", "share", "unknown")),
    doc="Protocols of groups that are offered: classic, and consumer (KIP-848) or share (KIP-932). If a file does not "
    "set it, a broker without zookeeper.connect offers all. In a cluster, share must be set on all brokers.")
GROUP_COORDINATOR_THREADS = integer("group.coordinator.threads", 1, READ_ONLY, MEDIUM, POSITIVE,
    no_effect=NoEffect.KRAFT, doc="Threads of the group coordinator in Kafka.")
GROUP_COORDINATOR_APPEND_LINGER_MS = integer("group.coordinator.append.linger.ms", 10, READ_ONLY, MEDIUM, NOT_NEGATIVE,
    no_effect=NoEffect.KRAFT, doc="Time for which the coordinator's writes may be gathered.")
GROUP_CONSUMER_SESSION_TIMEOUT_MS = integer("group.consumer.session.timeout.ms", 45000, READ_ONLY, MEDIUM, POSITIVE,
    doc="Session timeout of groups of the consumer protocol.")
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS = integer("group.consumer.min.session.timeout.ms", 45000, READ_ONLY, MEDIUM,
    POSITIVE,
    doc="Lower bound of group.consumer.session.timeout.ms.")
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS = integer("group.consumer.max.session.timeout.ms", 60000, READ_ONLY, MEDIUM,
    POSITIVE,
    doc="Upper bound of group.consumer.session.timeout.ms.")
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS = integer("group.consumer.heartbeat.interval.ms", 5000, READ_ONLY, MEDIUM,
    POSITIVE,
    doc="Heartbeat interval of groups of the consumer protocol.")
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS = integer("group.consumer.min.heartbeat.interval.ms", 5000, READ_ONLY, MEDIUM,
    POSITIVE,
    doc="Lower bound of group.consumer.heartbeat.interval.ms.")
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS = integer("group.consumer.max.heartbeat.interval.ms", 15000, READ_ONLY, MEDIUM,
    POSITIVE,
    doc="Upper bound of group.consumer.heartbeat.interval.ms.")
GROUP_CONSUMER_MAX_SIZE = integer("group.consumer.max.size", INT_MAX, READ_ONLY, MEDIUM, POSITIVE,
    doc="Members allowed in one group of the consumer protocol.")
GROUP_CONSUMER_ASSIGNORS = string_list(
    "group.consumer.assignors", (UNIFORM_ASSIGNOR, RANGE_ASSIGNOR), READ_ONLY, MEDIUM,
    doc="Assignors offered to groups of the consumer protocol, the first is the default: classes of Kafka, their names "
    "uniform and range, or Python classes as package.module:Class.")
OFFSET_METADATA_MAX_BYTES = integer("offset.metadata.max.bytes", 4096, READ_ONLY, HIGH,
    doc="Largest metadata that a client may store with an offset.")
OFFSETS_TOPIC_NUM_PARTITIONS = integer("offsets.topic.num.partitions", 50, READ_ONLY, HIGH, POSITIVE,
    doc="Partitions of the offsets topic; fixed once it exists.")
OFFSETS_TOPIC_REPLICATION_FACTOR = short("offsets.topic.replication.factor", 3, READ_ONLY, HIGH, POSITIVE,
    doc="Replicas of the offsets topic.")
OFFSETS_TOPIC_SEGMENT_BYTES = integer("offsets.topic.segment.bytes", 104_857_600, READ_ONLY, HIGH, POSITIVE,
    doc="Segment size of the offsets topic.")
OFFSETS_TOPIC_COMPRESSION_CODEC = integer("offsets.topic.compression.codec", 0, READ_ONLY, HIGH,
    doc="Compression of the offsets topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.")
OFFSETS_RETENTION_MINUTES = integer("offsets.retention.minutes", 10080, READ_ONLY, HIGH, POSITIVE,
    doc="Time the offsets of an empty group are kept.")
OFFSETS_RETENTION_CHECK_INTERVAL_MS = long("offsets.retention.check.interval.ms", 600_000, READ_ONLY, HIGH, POSITIVE,
    doc="How often expired offsets are removed.")
OFFSETS_LOAD_BUFFER_SIZE = integer("offsets.load.buffer.size", 5_242_880, READ_ONLY, HIGH, POSITIVE,
    doc="Bytes read at a time when offsets are loaded.")
OFFSETS_COMMIT_TIMEOUT_MS = integer("offsets.commit.timeout.ms", 5000, READ_ONLY, HIGH, POSITIVE,
    doc="Longest wait for an offset commit to be replicated.")
OFFSETS_COMMIT_REQUIRED_ACKS = short("offsets.commit.required.acks", -1, READ_ONLY, HIGH,
    no_effect=NoEffect.ALL_IN_SYNC, doc="Acknowledgements an offset commit needs; deprecated, leave it at -1.")

# Transactions
TRANSACTION_STATE_LOG_NUM_PARTITIONS = integer("transaction.state.log.num.partitions", 50, READ_ONLY, HIGH, POSITIVE,
    doc="Partitions of the transaction topic; fixed once it exists.")
TRANSACTION_STATE_LOG_REPLICATION_FACTOR = short("transaction.state.log.replication.factor", 3, READ_ONLY, HIGH,
    POSITIVE,
    doc="Replicas of the transaction topic.")
TRANSACTION_STATE_LOG_MIN_ISR = integer("transaction.state.log.min.isr", 2, READ_ONLY, HIGH, POSITIVE,
    doc="In-sync replicas the transaction topic needs for writing.")
TRANSACTION_STATE_LOG_SEGMENT_BYTES = integer("transaction.state.log.segment.bytes", 104_857_600, READ_ONLY, HIGH,
    POSITIVE,
    doc="Segment size of the transaction topic.")
TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE = integer("transaction.state.log.load.buffer.size", 5_242_880, READ_ONLY, HIGH,
    POSITIVE,
    doc="Bytes read at a time when transactions are loaded.")
TRANSACTION_MAX_TIMEOUT_MS = integer("transaction.max.timeout.ms", 900_000, READ_ONLY, HIGH, POSITIVE,
    doc="Longest transaction timeout that a producer may request.")
TRANSACTIONAL_ID_EXPIRATION_MS = integer("transactional.id.expiration.ms", 604_800_000, READ_ONLY, HIGH, POSITIVE,
    doc="Time after which an unused transactional id is removed.")
TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS = integer(
    "transaction.abort.timed.out.transaction.cleanup.interval.ms", 10000, READ_ONLY, LOW,
    POSITIVE,
    doc="How often transactions past their timeout are aborted.")
TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS = integer(
    "transaction.remove.expired.transaction.cleanup.interval.ms", 3_600_000, READ_ONLY, LOW,
    POSITIVE,
    doc="How often expired transactional ids are removed.")
TRANSACTION_PARTITION_VERIFICATION_ENABLE = boolean(
    "transaction.partition.verification.enable", True, CLUSTER_WIDE, LOW,
    doc="Whether a leader asks the coordinator if a transaction includes its partition.")

# Quotas
QUOTA_WINDOW_NUM = integer("quota.window.num", 11, READ_ONLY, LOW, POSITIVE,
    doc="Samples kept for client quotas.")
QUOTA_WINDOW_SIZE_SECONDS = integer("quota.window.size.seconds", 1, READ_ONLY, LOW, POSITIVE,
    doc="Length of one sample for client quotas.")
CONTROLLER_QUOTA_WINDOW_NUM = integer("controller.quota.window.num", 11, READ_ONLY, LOW, POSITIVE,
    doc="Samples kept for quotas on topic changes.")
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS = integer("controller.quota.window.size.seconds", 1, READ_ONLY, LOW, POSITIVE,
    doc="Length of one sample for quotas on topic changes.")
REPLICATION_QUOTA_WINDOW_NUM = integer("replication.quota.window.num", 11, READ_ONLY, LOW, POSITIVE,
    doc="Samples kept for replication throttles.")
REPLICATION_QUOTA_WINDOW_SIZE_SECONDS = integer("replication.quota.window.size.seconds", 1, READ_ONLY, LOW, POSITIVE,
    doc="Length of one sample for replication throttles.")
ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_NUM = integer("alter.log.dirs.replication.quota.window.num", 11, READ_ONLY, LOW,
    POSITIVE,
    no_effect=NoEffect.WINDOWS, doc="Samples kept for the throttle on moves between log directories.")
ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_SIZE_SECONDS = integer(
    "alter.log.dirs.replication.quota.window.size.seconds", 1, READ_ONLY, LOW,
    POSITIVE,
    no_effect=NoEffect.WINDOWS, doc="Length of one sample for the throttle on moves between log directories.")
CLIENT_QUOTA_CALLBACK_CLASS = class_name("client.quota.callback.class", None, READ_ONLY, LOW,
    PYTHON_CLASS,
    doc="Plug-in that decides client quotas: a Python class, as package.module:Class (docs/quotas.md).")

# Compatibility
ADVERTISED_KAFKA_VERSION = string("advertised.kafka.version", None, READ_ONLY, LOW, visibility=FOREIGN,
    doc="The release of Kafka, from 0.8.2 to 3.9, whose API versions clients may use, so that a client library can be "
        "tested against it. Before 0.10 there is no ApiVersions request: it closes the connection. If unset, every "
        "version is served. Milena's own setting.")

TRANSACTION_VERSION_2_ENABLE = boolean("transaction.version.2.enable", False, READ_ONLY, LOW, visibility=FOREIGN,
    doc="Whether a broker with zookeeper.connect offers transactions of version 2 (KIP-890) to clients. All brokers of "
        "the cluster must have the same value, and none may be of Kafka. A broker without zookeeper.connect always "
        "offers them. Milena's own setting.")

# Authorisation and secrets
AUTHORIZER_CLASS_NAME = string("authorizer.class.name", "", READ_ONLY, LOW,
    KnownClass("Other authorizers are", ("", *AUTHORIZERS), "non-null string"),
    doc="Authoriser that decides what a principal may do; if empty, everyone may do everything.")
SUPER_USERS = string("super.users", "", READ_ONLY, LOW, Principals(), visibility=FOREIGN,
    doc="Principals that the authoriser never refuses, as User:name separated by semicolons.")
AUTHORIZER_ZOOKEEPER_URL = string("authorizer.zookeeper.url", None, READ_ONLY, LOW, visibility=FOREIGN,
    doc="ZooKeeper ensemble with the ACLs, as zookeeper.connect; unset means the store of the other metadata. TLS and "
        "login are those of zookeeper.connect.")
AUTHORIZER_ZOOKEEPER_CONNECTION_TIMEOUT_MS = integer(
    "authorizer.zookeeper.connection.timeout.ms", None, READ_ONLY, LOW, POSITIVE, visibility=FOREIGN,
    doc="Value of zookeeper.connection.timeout.ms for the ensemble with the ACLs; unset means the same.")
AUTHORIZER_ZOOKEEPER_SESSION_TIMEOUT_MS = integer(
    "authorizer.zookeeper.session.timeout.ms", None, READ_ONLY, LOW, POSITIVE, visibility=FOREIGN,
    doc="Value of zookeeper.session.timeout.ms for the ensemble with the ACLs; unset means the same.")
AUTHORIZER_ZOOKEEPER_MAX_IN_FLIGHT_REQUESTS = integer(
    "authorizer.zookeeper.max.in.flight.requests", None, READ_ONLY, LOW, POSITIVE, visibility=FOREIGN,
    doc="Value of zookeeper.max.in.flight.requests for the ensemble with the ACLs; unset means the same.")
ALLOW_EVERYONE_IF_NO_ACL_FOUND = boolean(
    "allow.everyone.if.no.acl.found", False, READ_ONLY, LOW, visibility=FOREIGN,
    doc="Whether a resource without ACLs is accessible to everyone.")
PRINCIPAL_BUILDER_CLASS = class_name("principal.builder.class", DEFAULT_PRINCIPAL_BUILDER, PER_BROKER, MEDIUM,
    PythonClass((DEFAULT_PRINCIPAL_BUILDER,)),
    doc="Builds the principal of a connection from its credentials, as package.module:Class.")
PASSWORD_ENCODER_SECRET = password("password.encoder.secret", None, READ_ONLY, MEDIUM,
    doc="Secret that encrypts passwords stored in the cluster's metadata.")
PASSWORD_ENCODER_OLD_SECRET = password("password.encoder.old.secret", None, READ_ONLY, MEDIUM,
    doc="Previous secret, used while passwords are re-encrypted.")
PASSWORD_ENCODER_KEY_LENGTH = integer("password.encoder.key.length", 128, READ_ONLY, LOW, Range(8),
    doc="Key length for that encryption.")
PASSWORD_ENCODER_ITERATIONS = integer("password.encoder.iterations", 4096, READ_ONLY, LOW, Range(1024),
    doc="Iterations that derive the key.")
PASSWORD_ENCODER_CIPHER_ALGORITHM = string("password.encoder.cipher.algorithm", "AES/CBC/PKCS5Padding", READ_ONLY, LOW,
    doc="Cipher for that encryption.")
PASSWORD_ENCODER_KEYFACTORY_ALGORITHM = string("password.encoder.keyfactory.algorithm", None, READ_ONLY, LOW,
    doc="Key derivation for that encryption; unset means the strongest available.")
DELEGATION_TOKEN_SECRET_KEY = password("delegation.token.secret.key", None, READ_ONLY, MEDIUM,
    doc="Secret that signs delegation tokens; the same on every broker.")
DELEGATION_TOKEN_MASTER_KEY = password("delegation.token.master.key", None, READ_ONLY, MEDIUM,
    doc="Old name of delegation.token.secret.key.")
DELEGATION_TOKEN_MAX_LIFETIME_MS = long("delegation.token.max.lifetime.ms", 604_800_000, READ_ONLY, MEDIUM, POSITIVE,
    doc="Time after which a delegation token can no longer be renewed.")
DELEGATION_TOKEN_EXPIRY_TIME_MS = long("delegation.token.expiry.time.ms", 86_400_000, READ_ONLY, MEDIUM, POSITIVE,
    doc="Time a delegation token lives without renewal.")
DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS = long("delegation.token.expiry.check.interval.ms", 3_600_000, READ_ONLY, LOW,
    POSITIVE,
    doc="How often expired delegation tokens are removed.")

# TLS
SSL_CLIENT_AUTH = string("ssl.client.auth", "none", PER_BROKER, MEDIUM, OneOf(("required", "requested", "none")),
    doc="Whether a client's certificate is required, requested, or not requested.")
SSL_KEYSTORE_LOCATION = string("ssl.keystore.location", None, PER_BROKER, MEDIUM,
    doc="Keystore with the broker's certificate and key.")
SSL_KEYSTORE_PASSWORD = password("ssl.keystore.password", None, PER_BROKER, MEDIUM,
    doc="Password of the keystore.")
SSL_KEYSTORE_TYPE = string("ssl.keystore.type", "JKS", PER_BROKER, MEDIUM,
    doc="Format of the keystore: PEM, PKCS12 or JKS.")
SSL_KEYSTORE_KEY = password("ssl.keystore.key", None, PER_BROKER, MEDIUM,
    doc="The broker's private key as PEM text, in place of a file.")
SSL_KEYSTORE_CERTIFICATE_CHAIN = password("ssl.keystore.certificate.chain", None, PER_BROKER, MEDIUM,
    doc="The broker's certificates as PEM text, in place of a file.")
SSL_KEY_PASSWORD = password("ssl.key.password", None, PER_BROKER, MEDIUM,
    doc="Password of the private key.")
SSL_TRUSTSTORE_LOCATION = string("ssl.truststore.location", None, PER_BROKER, MEDIUM,
    doc="Trusted certificates for peers.")
SSL_TRUSTSTORE_PASSWORD = password("ssl.truststore.password", None, PER_BROKER, MEDIUM,
    doc="Password of the truststore.")
SSL_TRUSTSTORE_TYPE = string("ssl.truststore.type", "JKS", PER_BROKER, MEDIUM,
    doc="Format of the truststore: PEM, PKCS12 or JKS.")
SSL_TRUSTSTORE_CERTIFICATES = password("ssl.truststore.certificates", None, PER_BROKER, MEDIUM,
    doc="Trusted certificates as PEM text, in place of a file.")
SSL_PROTOCOL = string("ssl.protocol", "TLSv1.3", PER_BROKER, MEDIUM,
    doc="Newest TLS version to use.")
SSL_ENABLED_PROTOCOLS = string_list("ssl.enabled.protocols", ("TLSv1.2", "TLSv1.3",), PER_BROKER, MEDIUM,
    doc="TLS versions that are accepted.")
SSL_CIPHER_SUITES = string_list("ssl.cipher.suites", (), PER_BROKER, MEDIUM,
    doc="Cipher suites that are accepted; empty means the default of the TLS library.")
SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = string("ssl.endpoint.identification.algorithm", "https", PER_BROKER, LOW,
    doc="https checks the peer's host name; an empty value does not.")
SSL_PRINCIPAL_MAPPING_RULES = string("ssl.principal.mapping.rules", "DEFAULT", READ_ONLY, LOW,
    doc="Rules that turn a certificate's name into a principal.")
SSL_PROVIDER = string("ssl.provider", None, PER_BROKER, MEDIUM,
    no_effect=NoEffect.JAVA, doc="Java security provider.")
SSL_KEYMANAGER_ALGORITHM = string("ssl.keymanager.algorithm", "SunX509", PER_BROKER, MEDIUM,
    no_effect=NoEffect.JAVA, doc="Java key manager.")
SSL_TRUSTMANAGER_ALGORITHM = string("ssl.trustmanager.algorithm", "PKIX", PER_BROKER, MEDIUM, TRUST_MANAGERS,
    no_effect=NoEffect.JAVA, doc="Java trust manager.")
SSL_SECURE_RANDOM_IMPLEMENTATION = string("ssl.secure.random.implementation", None, PER_BROKER, LOW,
    no_effect=NoEffect.JAVA, doc="Java source of randomness.")
SSL_ENGINE_FACTORY_CLASS = class_name("ssl.engine.factory.class", None, PER_BROKER, LOW, TLS_ENGINES,
    no_effect=NoEffect.JAVA, doc="Java factory of TLS engines.")
SSL_ALLOW_DN_CHANGES = boolean("ssl.allow.dn.changes", False, READ_ONLY, LOW,
    doc="Whether a reloaded keystore may carry another distinguished name.")
SSL_ALLOW_SAN_CHANGES = boolean("ssl.allow.san.changes", False, READ_ONLY, LOW,
    doc="Whether a reloaded keystore may carry other alternative names.")
SECURITY_PROVIDERS = string("security.providers", None, READ_ONLY, LOW,
    no_effect=NoEffect.JAVA, doc="Java security providers.")

# SASL
SASL_ENABLED_MECHANISMS = string_list("sasl.enabled.mechanisms", ("GSSAPI",), PER_BROKER, MEDIUM,
    doc="SASL mechanisms offered to clients.")
SASL_MECHANISM_INTER_BROKER_PROTOCOL = string("sasl.mechanism.inter.broker.protocol", "GSSAPI", PER_BROKER, MEDIUM,
    doc="SASL mechanism between brokers.")
SASL_MECHANISM_CONTROLLER_PROTOCOL = string("sasl.mechanism.controller.protocol", "GSSAPI", READ_ONLY, HIGH,
    no_effect=NoEffect.KRAFT, doc="SASL mechanism towards Raft controllers.")
SASL_JAAS_CONFIG = password("sasl.jaas.config", None, PER_BROKER, MEDIUM,
    doc="Login modules and their credentials, usually with a listener and mechanism prefix.")
JAVA_SECURITY_AUTH_LOGIN_CONFIG = string("java.security.auth.login.config", None, READ_ONLY, MEDIUM, visibility=FOREIGN,
    doc="JAAS file with login modules, also set by -Djava.security.auth.login.config in the environment's KAFKA_OPTS. "
        "Milena's own setting.")
SASL_SERVER_MAX_RECEIVE_SIZE = integer("sasl.server.max.receive.size", 524_288, READ_ONLY, MEDIUM,
    doc="Largest SASL message accepted before authentication.")
SASL_SERVER_CALLBACK_HANDLER_CLASS = class_name("sasl.server.callback.handler.class", None, READ_ONLY, MEDIUM,
    PythonClass(TOKEN_VALIDATORS),
    doc="Checks the passwords of PLAIN or the tokens of OAUTHBEARER, as package.module:Class.")
SASL_CLIENT_CALLBACK_HANDLER_CLASS = class_name("sasl.client.callback.handler.class", None, READ_ONLY, MEDIUM,
    PythonClass(),
    doc="Supplies user and password of PLAIN and SCRAM towards other brokers, as package.module:Class.")
SASL_LOGIN_CALLBACK_HANDLER_CLASS = class_name("sasl.login.callback.handler.class", None, READ_ONLY, MEDIUM,
    PythonClass(TOKEN_LOGINS),
    doc="Supplies the token of OAUTHBEARER towards other brokers, as package.module:Class.")
SASL_LOGIN_CLASS = class_name("sasl.login.class", None, READ_ONLY, MEDIUM, SASL_PLUG_IN,
    no_effect=NoEffect.SASL, doc="Plug-in that performs the login.")
SASL_LOGIN_CONNECT_TIMEOUT_MS = integer("sasl.login.connect.timeout.ms", None, READ_ONLY, LOW,
    doc="Longest time to wait for the connection to an identity provider.")
SASL_LOGIN_READ_TIMEOUT_MS = integer("sasl.login.read.timeout.ms", None, READ_ONLY, LOW,
    doc="Time to wait for an identity provider's response.")
SASL_LOGIN_RETRY_BACKOFF_MS = long("sasl.login.retry.backoff.ms", 100, READ_ONLY, LOW,
    doc="First pause before an identity provider is asked for a token again.")
SASL_LOGIN_RETRY_BACKOFF_MAX_MS = long("sasl.login.retry.backoff.max.ms", 10000, READ_ONLY, LOW,
    doc="Longest pause before an identity provider is asked for a token again.")
SASL_LOGIN_REFRESH_WINDOW_FACTOR = double("sasl.login.refresh.window.factor", 0.8, PER_BROKER, MEDIUM,
    doc="Share of a token's life after which it is renewed.")
SASL_LOGIN_REFRESH_WINDOW_JITTER = double("sasl.login.refresh.window.jitter", 0.05, PER_BROKER, MEDIUM,
    doc="Random share added to the time at which a token is renewed.")
SASL_LOGIN_REFRESH_MIN_PERIOD_SECONDS = short("sasl.login.refresh.min.period.seconds", 60, PER_BROKER, MEDIUM,
    doc="Shortest time between two renewals of a token.")
SASL_LOGIN_REFRESH_BUFFER_SECONDS = short("sasl.login.refresh.buffer.seconds", 300, PER_BROKER, MEDIUM,
    doc="Time before a token's end in which it must have been renewed.")
SASL_KERBEROS_SERVICE_NAME = string("sasl.kerberos.service.name", None, PER_BROKER, MEDIUM,
    doc="Kerberos service that brokers run as.")
SASL_KERBEROS_KINIT_CMD = string("sasl.kerberos.kinit.cmd", "/usr/bin/kinit", PER_BROKER, MEDIUM,
    no_effect=NoEffect.KINIT, doc="Program that renews Kerberos tickets.")
SASL_KERBEROS_TICKET_RENEW_WINDOW_FACTOR = double("sasl.kerberos.ticket.renew.window.factor", 0.8, PER_BROKER, MEDIUM,
    doc="Share of a ticket's life after which it is renewed.")
SASL_KERBEROS_TICKET_RENEW_JITTER = double("sasl.kerberos.ticket.renew.jitter", 0.05, PER_BROKER, MEDIUM,
    doc="Random share added to the time at which a Kerberos ticket is renewed.")
SASL_KERBEROS_MIN_TIME_BEFORE_RELOGIN = long("sasl.kerberos.min.time.before.relogin", 60000, PER_BROKER, MEDIUM,
    doc="Shortest time between two Kerberos logins.")
SASL_KERBEROS_PRINCIPAL_TO_LOCAL_RULES = string_list(
    "sasl.kerberos.principal.to.local.rules", ("DEFAULT",), PER_BROKER, MEDIUM,
    doc="Rules that turn a Kerberos name into a user name.")
SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL = string("sasl.oauthbearer.token.endpoint.url", None, READ_ONLY, MEDIUM,
    doc="Where tokens are fetched from.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_URL = string("sasl.oauthbearer.jwks.endpoint.url", None, READ_ONLY, MEDIUM,
    doc="Where the keys that sign tokens are published.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS = long("sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000, READ_ONLY, LOW,
    doc="How often the keys of sasl.oauthbearer.jwks.endpoint.url are read.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS = long(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", 100, READ_ONLY, LOW,
    doc="First pause between attempts to read these keys.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS = long(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 10000, READ_ONLY, LOW,
    doc="Longest pause between attempts to read these keys.")
SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS = integer("sasl.oauthbearer.clock.skew.seconds", 30, READ_ONLY, LOW,
    doc="Tolerated clock difference when a token's times are checked.")
SASL_OAUTHBEARER_EXPECTED_AUDIENCE = string_list("sasl.oauthbearer.expected.audience", None, READ_ONLY, LOW,
    doc="Audiences that a token may have.")
SASL_OAUTHBEARER_EXPECTED_ISSUER = string("sasl.oauthbearer.expected.issuer", None, READ_ONLY, LOW,
    doc="Issuer that a token must have.")
SASL_OAUTHBEARER_SCOPE_CLAIM_NAME = string("sasl.oauthbearer.scope.claim.name", "scope", READ_ONLY, LOW,
    doc="Claim that carries a token's scope.")
SASL_OAUTHBEARER_SUB_CLAIM_NAME = string("sasl.oauthbearer.sub.claim.name", "sub", READ_ONLY, LOW,
    doc="Claim that carries a token's subject.")

# Metrics
METRIC_REPORTERS = string_list("metric.reporters", (), CLUSTER_WIDE, LOW, METRICS_REPORTERS,
    doc="Plug-ins that receive metrics: Python classes, as package.module:Class (docs/plug-ins.md).")
KAFKA_METRICS_REPORTERS = string_list("kafka.metrics.reporters", (), READ_ONLY, LOW, METRICS_REPORTERS,
    doc="More plug-ins that receive metrics, as metric.reporters.")
KAFKA_METRICS_POLLING_INTERVAL_SECS = integer("kafka.metrics.polling.interval.secs", 10, READ_ONLY, LOW, POSITIVE,
    doc="Seconds between two reports to all plug-ins that receive metrics.")
AUTO_INCLUDE_JMX_REPORTER = boolean("auto.include.jmx.reporter", True, READ_ONLY, LOW,
    no_effect=NoEffect.JMX, doc="Whether the JMX reporter is added automatically.")
METRICS_NUM_SAMPLES = integer("metrics.num.samples", 2, READ_ONLY, LOW, POSITIVE,
    doc="Windows over which rates such as offset-commit-rate are averaged.")
METRICS_SAMPLE_WINDOW_MS = long("metrics.sample.window.ms", 30000, READ_ONLY, LOW, POSITIVE,
    doc="Length of one such window.")
METRICS_RECORDING_LEVEL = string("metrics.recording.level", "INFO", READ_ONLY, LOW,
    no_effect=NoEffect.ALL_RECORDED, doc="Finest level of metrics that is recorded.")
METRICS_HTTP_LISTENER = string("metrics.http.listener", None, READ_ONLY, MEDIUM, HOST_AND_PORT, visibility=FOREIGN,
    doc="Address as host:port where metrics are served to HTTP clients, also set by the environment's JMX_PORT, "
        "then on 127.0.0.1; an empty host is every address, port 0 any free one. Unset means that metrics are not "
        "served. Milena's own setting.")
METRICS_HTTP_SSL_ENABLE = boolean("metrics.http.ssl.enable", False, READ_ONLY, MEDIUM, visibility=FOREIGN,
    doc="Whether the HTTP port uses TLS, with the settings ssl.*; the prefix listener.name.metrics_http. gives it its "
        "own. Milena's own setting.")
METRICS_HTTP_USERS = password("metrics.http.users", None, READ_ONLY, MEDIUM, visibility=FOREIGN,
    doc="Users of the HTTP port as name:password,...; each request then needs basic authentication. Milena's own "
        "setting.")
LOG_FILES_KEEP = integer("log.files.keep", 168, READ_ONLY, LOW, POSITIVE, visibility=FOREIGN,
    doc="How many files of earlier hours (or days, as log4j.properties says) are kept of each log file of the server. "
        "Milena's own setting.")
METRICS_PER_PARTITION = boolean("metrics.per.partition", True, READ_ONLY, LOW, visibility=FOREIGN,
    doc="Whether metrics of single partitions are served. Milena's own setting.")
CONSOLE_CLIENTS = string("console.clients", "loopback", READ_ONLY, MEDIUM, OneOf(("loopback", "any", "none")),
    visibility=FOREIGN,
    doc="Which addresses the web console on the port of metrics.http.listener serves: loopback addresses only, any, or "
        "none. Metrics and health are served to any. Milena's own setting.")
CONSOLE_HOSTS = string_list("console.hosts", (), READ_ONLY, LOW, visibility=FOREIGN,
    doc="Host names under which browsers reach the web console, besides localhost and numeric addresses. Requests with "
        "another Host header are rejected. Milena's own setting.")
CONSOLE_WRITE_ENABLE = boolean("console.write.enable", False, READ_ONLY, MEDIUM, visibility=FOREIGN,
    doc="Whether the web console may change anything: produce records, manage topics, configurations, groups, ACLs, "
        "users and quotas, and restart, pause, resume and stop connectors. Milena's own setting.")
CONSOLE_PRINCIPAL = string("console.principal", "User:ANONYMOUS", READ_ONLY, MEDIUM, NON_EMPTY_STRING,
    visibility=FOREIGN,
    doc="The principal as which the web console acts if there is an authorizer. Milena's own setting.")
CONSOLE_SCHEMA_REGISTRY_URL = string("console.schema.registry.url", None, READ_ONLY, LOW, visibility=FOREIGN,
    doc="Address of the schema registry with whose schemas the web console shows Avro, Protobuf and JSON Schema "
        "values. Milena's own setting.")
CONSOLE_CONNECT_URL = string_list("console.connect.url", (), READ_ONLY, LOW, HTTP_URLS, visibility=FOREIGN,
    doc="Addresses of the workers of one Kafka Connect cluster, such as http://host:8083, whose connectors the web "
        "console shows. If a worker does not respond, the next one is asked. Milena's own setting.")
CONSOLE_BROKERS = string_list("console.brokers", (), READ_ONLY, LOW, HTTP_URLS, visibility=FOREIGN,
    doc="Addresses of the HTTP ports of the other brokers, such as http://host:9404, whose rates and latencies the web "
        "console of this broker shows beside its own. Milena's own setting.")
CONSOLE_CLUSTERS = string_list("console.clusters", (), READ_ONLY, LOW, NAMED_URLS, visibility=FOREIGN,
    doc="Consoles of other clusters, such as staging=http://host:9404, to which the page of the web console can "
        "switch. Milena's own setting.")
TELEMETRY_MAX_BYTES = integer("telemetry.max.bytes", 1_048_576, READ_ONLY, LOW, POSITIVE,
    doc="Largest batch of metrics a client may push. A broker in a cluster with ZooKeeper takes none.")

# Raft metadata: accepted so that files load
PROCESS_ROLES = string_list("process.roles", (), READ_ONLY, HIGH, OneOf(("broker", "controller")),
    no_effect=NoEffect.KRAFT, doc="Raft roles of this process.")
CONTROLLER_LISTENER_NAMES = string("controller.listener.names", None, READ_ONLY, HIGH,
    doc="Listeners of Raft controllers. They are not opened, and need no entry in listener.security.protocol.map.")
CONTROLLER_QUORUM_VOTERS = string_list("controller.quorum.voters", (), READ_ONLY, HIGH, NON_EMPTY_LIST,
    no_effect=NoEffect.KRAFT, doc="Raft voters.")
CONTROLLER_QUORUM_BOOTSTRAP_SERVERS = string_list("controller.quorum.bootstrap.servers", (), READ_ONLY, HIGH,
    NON_EMPTY_LIST,
    no_effect=NoEffect.KRAFT, doc="Addresses where Raft controllers are found.")
CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS = integer("controller.quorum.election.timeout.ms", 1000, READ_ONLY, HIGH,
    no_effect=NoEffect.KRAFT, doc="Raft election timeout.")
CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS = integer("controller.quorum.election.backoff.max.ms", 1000, READ_ONLY, HIGH,
    no_effect=NoEffect.KRAFT, doc="Longest pause between Raft elections.")
CONTROLLER_QUORUM_FETCH_TIMEOUT_MS = integer("controller.quorum.fetch.timeout.ms", 2000, READ_ONLY, HIGH,
    no_effect=NoEffect.KRAFT, doc="Time without a Raft leader before a vote.")
CONTROLLER_QUORUM_REQUEST_TIMEOUT_MS = integer("controller.quorum.request.timeout.ms", 2000, READ_ONLY, MEDIUM,
    no_effect=NoEffect.KRAFT, doc="Time to wait for the response to a Raft request.")
CONTROLLER_QUORUM_RETRY_BACKOFF_MS = integer("controller.quorum.retry.backoff.ms", 20, READ_ONLY, LOW,
    no_effect=NoEffect.KRAFT, doc="Pause between Raft requests.")
CONTROLLER_QUORUM_APPEND_LINGER_MS = integer("controller.quorum.append.linger.ms", 25, READ_ONLY, MEDIUM,
    no_effect=NoEffect.KRAFT, doc="Time for which Raft writes may be gathered.")
BROKER_HEARTBEAT_INTERVAL_MS = integer("broker.heartbeat.interval.ms", 2000, READ_ONLY, MEDIUM,
    no_effect=NoEffect.KRAFT, doc="Heartbeat interval towards a Raft controller.")
BROKER_SESSION_TIMEOUT_MS = integer("broker.session.timeout.ms", 9000, READ_ONLY, MEDIUM,
    no_effect=NoEffect.KRAFT, doc="Broker session at a Raft controller.")
INITIAL_BROKER_REGISTRATION_TIMEOUT_MS = integer("initial.broker.registration.timeout.ms", 60000, READ_ONLY, MEDIUM,
    no_effect=NoEffect.KRAFT, doc="Longest time to wait for registration at a Raft controller.")
METADATA_LOG_DIR = string("metadata.log.dir", None, READ_ONLY, HIGH,
    no_effect=NoEffect.KRAFT, doc="Folder of the Raft log.")
METADATA_LOG_SEGMENT_BYTES = integer("metadata.log.segment.bytes", 1_073_741_824, READ_ONLY, HIGH, Range(12),
    no_effect=NoEffect.KRAFT, doc="Segment size of the Raft log.")
METADATA_LOG_SEGMENT_MS = long("metadata.log.segment.ms", 604_800_000, READ_ONLY, HIGH,
    no_effect=NoEffect.KRAFT, doc="Segment age of the Raft log.")
METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS = long(
    "metadata.log.max.record.bytes.between.snapshots", 20_971_520, READ_ONLY, HIGH,
    POSITIVE,
    no_effect=NoEffect.KRAFT, doc="Raft log size that makes a snapshot due.")
METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS = long("metadata.log.max.snapshot.interval.ms", 3_600_000, READ_ONLY, HIGH,
    NOT_NEGATIVE,
    no_effect=NoEffect.KRAFT, doc="Raft log age that makes a snapshot due.")
METADATA_MAX_RETENTION_BYTES = long("metadata.max.retention.bytes", 104_857_600, READ_ONLY, HIGH,
    no_effect=NoEffect.KRAFT, doc="Size of Raft log and snapshots that are kept.")
METADATA_MAX_RETENTION_MS = long("metadata.max.retention.ms", 604_800_000, READ_ONLY, HIGH,
    no_effect=NoEffect.KRAFT, doc="Age of Raft log and snapshots that are kept.")
METADATA_MAX_IDLE_INTERVAL_MS = integer("metadata.max.idle.interval.ms", 500, READ_ONLY, LOW, NOT_NEGATIVE,
    no_effect=NoEffect.KRAFT, doc="How often a Raft controller writes when idle.")
ELIGIBLE_LEADER_REPLICAS_ENABLE = boolean("eligible.leader.replicas.enable", False, READ_ONLY, HIGH,
    no_effect=NoEffect.KRAFT, doc="Eligible leader replicas of Raft controllers.")

# Share groups (KIP-932)
GROUP_SHARE_DELIVERY_COUNT_LIMIT = integer("group.share.delivery.count.limit", 5, READ_ONLY, MEDIUM, Range(2, 10),
    doc="Deliveries of one record in a share group.")
GROUP_SHARE_HEARTBEAT_INTERVAL_MS = integer("group.share.heartbeat.interval.ms", 5000, READ_ONLY, MEDIUM, POSITIVE,
    doc="Heartbeat interval of share groups.")
GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS = integer("group.share.min.heartbeat.interval.ms", 5000, READ_ONLY, MEDIUM,
    POSITIVE,
    doc="Lower bound of group.share.heartbeat.interval.ms.")
GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS = integer("group.share.max.heartbeat.interval.ms", 15000, READ_ONLY, MEDIUM,
    POSITIVE,
    doc="Upper bound of group.share.heartbeat.interval.ms.")
GROUP_SHARE_SESSION_TIMEOUT_MS = integer("group.share.session.timeout.ms", 45000, READ_ONLY, MEDIUM, POSITIVE,
    doc="Session timeout of share groups.")
GROUP_SHARE_MIN_SESSION_TIMEOUT_MS = integer("group.share.min.session.timeout.ms", 45000, READ_ONLY, MEDIUM, POSITIVE,
    doc="Lower bound of group.share.session.timeout.ms.")
GROUP_SHARE_MAX_SESSION_TIMEOUT_MS = integer("group.share.max.session.timeout.ms", 60000, READ_ONLY, MEDIUM, POSITIVE,
    doc="Upper bound of group.share.session.timeout.ms.")
GROUP_SHARE_RECORD_LOCK_DURATION_MS = integer("group.share.record.lock.duration.ms", 30000, READ_ONLY, MEDIUM,
    Range(1000, 60000),
    doc="Time a record stays locked by a member of a share group.")
GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS = integer("group.share.min.record.lock.duration.ms", 15000, READ_ONLY, MEDIUM,
    Range(1000, 30000),
    doc="Lower bound of group.share.record.lock.duration.ms.")
GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS = integer("group.share.max.record.lock.duration.ms", 60000, READ_ONLY, MEDIUM,
    Range(30000, 3_600_000),
    doc="Upper bound of group.share.record.lock.duration.ms.")
GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS = integer("group.share.partition.max.record.locks", 200, READ_ONLY, MEDIUM,
    Range(100, 10000),
    doc="Locked records allowed in one partition.")
GROUP_SHARE_MAX_GROUPS = short("group.share.max.groups", 10, READ_ONLY, MEDIUM, Range(1, 100),
    no_effect=NoEffect.KRAFT, doc="Share groups allowed.")
GROUP_SHARE_MAX_SIZE = short("group.share.max.size", 200, READ_ONLY, MEDIUM, Range(10, 1000),
    doc="Members allowed in one share group.")

SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS = integer("share.coordinator.state.topic.num.partitions", 50, READ_ONLY,
    HIGH, POSITIVE, visibility=FOREIGN,
    doc="Partitions of the topic that keeps how far share groups are; fixed once it exists.")
SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR = short("share.coordinator.state.topic.replication.factor", 3,
    READ_ONLY, HIGH, POSITIVE, visibility=FOREIGN,
    doc="Replicas of that topic. A broker without zookeeper.connect keeps one, whatever is set.")
SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR = short("share.coordinator.state.topic.min.isr", 2, READ_ONLY, HIGH, POSITIVE,
    visibility=FOREIGN,
    doc="In-sync replicas that a write to that topic of states needs. A broker without zookeeper.connect needs one.")
SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES = integer("share.coordinator.state.topic.segment.bytes", 104_857_600,
    READ_ONLY, HIGH, POSITIVE, visibility=FOREIGN,
    doc="Segment size of that topic.")
SHARE_COORDINATOR_STATE_TOPIC_COMPRESSION_CODEC = integer("share.coordinator.state.topic.compression.codec", 0,
    READ_ONLY, HIGH, Range(0, 4), visibility=FOREIGN,
    doc="Compression of that topic of states: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.")
SHARE_COORDINATOR_LOAD_BUFFER_SIZE = integer("share.coordinator.load.buffer.size", 5_242_880, READ_ONLY, HIGH, POSITIVE,
    visibility=FOREIGN,
    doc="Bytes of the topic of states that are read at once when a share coordinator loads it.")
SHARE_COORDINATOR_WRITE_TIMEOUT_MS = integer("share.coordinator.write.timeout.ms", 5000, READ_ONLY, HIGH, POSITIVE,
    visibility=FOREIGN,
    doc="How long a write of a share coordinator may wait for replicas.")
GROUP_SHARE_MAX_SHARE_SESSIONS = integer("group.share.max.share.sessions", 2000, READ_ONLY, MEDIUM, POSITIVE,
    visibility=FOREIGN,
    doc="Share sessions allowed: one for each member of a share group that fetches.")

# Tiered storage: accepted so that files load
LOG_LOCAL_RETENTION_BYTES = long("log.local.retention.bytes", -2, CLUSTER_WIDE, MEDIUM, Range(-2),
    no_effect=NoEffect.TIERED_STORAGE, doc="Size kept locally if segments are tiered.")
LOG_LOCAL_RETENTION_MS = long("log.local.retention.ms", -2, CLUSTER_WIDE, MEDIUM, Range(-2),
    no_effect=NoEffect.TIERED_STORAGE, doc="Age kept locally when segments are tiered.")
REMOTE_FETCH_MAX_WAIT_MS = integer("remote.fetch.max.wait.ms", 500, CLUSTER_WIDE, MEDIUM, POSITIVE,
    no_effect=NoEffect.TIERED_STORAGE, doc="Longest wait for a read of tiered data.")
REMOTE_LOG_STORAGE_SYSTEM_ENABLE = boolean("remote.log.storage.system.enable", False, READ_ONLY, MEDIUM,
    no_effect=NoEffect.TIERED_STORAGE, doc="Tiered storage.")
REMOTE_LOG_STORAGE_MANAGER_CLASS_NAME = string("remote.log.storage.manager.class.name", None, READ_ONLY, MEDIUM,
    NON_EMPTY_STRING,
    no_effect=NoEffect.TIERED_STORAGE, doc="Plug-in that stores tiered segments.")
REMOTE_LOG_STORAGE_MANAGER_CLASS_PATH = string("remote.log.storage.manager.class.path", None, READ_ONLY, MEDIUM,
    no_effect=NoEffect.TIERED_STORAGE, doc="Class path of remote.log.storage.manager.class.name.")
REMOTE_LOG_STORAGE_MANAGER_IMPL_PREFIX = string(
    "remote.log.storage.manager.impl.prefix", "rsm.config.", READ_ONLY, MEDIUM,
    NON_EMPTY_STRING,
    no_effect=NoEffect.TIERED_STORAGE, doc="Prefix of the settings of remote.log.storage.manager.class.name.")
REMOTE_LOG_METADATA_MANAGER_CLASS_NAME = string(
    "remote.log.metadata.manager.class.name",
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
    READ_ONLY, MEDIUM,
    NON_EMPTY_STRING,
    no_effect=NoEffect.TIERED_STORAGE, doc="Plug-in that records where tiered segments are.")
REMOTE_LOG_METADATA_MANAGER_CLASS_PATH = string("remote.log.metadata.manager.class.path", None, READ_ONLY, MEDIUM,
    no_effect=NoEffect.TIERED_STORAGE, doc="Class path of remote.log.metadata.manager.class.name.")
REMOTE_LOG_METADATA_MANAGER_IMPL_PREFIX = string(
    "remote.log.metadata.manager.impl.prefix", "rlmm.config.", READ_ONLY, MEDIUM,
    NON_EMPTY_STRING,
    no_effect=NoEffect.TIERED_STORAGE, doc="Prefix of the settings of remote.log.metadata.manager.class.name.")
REMOTE_LOG_METADATA_MANAGER_LISTENER_NAME = string("remote.log.metadata.manager.listener.name", None, READ_ONLY, MEDIUM,
    NON_EMPTY_STRING,
    no_effect=NoEffect.TIERED_STORAGE, doc="Listener that remote.log.metadata.manager.class.name connects to.")
REMOTE_LOG_METADATA_CUSTOM_METADATA_MAX_BYTES = integer(
    "remote.log.metadata.custom.metadata.max.bytes", 128, READ_ONLY, LOW,
    NOT_NEGATIVE,
    no_effect=NoEffect.TIERED_STORAGE, doc="Largest custom metadata of a tiered segment.")
REMOTE_LOG_INDEX_FILE_CACHE_TOTAL_SIZE_BYTES = long(
    "remote.log.index.file.cache.total.size.bytes", 1_073_741_824, CLUSTER_WIDE, LOW,
    POSITIVE,
    no_effect=NoEffect.TIERED_STORAGE, doc="Disk space for indexes of tiered segments.")
REMOTE_LOG_MANAGER_THREAD_POOL_SIZE = integer("remote.log.manager.thread.pool.size", 10, READ_ONLY, MEDIUM, POSITIVE,
    no_effect=NoEffect.TIERED_STORAGE, doc="Threads for tiering.")
REMOTE_LOG_MANAGER_COPIER_THREAD_POOL_SIZE = integer(
    "remote.log.manager.copier.thread.pool.size", -1, READ_ONLY, MEDIUM,
    POSITIVE_OR_UNSET,
    no_effect=NoEffect.TIERED_STORAGE, doc="Threads that copy segments out.")
REMOTE_LOG_MANAGER_EXPIRATION_THREAD_POOL_SIZE = integer(
    "remote.log.manager.expiration.thread.pool.size", -1, READ_ONLY, MEDIUM,
    POSITIVE_OR_UNSET,
    no_effect=NoEffect.TIERED_STORAGE, doc="Threads that delete expired tiered segments.")
REMOTE_LOG_MANAGER_TASK_INTERVAL_MS = long("remote.log.manager.task.interval.ms", 30000, READ_ONLY, LOW, POSITIVE,
    no_effect=NoEffect.TIERED_STORAGE, doc="How often segments are checked for tiering.")
REMOTE_LOG_MANAGER_COPY_MAX_BYTES_PER_SECOND = long(
    "remote.log.manager.copy.max.bytes.per.second", LONG_MAX, CLUSTER_WIDE, MEDIUM,
    POSITIVE,
    no_effect=NoEffect.TIERED_STORAGE, doc="Rate of copying segments out.")
REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_NUM = integer("remote.log.manager.copy.quota.window.num", 11, READ_ONLY, MEDIUM,
    POSITIVE,
    no_effect=NoEffect.TIERED_STORAGE, doc="Samples kept for the rate of writing tiered segments.")
REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_SIZE_SECONDS = integer(
    "remote.log.manager.copy.quota.window.size.seconds", 1, READ_ONLY, MEDIUM,
    POSITIVE,
    no_effect=NoEffect.TIERED_STORAGE, doc="Length of one sample for the rate of writing tiered segments.")
REMOTE_LOG_MANAGER_FETCH_MAX_BYTES_PER_SECOND = long(
    "remote.log.manager.fetch.max.bytes.per.second", LONG_MAX, CLUSTER_WIDE, MEDIUM,
    POSITIVE,
    no_effect=NoEffect.TIERED_STORAGE, doc="Rate of reading tiered segments.")
REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_NUM = integer("remote.log.manager.fetch.quota.window.num", 11, READ_ONLY, MEDIUM,
    POSITIVE,
    no_effect=NoEffect.TIERED_STORAGE, doc="Samples kept for the rate of reading tiered segments.")
REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_SIZE_SECONDS = integer(
    "remote.log.manager.fetch.quota.window.size.seconds", 1, READ_ONLY, MEDIUM,
    POSITIVE,
    no_effect=NoEffect.TIERED_STORAGE, doc="Length of one sample for the rate of reading tiered segments.")
REMOTE_LOG_READER_THREADS = integer("remote.log.reader.threads", 10, READ_ONLY, MEDIUM, POSITIVE,
    no_effect=NoEffect.TIERED_STORAGE, doc="Threads that read tiered data.")
REMOTE_LOG_READER_MAX_PENDING_TASKS = integer("remote.log.reader.max.pending.tasks", 100, READ_ONLY, MEDIUM, POSITIVE,
    no_effect=NoEffect.TIERED_STORAGE, doc="Reads of tiered data that may wait.")

# Limits that exist only as dynamic values
LEADER_REPLICATION_THROTTLED_RATE = long(
    "leader.replication.throttled.rate", LONG_MAX, PER_BROKER, MEDIUM, NOT_NEGATIVE,
    visibility=WHEN_SET,
    doc="Rate at which throttled partitions are served to followers.")
FOLLOWER_REPLICATION_THROTTLED_RATE = long(
    "follower.replication.throttled.rate", LONG_MAX, PER_BROKER, MEDIUM, NOT_NEGATIVE,
    visibility=WHEN_SET,
    doc="Rate at which throttled partitions are fetched from leaders.")
REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND = long(
    "replica.alter.log.dirs.io.max.bytes.per.second", LONG_MAX, PER_BROKER, MEDIUM, NOT_NEGATIVE,
    visibility=WHEN_SET, doc="Rate of moving replicas between log directories.")

# Accepted in a file, never described
CONFIG_PROVIDERS = string_list("config.providers", (), READ_ONLY, LOW, visibility=INTERNAL,
    doc="Names of providers that ${provider:path:key} may refer to; each has a class setting of its own.")
QUOTA_PRODUCER_DEFAULT = long("quota.producer.default", LONG_MAX, READ_ONLY, HIGH, POSITIVE, visibility=INTERNAL,
    doc="Bytes per second any client may produce until a dynamic default says otherwise.")
QUOTA_CONSUMER_DEFAULT = long("quota.consumer.default", LONG_MAX, READ_ONLY, HIGH, POSITIVE, visibility=INTERNAL,
    doc="Bytes per second any client may fetch until a dynamic default says otherwise.")
LOG_INITIAL_TASK_DELAY_MS = long("log.initial.task.delay.ms", 30000, READ_ONLY, LOW, NOT_NEGATIVE, visibility=INTERNAL,
    doc="Wait after start before retention begins.")
PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS = integer(
    "producer.id.expiration.check.interval.ms", 600_000, READ_ONLY, LOW, POSITIVE, visibility=INTERNAL,
    doc="How often idle producers are removed.")
UNCLEAN_LEADER_ELECTION_INTERVAL_MS = long(
    "unclean.leader.election.interval.ms", 300_000, READ_ONLY, LOW, POSITIVE, visibility=INTERNAL,
    no_effect=NoEffect.KRAFT, doc="How often a Raft controller looks for unclean elections.")
SERVER_MAX_STARTUP_TIME_MS = long("server.max.startup.time.ms", LONG_MAX, READ_ONLY, MEDIUM, visibility=INTERNAL,
    no_effect=NoEffect.KRAFT, doc="Longest start of a Raft server.")
UNSTABLE_API_VERSIONS_ENABLE = boolean("unstable.api.versions.enable", False, READ_ONLY, HIGH, visibility=INTERNAL,
    no_effect=NoEffect.KRAFT, doc="Whether unfinished request versions are served.")
UNSTABLE_FEATURE_VERSIONS_ENABLE = boolean(
    "unstable.feature.versions.enable", False, READ_ONLY, HIGH, visibility=INTERNAL,
    no_effect=NoEffect.KRAFT, doc="Whether unfinished features are available.")
METADATA_LOG_SEGMENT_MIN_BYTES = integer(
    "metadata.log.segment.min.bytes", 8_388_608, READ_ONLY, HIGH, Range(12), visibility=INTERNAL,
    no_effect=NoEffect.KRAFT, doc="Smallest segment of the Raft log.")
ZOOKEEPER_METADATA_MIGRATION_MIN_BATCH_SIZE = integer(
    "zookeeper.metadata.migration.min.batch.size", 200, READ_ONLY, HIGH, POSITIVE, visibility=INTERNAL,
    no_effect=NoEffect.KRAFT, doc="Batch size of a migration to Raft metadata.")
GROUP_COORDINATOR_NEW_ENABLE = boolean("group.coordinator.new.enable", False, READ_ONLY, MEDIUM, visibility=INTERNAL,
    no_effect=NoEffect.KRAFT, doc="Kafka's rewritten group coordinator.")
GROUP_CONSUMER_MIGRATION_POLICY = string(
    "group.consumer.migration.policy", "bidirectional", READ_ONLY, MEDIUM,
    OneOf(("disabled", "upgrade", "downgrade", "bidirectional")), visibility=INTERNAL,
    doc="Which moves of a group between the classic and the consumer protocol are allowed.")
GROUP_SHARE_ENABLE = boolean("group.share.enable", False, READ_ONLY, MEDIUM, visibility=INTERNAL,
    no_effect=NoEffect.KRAFT, doc="Share groups.")
REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MS = long(
    "remote.log.manager.task.retry.backoff.ms", 500, READ_ONLY, LOW, NOT_NEGATIVE, visibility=INTERNAL,
    no_effect=NoEffect.TIERED_STORAGE, doc="First pause between attempts of a tiering task.")
REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MAX_MS = long(
    "remote.log.manager.task.retry.backoff.max.ms", 30000, READ_ONLY, LOW, NOT_NEGATIVE, visibility=INTERNAL,
    no_effect=NoEffect.TIERED_STORAGE, doc="Longest pause between attempts of a tiering task.")
REMOTE_LOG_MANAGER_TASK_RETRY_JITTER = double(
    "remote.log.manager.task.retry.jitter", 0.2, READ_ONLY, LOW, Range(0), visibility=INTERNAL,
    no_effect=NoEffect.TIERED_STORAGE, doc="Random share added to that pause.")

# fmt: on

BROKER_PROPERTIES: Mapping[str, Property[object]] = MappingProxyType(
    {row.name: row for row in tuple(globals().values()) if isinstance(row, Property)}
)
"""Every row by its name, in the order of the table."""
