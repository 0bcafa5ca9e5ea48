import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.functions.source.legacy.RichParallelSourceFunction;
import org.apache.flink.streaming.api.watermark.Watermark;

/**
 * A source that gives its split again and again with later times, until the end is reached or the time is over. Flink
 * takes times for milliseconds, but only their order and differences matter: here they are microseconds, as in the data.
 */
public final class Looped extends RichParallelSourceFunction<Tuple3<String, Long, Long>>
    implements CheckpointedFunction, CheckpointListener {
  static final int CHUNK = 1_000;
  private final int source;
  private transient Block block;
  private transient ListState<Long> saved;
  private long position = 0;
  private volatile boolean running = true;

  Looped(int source) {
    this.source = source;
  }

  private int split() {
    return getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
  }

  @Override
  public void open(OpenContext context) throws Exception {
    block = new Block(source, split());
  }

  @Override
  public void run(SourceContext<Tuple3<String, Long, Long>> out) {
    int place = source * (int) Bench.number("splits") + split();
    long end = Bench.number("split_rows") < 0 ? Long.MAX_VALUE : Bench.number("split_rows");
    long lap = Bench.number("lap_rows");
    long lapUs = Bench.number("lap_us");
    long baseUs = Bench.number("base_us");
    long latenessUs = Bench.number("lateness_us");
    // A join keeps what one source is ahead of the other, so they are kept in step, as Flink's newer sources are by
    // watermark alignment: by about a second of their time.
    long ahead = Bench.sources() == 1 ? Long.MAX_VALUE : lap * 1_000_000 / lapUs + CHUNK;
    boolean timed = Bench.timed();
    long latest = Long.MIN_VALUE;
    Tuple3<String, Long, Long> row = new Tuple3<>();
    Bench.FIRST_NS.compareAndSet(0, System.nanoTime());
    while (running && !Bench.stop && position < end) {
      if (ahead < Long.MAX_VALUE && position > Bench.slowest() + ahead) {
        LockSupport.parkNanos(100_000);
        continue;
      }
      synchronized (out.getCheckpointLock()) {
        long upto = Math.min(position + CHUNK, end);
        for (; position < upto; position++) {
          int inside = (int) (position % lap);
          row.f0 = block.texts[inside];
          row.f2 = block.numbers[inside];
          if (timed) {
            long at = block.times[inside] + baseUs + position / lap * lapUs;
            latest = Math.max(latest, at);
            row.f1 = at;
            out.collectWithTimestamp(row, at);
          } else {
            row.f1 = 0L;
            out.collect(row);
          }
        }
        Bench.GIVEN.set(place, position);
        if (timed) {
          out.emitWatermark(new Watermark(latest - latenessUs - 1));
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
    saved.update(List.of(position));
  }

  @Override
  public void notifyCheckpointComplete(long checkpoint) {
    if (source == 0 && split() == 0) {
      Bench.CHECKPOINTS.incrementAndGet();
    }
  }

  /** One lap of a split, as its Arrow buffers were written. */
  static final class Block {
    final String[] texts;
    final long[] times;
    final long[] numbers;

    Block(int source, int split) throws Exception {
      Path home = Path.of(Bench.listed("data", source), String.valueOf(split));
      String text = Bench.ARGS.get("text");
      ByteBuffer offsets = buffer(home.resolve(text + ".offsets"));
      byte[] bytes = Files.readAllBytes(home.resolve(text + ".bytes"));
      int rows = (int) Bench.number("lap_rows");
      texts = new String[rows];
      Map<String, String> known = new HashMap<>();
      for (int row = 0; row < rows; row++) {
        int from = offsets.getInt(4 * row);
        int size = offsets.getInt(4 * row + 4) - from;
        String made = new String(bytes, from, size, StandardCharsets.UTF_8);
        texts[row] = known.computeIfAbsent(made, same -> same);
      }
      times = longs(home.resolve("at.values"), rows);
      numbers = longs(home.resolve(Bench.listed("numbers", source) + ".values"), rows);
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
}
