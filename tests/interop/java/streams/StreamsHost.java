import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.function.BiConsumer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyQueryMetadata;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * Runs Kafka Streams applications in one JVM, as lines of standard input demand:
 *
 * <pre>
 * start APPLICATION PROGRAM PREFIX SETTING=VALUE ...   prints "APPLICATION STATE" at each change of the state
 * stop APPLICATION                                     the last state is NOT_RUNNING
 * count APPLICATION STORE KEY                          prints "count " and the count here, or "none": also while the store moves
 * where APPLICATION STORE KEY                          prints "where ", the port of the active, and those of standbys
 * </pre>
 *
 * PROGRAM is a class that adds its streams to a builder; the names of its topics begin with PREFIX. At the end of the
 * input all applications stop.
 */
public class StreamsHost {
    private static final Duration STOP_TIMEOUT = Duration.ofSeconds(30);
    private static final Map<String, KafkaStreams> APPLICATIONS = new LinkedHashMap<>();

    public static void main(String[] none) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "start" -> start(words);
                case "stop" -> APPLICATIONS.remove(words[1]).close(STOP_TIMEOUT);
                case "count" -> System.out.println("count " + count(words[1], words[2], words[3]));
                case "where" -> System.out.println("where " + where(words[1], words[2], words[3]));
                default -> throw new IllegalArgumentException("no command: " + line);
            }
        }
        APPLICATIONS.values().parallelStream().forEach(streams -> streams.close(STOP_TIMEOUT));
    }

    @SuppressWarnings("unchecked")
    private static void start(String[] words) throws ReflectiveOperationException {
        String application = words[1];
        StreamsBuilder builder = new StreamsBuilder();
        Object program = Class.forName(words[2]).getConstructor().newInstance();
        ((BiConsumer<StreamsBuilder, String>) program).accept(builder, words[3]);
        Properties settings = settings(application);
        for (String setting : Arrays.copyOfRange(words, 4, words.length)) {
            settings.put(setting.split("=", 2)[0], setting.split("=", 2)[1]);
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((state, before) -> System.out.println(application + " " + state));
        APPLICATIONS.put(application, streams);
        streams.start();
    }

    private static Properties settings(String application) {
        Properties settings = new Properties();
        settings.putAll(Map.of(
            "application.id", application,
            "num.stream.threads", 1,
            "default.key.serde", Serdes.StringSerde.class,
            "default.value.serde", Serdes.StringSerde.class,
            // Every change of a count is written, so that one that is counted twice shows.
            "cache.max.bytes.buffering", 0,
            "commit.interval.ms", 100,
            "consumer.auto.offset.reset", "earliest",
            // The members of an application that was killed leave the group soon.
            "consumer.session.timeout.ms", 2000,
            "consumer.heartbeat.interval.ms", 500));
        return settings;
    }

    private static String count(String application, String store, String key) {
        try {
            ReadOnlyKeyValueStore<String, Long> counts = APPLICATIONS.get(application)
                .store(StoreQueryParameters.fromNameAndType(store, QueryableStoreTypes.keyValueStore()));
            Long count = counts.get(key);
            return count == null ? "none" : count.toString();
        } catch (InvalidStateStoreException moving) {
            return "none";
        }
    }

    private static String where(String application, String store, String key) {
        KeyQueryMetadata found = APPLICATIONS.get(application)
            .queryMetadataForKey(store, key, Serdes.String().serializer());
        StringBuilder ports = new StringBuilder().append(found.activeHost().port());
        found.standbyHosts().forEach(standby -> ports.append(" ").append(standby.port()));
        return ports.toString();
    }
}
