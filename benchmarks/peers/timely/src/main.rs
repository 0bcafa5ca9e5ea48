//! The workloads on timely dataflow: two worker threads in one process, each with its own split; rows are exchanged by
//! key. Timestamps are watermarks (seconds of event time) or numbers of chunks. There are no checkpoints. The sink reads
//! every value into a digest (see benchmarks/digest.py). Arguments are name=value; the last line printed is JSON.
//!
//! Keys are Strings (`keys=text`), as a program has them that reads names it knows nothing of; or 24 bytes in place
//! (`keys=fixed`), for one that knows how long they are at most: no memory is asked for, none is freed by another thread.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use timely::dataflow::channels::pact::{Exchange, Pipeline};
use timely::dataflow::operators::{Operator, Probe};
use timely::dataflow::{InputHandle, ProbeHandle};
use timely::ExchangeData;

trait Key: ExchangeData + Clone + Hash + Eq {
    fn of(bytes: &[u8]) -> Self;
    fn bytes(&self) -> &[u8];
}

impl Key for String {
    fn of(bytes: &[u8]) -> Self {
        String::from_utf8(bytes.to_vec()).unwrap()
    }
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Padded with zeros: compared whole, copied without an allocation.
impl Key for [u8; 24] {
    fn of(bytes: &[u8]) -> Self {
        let mut key = [0u8; 24];
        key[..bytes.len()].copy_from_slice(bytes);
        key
    }
    fn bytes(&self) -> &[u8] {
        self
    }
}

type Row<K> = (K, i64, i64);

/// Eight bytes at a time, multiplied and folded.
#[derive(Default, Clone)]
struct Words(u64);

impl Hasher for Words {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    fn write_u8(&mut self, _end: u8) {}
    fn write_usize(&mut self, _length: usize) {}
}

type Table<K, V> = HashMap<K, V, BuildHasherDefault<Words>>;

fn spread<K: Key>(key: &K) -> u64 {
    let mut words = Words::default();
    words.write(key.bytes());
    // The table uses the other bits.
    words.finish() >> 7
}

fn digest<K: Key>(key: &K, numbers: &[i64]) -> u64 {
    let mut value: u64 = 0xCBF2_9CE4_8422_2325;
    for byte in key.bytes().iter().take_while(|byte| **byte != 0) {
        value = (value ^ *byte as u64).wrapping_mul(0x100_0000_01B3);
    }
    for number in numbers {
        value ^= *number as u64;
        value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^= value >> 31;
    }
    value
}

// --- rows -------------------------------------------------------------------------------------------------------------

struct Settings(HashMap<String, String>);

impl Settings {
    fn text(&self, name: &str) -> &str {
        &self.0[name]
    }
    fn number(&self, name: &str) -> i64 {
        self.0[name].parse().unwrap()
    }
}

fn longs(path: &str, rows: usize) -> Vec<i64> {
    match std::fs::read(path) {
        Ok(bytes) => bytes.chunks(8).map(|chunk| i64::from_le_bytes(chunk.try_into().unwrap())).collect(),
        Err(_) => vec![0; rows],
    }
}

/// One lap of a split, as its Arrow buffers were written.
fn block<K: Key>(settings: &Settings, split: usize) -> Vec<Row<K>> {
    let home = format!("{}/{}", settings.text("data"), split);
    let text = settings.text("text");
    let rows = settings.number("lap_rows") as usize;
    let offsets: Vec<usize> = std::fs::read(format!("{home}/{text}.offsets"))
        .unwrap()
        .chunks(4)
        .map(|chunk| i32::from_le_bytes(chunk.try_into().unwrap()) as usize)
        .collect();
    let bytes = std::fs::read(format!("{home}/{text}.bytes")).unwrap();
    let times = longs(&format!("{home}/at.values"), rows);
    let amounts = longs(&format!("{home}/amount.values"), rows);
    (0..rows)
        .map(|row| (K::of(&bytes[offsets[row]..offsets[row + 1]]), times[row], amounts[row]))
        .collect()
}

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

// --- the run ----------------------------------------------------------------------------------------------------------

const CHUNK: i64 = 10_000;
/// Timestamps in flight at most.
const AHEAD: u64 = 3;

#[derive(Default)]
struct Measured {
    split: usize,
    given: i64,
    rows: i64,
    seconds: f64,
    cpu: f64,
    rows_out: u64,
    digest: u64,
}

fn main() {
    let settings: Arc<Settings> = Arc::new(Settings(
        std::env::args()
            .skip(1)
            .map(|argument| {
                let (name, value) = argument.split_once('=').unwrap();
                (name.to_string(), value.to_string())
            })
            .collect(),
    ));
    let workers = settings.number("parallelism") as usize;
    let barrier = Arc::new(Barrier::new(workers));
    let asked = settings.clone();
    let guards = timely::execute(timely::Config::process(workers), move |worker| {
        match asked.text("keys") {
            "text" => run::<String>(worker, &asked, &barrier),
            _ => run::<[u8; 24]>(worker, &asked, &barrier),
        }
    })
    .unwrap();
    let mut found: Vec<Measured> = guards.join().into_iter().map(|result| result.unwrap()).collect();
    found.sort_by_key(|one| one.split);
    let given: Vec<String> = found.iter().map(|one| one.given.to_string()).collect();
    println!(
        "{{\"rows\": {}, \"seconds\": {}, \"cpu_seconds\": {}, \"given\": [{}], \"rows_out\": {}, \"digest\": \"{}\"}}",
        found.iter().map(|one| one.rows).sum::<i64>(),
        found.iter().map(|one| one.seconds).fold(0.0, f64::max),
        found[0].cpu,
        given.join(", "),
        found.iter().map(|one| one.rows_out).sum::<u64>(),
        found.iter().fold(0u64, |total, one| total.wrapping_add(one.digest)),
    );
}

type Results<K> = std::rc::Rc<std::cell::RefCell<(u64, u64, Table<K, i64>)>>;

fn run<K: Key>(worker: &mut timely::worker::Worker, settings: &Settings, barrier: &Barrier) -> Measured {
    let split = worker.index();
    let rows = block::<K>(settings, split);
    let timed = !settings.text("workload").ends_with("count");
    let results: Results<K> = Default::default();
    let mut input = InputHandle::new();
    let probe = if timed {
        windows(worker, &mut input, results.clone(), settings.number("base_us"))
    } else {
        counts(worker, &mut input, results.clone())
    };

    let (lap, lap_us) = (settings.number("lap_rows"), settings.number("lap_us"));
    let (base_us, lateness_us) = (settings.number("base_us"), settings.number("lateness_us"));
    let bounded = settings.number("split_rows") >= 0;
    let end = if bounded { settings.number("split_rows") } else { i64::MAX };
    let warm = Duration::from_millis(settings.number("warm_ms") as u64);
    let over = warm + Duration::from_millis(settings.number("measured_ms") as u64);
    let (mut position, mut latest, mut time) = (0i64, i64::MIN, 0u64);
    let mut before: Option<(Duration, i64, f64)> = None;
    let mut measured = Measured { split, ..Default::default() };
    barrier.wait();
    let began = Instant::now();
    while position < end {
        let upto = end.min(position + CHUNK);
        while position < upto {
            let inside = (position % lap) as usize;
            let count = (upto - position).min(lap - inside as i64);
            let later = base_us + position / lap * lap_us;
            for row in &rows[inside..inside + count as usize] {
                latest = latest.max(row.1 + later);
                input.send((row.0.clone(), row.1 + later, row.2));
            }
            position += count;
        }
        let next = if timed { (latest - lateness_us - base_us).max(0) as u64 / 1_000_000 } else { time + 1 };
        if next > time {
            time = next;
            input.advance_to(time);
        }
        worker.step();
        // A watermark waits for the other worker's too, so whoever is ahead stops here.
        while time > AHEAD && probe.less_than(&(time - AHEAD)) {
            worker.step();
        }
        if !bounded {
            let now = began.elapsed();
            if before.is_none() && now >= warm {
                before = Some((now, position, cpu_seconds()));
            }
            if now >= over {
                let (then, given, used) = before.unwrap();
                measured.rows = position - given;
                measured.seconds = (now - then).as_secs_f64();
                measured.cpu = cpu_seconds() - used;
                break;
            }
        }
    }
    input.close();
    while !probe.done() {
        worker.step();
    }
    if bounded {
        measured.rows = position;
        measured.seconds = began.elapsed().as_secs_f64();
        measured.cpu = cpu_seconds();
    }
    let results = results.borrow();
    measured.given = position;
    measured.rows_out = results.0 + results.2.len() as u64;
    measured.digest = results.2.iter().fold(results.1, |total, (key, n)| total.wrapping_add(digest(key, &[*n])));
    measured
}

/// Count, sum and maximum by key and second; a window is given when the watermark has passed its end.
fn windows<K: Key>(
    worker: &mut timely::worker::Worker,
    input: &mut InputHandle<u64, timely::container::CapacityContainerBuilder<Vec<Row<K>>>>,
    results: Results<K>,
    base_us: i64,
) -> ProbeHandle<u64> {
    worker.dataflow::<u64, _, _>(|scope| {
        input
            .to_stream(scope)
            .unary_frontier(Exchange::new(|row: &Row<K>| spread(&row.0)), "Windows", move |capability, _info| {
                let mut capability = Some(capability);
                let mut open: BTreeMap<i64, Table<K, (i64, i64, i64)>> = BTreeMap::new();
                move |(input, frontier), output| {
                    input.for_each_time(|_time, data| {
                        for batch in data {
                            for (key, at, amount) in batch.drain(..) {
                                let window = (at - base_us).div_euclid(1_000_000);
                                let sums = open.entry(window).or_default().entry(key).or_insert((0, 0, i64::MIN));
                                sums.0 += 1;
                                sums.1 += amount;
                                sums.2 = sums.2.max(amount);
                            }
                        }
                    });
                    let reached = frontier.frontier().first().copied();
                    let closed = reached.map_or(i64::MAX, |time| time as i64);
                    if let Some(held) = capability.as_ref() {
                        while let Some(first) = open.first_entry() {
                            if *first.key() >= closed {
                                break;
                            }
                            let start_us = base_us + first.key() * 1_000_000;
                            let mut session = output.session(held);
                            for (key, (items, revenue, largest)) in first.remove() {
                                session.give((key, start_us, items, revenue, largest));
                            }
                        }
                    }
                    match (reached, capability.as_mut()) {
                        (Some(time), Some(held)) if *held.time() < time => held.downgrade(&time),
                        (None, _) => capability = None,
                        _ => {}
                    }
                }
            })
            .container::<Vec<(K, i64, i64, i64, i64)>>()
            .unary(Pipeline, "Sink", move |_capability, _info| {
                move |input, output| {
                    let mut found = results.borrow_mut();
                    input.for_each_time(|time, data| {
                        for batch in data {
                            for (key, start, items, revenue, largest) in batch.drain(..) {
                                found.0 += 1;
                                found.1 = found.1.wrapping_add(digest(&key, &[start, items, revenue, largest]));
                            }
                        }
                        output.session(&time).give(());
                    });
                }
            })
            .container::<Vec<()>>()
            .probe()
            .0
    })
}

/// A running count by key; each key that was touched is given once for each timestamp.
fn counts<K: Key>(
    worker: &mut timely::worker::Worker,
    input: &mut InputHandle<u64, timely::container::CapacityContainerBuilder<Vec<Row<K>>>>,
    results: Results<K>,
) -> ProbeHandle<u64> {
    worker.dataflow::<u64, _, _>(|scope| {
        input
            .to_stream(scope)
            .unary_frontier(Exchange::new(|row: &Row<K>| spread(&row.0)), "Counts", move |capability, _info| {
                let mut capability = Some(capability);
                let mut known: Table<K, (i64, bool)> = Table::default();
                let mut touched: Vec<K> = Vec::new();
                move |(input, frontier), output| {
                    input.for_each_time(|_time, data| {
                        for batch in data {
                            for (key, _, _) in batch.drain(..) {
                                match known.get_mut(&key) {
                                    Some(entry) => {
                                        entry.0 += 1;
                                        if !entry.1 {
                                            entry.1 = true;
                                            touched.push(key);
                                        }
                                    }
                                    None => {
                                        known.insert(key.clone(), (1, true));
                                        touched.push(key);
                                    }
                                }
                            }
                        }
                    });
                    let reached = frontier.frontier().first().copied();
                    let moved = match (reached, capability.as_ref()) {
                        (Some(time), Some(held)) => *held.time() < time,
                        (None, held) => held.is_some(),
                        _ => false,
                    };
                    if moved {
                        let held = capability.as_mut().unwrap();
                        let mut session = output.session(held);
                        for key in touched.drain(..) {
                            let entry = known.get_mut(&key).unwrap();
                            entry.1 = false;
                            session.give((key, entry.0));
                        }
                        drop(session);
                        match reached {
                            Some(time) => held.downgrade(&time),
                            None => capability = None,
                        }
                    }
                }
            })
            .container::<Vec<(K, i64)>>()
            .unary(Pipeline, "Sink", move |_capability, _info| {
                move |input, output| {
                    let mut found = results.borrow_mut();
                    input.for_each_time(|time, data| {
                        for batch in data {
                            for (key, n) in batch.drain(..) {
                                found.2.insert(key, n);
                            }
                        }
                        output.session(&time).give(());
                    });
                }
            })
            .container::<Vec<()>>()
            .probe()
            .0
    })
}
