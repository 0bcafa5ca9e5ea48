import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.api.java.tuple.Tuple5;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;

/** Sinks that read every value into a digest: the sum of a hash of every row (see benchmarks/digest.py). */
final class Results {
  static final AtomicLong ROWS = new AtomicLong();
  static final AtomicLong DIGEST = new AtomicLong();
  static final AtomicLong LAST_NS = new AtomicLong();

  private Results() {}

  static long begin(String text) {
    long value = 0xCBF29CE484222325L;
    for (byte one : text.getBytes(StandardCharsets.UTF_8)) {
      value = (value ^ (one & 0xFF)) * 0x100000001B3L;
    }
    return value;
  }

  static long mix(long value, long number) {
    value ^= number;
    value = (value ^ (value >>> 30)) * 0xBF58476D1CE4E5B9L;
    value = (value ^ (value >>> 27)) * 0x94D049BB133111EBL;
    return value ^ (value >>> 31);
  }

  static void add(long rows, long total) {
    ROWS.addAndGet(rows);
    DIGEST.addAndGet(total);
    LAST_NS.accumulateAndGet(System.nanoTime(), Math::max);
  }

  public static final class RowSink extends RichSinkFunction<Tuple5<String, Long, Long, Long, Long>> {
    private long rows = 0;
    private long total = 0;

    @Override
    public void invoke(Tuple5<String, Long, Long, Long, Long> row, Context context) {
      rows += 1;
      total += mix(mix(mix(mix(begin(row.f0), row.f1), row.f2), row.f3), row.f4);
    }

    @Override
    public void close() {
      add(rows, total);
    }
  }

  /** Of a key the last row counts; rows of a key all come to the same sink. */
  public static final class TableSink<T extends Tuple> extends RichSinkFunction<T> {
    private final HashMap<String, T> latest = new HashMap<>();

    @Override
    public void invoke(T row, Context context) {
      latest.put(row.getField(0), row);
    }

    @Override
    public void close() {
      long total = 0;
      for (T row : latest.values()) {
        long value = begin(row.getField(0));
        for (int place = 1; place < row.getArity(); place++) {
          value = mix(value, row.<Long>getField(place));
        }
        total += value;
      }
      add(latest.size(), total);
    }
  }
}
