import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.function.BiConsumer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;

/** Counts page views by country: all of them, and those of each hour, which views up to three hours late correct. */
public class PageViews implements BiConsumer<StreamsBuilder, String> {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final DateTimeFormatter TIME =
        DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").withZone(ZoneOffset.UTC);

    @Override
    public void accept(StreamsBuilder builder, String prefix) {
        KStream<String, String> views = builder.stream(prefix + "page-views");
        views.groupBy((key, view) -> country(view))
            .count()
            .toStream()
            .mapValues(PageViews::total)
            .to(prefix + "customer-countries");
        views.groupByKey()
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofHours(1), Duration.ofHours(3)))
            .count()
            .toStream()
            .map(PageViews::hour)
            .to(prefix + "event-counts");
    }

    private static String country(String view) {
        try {
            return JSON.readTree(view).get("country").asText();
        } catch (JsonProcessingException failure) {
            throw new IllegalArgumentException("no JSON: " + view, failure);
        }
    }

    private static String total(String country, long views) {
        return JSON.createObjectNode().put("country", country).put("customers", views).toString();
    }

    private static KeyValue<String, String> hour(Windowed<String> country, long views) {
        String window = TIME.format(Instant.ofEpochMilli(country.window().start()));
        String value =
            JSON.createObjectNode().put("key", country.key()).put("window", window).put("events", views).toString();
        return KeyValue.pair(country.key() + "|" + window, value);
    }
}
