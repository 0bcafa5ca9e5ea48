import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.api.java.tuple.Tuple5;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;
import org.apache.flink.streaming.api.functions.source.legacy.RichParallelSourceFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/**
 * The workloads on Flink's DataStream API: one local cluster in this process, object reuse, state on the heap, a
 * checkpoint to a directory every 5 s. Sources loop over rows held in memory, one split for each subtask; the sink
 * reads every value into a digest (see benchmarks/digest.py). Arguments are name=value; the last line printed is JSON.
 */
public final class Bench {
  static final Map<String, String> ARGS = new HashMap<>();
  static final AtomicLongArray GIVEN = new AtomicLongArray(64);
  static final AtomicLong FIRST_NS = new AtomicLong();
  static final AtomicLong LAST_NS = new AtomicLong();
  static final AtomicLong ROWS_OUT = new AtomicLong();
  static final AtomicLong DIGEST = new AtomicLong();
  static final AtomicInteger CHECKPOINTS = new AtomicInteger();
  static final ConcurrentHashMap<String, Long> COUNTS = new ConcurrentHashMap<>();
  static volatile boolean stop = false;

  static long number(String name) {
    return Long.parseLong(ARGS.get(name));
  }

  // --- rows ---------------------------------------------------------------------------------------------------------

  /** One lap of a split, as its Arrow buffers were written. */
  static final class Block {
    final String[] texts;
    final long[] times;
    final long[] amounts;

    Block(int split) throws Exception {
      Path home = Path.of(ARGS.get("data"), String.valueOf(split));
      String text = ARGS.get("text");
      ByteBuffer offsets = buffer(home.resolve(text + ".offsets"));
      byte[] bytes = Files.readAllBytes(home.resolve(text + ".bytes"));
      int rows = (int) number("lap_rows");
      texts = new String[rows];
      Map<String, String> known = new HashMap<>();
      for (int row = 0; row < rows; row++) {
        int from = offsets.getInt(4 * row);
        int size = offsets.getInt(4 * row + 4) - from;
        String made = new String(bytes, from, size, StandardCharsets.UTF_8);
        texts[row] = known.computeIfAbsent(made, same -> same);
      }
      times = longs(home.resolve("at.values"), rows);
      amounts = longs(home.resolve("amount.values"), rows);
    }

    static ByteBuffer buffer(Path path) throws Exception {
      return ByteBuffer.wrap(Files.readAllBytes(path)).order(ByteOrder.LITTLE_ENDIAN);
    }

    static long[] longs(Path path, int rows) throws Exception {
      long[] found = new long[rows];
      if (Files.exists(path)) {
        buffer(path).asLongBuffer().get(found);
      }
      return found;
    }
  }

  /** Gives its split again and again with later times, until the end is reached or the time is over. */
  public static final class Looped extends RichParallelSourceFunction<Tuple3<String, Long, Long>>
      implements CheckpointedFunction, CheckpointListener {
    static final int CHUNK = 1_000;
    private transient Block block;
    private transient ListState<Long> saved;
    private long position = 0;
    private volatile boolean running = true;

    @Override
    public void open(OpenContext context) throws Exception {
      block = new Block(getRuntimeContext().getTaskInfo().getIndexOfThisSubtask());
    }

    @Override
    public void run(SourceContext<Tuple3<String, Long, Long>> out) {
      int split = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
      long end = number("split_rows") < 0 ? Long.MAX_VALUE : number("split_rows");
      long lap = number("lap_rows");
      long lapUs = number("lap_us");
      long baseUs = number("base_us");
      long latenessUs = number("lateness_us");
      boolean timed = !ARGS.get("workload").endsWith("count");
      long latest = Long.MIN_VALUE;
      Tuple3<String, Long, Long> row = new Tuple3<>();
      FIRST_NS.compareAndSet(0, System.nanoTime());
      while (running && !stop && position < end) {
        synchronized (out.getCheckpointLock()) {
          long upto = Math.min(position + CHUNK, end);
          for (; position < upto; position++) {
            int inside = (int) (position % lap);
            row.f0 = block.texts[inside];
            row.f2 = block.amounts[inside];
            if (timed) {
              long at = block.times[inside] + baseUs + position / lap * lapUs;
              latest = Math.max(latest, at);
              row.f1 = at;
              out.collectWithTimestamp(row, Math.floorDiv(at, 1000L));
            } else {
              row.f1 = 0L;
              out.collect(row);
            }
          }
          GIVEN.set(split, position);
          if (timed) {
            out.emitWatermark(new Watermark(Math.floorDiv(latest - latenessUs, 1000L) - 1));
          }
        }
      }
    }

    @Override
    public void cancel() {
      running = false;
    }

    @Override
    public void initializeState(FunctionInitializationContext context) throws Exception {
      saved = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("position", Types.LONG));
    }

    @Override
    public void snapshotState(FunctionSnapshotContext context) throws Exception {
      saved.update(java.util.List.of(position));
    }

    @Override
    public void notifyCheckpointComplete(long checkpoint) {
      if (getRuntimeContext().getTaskInfo().getIndexOfThisSubtask() == 0) {
        CHECKPOINTS.incrementAndGet();
      }
    }
  }

  // --- operators ----------------------------------------------------------------------------------------------------

  public static final class Fold implements AggregateFunction<Tuple3<String, Long, Long>, long[], long[]> {
    @Override
    public long[] createAccumulator() {
      return new long[] {0, 0, Long.MIN_VALUE};
    }

    @Override
    public long[] add(Tuple3<String, Long, Long> row, long[] sums) {
      sums[0] += 1;
      sums[1] += row.f2;
      sums[2] = Math.max(sums[2], row.f2);
      return sums;
    }

    @Override
    public long[] getResult(long[] sums) {
      return sums;
    }

    @Override
    public long[] merge(long[] one, long[] other) {
      return new long[] {one[0] + other[0], one[1] + other[1], Math.max(one[2], other[2])};
    }
  }

  public static final class Close
      extends ProcessWindowFunction<long[], Tuple5<String, Long, Long, Long, Long>, String, TimeWindow> {
    @Override
    public void process(
        String key, Context context, Iterable<long[]> found, Collector<Tuple5<String, Long, Long, Long, Long>> out) {
      long[] sums = found.iterator().next();
      out.collect(new Tuple5<>(key, context.window().getStart() * 1000, sums[0], sums[1], sums[2]));
    }
  }

  public static final class Count
      extends KeyedProcessFunction<String, Tuple3<String, Long, Long>, Tuple2<String, Long>> {
    private transient ValueState<Long> count;

    @Override
    public void open(OpenContext context) {
      count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
    }

    @Override
    public void processElement(
        Tuple3<String, Long, Long> row, Context context, Collector<Tuple2<String, Long>> out) throws Exception {
      Long before = count.value();
      long now = before == null ? 1 : before + 1;
      count.update(now);
      out.collect(new Tuple2<>(row.f0, now));
    }
  }

  public static final class Words
      implements FlatMapFunction<Tuple3<String, Long, Long>, Tuple3<String, Long, Long>> {
    @Override
    public void flatMap(Tuple3<String, Long, Long> row, Collector<Tuple3<String, Long, Long>> out) {
      for (String word : row.f0.split(" ")) {
        out.collect(new Tuple3<>(word, 0L, 0L));
      }
    }
  }

  // --- results ------------------------------------------------------------------------------------------------------

  static long hash(String text, long... numbers) {
    long value = 0xCBF29CE484222325L;
    for (byte one : text.getBytes(StandardCharsets.UTF_8)) {
      value = (value ^ (one & 0xFF)) * 0x100000001B3L;
    }
    for (long number : numbers) {
      value ^= number;
      value = (value ^ (value >>> 30)) * 0xBF58476D1CE4E5B9L;
      value = (value ^ (value >>> 27)) * 0x94D049BB133111EBL;
      value ^= value >>> 31;
    }
    return value;
  }

  public static final class WindowSink extends RichSinkFunction<Tuple5<String, Long, Long, Long, Long>> {
    private long rows = 0;
    private long total = 0;

    @Override
    public void invoke(Tuple5<String, Long, Long, Long, Long> row, Context context) {
      rows += 1;
      total += hash(row.f0, row.f1, row.f2, row.f3, row.f4);
    }

    @Override
    public void close() {
      ROWS_OUT.addAndGet(rows);
      DIGEST.addAndGet(total);
      LAST_NS.accumulateAndGet(System.nanoTime(), Math::max);
    }
  }

  /** Of a key the last count counts. */
  public static final class CountSink extends RichSinkFunction<Tuple2<String, Long>> {
    private final HashMap<String, Long> latest = new HashMap<>();

    @Override
    public void invoke(Tuple2<String, Long> row, Context context) {
      latest.put(row.f0, row.f1);
    }

    @Override
    public void close() {
      latest.forEach((key, count) -> COUNTS.merge(key, count, Math::max));
      LAST_NS.accumulateAndGet(System.nanoTime(), Math::max);
    }
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
    TypeInformation<Tuple3<String, Long, Long>> rowType = TypeInformation.of(new TypeHint<>() {});
    DataStream<Tuple3<String, Long, Long>> rows = env.addSource(new Looped(), "rows", rowType);
    if (ARGS.get("workload").endsWith("count")) {
      if (ARGS.get("workload").equals("word-count")) {
        rows = rows.flatMap(new Words()).returns(rowType);
      }
      rows.keyBy(row -> row.f0).process(new Count()).addSink(new CountSink());
    } else {
      rows.keyBy(row -> row.f0)
          .window(TumblingEventTimeWindows.of(Duration.ofSeconds(1)))
          .aggregate(new Fold(), new Close())
          .addSink(new WindowSink());
    }
    Watch watch = new Watch();
    watch.start();
    env.execute("bench");
    watch.finish();
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
      for (int split = 0; split < GIVEN.length(); split++) {
        found += GIVEN.get(split);
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
        seconds = (LAST_NS.get() - FIRST_NS.get()) / 1e9;
        cpu = system.getProcessCpuTime() / 1e9;
        checkpoints = CHECKPOINTS.get();
      }
      COUNTS.forEach(
          (key, count) -> {
            ROWS_OUT.incrementAndGet();
            DIGEST.addAndGet(hash(key, count));
          });
      StringBuilder given = new StringBuilder();
      for (int split = 0; split < number("splits"); split++) {
        given.append(split == 0 ? "" : ", ").append(GIVEN.get(split));
      }
      System.out.printf(
          "{\"rows\": %d, \"seconds\": %f, \"cpu_seconds\": %f, \"checkpoints\": %d, \"given\": [%s], "
              + "\"rows_out\": %d, \"digest\": \"%s\"}%n",
          rows, seconds, cpu, checkpoints, given, ROWS_OUT.get(), Long.toUnsignedString(DIGEST.get()));
    }
  }
}
