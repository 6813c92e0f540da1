import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Joins TOPIC's groups of the protocols that came after the classic one, and prints what the client makes of it. */
public class NewerGroups {
    private interface Attempt {
        Object run();
    }

    public static void main(String[] arguments) {
        String topic = arguments[1];
        Map<String, Object> shared = Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", topic + "-group",
            "key.deserializer", StringDeserializer.class.getName(),
            "value.deserializer", StringDeserializer.class.getName());
        Map<String, Object> newer = new HashMap<>(shared);
        newer.put("group.protocol", "consumer");
        say("consumer", () -> {
            try (Consumer<String, String> consumer = new KafkaConsumer<>(newer)) {
                consumer.subscribe(List.of(topic));
                return consumer.poll(Duration.ofSeconds(20)).count();
            }
        });
        say("pattern", () -> {
            try (Consumer<String, String> consumer = new KafkaConsumer<>(newer)) {
                consumer.subscribe(new SubscriptionPattern(topic + ".*"));
                return consumer.poll(Duration.ofSeconds(20)).count();
            }
        });
        say("share", () -> {
            try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(shared)) {
                consumer.subscribe(List.of(topic));
                return consumer.poll(Duration.ofSeconds(20)).count();
            }
        });
        say("telemetry", () -> {
            try (Consumer<String, String> consumer = new KafkaConsumer<>(shared)) {
                return consumer.clientInstanceId(Duration.ofSeconds(2));
            }
        });
    }

    private static void say(String name, Attempt attempt) {
        String answer;
        try {
            answer = String.valueOf(attempt.run());
        } catch (RuntimeException error) {
            answer = error.getClass().getSimpleName() + " " + error.getMessage();
        }
        System.out.println(name + ": " + answer);
    }
}
