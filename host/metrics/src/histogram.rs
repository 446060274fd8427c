//! A histogram that many threads write at once.
//!
//! Owns the counts of its buckets, and the latest trace of each bucket. Must not lock in the way of a request: the
//! histogram of the library takes a lock at every observation, and only it can make exemplars, so this one is our own.
//! Invariant: what is read counts every observation once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// How values are divided among buckets, in whole units.
#[derive(Debug)]
pub(crate) struct Buckets {
    /// The upper ends, ascending; what is above the last one has a bucket of its own.
    pub(crate) ends: &'static [u64],
    /// Units that make one of what is shown.
    pub(crate) scale: f64,
}

const NANOSECONDS: f64 = 1e9;
const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// The boundaries that OpenTelemetry advises begin at 10 ms; a call in a sandbox takes less than one.
pub(crate) static OPERATIONS: Buckets = Buckets {
    ends: &[
        MS / 4,
        MS / 2,
        MS,
        5 * MS / 2,
        5 * MS,
        10 * MS,
        20 * MS,
        50 * MS,
        100 * MS,
        200 * MS,
        500 * MS,
        S,
        2 * S,
        5 * S,
        10 * S,
        30 * S,
        60 * S,
        120 * S,
        300 * S,
    ],
    scale: NANOSECONDS,
};

/// Finer than what a scrape gets: quantiles of them are shown to people.
pub(crate) static CALL_TIMES: Buckets = Buckets { ends: &CALL_TIME_ENDS, scale: NANOSECONDS };

/// Six steps for each power of ten, from 10 µs to 7,000 s.
const CALL_TIME_ENDS: [u64; 54] = call_time_ends();

#[allow(clippy::indexing_slicing, reason = "of a constant: what is out of bounds does not compile")]
const fn call_time_ends() -> [u64; 54] {
    let mut ends = [0; 54];
    let mut at = 0;
    let mut least = MS / 100;
    let tenths = [10, 15, 20, 30, 50, 70];
    while at < ends.len() {
        ends[at] = least / 10 * tenths[at % tenths.len()];
        at += 1;
        if at % tenths.len() == 0 {
            least *= 10;
        }
    }
    ends
}

/// For what there is one of for each plugin or each host.
pub(crate) static DURATIONS: Buckets = Buckets {
    ends: &[MS / 10, MS / 2, MS, 5 * MS, 10 * MS, 50 * MS, 100 * MS, 500 * MS, S, 5 * S, 10 * S, 60 * S],
    scale: NANOSECONDS,
};

/// The boundaries that OpenTelemetry advises for operations, from a second on, and longer ones: sessions of people last
/// for hours.
pub(crate) static SESSIONS: Buckets = Buckets {
    ends: &[S, 5 * S, 10 * S, 30 * S, 60 * S, 300 * S, 900 * S, 3_600 * S, 4 * 3_600 * S, 24 * 3_600 * S],
    scale: NANOSECONDS,
};

/// Operations of one group.
pub(crate) static GROUPS: Buckets = Buckets { ends: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512], scale: 1.0 };

/// The end of the step in which so many per cent of the observations had come; steps are their ends with how many.
pub fn quantile(mut steps: impl Iterator<Item = (u64, u64)> + Clone, percent: u64) -> Option<u64> {
    let all: u64 = steps.clone().map(|(_, count)| count).sum();
    let wanted = all.saturating_mul(percent).div_ceil(100).max(1);
    let mut seen = 0;
    steps.find_map(|(end, count)| {
        seen += count;
        (seen >= wanted).then_some(end)
    })
}

/// The caller's trace of one observation.
#[derive(Clone, Debug)]
pub(crate) struct Exemplar {
    pub(crate) trace_id: [u8; 16],
    pub(crate) value: f64,
    pub(crate) unix_ms: u64,
}

/// A distribution of observations.
#[derive(Debug)]
pub struct Histogram {
    buckets: &'static Buckets,
    /// Of each bucket, and of what is above the last one.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
    /// Made for the first request that names a trace.
    exemplars: OnceLock<Mutex<Box<[Option<Exemplar>]>>>,
}

/// What a histogram holds at one moment.
#[derive(Debug)]
pub(crate) struct Distribution {
    /// The upper end of each bucket with the observations up to it, and its exemplar; the last end is infinite.
    pub(crate) buckets: Vec<(f64, u64, Option<Exemplar>)>,
    pub(crate) sum: f64,
    pub(crate) count: u64,
}

impl Histogram {
    pub(crate) fn new(buckets: &'static Buckets) -> Self {
        let counts = std::iter::repeat_with(AtomicU64::default).take(buckets.ends.len() + 1).collect();
        Self { buckets, counts, sum: AtomicU64::default(), exemplars: OnceLock::new() }
    }

    /// Lines that it takes.
    pub(crate) fn lines(buckets: &Buckets) -> usize {
        buckets.ends.len() + 3
    }

    /// Counts a time.
    pub fn observe(&self, took: Duration) {
        self.observe_units(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts a time; one that is longer than all ends counts as the last one.
    pub(crate) fn observe_within(&self, took: Duration) {
        let last = self.buckets.ends.last().copied().unwrap_or_default();
        self.observe_units(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).min(last));
    }

    /// The ends of the buckets that have any observation, with how many.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.buckets.ends.iter().zip(&self.counts);
        counts.map(|(end, count)| (*end, count.load(Relaxed))).filter(|(_, count)| *count > 0)
    }

    /// Counts a number of things.
    pub fn observe_units(&self, value: u64) {
        if let Some(count) = self.counts.get(self.bucket(value)) {
            count.fetch_add(1, Relaxed);
            self.sum.fetch_add(value, Relaxed);
        }
    }

    /// Counts a time, and keeps the trace of its request as the latest of its bucket.
    pub fn observe_traced(&self, took: Duration, trace_id: &[u8; 16]) {
        self.observe(took);
        let exemplars = self.exemplars.get_or_init(|| Mutex::new(vec![None; self.counts.len()].into()));
        // One of several at the same time is enough.
        let Some(mut exemplars) = exemplars.try_lock() else { return };
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(exemplar) = exemplars.get_mut(self.bucket(nanoseconds)) {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let unix_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
            let value = nanoseconds as f64 / self.buckets.scale;
            *exemplar = Some(Exemplar { trace_id: *trace_id, value, unix_ms });
        }
    }

    fn bucket(&self, value: u64) -> usize {
        self.buckets.ends.iter().position(|end| value <= *end).unwrap_or(self.buckets.ends.len())
    }

    pub(crate) fn read(&self) -> Distribution {
        let exemplars = self.exemplars.get().map(|exemplars| exemplars.lock().clone()).unwrap_or_default();
        let mut count = 0;
        let scale = self.buckets.scale;
        let ends = self.buckets.ends.iter().map(|end| *end as f64 / scale).chain([f64::INFINITY]);
        let mut buckets = Vec::with_capacity(self.counts.len());
        for (at, (end, own)) in ends.zip(&self.counts).enumerate() {
            count += own.load(Relaxed);
            buckets.push((end, count, exemplars.get(at).cloned().flatten()));
        }
        Distribution { buckets, sum: self.sum.load(Relaxed) as f64 / scale, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observation_is_counted_in_its_bucket_and_all_above() {
        let histogram = Histogram::new(&OPERATIONS);
        for micros in [250, 251, 400_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let Distribution { buckets, sum, count } = histogram.read();
        let up_to = |end: f64| buckets.iter().find(|(bucket, ..)| *bucket == end).unwrap().1;
        assert_eq!((up_to(0.00025), up_to(0.0005), up_to(300.0), up_to(f64::INFINITY)), (1, 2, 2, 3));
        assert_eq!(count, 3);
        assert!((sum - 400.000_501).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn latest_trace_of_a_bucket_is_kept() {
        let histogram = Histogram::new(&OPERATIONS);
        histogram.observe(Duration::from_micros(90));
        assert!(histogram.read().buckets.iter().all(|(.., exemplar)| exemplar.is_none()));
        histogram.observe_traced(Duration::from_micros(100), &[10; 16]);
        histogram.observe_traced(Duration::from_micros(200), &[11; 16]);
        let read = histogram.read();
        let kept: Vec<_> = read.buckets.iter().filter_map(|(.., exemplar)| exemplar.as_ref()).collect();
        assert_eq!(kept.len(), 1);
        assert_eq!((kept[0].trace_id, kept[0].value), ([0x0b; 16], 0.0002));
    }

    #[test]
    fn call_times_are_shown_at_most_two_thirds_above_the_true_ones() {
        for micros in [10_u64, 11, 15, 16, 29, 31, 51, 99, 701, 1_000, 30_001, 999_999, 6_900_000_000] {
            let histogram = Histogram::new(&CALL_TIMES);
            histogram.observe_within(Duration::from_micros(micros));
            let shown: Vec<_> = histogram.counts().collect();
            let end = shown[0].0;
            let true_ns = micros * 1_000;
            assert!(shown.len() == 1 && end >= true_ns && end * 3 <= true_ns * 5, "{micros} is shown as {shown:?}");
        }
        let longest = Histogram::new(&CALL_TIMES);
        longest.observe_within(Duration::MAX);
        assert_eq!(longest.counts().collect::<Vec<_>>(), [(7_000 * S, 1)]);
    }

    #[test]
    fn threads_lose_no_observation() {
        let histogram = Histogram::new(&GROUPS);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1_000).for_each(|value| histogram.observe_units(value)));
            }
        });
        let read = histogram.read();
        assert_eq!((read.count, read.sum), (4_000, 4.0 * 499_500.0));
    }
}
