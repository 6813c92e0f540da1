package totals;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** A service to be tested: it reads orders from one topic, and writes the total of each customer to another. */
public final class Totals {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Totals() {}

    /** Reads {@code count} orders, writes one record a customer, and returns the totals. */
    public static Map<String, Double> totalOrders(String bootstrapServers, String source, String target, int count)
            throws IOException {
        Map<String, Double> totals = new TreeMap<>();
        Map<String, Object> reading = Map.of(
                "bootstrap.servers", bootstrapServers, "group.id", "totals-java", "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(source));
            for (int read = 0; read < count; ) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    JsonNode order = JSON.readTree(record.value());
                    totals.merge(order.get("customer").asText(), order.get("amount").asDouble(), Double::sum);
                    read++;
                }
            }
            consumer.commitSync();
        }
        Map<String, Object> writing = Map.of("bootstrap.servers", bootstrapServers);
        try (var producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            for (var total : totals.entrySet()) {
                String value = JSON.writeValueAsString(Map.of("total", total.getValue()));
                producer.send(new ProducerRecord<>(target, total.getKey(), value));
            }
        }
        return totals;
    }
}
