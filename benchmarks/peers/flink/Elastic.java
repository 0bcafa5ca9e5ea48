import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.api.java.tuple.Tuple5;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;
import org.apache.flink.streaming.api.functions.source.legacy.RichParallelSourceFunction;
import org.apache.flink.util.Collector;

/**
 * The load of benchmarks/load.py on a cluster that is changed and killed while it runs: rows by the clock, two keyed
 * sums with a re-key between them, and a sink that writes down what arrived when. Prints the job's id.
 */
public final class Elastic {
  static final int SPLITS = 8;
  static final int BLOCK_ROWS = 1_000;
  static final TypeInformation<Tuple4<Long, Long, Long, Long>> FOUR =
      Types.TUPLE(Types.LONG, Types.LONG, Types.LONG, Types.LONG);
  static final TypeInformation<Tuple5<Long, Long, Long, Long, Long>> FIVE =
      Types.TUPLE(Types.LONG, Types.LONG, Types.LONG, Types.LONG, Types.LONG);
  static final TypeInformation<Tuple2<Long, Long>> TWO = Types.TUPLE(Types.LONG, Types.LONG);

  private Elastic() {}

  public static void main(String[] given) throws Exception {
    HashMap<String, String> args = new HashMap<>();
    for (String one : given) {
      args.put(one.substring(0, one.indexOf('=')), one.substring(one.indexOf('=') + 1));
    }
    int parallelism = Integer.parseInt(args.get("parallelism"));
    StreamExecutionEnvironment env =
        StreamExecutionEnvironment.createRemoteEnvironment("127.0.0.1", Integer.parseInt(args.get("port")));
    env.setParallelism(parallelism);
    env.getConfig().enableObjectReuse();
    env.enableCheckpointing(Long.parseLong(args.get("checkpoint_ms")));
    env.addSource(new Rows(args), "rows", FOUR)
        .keyBy(row -> row.f0)
        .process(new First())
        .returns(FOUR)
        .name("first")
        .keyBy(row -> row.f0)
        .process(new Second())
        .returns(FIVE)
        .name("second")
        .addSink(new Arrivals(args.get("home")))
        .name("out");
    System.out.println(env.executeAsync("elastic").getJobID());
  }

  /** splitmix64, as in benchmarks/load.py. */
  static long mix(long number, long seed) {
    long mixed = number + seed * 0x9E3779B97F4A7C15L;
    mixed = (mixed ^ (mixed >>> 30)) * 0xBF58476D1CE4E5B9L;
    mixed = (mixed ^ (mixed >>> 27)) * 0x94D049BB133111EBL;
    return mixed ^ (mixed >>> 31);
  }

  /** (key, value, number, 0), each split at its share of the rate since the beginning, until the file `stop` is there. */
  static final class Rows extends RichParallelSourceFunction<Tuple4<Long, Long, Long, Long>>
      implements CheckpointedFunction {
    static final int CHUNK = 500;
    private final String home;
    private final long keys;
    private final long seed;
    private final double perMs;
    private final long beganMs;
    private transient ListState<Tuple2<Long, Long>> saved;
    private transient List<long[]> positions;
    private volatile boolean running = true;

    Rows(Map<String, String> args) {
      home = args.get("home");
      keys = Long.parseLong(args.get("keys"));
      seed = Long.parseLong(args.get("seed"));
      perMs = Double.parseDouble(args.get("rate")) / SPLITS / 1000;
      beganMs = Long.parseLong(args.get("began_ms"));
    }

    @Override
    public void run(SourceContext<Tuple4<Long, Long, Long, Long>> out) throws Exception {
      Path stop = Path.of(home, "stop");
      Tuple4<Long, Long, Long, Long> row = new Tuple4<>();
      row.f3 = 0L;
      while (running && !Files.exists(stop)) {
        boolean idle = true;
        for (long[] position : positions) {
          long passedMs = System.currentTimeMillis() - beganMs;
          long released = passedMs < 0 ? 0 : 1 + (long) (perMs * passedMs);
          synchronized (out.getCheckpointLock()) {
            long upto = Math.min(position[1] + CHUNK, released);
            idle &= position[1] >= upto;
            for (; position[1] < upto; position[1]++) {
              long block = position[1] / BLOCK_ROWS * SPLITS + position[0];
              long number = block * BLOCK_ROWS + position[1] % BLOCK_ROWS;
              row.f0 = (mix(number, seed) >>> 1) % (keys / SPLITS) * SPLITS + position[0];
              row.f1 = Long.remainderUnsigned(mix(number, seed + 1), 1000);
              row.f2 = number;
              out.collect(row);
            }
          }
        }
        if (idle) {
          Thread.sleep(2);
        }
      }
      if (running) {
        for (long[] position : positions) {
          Files.writeString(Path.of(home, "given-" + position[0]), String.valueOf(position[1]));
        }
      }
    }

    @Override
    public void cancel() {
      running = false;
    }

    @Override
    public void initializeState(FunctionInitializationContext context) throws Exception {
      saved = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("positions", TWO));
      positions = new ArrayList<>();
      if (context.isRestored()) {
        for (Tuple2<Long, Long> one : saved.get()) {
          positions.add(new long[] {one.f0, one.f1});
        }
      } else {
        int count = getRuntimeContext().getTaskInfo().getNumberOfParallelSubtasks();
        for (long split = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask(); split < SPLITS; split += count) {
          positions.add(new long[] {split, 0});
        }
      }
    }

    @Override
    public void snapshotState(FunctionSnapshotContext context) throws Exception {
      List<Tuple2<Long, Long>> found = new ArrayList<>();
      for (long[] one : positions) {
        found.add(new Tuple2<>(one[0], one[1]));
      }
      saved.update(found);
    }
  }

  /** By key: (other, n, total, number). */
  static final class First
      extends KeyedProcessFunction<Long, Tuple4<Long, Long, Long, Long>, Tuple4<Long, Long, Long, Long>> {
    private transient ValueState<Tuple2<Long, Long>> sums;

    @Override
    public void open(OpenContext context) {
      sums = getRuntimeContext().getState(new ValueStateDescriptor<>("sums", TWO));
    }

    @Override
    public void processElement(
        Tuple4<Long, Long, Long, Long> row, Context context, Collector<Tuple4<Long, Long, Long, Long>> out)
        throws Exception {
      Tuple2<Long, Long> before = sums.value();
      long n = before == null ? 1 : before.f0 + 1;
      long total = before == null ? row.f1 : before.f1 + row.f1;
      sums.update(new Tuple2<>(n, total));
      out.collect(new Tuple4<>(row.f0 * 7 + 3, n, total, row.f2));
    }
  }

  /** By other: (number, changes, n, total, counted). */
  static final class Second
      extends KeyedProcessFunction<Long, Tuple4<Long, Long, Long, Long>, Tuple5<Long, Long, Long, Long, Long>> {
    private transient ValueState<Tuple2<Long, Long>> sums;

    @Override
    public void open(OpenContext context) {
      sums = getRuntimeContext().getState(new ValueStateDescriptor<>("sums", TWO));
    }

    @Override
    public void processElement(
        Tuple4<Long, Long, Long, Long> row, Context context, Collector<Tuple5<Long, Long, Long, Long, Long>> out)
        throws Exception {
      Tuple2<Long, Long> before = sums.value();
      long changes = before == null ? 1 : before.f0 + 1;
      long counted = before == null ? row.f1 : before.f1 + row.f1;
      sums.update(new Tuple2<>(changes, counted));
      out.collect(new Tuple5<>(row.f3, changes, row.f1, row.f2, counted));
    }
  }

  /** Six big-endian numbers for each row: the moment on the monotonic clock, then what arrived. */
  static final class Arrivals extends RichSinkFunction<Tuple5<Long, Long, Long, Long, Long>>
      implements CheckpointedFunction {
    static final long FLUSH_NS = 5_000_000;
    private final String home;
    private transient DataOutputStream out;
    private transient long flushedNs;

    Arrivals(String home) {
      this.home = home;
    }

    @Override
    public void open(OpenContext context) throws Exception {
      Path file = Path.of(home, "out-" + UUID.randomUUID());
      out = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(file), 1 << 16));
    }

    @Override
    public void invoke(Tuple5<Long, Long, Long, Long, Long> row, Context context) throws Exception {
      long now = System.nanoTime();
      out.writeLong(now);
      for (int place = 0; place < 5; place++) {
        out.writeLong(row.<Long>getField(place));
      }
      if (now - flushedNs > FLUSH_NS) {
        flushedNs = now;
        out.flush();
      }
    }

    @Override
    public void initializeState(FunctionInitializationContext context) {}

    @Override
    public void snapshotState(FunctionSnapshotContext context) throws Exception {
      // What a checkpoint covers is not replayed: it must have been written.
      out.flush();
    }

    @Override
    public void close() throws Exception {
      if (out != null) {
        out.close();
      }
    }
  }
}
