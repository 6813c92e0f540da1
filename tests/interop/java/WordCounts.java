import java.lang.reflect.Method;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.StreamJoined;

/**
 * A Kafka Streams application: counts the words of the topic APPLICATION-lines into APPLICATION-counts, through a
 * repartition topic and a store with a changelog, and joins APPLICATION-left with APPLICATION-right, within a window,
 * into APPLICATION-joined. Prints each state that it comes to, and ends when its input does.
 */
public class WordCounts {
    private static final Duration WINDOW = Duration.ofMinutes(5);

    public static void main(String[] arguments) throws Exception {
        String application = arguments[1];
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(application + "-lines")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .map((key, word) -> KeyValue.pair(word, word))
            .groupByKey()
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(application + "-counts");
        KStream<String, String> left = builder.stream(application + "-left");
        KStream<String, String> right = builder.stream(application + "-right");
        left.join(right, (one, other) -> one + "+" + other, windows(), StreamJoined.as("pairs"))
            .to(application + "-joined");

        KafkaStreams streams = new KafkaStreams(builder.build(), settings(arguments));
        streams.setStateListener((state, before) -> System.out.println(state));
        streams.start();
        while (System.in.read() >= 0) {
            continue;
        }
        streams.close(Duration.ofSeconds(30));
    }

    private static Properties settings(String[] arguments) {
        Properties settings = new Properties();
        settings.putAll(Map.of(
            "bootstrap.servers", arguments[0],
            "application.id", arguments[1],
            "processing.guarantee", arguments[2],
            "state.dir", arguments[3],
            "num.stream.threads", 2,
            "default.key.serde", Serdes.StringSerde.class,
            "default.value.serde", Serdes.StringSerde.class,
            // Every change of a count is written, so that one that is counted twice shows.
            "cache.max.bytes.buffering", 0,
            "commit.interval.ms", 50));
        settings.put("repartition.purge.interval.ms", 100);
        settings.put("consumer.auto.offset.reset", "earliest");
        // The members of an application that was killed leave the group soon.
        settings.put("consumer.session.timeout.ms", 2000);
        settings.put("consumer.heartbeat.interval.ms", 500);
        return settings;
    }

    /** The method of before 3.0 is gone in 4.0. */
    private static JoinWindows windows() throws ReflectiveOperationException {
        for (Method method : JoinWindows.class.getMethods()) {
            if (method.getName().equals("ofTimeDifferenceWithNoGrace")) {
                return (JoinWindows) method.invoke(null, WINDOW);
            }
        }
        return (JoinWindows) JoinWindows.class.getMethod("of", Duration.class).invoke(null, WINDOW);
    }
}
