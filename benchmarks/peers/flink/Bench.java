import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;

/**
 * The workloads on Flink's DataStream API: one local cluster in this process, object reuse, state on the heap, a
 * checkpoint to a directory every 5 s. Sources loop over rows held in memory, one split for each subtask (Looped); the
 * sink reads every value into a digest (Results). Arguments are name=value; the last line printed is JSON.
 */
public final class Bench {
  static final Map<String, String> ARGS = new HashMap<>();
  static final AtomicLongArray GIVEN = new AtomicLongArray(64);
  static final AtomicLong FIRST_NS = new AtomicLong();
  static final AtomicInteger CHECKPOINTS = new AtomicInteger();
  static volatile boolean stop = false;

  static long number(String name) {
    return Long.parseLong(ARGS.get(name));
  }

  /** Of an argument with a value for each source. */
  static String listed(String name, int source) {
    return ARGS.get(name).split(",", -1)[source];
  }

  static int sources() {
    return ARGS.get("data").split(",", -1).length;
  }

  static boolean timed() {
    return number("timed") == 1;
  }

  /** The fewest rows any split of any source has given. */
  static long slowest() {
    long found = Long.MAX_VALUE;
    for (int place = 0; place < sources() * number("splits"); place++) {
      found = Math.min(found, GIVEN.get(place));
    }
    return found;
  }

  /** Times are in microseconds where Flink says milliseconds. */
  static Duration seconds(double seconds) {
    return Duration.ofMillis((long) (seconds * 1_000_000));
  }

  // --- the job ------------------------------------------------------------------------------------------------------

  public static void main(String[] arguments) throws Exception {
    for (String argument : arguments) {
      ARGS.put(argument.substring(0, argument.indexOf('=')), argument.substring(argument.indexOf('=') + 1));
    }
    int parallelism = (int) number("parallelism");
    Configuration settings = new Configuration();
    settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, Path.of(ARGS.get("home"), "checkpoints").toUri().toString());
    settings.set(StateBackendOptions.STATE_BACKEND, "hashmap");
    StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(parallelism, settings);
    env.getConfig().enableObjectReuse();
    env.enableCheckpointing(number("checkpoint_ms"));
    build(env);
    Watch watch = new Watch();
    watch.start();
    env.execute("bench");
    watch.finish();
  }

  static void build(StreamExecutionEnvironment env) {
    TypeInformation<Tuple3<String, Long, Long>> rowType = TypeInformation.of(new TypeHint<>() {});
    DataStream<Tuple3<String, Long, Long>> rows = env.addSource(new Looped(0), "rows", rowType);
    if (ARGS.get("workload").equals("word-count")) {
      rows = rows.flatMap(new Operators.Words()).returns(rowType);
    }
    KeyedStream<Tuple3<String, Long, Long>, String> keyed = rows.keyBy(row -> row.f0);
    switch (ARGS.get("workload")) {
      case "keyed-count", "word-count" -> keyed.process(new Operators.Count()).addSink(new Results.TableSink<>());
      case "distinct" -> keyed.process(new Operators.Distinct()).addSink(new Results.TableSink<>());
      case "keyed-window", "keyed-window-large" ->
          keyed
              .window(TumblingEventTimeWindows.of(seconds(1)))
              .aggregate(new Operators.Fold(), new Operators.Close())
              .addSink(new Results.RowSink());
      case "sliding" ->
          keyed
              .window(SlidingEventTimeWindows.of(seconds(10), seconds(1)))
              .aggregate(new Operators.Fold(), new Operators.Close())
              .addSink(new Results.RowSink());
      case "session" ->
          keyed
              .window(EventTimeSessionWindows.withGap(seconds(0.499_999)))
              .aggregate(new Operators.Fold(), new Operators.CloseSession())
              .addSink(new Results.RowSink());
      case "window-join" ->
          rows.join(env.addSource(new Looped(1), "right", rowType))
              .where(row -> row.f0)
              .equalTo(row -> row.f0)
              .window(TumblingEventTimeWindows.of(seconds(10)))
              .apply(new Operators.Pair())
              .addSink(new Results.RowSink());
      case "interval-join" ->
          keyed
              .intervalJoin(env.addSource(new Looped(1), "right", rowType).keyBy(row -> row.f0))
              .between(seconds(-1), seconds(1))
              .process(new Operators.NearPair())
              .addSink(new Results.RowSink());
      default -> throw new IllegalArgumentException(ARGS.get("workload"));
    }
  }

  /** Lets the job warm up, counts while the clock runs, then ends the sources. */
  static final class Watch extends Thread {
    private final OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private double seconds = 0;
    private double cpu = 0;
    private long rows = 0;
    private int checkpoints = 0;

    Watch() {
      setDaemon(true);
    }

    static long given() {
      long found = 0;
      for (int place = 0; place < GIVEN.length(); place++) {
        found += GIVEN.get(place);
      }
      return found;
    }

    @Override
    public void run() {
      if (number("split_rows") >= 0) {
        return;
      }
      try {
        while (given() == 0) {
          Thread.sleep(20);
        }
        Thread.sleep(number("warm_ms"));
        long began = System.nanoTime();
        long before = given();
        long used = system.getProcessCpuTime();
        int saved = CHECKPOINTS.get();
        Thread.sleep(number("measured_ms"));
        rows = given() - before;
        cpu = (system.getProcessCpuTime() - used) / 1e9;
        seconds = (System.nanoTime() - began) / 1e9;
        checkpoints = CHECKPOINTS.get() - saved;
        stop = true;
      } catch (InterruptedException interrupted) {
        stop = true;
      }
    }

    void finish() {
      if (seconds == 0) {
        rows = given();
        seconds = (Results.LAST_NS.get() - FIRST_NS.get()) / 1e9;
        cpu = system.getProcessCpuTime() / 1e9;
        checkpoints = CHECKPOINTS.get();
      }
      StringBuilder given = new StringBuilder();
      for (int place = 0; place < sources() * number("splits"); place++) {
        given.append(place == 0 ? "" : ", ").append(GIVEN.get(place));
      }
      System.out.printf(
          "{\"rows\": %d, \"seconds\": %f, \"cpu_seconds\": %f, \"checkpoints\": %d, \"given\": [%s], "
              + "\"rows_out\": %d, \"digest\": \"%s\"}%n",
          rows, seconds, cpu, checkpoints, given, Results.ROWS.get(), Long.toUnsignedString(Results.DIGEST.get()));
    }
  }
}
