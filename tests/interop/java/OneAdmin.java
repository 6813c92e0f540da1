import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** What admin clients of every version since 1.1 can ask about TOPIC; prints one "request result" a line. */
public class OneAdmin {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        try (AdminClient admin = AdminClient.create(Map.of("bootstrap.servers", arguments[0]))) {
            NewTopic wanted = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "3600000"));
            admin.createTopics(List.of(wanted), new CreateTopicsOptions().validateOnly(true)).all().get();
            say("validated", admin.listTopics().names().get().contains(topic));
            say("created", failure(admin.createTopics(List.of(wanted)).all()));
            say("created-again", failure(admin.createTopics(List.of(wanted)).all()));
            say("bad-name", failure(admin.createTopics(List.of(new NewTopic("bad name", 1, (short) 1))).all()));
            say("bad-replicas", failure(admin.createTopics(List.of(new NewTopic(topic + "-x", 1, (short) 9))).all()));
            say("bad-config", failure(admin.createTopics(
                List.of(new NewTopic(topic + "-x", 1, (short) 1).configs(Map.of("nosuch", "1")))).all()));
            say("listed", admin.listTopics().names().get().contains(topic));
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            say("retention", config(admin, resource, "retention.ms"));
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, arguments[2]);
            say("broker-id", config(admin, broker, "broker.id"));
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            say("narrowed", failure(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(1))).all()));
            TopicPartition partition = new TopicPartition(topic, 2);
            say("low-watermark", admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(0)))
                .lowWatermarks().get(partition).get().lowWatermark());
            say("beyond-the-end", failure(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(5))).all()));
            say("nodes", admin.describeCluster().nodes().get().size());
            say("deleted", failure(admin.deleteTopics(List.of(topic)).all()));
            say("deleted-again", failure(admin.deleteTopics(List.of(topic)).all()));
        }
    }

    private static String config(AdminClient admin, ConfigResource resource, String name) throws Exception {
        ConfigEntry entry = admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name);
        return entry.value() + " " + entry.isDefault() + " " + entry.isReadOnly() + " " + entry.isSensitive();
    }

    private static void say(String question, Object answer) {
        System.out.println(question + " " + answer);
    }

    private static String failure(KafkaFuture<?> future) throws InterruptedException {
        try {
            future.get();
            return "none";
        } catch (ExecutionException wrapped) {
            return wrapped.getCause().getClass().getSimpleName();
        }
    }
}
