import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.function.BiConsumer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;

/** Lowest ask, number of asks and average price of each stock in windows of five seconds, one each second. */
public class StockStatistics implements BiConsumer<StreamsBuilder, String> {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final DateTimeFormatter TIME =
        DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").withZone(ZoneOffset.UTC);

    record Figures(double lowest, long trades, double sum) {}

    @Override
    public void accept(StreamsBuilder builder, String prefix) {
        TimeWindows windows = TimeWindows.ofSizeAndGrace(Duration.ofSeconds(5), Duration.ofSeconds(10))
            .advanceBy(Duration.ofSeconds(1));
        builder.<String, String>stream(prefix + "trades")
            .filter((ticker, trade) -> parsed(trade).get("type").asText().equals("ASK"))
            .groupByKey()
            .windowedBy(windows)
            .aggregate(() -> text(new Figures(Double.MAX_VALUE, 0, 0)), StockStatistics::add)
            .toStream()
            .map(StockStatistics::result)
            .to(prefix + "stock-stats");
    }

    private static String add(String ticker, String trade, String before) {
        double price = parsed(trade).get("price").asDouble();
        Figures figures = figures(before);
        return text(new Figures(Math.min(figures.lowest, price), figures.trades + 1, figures.sum + price));
    }

    private static KeyValue<String, String> result(Windowed<String> stock, String text) {
        Figures figures = figures(text);
        String window = TIME.format(Instant.ofEpochMilli(stock.window().start()));
        String value = JSON.createObjectNode()
            .put("ticker", stock.key())
            .put("window", window)
            .put("min_price", figures.lowest)
            .put("trades", figures.trades)
            .put("average_price", figures.sum / figures.trades)
            .toString();
        return KeyValue.pair(stock.key() + "|" + window, value);
    }

    private static Figures figures(String text) {
        JsonNode figures = parsed(text);
        return new Figures(
            figures.get("lowest").asDouble(), figures.get("trades").asLong(), figures.get("sum").asDouble());
    }

    private static String text(Figures figures) {
        return JSON.valueToTree(figures).toString();
    }

    private static JsonNode parsed(String text) {
        try {
            return JSON.readTree(text);
        } catch (JsonProcessingException failure) {
            throw new IllegalArgumentException("no JSON: " + text, failure);
        }
    }
}
