import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.storage.StringConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/**
 * Prints what Kafka's converters and transforms make of cases: one JSON object per line in, one per line out.
 *
 * A value stands in a case as JsonConverter writes it with its schema, and so it does in a result. A case that raises
 * an exception has an "error" in the place of a "result".
 */
public class ConnectGolden {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final JsonConverter ENVELOPE = converter(Map.of());

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode given = MAPPER.readTree(line);
            ObjectNode result = MAPPER.createObjectNode().put("name", given.get("name").asText());
            try {
                result.set("result", run(given));
            } catch (Exception error) {
                result.put("error", error.getClass().getSimpleName() + ": " + error.getMessage());
            }
            out.println(MAPPER.writeValueAsString(result));
        }
    }

    private static JsonNode run(JsonNode given) throws Exception {
        switch (given.get("kind").asText()) {
            case "from_json":
                return text(ENVELOPE.fromConnectData("t", schema(given), read(given, settings(given)).value()));
            case "to_json":
                SchemaAndValue value = value(given.get("value"));
                return text(converter(settings(given)).fromConnectData("t", value.schema(), value.value()));
            case "double":
                return text(ENVELOPE.fromConnectData(
                    "t", Schema.FLOAT64_SCHEMA, Double.parseDouble(given.get("text").asText())));
            case "float":
                return text(ENVELOPE.fromConnectData(
                    "t", Schema.FLOAT32_SCHEMA, Float.parseFloat(given.get("text").asText())));
            case "string":
                SchemaAndValue any = value(given.get("value"));
                return text(new Strings().fromConnectData("t", any.schema(), any.value()));
            case "from_header":
                return header(given);
            case "to_header":
                SchemaAndValue written = value(given.get("value"));
                return text(new SimpleHeaderConverter().fromConnectHeader("t", "h", written.schema(), written.value()));
            case "transform":
                return transform(given);
            default:
                return predicate(given);
        }
    }

    private static class Strings extends StringConverter {
        Strings() {
            configure(Map.of(), false);
        }
    }

    private static SchemaAndValue read(JsonNode given, Map<String, String> settings) {
        byte[] stored = given.get("text").asText().getBytes(StandardCharsets.UTF_8);
        return converter(settings).toConnectData("t", stored);
    }

    private static Schema schema(JsonNode given) {
        return read(given, settings(given)).schema();
    }

    private static JsonNode header(JsonNode given) {
        byte[] stored = given.get("text").asText().getBytes(StandardCharsets.UTF_8);
        SchemaAndValue found = new SimpleHeaderConverter().toConnectHeader("t", "h", stored);
        return found == null ? null : text(ENVELOPE.fromConnectData("t", found.schema(), found.value()));
    }

    @SuppressWarnings("unchecked")
    private static JsonNode transform(JsonNode given) throws Exception {
        Transformation<SinkRecord> transformation = (Transformation<SinkRecord>) plugin(given);
        transformation.configure(settings(given));
        SinkRecord record = transformation.apply(record(given));
        if (record == null) {
            return null;
        }
        ObjectNode result = MAPPER.createObjectNode().put("topic", record.topic());
        result.put("partition", record.kafkaPartition());
        result.put("timestamp", record.timestamp());
        result.set("key", text(ENVELOPE.fromConnectData("t", record.keySchema(), record.key())));
        result.set("value", text(ENVELOPE.fromConnectData("t", record.valueSchema(), record.value())));
        for (Header header : record.headers()) {
            byte[] stored = ENVELOPE.fromConnectData("t", header.schema(), header.value());
            result.withArray("headers").addArray().add(header.key()).add(text(stored));
        }
        return result;
    }

    @SuppressWarnings("unchecked")
    private static JsonNode predicate(JsonNode given) throws Exception {
        Predicate<SinkRecord> predicate = (Predicate<SinkRecord>) plugin(given);
        predicate.configure(settings(given));
        return MAPPER.getNodeFactory().booleanNode(predicate.test(record(given)));
    }

    private static Object plugin(JsonNode given) throws Exception {
        return Class.forName(given.get("class").asText()).getDeclaredConstructor().newInstance();
    }

    private static SinkRecord record(JsonNode given) {
        SchemaAndValue key = value(given.get("key"));
        SchemaAndValue value = value(given.get("value"));
        ConnectHeaders headers = new ConnectHeaders();
        for (JsonNode header : given.withArray("headers")) {
            headers.add(header.get(0).asText(), value(header.get(1)));
        }
        Long timestamp = given.hasNonNull("timestamp") ? given.get("timestamp").asLong() : null;
        String topic = given.hasNonNull("topic") ? given.get("topic").asText() : "orders";
        return new SinkRecord(topic, 3, key.schema(), key.value(), value.schema(), value.value(), 42, timestamp,
            TimestampType.CREATE_TIME, headers);
    }

    private static SchemaAndValue value(JsonNode envelope) {
        if (envelope == null || envelope.isNull()) {
            return SchemaAndValue.NULL;
        }
        return ENVELOPE.toConnectData("t", envelope.toString().getBytes(StandardCharsets.UTF_8));
    }

    private static Map<String, String> settings(JsonNode given) {
        Map<String, String> settings = new HashMap<>();
        if (given.has("config")) {
            given.get("config").fields().forEachRemaining(each -> settings.put(each.getKey(), each.getValue().asText()));
        }
        return settings;
    }

    private static JsonConverter converter(Map<String, String> settings) {
        JsonConverter converter = new JsonConverter();
        converter.configure(settings, false);
        return converter;
    }

    private static JsonNode text(byte[] stored) {
        return stored == null ? null : MAPPER.getNodeFactory().textNode(new String(stored, StandardCharsets.UTF_8));
    }
}
