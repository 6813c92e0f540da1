import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system without the processes that it starts. Without its native library it runs chmod for each
 * file that it makes and readlink for each that it renames: about a hundred processes for a batch of a stateful query.
 *
 * It has no symbolic links, gives files the permissions of the process, and writes no checksum files.
 */
public class QuickLocalFileSystem extends LocalFileSystem {
    public QuickLocalFileSystem() {
        super(new Raw());
        setWriteChecksum(false);
    }

    /** The same for Hadoop's FileContext, with which Spark writes checkpoints. */
    public static class ForContexts extends DelegateToFileSystem {
        public ForContexts(URI uri, Configuration settings) throws IOException, URISyntaxException {
            super(uri, new Raw(), settings, "file", false);
        }

        @Override
        public int getUriDefaultPort() {
            return -1;
        }
    }

    private static class Raw extends RawLocalFileSystem {
        @Override
        public void setPermission(Path path, FsPermission permission) {}

        @Override
        public FileStatus getFileLinkStatus(Path path) throws IOException {
            return getFileStatus(path);
        }
    }
}
