import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.JoinFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.api.java.tuple.Tuple5;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** What is done with rows (text, time in microseconds, number). Results are made anew, so they may be kept. */
final class Operators {
  private Operators() {}

  // --- windows ------------------------------------------------------------------------------------------------------

  /** Count, sum, maximum. */
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
      out.collect(new Tuple5<>(key, context.window().getStart(), sums[0], sums[1], sums[2]));
    }
  }

  /** Flink joins sessions that only touch, so its gap is a microsecond shorter than ours. */
  public static final class CloseSession
      extends ProcessWindowFunction<long[], Tuple5<String, Long, Long, Long, Long>, String, TimeWindow> {
    @Override
    public void process(
        String key, Context context, Iterable<long[]> found, Collector<Tuple5<String, Long, Long, Long, Long>> out) {
      long[] sums = found.iterator().next();
      out.collect(new Tuple5<>(key, context.window().getStart(), context.window().getEnd() + 1, sums[0], sums[1]));
    }
  }

  // --- running results: a new one for every row ---------------------------------------------------------------------

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

  /** Rows, and how many different numbers they have had. */
  public static final class Distinct
      extends KeyedProcessFunction<String, Tuple3<String, Long, Long>, Tuple3<String, Long, Long>> {
    private transient ValueState<Tuple2<Long, Long>> counts;
    private transient MapState<Long, Boolean> seen;

    @Override
    public void open(OpenContext context) {
      counts = getRuntimeContext().getState(new ValueStateDescriptor<>("counts", Types.TUPLE(Types.LONG, Types.LONG)));
      seen = getRuntimeContext().getMapState(new MapStateDescriptor<>("seen", Types.LONG, Types.BOOLEAN));
    }

    @Override
    public void processElement(
        Tuple3<String, Long, Long> row, Context context, Collector<Tuple3<String, Long, Long>> out) throws Exception {
      Tuple2<Long, Long> before = counts.value();
      long rows = before == null ? 1 : before.f0 + 1;
      long different = before == null ? 0 : before.f1;
      if (!seen.contains(row.f2)) {
        seen.put(row.f2, true);
        different += 1;
      }
      counts.update(new Tuple2<>(rows, different));
      out.collect(new Tuple3<>(row.f0, rows, different));
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

  // --- joins --------------------------------------------------------------------------------------------------------

  static Tuple5<String, Long, Long, Long, Long> pair(Tuple3<String, Long, Long> left, Tuple3<String, Long, Long> right) {
    return new Tuple5<>(left.f0, left.f1, left.f2, right.f1, right.f2);
  }

  public static final class Pair
      implements JoinFunction<
          Tuple3<String, Long, Long>, Tuple3<String, Long, Long>, Tuple5<String, Long, Long, Long, Long>> {
    @Override
    public Tuple5<String, Long, Long, Long, Long> join(
        Tuple3<String, Long, Long> left, Tuple3<String, Long, Long> right) {
      return pair(left, right);
    }
  }

  public static final class NearPair
      extends ProcessJoinFunction<
          Tuple3<String, Long, Long>, Tuple3<String, Long, Long>, Tuple5<String, Long, Long, Long, Long>> {
    @Override
    public void processElement(
        Tuple3<String, Long, Long> left,
        Tuple3<String, Long, Long> right,
        Context context,
        Collector<Tuple5<String, Long, Long, Long, Long>> out) {
      out.collect(pair(left, right));
    }
  }
}
