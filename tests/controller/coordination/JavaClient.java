import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/** Uses each call of Apache ZooKeeper's client once, and continues its session after a restart of the server. */
public class JavaClient {
    public static void main(String[] arguments) throws Exception {
        LinkedBlockingQueue<WatchedEvent> events = new LinkedBlockingQueue<>();
        ZooKeeper client = connected(arguments[0], events);
        String root = client.create("/java-", new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_SEQUENTIAL);
        Stat stat = new Stat();
        client.create(root + "/a", new byte[] {1}, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL, stat);
        check(stat.getEphemeralOwner() == client.getSessionId(), "owner");
        check(Arrays.equals(client.getData(root + "/a", true, stat), new byte[] {1}), "data");
        check(client.setData(root + "/a", new byte[] {2}, 0).getVersion() == 1, "version");
        expect(events, Watcher.Event.EventType.NodeDataChanged, root + "/a");
        check(client.exists(root + "/none", true) == null, "exists");
        check(client.getChildren(root, true, new Stat()).equals(List.of("a")), "children");
        List<OpResult> results = client.multi(Arrays.asList(
            Op.create(root + "/none", null, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT),
            Op.check(root + "/a", 1),
            Op.setData(root + "/a", new byte[] {3}, 1)));
        check(results.size() == 3, "multi");
        expect(events, Watcher.Event.EventType.NodeCreated, root + "/none");
        expect(events, Watcher.Event.EventType.NodeChildrenChanged, root);
        try {
            client.multi(Arrays.asList(Op.delete(root + "/none", -1), Op.check(root + "/a", 9)));
            check(false, "a multi that fails");
        } catch (KeeperException.BadVersionException expected) {
            check(expected.getResults().size() == 2, "results of a multi that fails");
        }
        List<OpResult> read = client.multi(Arrays.asList(Op.getData(root + "/a"), Op.getChildren(root)));
        check(((OpResult.GetDataResult) read.get(0)).getData()[0] == 3, "multiRead");
        client.addAuthInfo("digest", "user:secret".getBytes());
        client.setACL(root + "/none", ZooDefs.Ids.CREATOR_ALL_ACL, 0);
        check(client.getACL(root + "/none", new Stat()).get(0).getId().getScheme().equals("digest"), "acl");
        CountDownLatch synced = new CountDownLatch(1);
        client.sync(root, (code, path, context) -> synced.countDown(), null);
        check(synced.await(10, TimeUnit.SECONDS), "sync");
        try {
            client.create(root + "/c", new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.CONTAINER);
            check(false, "a container");
        } catch (KeeperException.UnimplementedException expected) {
            // named in the log of the server
        }

        client.exists(root + "/a", true);
        client.getChildren(root, true);
        // The server restarts, and then another client changes the node: the watch is armed again.
        System.out.println(root + "/a");
        expect(events, Watcher.Event.EventType.NodeDataChanged, root + "/a");
        check(client.exists(root + "/a", false).getEphemeralOwner() == client.getSessionId(), "the session continues");
        client.close();
        System.out.println("done");
        System.exit(0);
    }

    private static ZooKeeper connected(String address, LinkedBlockingQueue<WatchedEvent> events) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        Watcher watcher = event -> {
            if (event.getType() != Watcher.Event.EventType.None) {
                events.add(event);
            } else if (event.getState() == Watcher.Event.KeeperState.SyncConnected) {
                connected.countDown();
            }
        };
        ZooKeeper client = new ZooKeeper(address, 10_000, watcher);
        check(connected.await(10, TimeUnit.SECONDS), "no connection");
        return client;
    }

    private static void expect(LinkedBlockingQueue<WatchedEvent> events, Watcher.Event.EventType type, String path)
            throws InterruptedException {
        WatchedEvent event = events.poll(10, TimeUnit.SECONDS);
        check(event != null && event.getType() == type && event.getPath().equals(path), type + " " + path + ": " + event);
    }

    private static void check(boolean condition, String what) {
        if (!condition) {
            System.out.println("failed: " + what);
            System.exit(1);
        }
    }
}
