import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** Prints where a group continues at the target of a mirror: BOOTSTRAP SOURCE_ALIAS GROUP. */
public class TranslateOffsets {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> target = Map.of("bootstrap.servers", arguments[0]);
        Map<String, Long> found = new TreeMap<>();
        RemoteClusterUtils.translateOffsets(target, arguments[1], arguments[2], Duration.ofSeconds(30))
            .forEach((partition, position) -> found.put(partition.toString(), position.offset()));
        found.forEach((partition, offset) -> System.out.println(partition + " " + offset));
        System.out.println("upstream " + RemoteClusterUtils.upstreamClusters(target));
        System.out.println("hops " + RemoteClusterUtils.replicationHops(target, arguments[1]));
    }
}
