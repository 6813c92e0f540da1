import java.util.List;
import java.util.function.BiConsumer;
import java.util.regex.Pattern;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Materialized;

/** Counts the words of lines, through a repartition topic and the store "counts". */
public class WordCount implements BiConsumer<StreamsBuilder, String> {
    private static final Pattern SEPARATORS = Pattern.compile("\\W+", Pattern.UNICODE_CHARACTER_CLASS);

    @Override
    public void accept(StreamsBuilder builder, String prefix) {
        builder.<String, String>stream(prefix + "wordcount-input")
            .flatMapValues(line -> List.of(SEPARATORS.split(line.toLowerCase())))
            .filter((key, word) -> !word.isEmpty() && !word.equals("the"))
            .groupBy((key, word) -> word)
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(prefix + "wordcount-output");
    }
}
