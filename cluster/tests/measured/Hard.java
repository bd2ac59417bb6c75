import java.io.*;
import java.net.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.locks.LockSupport;
import java.util.function.*;
import java.util.stream.LongStream;
import org.apache.hadoop.io.*;
import org.apache.hadoop.mapred.*;
import org.apache.hadoop.mapreduce.Mapper;
import org.apache.hadoop.mapreduce.Reducer;

/**
 * Programs that are hard to classify by their bytecode: what they do is in a loop, a library, a
 * lambda, another method of the class, or is to wait. `cluster/tests/cli/hard.rs` classifies
 * Hard.jar, `run` measures what they do. Absent is in no jar of the tests.
 */
public class Hard {
    /** About 590 instructions. */
    static long longCode(long x) {
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
            x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
        return x;
    }

    /** What a map class needs. */
    public abstract static class Base extends Mapper<LongWritable, Text, Text, LongWritable> {
        long x = 1;
    }

    // What computes.

    public static class CpuLoop extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            int outer = line.getLength() * 10;
            for (int i = 0; i < outer; i++) {
                for (int j = 0; j < outer; j++) {
                    x = x * 31 + j;
                }
            }
        }
    }

    public static class CountedLoop extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            for (int i = 0; i < 3000; i++) {
                x = x * 31 + i;
            }
        }
    }

    public static class Matrix extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            int n = line.getLength();
            double[][] a = new double[n][n];
            for (int i = 0; i < n; i++) {
                for (int j = 0; j < n; j++) {
                    for (int k = 0; k < n; k++) {
                        a[i][j] += a[i][k] * a[k][j] + 1;
                    }
                }
            }
        }
    }

    public static class Recurse extends Base {
        int fib(int n) {
            return n < 2 ? n : fib(n - 1) + fib(n - 2);
        }

        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            x += fib(20);
        }
    }

    public static class LibSha extends Base {
        int rounds = 200;

        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            try {
                java.security.MessageDigest sha = java.security.MessageDigest.getInstance("SHA-256");
                for (int i = 0; i < rounds; i++) {
                    x += sha.digest(line.getBytes())[0];
                }
            } catch (java.security.NoSuchAlgorithmException error) {
                throw new IOException(error);
            }
        }
    }

    public static class LibOnce extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            x += new java.math.BigInteger(2000, new Random(x)).pow(20).bitLength();
        }
    }

    public static class Deflate extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            java.util.zip.Deflater deflater = new java.util.zip.Deflater();
            deflater.setInput(line.getBytes(), 0, line.getLength());
            deflater.finish();
            x += deflater.deflate(new byte[1000]);
            deflater.end();
        }
    }

    public static class Regex extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            if (line.toString().matches("(.*a)?(.*b)?(.*c)?x")) {
                context.write(line, new LongWritable(1));
            }
        }
    }

    public static class Concat extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            String text = "";
            for (int i = 0; i < line.getLength(); i++) {
                text = text + i + ":" + x;
            }
            x += text.length();
        }
    }

    public static class ConcatOnce extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            context.write(new Text("line " + x + " of " + key), key);
        }
    }

    public static class InLambda extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            LongUnaryOperator work = x -> {
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                    x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11; x = (x ^ x >>> 7) * 31 + 11;
                return x;
            };
            x = work.applyAsLong(x);
        }
    }

    public static class Stream extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            x += LongStream.range(0, 5000).map(i -> i * i ^ x).sum();
        }
    }

    public static class FuncField extends Base {
        LongUnaryOperator work = Hard::longCode;

        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            x = work.applyAsLong(x);
        }
    }

    public static class AnonComparator extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            Long[] numbers = {5L, 3L, 9L, x, 7L, 1L};
            Arrays.sort(numbers, new Comparator<Long>() {
                @Override
                public int compare(Long one, Long other) {
                    return Long.compare(longCode(one), longCode(other));
                }
            });
            x += numbers[0];
        }
    }

    public static class InCatch extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            try {
                x += Long.parseLong("no number");
            } catch (NumberFormatException error) {
                x = longCode(x);
            }
        }
    }

    public static class InCleanup extends Base {
        List<String> words = new ArrayList<>();

        @Override
        public void cleanup(Context context) throws IOException, InterruptedException {
            for (String word : words) {
                for (int i = 0; i < word.length(); i++) {
                    x = x * 31 + word.charAt(i);
                }
            }
        }

        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            words.add(line.toString());
        }
    }

    public static class Combine extends Base {
        Map<String, Long> counts = new HashMap<>();

        @Override
        public void cleanup(Context context) throws IOException, InterruptedException {
            for (Map.Entry<String, Long> count : counts.entrySet()) {
                context.write(new Text(count.getKey()), new LongWritable(count.getValue()));
            }
        }

        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            for (String word : line.toString().split(" ")) {
                counts.merge(word, 1L, Long::sum);
            }
        }
    }

    public static class Worker extends Base {
        long work(long x) {
            return x;
        }

        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            x = work(x);
        }
    }

    /** Overrides what its base calls. */
    public static class Overrides extends Worker {
        @Override
        long work(long x) {
            return longCode(x);
        }
    }

    public abstract static class Template extends Base {
        abstract void work() throws InterruptedException;

        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            work();
        }
    }

    public static class LongWork extends Template {
        @Override
        void work() {
            x = longCode(x);
        }
    }

    interface Calculates {
        default long work(long x) {
            return x;
        }
    }

    public static class IfaceDefault extends Base implements Calculates {
        @Override
        public long work(long x) {
            return longCode(x);
        }

        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            x = ((Calculates) this).work(x);
        }
    }

    public static class OtherObject extends Base {
        Worker worker = new Overrides();

        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            x = worker.work(x);
        }
    }

    public static class External extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            x = Absent.work(x);
        }
    }

    public static class Native extends Base {
        native long work(long x);

        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            x = work(x);
        }
    }

    public static class Reflect extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            try {
                x = (long) Hard.class.getDeclaredMethod("longCode", long.class).invoke(null, x);
            } catch (ReflectiveOperationException error) {
                throw new IOException(error);
            }
        }
    }

    /** The old API: it reads its input itself. */
    public static class Runs implements MapRunnable<LongWritable, Text, Text, LongWritable> {
        @Override
        public void run(RecordReader<LongWritable, Text> input, OutputCollector<Text, LongWritable> output, Reporter reporter)
                throws IOException {
            LongWritable key = input.createKey();
            Text value = input.createValue();
            while (input.next(key, value)) {
                key.set(longCode(key.get()));
            }
        }

        @Override
        public void configure(JobConf job) {}
    }

    public static class ReduceShort extends Reducer<Text, LongWritable, Text, LongWritable> {
        @Override
        public void reduce(Text key, Iterable<LongWritable> values, Context context) throws IOException, InterruptedException {
            context.write(key, values.iterator().next());
        }
    }

    public static class ReduceTwice extends Reducer<Text, LongWritable, Text, LongWritable> {
        @Override
        public void reduce(Text key, Iterable<LongWritable> values, Context context) throws IOException, InterruptedException {
            long x = 1;
            for (LongWritable value : values) {
                x += longCode(longCode(value.get()));
            }
            context.write(key, new LongWritable(x));
        }
    }

    public static class Empty extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            x++;
        }
    }

    public static class Pass extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            context.write(line, key);
        }
    }

    /** Waits for what does not happen. */
    public static class Retry extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            for (int i = 0; i < 500; i++) {
                try {
                    x = longCode(x);
                    return;
                } catch (IllegalStateException error) {
                    Thread.sleep(1000);
                }
            }
        }
    }

    public static class HashThenSleep extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            try {
                java.security.MessageDigest sha = java.security.MessageDigest.getInstance("SHA-256");
                for (int i = 0; i < 20000; i++) {
                    x += sha.digest(line.getBytes())[0];
                }
            } catch (java.security.NoSuchAlgorithmException error) {
                throw new IOException(error);
            }
            Thread.sleep(1);
        }
    }

    public static class SetupSleeps extends Base {
        @Override
        public void setup(Context context) throws IOException, InterruptedException {
            Thread.sleep(20);
        }

        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            x++;
        }
    }

    public static class ZipThenSleep extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            byte[] bytes = new byte[2_000_000];
            new Random(x++).nextBytes(bytes);
            java.util.zip.Deflater deflater = new java.util.zip.Deflater();
            deflater.setInput(bytes);
            deflater.finish();
            deflater.deflate(bytes);
            deflater.end();
            Thread.sleep(1);
        }
    }

    // What waits.

    public static class Sleep extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            Thread.sleep(5);
        }
    }

    public static class SleepAndWrite extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            Thread.sleep(5);
            context.write(line, key);
        }
    }

    public static class SleepLoop extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            for (int i = 0; i < 10; i++) {
                Thread.sleep(1);
            }
        }
    }

    public static class SleepUntil extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            long end = System.nanoTime() + 5_000_000;
            while (System.nanoTime() < end) {
                Thread.sleep(1);
            }
        }
    }

    public static class SleepCaught extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            try {
                TimeUnit.MILLISECONDS.sleep(5);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }
    }

    public static class LongThenSleep extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            x = longCode(x);
            Thread.sleep(5);
        }
    }

    public static class Park extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            LockSupport.parkNanos(5_000_000);
        }
    }

    public static class ObjectWait extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            synchronized (this) {
                wait(5);
            }
        }
    }

    public static class Poll extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            new LinkedBlockingQueue<Long>().poll(5, TimeUnit.MILLISECONDS);
        }
    }

    public static class TryAcquire extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            new Semaphore(0).tryAcquire(5, TimeUnit.MILLISECONDS);
        }
    }

    public static class FutureGet extends Base {
        static final ExecutorService pool = Executors.newCachedThreadPool(task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        });

        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            try {
                pool.submit(() -> {
                    Thread.sleep(5);
                    return 1;
                }).get();
            } catch (ExecutionException error) {
                throw new IOException(error);
            }
        }
    }

    public static class Join extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            Thread other = new Thread(() -> LockSupport.parkNanos(5_000_000));
            other.start();
            other.join();
        }
    }

    public static class Child extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            new ProcessBuilder("sleep", "0.1").start().waitFor();
        }
    }

    /** Reads from a server that takes its time. */
    public static class Net extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), Integer.getInteger("slow.port"))) {
                x += socket.getInputStream().read();
            }
        }
    }

    public static class Http extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            URL url = new URL("http://127.0.0.1:" + Integer.getInteger("slow.port") + "/");
            try (InputStream body = url.openStream()) {
                x += body.read();
            }
        }
    }

    public static class NetLong extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), Integer.getInteger("slow.port"))) {
                x = longCode(x + socket.getInputStream().read());
            }
        }
    }

    public static class Throttled extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            InputStream slow = new FilterInputStream(new ByteArrayInputStream(line.getBytes())) {
                @Override
                public int read() throws IOException {
                    LockSupport.parkNanos(1_000_000);
                    return super.read();
                }
            };
            while (slow.read() > 0) {
                x++;
            }
        }
    }

    public static class ExternalSleep extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            Absent.sleep();
        }
    }

    public static class ReflectSleep extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            try {
                Thread.class.getMethod("sleep", long.class).invoke(null, 5L);
            } catch (ReflectiveOperationException error) {
                throw new IOException(error);
            }
        }
    }

    public static class LambdaSleep extends Base {
        Runnable wait = () -> LockSupport.parkNanos(5_000_000);

        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            wait.run();
        }
    }

    public static class NestedRead extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            for (int i = 0; i < line.getLength(); i += 10) {
                InputStream slow = new FilterInputStream(new ByteArrayInputStream(line.getBytes(), i, 10)) {
                    @Override
                    public int read() throws IOException {
                        LockSupport.parkNanos(1_000_000);
                        return super.read();
                    }
                };
                while (slow.read() > 0) {
                    x++;
                }
            }
        }
    }

    /** Makes what waits, and does not run it. */
    public static class LambdaLater extends Base {
        Runnable later;

        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            later = () -> {
                try {
                    Thread.sleep(5);
                } catch (InterruptedException error) {
                    throw new IllegalStateException(error);
                }
            };
        }
    }

    /** A sibling of LongWork. */
    public static class ShortWork extends Template {
        @Override
        void work() throws InterruptedException {
            Thread.sleep(5);
        }
    }

    public static class SuperSleep extends Sleep {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            super.map(key, line, context);
            x++;
        }
    }

    /** Long code that never runs. */
    public static class NeverLong extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            if (x == Long.MIN_VALUE) {
                x = longCode(x);
            }
            Thread.sleep(5);
        }
    }

    public static class ParseThenWait extends Base {
        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            for (String word : line.toString().split(" ")) {
                x += word.length();
            }
            Thread.sleep(5);
        }
    }

    public static class Sync extends Base {
        File path = new File(System.getProperty("java.io.tmpdir"), "hard-sync");

        @Override
        public void map(LongWritable key, Text line, Context context) throws IOException, InterruptedException {
            try (FileOutputStream file = new FileOutputStream(path)) {
                file.write(line.getBytes());
                file.getFD().sync();
            }
        }
    }

    public static class ReduceSleep extends Reducer<Text, LongWritable, Text, LongWritable> {
        @Override
        public void reduce(Text key, Iterable<LongWritable> values, Context context) throws IOException, InterruptedException {
            Thread.sleep(5);
            context.write(key, values.iterator().next());
        }
    }
}
