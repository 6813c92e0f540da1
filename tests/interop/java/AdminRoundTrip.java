import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Creates TOPIC, asks everything about it, widens and deletes it; prints one "request result" a line. */
public class AdminRoundTrip {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        Map<String, Object> settings =
            Map.of("bootstrap.servers", arguments[0], "request.timeout.ms", 10000, "default.api.timeout.ms", 20000);
        try (Admin admin = Admin.create(settings)) {
            NewTopic wanted = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "3600000"));
            say("created", admin.createTopics(List.of(wanted)).numPartitions(topic).get());
            say("created-again", failure(admin.createTopics(List.of(wanted)).all()));
            say("listed", admin.listTopics().names().get().contains(topic));
            TopicDescription description = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            say("partitions", description.partitions().size());
            say("id-is-set", !description.topicId().toString().equals("AAAAAAAAAAAAAAAAAAAAAA"));
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            ConfigEntry retention =
                admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms");
            say("retention", retention.value() + " " + retention.source());
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            say("widened", admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
            TopicPartition partition = new TopicPartition(topic, 2);
            say("latest", admin.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition).get().offset());
            say("nodes", admin.describeCluster().nodes().get().size());
            say("bad-config", failure(admin.createTopics(
                List.of(new NewTopic(topic + "-bad", 1, (short) 1).configs(Map.of("nosuch", "1")))).all()));
            admin.deleteTopics(List.of(topic)).all().get();
            say("deleted", !admin.listTopics().names().get().contains(topic));
        }
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
