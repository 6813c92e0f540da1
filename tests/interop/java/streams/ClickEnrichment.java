import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.function.BiConsumer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;

/** Adds to each click the profile of its user, and to each page view the searches of its user a second around it. */
public class ClickEnrichment implements BiConsumer<StreamsBuilder, String> {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JoinWindows WITHIN_A_SECOND =
        JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(1), Duration.ofSeconds(10));

    @Override
    public void accept(StreamsBuilder builder, String prefix) {
        KStream<String, String> clicks = builder.stream(prefix + "clicks");
        KTable<String, String> profiles = builder.table(prefix + "profiles");
        clicks.leftJoin(profiles, (click, profile) -> with(click, "profile", parsed(profile)))
            .to(prefix + "enriched-clicks");

        KStream<String, String> views = builder.stream(prefix + "views");
        KStream<String, String> searches = builder.stream(prefix + "searches");
        views.leftJoin(searches, (view, search) -> with(view, "terms", parsed(search).get("terms")), WITHIN_A_SECOND)
            .to(prefix + "views-with-terms");
    }

    private static String with(String object, String name, JsonNode value) {
        return ((ObjectNode) parsed(object)).set(name, value).toString();
    }

    private static JsonNode parsed(String text) {
        try {
            return text == null ? JSON.nullNode() : JSON.readTree(text);
        } catch (JsonProcessingException failure) {
            throw new IllegalArgumentException("no JSON: " + text, failure);
        }
    }
}
