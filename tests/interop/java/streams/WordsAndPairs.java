import java.lang.reflect.Method;
import java.time.Duration;
import java.util.Arrays;
import java.util.function.BiConsumer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.StreamJoined;

/**
 * For Kafka Streams of any version: counts the words of "lines" into "counts", through a repartition topic and a store
 * with a changelog, and joins "left" with "right", within a window, into "joined".
 */
public class WordsAndPairs implements BiConsumer<StreamsBuilder, String> {
    private static final Duration WINDOW = Duration.ofMinutes(5);

    @Override
    public void accept(StreamsBuilder builder, String prefix) {
        builder.<String, String>stream(prefix + "lines")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .map((key, word) -> KeyValue.pair(word, word))
            .groupByKey()
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(prefix + "counts");
        KStream<String, String> left = builder.stream(prefix + "left");
        KStream<String, String> right = builder.stream(prefix + "right");
        left.join(right, (one, other) -> one + "+" + other, windows(), StreamJoined.as("pairs"))
            .to(prefix + "joined");
    }

    /** The method of before 3.0 is gone in 4.0. */
    private static JoinWindows windows() {
        try {
            for (Method method : JoinWindows.class.getMethods()) {
                if (method.getName().equals("ofTimeDifferenceWithNoGrace")) {
                    return (JoinWindows) method.invoke(null, WINDOW);
                }
            }
            return (JoinWindows) JoinWindows.class.getMethod("of", Duration.class).invoke(null, WINDOW);
        } catch (ReflectiveOperationException failure) {
            throw new IllegalStateException(failure);
        }
    }
}
