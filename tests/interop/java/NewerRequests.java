import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends the requests that only clients of 4.x send, with a TOPIC of five partitions, and prints the results.
 *
 * Producer and consumer close when METRICS, an address, shows a value that they have pushed.
 */
public class NewerRequests {
    private static final int RECORDS = 10;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], topic = arguments[1], shown = arguments[2];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, 5, (short) 1))).all().get();
            say("pages", () -> described(admin, topic));
            ConfigResource metrics = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "everything");
            admin.incrementalAlterConfigs(Map.of(metrics, List.of(
                set("metrics", "*"), set("interval.ms", "100"), set("match", "client_id=" + topic + "-.*")))).all().get();
            say("subscription", () -> {
                Map<String, String> values = new TreeMap<>();
                admin.describeConfigs(List.of(metrics)).all().get().get(metrics).entries()
                    .forEach(entry -> values.put(entry.name(), entry.value() + " " + entry.source()));
                return values;
            });
            say("subscriptions", () -> names(admin, ConfigResource.Type.CLIENT_METRICS));
            say("brokers", () -> names(admin, ConfigResource.Type.BROKER));
            say("topics", () -> names(admin, ConfigResource.Type.TOPIC).contains(topic));
            say("produced", () -> produced(bootstrap, topic, shown));
            say("consumed", () -> consumed(bootstrap, topic, shown));
            TopicPartition partition = new TopicPartition(topic, 0);
            for (Map.Entry<String, OffsetSpec> spec : new TreeMap<>(Map.of(
                "earliest local", OffsetSpec.earliestLocal(), "latest", OffsetSpec.latest(),
                "latest tiered", OffsetSpec.latestTiered())).entrySet()) {
                say(spec.getKey(), () -> admin.listOffsets(Map.of(partition, spec.getValue())).partitionResult(partition)
                    .get().offset());
            }
        }
    }

    private static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }

    private static Object described(Admin admin, String topic) throws Exception {
        TopicDescription found = admin.describeTopics(
            TopicCollection.ofTopicNames(List.of(topic)),
            new DescribeTopicsOptions().partitionSizeLimitPerResponse(2)).allTopicNames().get().get(topic);
        return found.partitions().size() + " partitions, eligible " + found.partitions().get(0).elr();
    }

    private static List<String> names(Admin admin, ConfigResource.Type type) throws Exception {
        return admin.listConfigResources(Set.of(type), new ListConfigResourcesOptions())
            .all().get().stream().map(ConfigResource::name).sorted().toList();
    }

    private static Object produced(String bootstrap, String topic, String shown) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", bootstrap, "client.id", topic + "-producer"),
            new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < RECORDS; number++) {
                producer.send(new ProducerRecord<>(topic, 0, "key", "value"));
            }
            producer.flush();
            Uuid id = producer.clientInstanceId(Duration.ofSeconds(30));
            await(shown, id, "org.apache.kafka.producer.record.send.total", () -> {
                Thread.sleep(100);
                return null;
            });
            return id;
        }
    }

    private static Object consumed(String bootstrap, String topic, String shown) throws Exception {
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
            Map.of("bootstrap.servers", bootstrap, "client.id", topic + "-consumer", "auto.offset.reset", "earliest"),
            new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            for (int count = 0; count < RECORDS; ) {
                count += consumer.poll(Duration.ofSeconds(1)).count();
            }
            Uuid id = consumer.clientInstanceId(Duration.ofSeconds(30));
            await(shown, id, "org.apache.kafka.consumer.fetch.manager.records.consumed.total",
                () -> consumer.poll(Duration.ofMillis(100)));
            return id;
        }
    }

    /** Waits until all records are in the latest value of a metric of a client, which `pause` gives time to push. */
    private static void await(String shown, Uuid id, String metric, Callable<?> pause) throws Exception {
        String line = ".*client_instance_id=\"" + id + "\",metric=\"" + metric + "\",attributes=\"\"} " + RECORDS + "(\\.0)?";
        HttpRequest request = HttpRequest.newBuilder(URI.create(shown)).build();
        for (int attempt = 0; attempt < 300; attempt++) {
            String found = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body();
            if (found.lines().anyMatch(each -> each.matches(line))) {
                return;
            }
            pause.call();
        }
        throw new IllegalStateException(metric + " was not pushed");
    }

    private static void say(String name, Callable<Object> call) {
        String result;
        try {
            result = String.valueOf(call.call());
        } catch (Exception error) {
            result = error.getClass().getSimpleName() + " " + error.getMessage();
        }
        System.out.println(name + ": " + result);
    }
}
