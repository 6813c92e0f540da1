package org.apache.kafka.connect.mirror;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintStream;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.runtime.ConnectorConfig;

/**
 * Prints as JSON what MirrorMaker 2 makes of examples: records, names of topics, translated offsets, and the settings
 * that follow from properties files, whose paths are the arguments.
 *
 * It is in MirrorMaker's package because most of its classes are not public.
 */
public class RecordMirrorMaker {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);
    private static final List<String> TOPICS = List.of(
        "orders", "A.orders", "B.A.orders", "A..orders", ".orders", "orders.", "A_orders", "A__orders", "heartbeats",
        "A.heartbeats", "B.A.heartbeats", "B_A_heartbeats", "my-heartbeats", "A.checkpoints.internal",
        "A_checkpoints_internal", "mm2-offset-syncs.A.internal", "__consumer_offsets", "connect-internal", "x.internal",
        "x_internal", ".", "..", "A.", "a.b.c.d");
    private static final String SEPARATOR = "replication.policy.separator";
    private static final String FOR_INTERNAL = "replication.policy.internal.topic.separator.enabled";
    private static final String ALIAS = "source.cluster.alias";

    public static void main(String[] arguments) throws Exception {
        List<Object> files = new ArrayList<>();
        for (String path : arguments) {
            String text = Files.readString(Path.of(path));
            files.add(map("properties", text, "flows", flows(text)));
        }
        Set<String> common = new TreeSet<>(ConnectorConfig.configDef().names());
        Object found = map(
            "records", records(), "policies", policies(), "translations", translations(), "emissions", emissions(),
            "files", files, "connector_settings", common, "definitions", definitions(common));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        out.println(new ObjectMapper().writeValueAsString(found));
    }

    private static List<Object> records() {
        List<Object> found = new ArrayList<>();
        for (Object[] each : new Object[][] {
                {"orders", 0, 495L, 500L}, {"größe-ü", 2147483647, 0L, Long.MAX_VALUE}, {"", 3, -1L, 1L}}) {
            TopicPartition partition = new TopicPartition((String) each[0], (int) each[1]);
            OffsetSync sync = new OffsetSync(partition, (long) each[2], (long) each[3]);
            found.add(record("offset_sync", each, sync.recordKey(), sync.recordValue()));
        }
        for (Object[] each : new Object[][] {
                {"group", "A.orders", 7, 1L, 2L, ""},
                {"grüppe", "größe", 0, 1L << 40, (1L << 40) + 1, "metadata ✓"}}) {
            TopicPartition partition = new TopicPartition((String) each[1], (int) each[2]);
            Checkpoint checkpoint =
                new Checkpoint((String) each[0], partition, (long) each[3], (long) each[4], (String) each[5]);
            Map<String, Object> row = record("checkpoint", each, checkpoint.recordKey(), checkpoint.recordValue());
            row.put("partition", checkpoint.connectPartition());
            found.add(row);
        }
        for (Object[] each : new Object[][] {{"A", "B", 1700000000123L}, {"us-west", "zürich", 0L}}) {
            Heartbeat heartbeat = new Heartbeat((String) each[0], (String) each[1], (long) each[2]);
            Map<String, Object> row = record("heartbeat", each, heartbeat.recordKey(), heartbeat.recordValue());
            row.put("partition", heartbeat.connectPartition());
            found.add(row);
        }
        return found;
    }

    private static Map<String, Object> record(String kind, Object[] fields, byte[] key, byte[] value) {
        HexFormat hex = HexFormat.of();
        return map("kind", kind, "fields", fields, "key", hex.formatHex(key), "value", hex.formatHex(value));
    }

    private static List<Object> policies() {
        return List.of(
            policy(new DefaultReplicationPolicy(), map()),
            policy(new DefaultReplicationPolicy(), map(SEPARATOR, "_")),
            policy(new DefaultReplicationPolicy(), map(SEPARATOR, "_", FOR_INTERNAL, "false")),
            policy(new DefaultReplicationPolicy(), map(SEPARATOR, "__")),
            policy(new DefaultReplicationPolicy(), map(FOR_INTERNAL, "false")),
            policy(new IdentityReplicationPolicy(), map(ALIAS, "A")),
            policy(new IdentityReplicationPolicy(), map()),
            policy(new IdentityReplicationPolicy(), map(ALIAS, "A", SEPARATOR, "_")));
    }

    private static Object policy(DefaultReplicationPolicy policy, Map<String, Object> config) {
        policy.configure(config);
        List<Object> rows = new ArrayList<>();
        for (String topic : TOPICS) {
            rows.add(map(
                "topic", topic, "remote", policy.formatRemoteTopic("A", topic), "source", policy.topicSource(topic),
                "upstream", policy.upstreamTopic(topic), "original", policy.originalTopic(topic),
                "heartbeats", policy.isHeartbeatsTopic(topic), "checkpoints", policy.isCheckpointsTopic(topic),
                "internal", policy.isInternalTopic(topic)));
        }
        return map(
            "class", policy.getClass().getName(), "config", config, "offset_syncs", policy.offsetSyncsTopic("A"),
            "checkpoints", policy.checkpointsTopic("A"), "heartbeats", policy.heartbeatsTopic(), "topics", rows);
    }

    /** A store whose pairs come from this program and not from a topic. */
    private static class Store extends OffsetSyncStore {
        private Runnable loading = () -> { };

        @Override
        void backingStoreStart() {
            loading.run();
        }

        void add(long upstream, long downstream) {
            OffsetSync sync = new OffsetSync(PARTITION, upstream, downstream);
            handleRecord(new ConsumerRecord<>("t", 0, 3, sync.recordKey(), sync.recordValue()));
        }
    }

    /** Pairs of offsets that advance by random steps; some histories also go back. */
    private static class History {
        private final Random random;
        private final Store store;
        private final int number;
        private final int bits;
        private long upstream;
        private long downstream;

        History(Random random, Store store, int number) {
            this.random = random;
            this.store = store;
            this.number = number;
            upstream = random.nextInt(1000);
            downstream = random.nextInt(1000);
            bits = 1 + random.nextInt(20);
        }

        List<long[]> advance() {
            List<long[]> pairs = new ArrayList<>();
            int count = number < 4 ? 8 : 60;
            for (int i = 0; i < count; i++) {
                long step = number % 3 == 0 ? 100 : 1 + random.nextInt(1 << bits);
                upstream += step;
                downstream += number % 4 == 0 ? step : 1 + random.nextInt((int) step);
                if (number % 6 == 5 && random.nextInt(40) == 0) {
                    upstream = Math.max(0, upstream - random.nextInt(1 << bits));
                }
                pairs.add(new long[] {upstream, downstream});
                store.add(upstream, downstream);
            }
            return pairs;
        }
    }

    private static List<Object> translations() {
        List<Object> found = new ArrayList<>();
        Random random = new Random(3);
        for (int number = 0; number < 24; number++) {
            boolean mustReadToEnd = number % 2 == 0;
            Store store = new Store();
            History history = new History(random, store, number);
            List<long[]> loaded = new ArrayList<>();
            store.loading = () -> loaded.addAll(history.advance());
            store.start(mustReadToEnd);
            List<long[]> later = history.advance();
            List<long[]> asked = new ArrayList<>();
            for (int i = 0; i < 60; i++) {
                long position = position(random, i, history.upstream, loaded, later);
                OptionalLong translated = store.translateDownstream("g", PARTITION, position);
                asked.add(new long[] {position, translated.orElse(-2)});
            }
            found.add(map("must_read_to_end", mustReadToEnd, "loaded", loaded, "later", later, "asked", asked));
        }
        return found;
    }

    private static long position(Random random, int i, long end, List<long[]> loaded, List<long[]> later) {
        switch (i % 3) {
            case 0:
                return later.get(random.nextInt(later.size()))[0] + random.nextInt(3) - 1;
            case 1:
                return (long) (random.nextDouble() * (end + 100));
            default:
                return loaded.get(random.nextInt(loaded.size()))[0];
        }
    }

    private static List<Object> emissions() {
        List<Object> found = new ArrayList<>();
        Random random = new Random(5);
        for (long lag : new long[] {0, 1, 10, 100}) {
            OffsetSyncWriter.PartitionState state = new OffsetSyncWriter.PartitionState(lag);
            List<long[]> rows = new ArrayList<>();
            long upstream = random.nextInt(50);
            long downstream = random.nextInt(50);
            for (int i = 0; i < 300; i++) {
                boolean isDue = state.update(upstream, downstream);
                if (isDue) {
                    state.reset();
                }
                rows.add(new long[] {upstream, downstream, isDue ? 1 : 0});
                upstream += random.nextInt(30) == 0 ? 2 : 1;
                downstream += random.nextInt(50) == 0 ? 7 : 1;
                if (random.nextInt(150) == 0) {
                    downstream = Math.max(0, downstream - 20);
                }
            }
            found.add(map("lag_max", lag, "records", rows));
        }
        return found;
    }

    private static List<Object> flows(String text) throws Exception {
        Properties properties = new Properties();
        properties.load(new StringReader(text));
        Map<String, String> settings = new TreeMap<>();
        properties.forEach((key, value) -> settings.put((String) key, (String) value));
        MirrorMakerConfig config = new MirrorMakerConfig(settings);
        List<SourceAndTarget> pairs = new ArrayList<>(config.clusterPairs());
        pairs.sort(Comparator.comparing(Object::toString));
        List<Object> found = new ArrayList<>();
        for (SourceAndTarget pair : pairs) {
            Map<String, Object> connectors = new LinkedHashMap<>();
            for (Class<?> each : MirrorMaker.CONNECTOR_CLASSES) {
                connectors.put(each.getSimpleName(), new TreeMap<>(config.connectorBaseConfig(pair, each)));
            }
            found.add(map(
                "source", pair.source(), "target", pair.target(), "worker", new TreeMap<>(config.workerConfig(pair)),
                "connectors", connectors));
        }
        return found;
    }

    private static Object definitions(Set<String> common) {
        Set<String> others = new TreeSet<>(common);
        others.addAll(new ConfigDef().withClientSslSupport().withClientSaslSupport().names());
        return map(
            "MirrorSourceConnector", definition(MirrorSourceConfig.CONNECTOR_CONFIG_DEF, others),
            "MirrorCheckpointConnector", definition(MirrorCheckpointConfig.CONNECTOR_CONFIG_DEF, others),
            "MirrorHeartbeatConnector", definition(MirrorHeartbeatConfig.CONNECTOR_CONFIG_DEF, others));
    }

    private static List<Object> definition(ConfigDef definition, Set<String> others) {
        List<Object> found = new ArrayList<>();
        for (ConfigDef.ConfigKey each : new TreeMap<>(definition.configKeys()).values()) {
            if (!others.contains(each.name)) {
                found.add(map(
                    "name", each.name, "type", each.type.name(), "default", defaultOf(each),
                    "importance", each.importance.name()));
            }
        }
        return found;
    }

    private static Object defaultOf(ConfigDef.ConfigKey key) {
        if (key.defaultValue == ConfigDef.NO_DEFAULT_VALUE) {
            return "REQUIRED";
        }
        return key.defaultValue instanceof Class ? ((Class<?>) key.defaultValue).getName() : key.defaultValue;
    }

    private static Map<String, Object> map(Object... keysAndValues) {
        Map<String, Object> found = new LinkedHashMap<>();
        for (int i = 0; i < keysAndValues.length; i += 2) {
            found.put((String) keysAndValues[i], keysAndValues[i + 1]);
        }
        return found;
    }
}
