import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
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
 * It has no symbolic links, gives files the permissions of the process, and writes no checksum files. Below a folder that
 * holds a file named FULL, a disk without space is simulated: no file can be created there.
 */
public class QuickLocalFileSystem extends LocalFileSystem {
    private static final String FULL = ".disk-is-full";

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
        protected OutputStream createOutputStreamWithMode(Path path, boolean append, FsPermission permission)
                throws IOException {
            requireSpace(path);
            return super.createOutputStreamWithMode(path, append, permission);
        }

        @Override
        protected OutputStream createOutputStream(Path path, boolean append) throws IOException {
            requireSpace(path);
            return super.createOutputStream(path, append);
        }

        private void requireSpace(Path path) throws IOException {
            for (File each = pathToFile(path).getParentFile(); each != null; each = each.getParentFile()) {
                if (new File(each, FULL).exists()) {
                    throw new IOException("No space left on device");
                }
            }
        }

        @Override
        public FileStatus getFileLinkStatus(Path path) throws IOException {
            return getFileStatus(path);
        }
    }
}
