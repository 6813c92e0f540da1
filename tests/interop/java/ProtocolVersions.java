import java.util.StringJoiner;
import org.apache.kafka.server.common.MetadataVersion;

/** Prints for each version of the protocol between brokers what Kafka sends by it. */
public class ProtocolVersions {
    public static void main(String[] arguments) {
        for (MetadataVersion version : MetadataVersion.VERSIONS) {
            StringJoiner line = new StringJoiner(" ");
            line.add(version.version());
            line.add("fetch=" + version.fetchRequestVersion());
            line.add("list_offsets=" + version.listOffsetRequestVersion());
            line.add("offset_for_leader_epoch="
                + (version.isOffsetForLeaderEpochSupported() ? version.offsetForLeaderEpochRequestVersion() : "None"));
            line.add("write_txn_markers=" + version.writeTxnMarkersRequestVersion());
            line.add("group_value=" + version.groupMetadataValueVersion());
            line.add("offset_value=" + version.offsetCommitValueVersion(false));
            line.add("compares_epochs_by_fetch=" + shown(version.isTruncationOnFetchSupported()));
            line.add("has_features=" + shown(version.isFeatureVersioningSupported()));
            line.add("has_topic_ids=" + shown(version.isTopicIdsSupported()));
            line.add("has_leader_recovery=" + shown(version.isLeaderRecoverySupported()));
            line.add("asks_for_isr=" + shown(version.isAlterPartitionSupported()));
            line.add("asks_for_ids=" + shown(version.isAllocateProducerIdsSupported()));
            System.out.println(line);
        }
    }

    private static String shown(boolean value) {
        return value ? "True" : "False";
    }
}
