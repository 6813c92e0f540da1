import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Two members share the four partitions of TOPIC, then one leaves; prints who owns how many after each step. */
public class TwoMembers {
    private static final long PATIENCE_MS = 30_000;

    public static void main(String[] arguments) {
        KafkaConsumer<String, String> first = member(arguments);
        KafkaConsumer<String, String> second = member(arguments);
        try (first) {
            try (second) {
                pollUntil(() -> owned(first) == 4, first);
                System.out.println("alone " + owned(first));
                pollUntil(() -> owned(first) == 2 && owned(second) == 2, first, second);
                System.out.println("shared " + owned(first) + " " + owned(second));
                boolean disjoint = first.assignment().stream().noneMatch(second.assignment()::contains);
                System.out.println("disjoint " + disjoint);
            }
            pollUntil(() -> owned(first) == 4, first);
            System.out.println("left " + owned(first));
        }
    }

    private static KafkaConsumer<String, String> member(String[] arguments) {
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[2],
            "partition.assignment.strategy", arguments[3],
            "heartbeat.interval.ms", 200,
            "session.timeout.ms", 6000,
            "key.deserializer", StringDeserializer.class.getName(),
            "value.deserializer", StringDeserializer.class.getName()));
        consumer.subscribe(List.of(arguments[1]));
        return consumer;
    }

    private static int owned(KafkaConsumer<?, ?> consumer) {
        return consumer.assignment().size();
    }

    @SafeVarargs
    private static void pollUntil(BooleanSupplier reached, KafkaConsumer<String, String>... members) {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (!reached.getAsBoolean() && System.currentTimeMillis() < deadline) {
            for (KafkaConsumer<String, String> member : members) {
                member.poll(Duration.ofMillis(100));
            }
        }
    }
}
