import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.spi.ToolProvider;

/**
 * Runs the main methods of programs one after another in one JVM: a JVM that has loaded Kafka's classes runs the next
 * program in a fraction of the time that a new one needs.
 *
 * <p>A line of standard input is one run: "FOLDER INPUT MAIN ARGUMENT...", each field in Base64. FOLDER holds classes
 * beside those of the class path and may be empty; INPUT is the program's standard input; MAIN is a class, or "javac". The response is one line of standard output:
 * "STATUS STDOUT STDERR", the last two in Base64. A run ends as a process would: when the last thread that is no daemon
 * has ended, or when the program calls Kafka's Exit. A program that calls System.exit ends this JVM as well.
 */
public class ProgramHost {
    private static final long AFTER_EXIT_MS = 5_000;
    private static final InputStream RUNS = System.in;
    private static final Input IN = new Input();
    private static final Capture OUT = new Capture();
    private static final Capture ERR = new Capture();
    private static volatile Integer exitStatus;

    public static void main(String[] none) throws Exception {
        PrintStream responses = System.out;
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        System.setIn(IN);
        trapExit();
        BufferedReader lines = new BufferedReader(new InputStreamReader(RUNS, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = Arrays.stream(line.split(" ", -1)).map(ProgramHost::decoded).toArray(String[]::new);
            IN.begin(fields[1]);
            exitStatus = null;
            OUT.begin();
            ERR.begin();
            int status = run(fields[0], fields[2], Arrays.copyOfRange(fields, 3, fields.length));
            responses.println(status + " " + OUT.end() + " " + ERR.end());
        }
    }

    private static String decoded(String field) {
        return new String(Base64.getDecoder().decode(field), StandardCharsets.UTF_8);
    }

    private static int run(String folder, String main, String[] arguments) throws Exception {
        if (main.equals("javac")) {
            return ToolProvider.findFirst("javac").orElseThrow().run(System.out, System.err, arguments);
        }
        URL[] classes = folder.isEmpty() ? new URL[0] : new URL[] {new File(folder).toURI().toURL()};
        try (URLClassLoader loader = new URLClassLoader(classes, ProgramHost.class.getClassLoader())) {
            int[] status = {0};
            ThreadGroup group = new ThreadGroup(main);
            Thread thread = new Thread(group, () -> status[0] = call(loader, main, arguments), "main");
            thread.setContextClassLoader(loader);
            thread.start();
            while (exitStatus == null && joinOne(group)) {
                // Threads may start threads.
            }
            thread.join(AFTER_EXIT_MS);
            return exitStatus == null ? status[0] : exitStatus;
        }
    }

    private static int call(ClassLoader loader, String main, String[] arguments) {
        try {
            Method method = Class.forName(main, true, loader).getMethod("main", String[].class);
            method.setAccessible(true);
            method.invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException failure) {
            return uncaught(failure.getCause());
        } catch (ReflectiveOperationException failure) {
            return uncaught(failure);
        }
    }

    private static int uncaught(Throwable failure) {
        System.err.print("Exception in thread \"main\" ");
        failure.printStackTrace();
        return 1;
    }

    /** Wait for one thread that is no daemon; whether there was any. */
    private static boolean joinOne(ThreadGroup group) throws InterruptedException {
        Thread[] threads = new Thread[group.activeCount() + 1];
        int count = group.enumerate(threads);
        for (int index = 0; index < count; index++) {
            if (!threads[index].isDaemon() && threads[index].isAlive()) {
                threads[index].join(100);
                return true;
            }
        }
        return false;
    }

    /** Kafka's tools end through a class of their own, which clients before 0.11 do not have. */
    private static void trapExit() throws ReflectiveOperationException {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        } catch (ClassNotFoundException absent) {
            return;
        }
        Class<?> procedure = Class.forName("org.apache.kafka.common.utils.Exit$Procedure");
        Object trap = Proxy.newProxyInstance(
            ProgramHost.class.getClassLoader(), new Class<?>[] {procedure}, (proxy, method, arguments) -> {
                if (exitStatus == null) {
                    exitStatus = (Integer) arguments[0];
                    OUT.mute();
                    ERR.mute();
                }
                throw new IllegalStateException("the program has ended");
            });
        for (String setter : new String[] {"setExitProcedure", "setHaltProcedure"}) {
            exit.getMethod(setter, procedure).invoke(null, trap);
        }
    }

    /** The standard input of each run; one object, because Scala's console keeps the first one that it reads. */
    private static final class Input extends InputStream {
        private volatile InputStream current = InputStream.nullInputStream();

        void begin(String text) {
            current = new ByteArrayInputStream(text.getBytes(StandardCharsets.UTF_8));
        }

        @Override
        public int read() throws IOException {
            return current.read();
        }

        @Override
        public int read(byte[] bytes, int offset, int length) throws IOException {
            return current.read(bytes, offset, length);
        }
    }

    /** What is printed during a run; nothing is kept between runs and after the program's end. */
    private static final class Capture extends OutputStream {
        private final ByteArrayOutputStream captured = new ByteArrayOutputStream();
        private boolean isMuted = true;

        synchronized void begin() {
            captured.reset();
            isMuted = false;
        }

        synchronized void mute() {
            isMuted = true;
        }

        synchronized String end() {
            isMuted = true;
            return Base64.getEncoder().encodeToString(captured.toByteArray());
        }

        @Override
        public synchronized void write(int octet) {
            if (!isMuted) {
                captured.write(octet);
            }
        }

        @Override
        public synchronized void write(byte[] bytes, int offset, int length) {
            if (!isMuted) {
                captured.write(bytes, offset, length);
            }
        }
    }
}
