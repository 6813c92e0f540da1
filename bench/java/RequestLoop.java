import java.io.DataInputStream;
import java.io.FileInputStream;
import java.io.BufferedInputStream;
import java.io.IOException;
import java.net.Socket;
import java.util.Arrays;
import java.util.concurrent.CyclicBarrier;

/**
 * Sends requests from several threads, each over a connection of its own with one request in flight, as real clients do.
 *
 * Arguments: port, seconds of the lead-in, seconds of the measured section, and a file with what each thread sends in
 * rotation (bench/request_loop.py writes it). Prints "ready" after the lead-in, waits for a line, measures, and prints
 * the count of requests, the nanoseconds that passed, and the 50th, 99th and 99.9th percentile of the latency in
 * nanoseconds. A response with another correlation id or with an error ends the program with status 1.
 */
public final class RequestLoop {
    private static final int SIZE_FIELD = 4;
    private static final int CORRELATION_POSITION = 8;
    private static final int LATENCIES_MAX = 1_000_000;

    private record Request(byte[] frame, int epochPosition, int[] errorPositions) {}

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        double leadInSeconds = Double.parseDouble(arguments[1]);
        double seconds = Double.parseDouble(arguments[2]);
        Loop[] loops = read(arguments[3], port);
        run(loops, leadInSeconds);
        System.out.println("ready");
        System.in.read();
        long started = System.nanoTime();
        run(loops, seconds);
        long elapsed = System.nanoTime() - started;
        long count = 0;
        int kept = 0;
        for (Loop loop : loops) {
            count += loop.count;
            kept += loop.kept;
        }
        long[] latencies = new long[kept];
        int position = 0;
        for (Loop loop : loops) {
            System.arraycopy(loop.latencies, 0, latencies, position, loop.kept);
            position += loop.kept;
            loop.socket.close();
        }
        Arrays.sort(latencies);
        System.out.println(
                count + " " + elapsed + " " + share(latencies, 0.5) + " " + share(latencies, 0.99) + " "
                        + share(latencies, 0.999));
    }

    private static long share(long[] ordered, double share) {
        return ordered[Math.min(ordered.length - 1, (int) (share * ordered.length))];
    }

    private static Loop[] read(String path, int port) throws IOException {
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(new FileInputStream(path)))) {
            Loop[] loops = new Loop[in.readInt()];
            for (int thread = 0; thread < loops.length; thread++) {
                Request[] requests = new Request[in.readInt()];
                for (int number = 0; number < requests.length; number++) {
                    byte[] frame = new byte[in.readInt()];
                    in.readFully(frame);
                    int epochPosition = in.readInt();
                    int[] errorPositions = new int[in.readInt()];
                    for (int each = 0; each < errorPositions.length; each++) {
                        errorPositions[each] = in.readInt();
                    }
                    requests[number] = new Request(frame, epochPosition, errorPositions);
                }
                loops[thread] = new Loop(port, requests);
            }
            return loops;
        }
    }

    private static void run(Loop[] loops, double seconds) throws Exception {
        CyclicBarrier barrier = new CyclicBarrier(loops.length);
        Thread[] threads = new Thread[loops.length];
        for (int number = 0; number < loops.length; number++) {
            Loop loop = loops[number];
            threads[number] = new Thread(() -> loop.run(barrier, seconds));
            threads[number].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private static final class Loop {
        final Socket socket;
        final Request[] requests;
        final byte[] response = new byte[1 << 20];
        final long[] latencies = new long[LATENCIES_MAX];
        long count;
        int kept;
        int correlationId;
        int next;

        Loop(int port, Request[] requests) throws IOException {
            this.requests = requests;
            socket = new Socket("127.0.0.1", port);
            socket.setTcpNoDelay(true);
            socket.setSoTimeout(60_000);
        }

        void run(CyclicBarrier barrier, double seconds) {
            try {
                barrier.await();
                count = kept = 0;
                long end = System.nanoTime() + (long) (seconds * 1e9);
                long now;
                do {
                    long sent = System.nanoTime();
                    exchange();
                    now = System.nanoTime();
                    count++;
                    if (kept < latencies.length) {
                        latencies[kept++] = now - sent;
                    }
                } while (now < end);
            } catch (Exception failure) {
                failure.printStackTrace();
                System.exit(1);
            }
        }

        private void exchange() throws IOException {
            Request request = requests[next];
            next = (next + 1) % requests.length;
            byte[] frame = request.frame();
            put(frame, CORRELATION_POSITION, ++correlationId);
            socket.getOutputStream().write(frame);
            int received = 0;
            int size = SIZE_FIELD;
            while (received < size) {
                int more = socket.getInputStream().read(response, received, response.length - received);
                if (more < 0) {
                    throw new IOException("the server closed the connection");
                }
                received += more;
                if (size == SIZE_FIELD && received >= SIZE_FIELD) {
                    size += get(response, 0);
                }
            }
            if (received != size || get(response, SIZE_FIELD) != correlationId) {
                throw new IOException("a response out of order, of " + received + " bytes instead of " + size);
            }
            for (int position : request.errorPositions()) {
                if (response[position] != 0 || response[position + 1] != 0) {
                    throw new IOException("error " + (response[position] << 8 | response[position + 1] & 0xff));
                }
            }
            if (request.epochPosition() >= 0) {
                put(frame, request.epochPosition(), get(frame, request.epochPosition()) + 1);
            }
        }

        private static int get(byte[] bytes, int position) {
            return (bytes[position] & 0xff) << 24 | (bytes[position + 1] & 0xff) << 16
                    | (bytes[position + 2] & 0xff) << 8 | bytes[position + 3] & 0xff;
        }

        private static void put(byte[] bytes, int position, int value) {
            bytes[position] = (byte) (value >> 24);
            bytes[position + 1] = (byte) (value >> 16);
            bytes[position + 2] = (byte) (value >> 8);
            bytes[position + 3] = (byte) value;
        }
    }
}
