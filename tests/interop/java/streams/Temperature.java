import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.function.BiConsumer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;

/** Lowest and highest temperature of each station and year. */
public class Temperature implements BiConsumer<StreamsBuilder, String> {
    private static final ObjectMapper JSON = new ObjectMapper();

    @Override
    public void accept(StreamsBuilder builder, String prefix) {
        builder.<String, String>stream(prefix + "prices")
            .map((key, reading) -> byYear(parsed(reading)))
            .groupByKey()
            .reduce(Temperature::merged)
            .toStream()
            .to(prefix + "price-ranges");
    }

    private static KeyValue<String, String> byYear(JsonNode reading) {
        String station = reading.get("symbol").asText();
        long timeMs = reading.get("time").asLong();
        String year = String.valueOf(Instant.ofEpochMilli(timeMs).atZone(ZoneOffset.UTC).getYear());
        double degrees = reading.get("price").asDouble();
        return KeyValue.pair(station + "|" + year, range(station, year, degrees, degrees));
    }

    private static String merged(String one, String other) {
        JsonNode left = parsed(one);
        JsonNode right = parsed(other);
        return range(
            left.get("symbol").asText(),
            left.get("period").asText(),
            Math.min(left.get("min").asDouble(), right.get("min").asDouble()),
            Math.max(left.get("max").asDouble(), right.get("max").asDouble()));
    }

    private static String range(String station, String year, double lowest, double highest) {
        return JSON.createObjectNode()
            .put("symbol", station).put("period", year).put("min", lowest).put("max", highest).toString();
    }

    private static JsonNode parsed(String text) {
        try {
            return JSON.readTree(text);
        } catch (JsonProcessingException failure) {
            throw new IllegalArgumentException("no JSON: " + text, failure);
        }
    }
}
