use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use tokio::sync::Notify;

use super::*;

const TURN: Duration = Duration::from_millis(10);

fn threads(count: usize) -> Threads {
    let queue = FairQueue::new(micros(TURN));
    Threads::start_with("guest", count, &tokio::runtime::Handle::current(), queue, || {}).unwrap()
}

/// Says when it is dropped.
struct Life(Arc<AtomicBool>);

impl Drop for Life {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A guest that computes for ever, in turns of the same length that it counts.
async fn spin(turns: Arc<AtomicUsize>) {
    poll_fn(|cx| {
        for at in 0..20_000 {
            std::hint::black_box(at);
        }
        turns.fetch_add(1, Ordering::AcqRel);
        cx.waker().wake_by_ref();
        Poll::<()>::Pending
    })
    .await;
}

async fn until(what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never came");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn tenants_get_equal_turns_for_any_call_count() {
    let threads = threads(1);
    let shares = [Share::new(1), Share::new(1), Share::new(1)];
    let counts: [Arc<AtomicUsize>; 3] = Default::default();
    for ((share, count), calls) in shares.iter().zip(&counts).zip([500, 1, 3]) {
        (0..calls).for_each(|_| drop(threads.spawn(share, spin(count.clone()))));
    }
    let turns = || counts.each_ref().map(|count| count.load(Ordering::Acquire));
    until(|| turns().iter().sum::<usize>() >= 3_000).await;
    for count in turns() {
        assert!((800..=1_200).contains(&count), "{:?}", turns());
    }
    let served = shares.each_ref().map(Share::served_us);
    assert!(served.iter().all(|us| us.abs_diff(served[0]) < 50_000), "{served:?}");
}

#[tokio::test]
async fn single_call_beside_many_loops_runs_soon() {
    let threads = threads(1);
    let crowd = Share::new(1);
    let alone = Share::new(1);
    let turns = Arc::new(AtomicUsize::new(0));
    let _loops: Vec<_> = (0..500).map(|_| threads.spawn(&crowd, spin(turns.clone()))).collect();
    until(|| turns.load(Ordering::Acquire) > 500).await;
    let mut most = 0;
    for _ in 0..50 {
        let before = turns.load(Ordering::Acquire);
        let now = turns.clone();
        let after = threads.run(&alone, async move { now.load(Ordering::Acquire) }).await.unwrap();
        most = most.max(after - before);
    }
    // In the order of arrival it would be 500. The one that has the thread ends its turn; more only if this test had to
    // wait.
    assert!(most < 100, "{most} turns of others came before");
}

#[tokio::test]
async fn stopped_guest_is_dropped_without_waiting() {
    let threads = threads(1);
    let share = Share::default();
    let turns = Arc::new(AtomicUsize::new(0));
    let gone: [Arc<AtomicBool>; 3] = Default::default();
    let waiting = {
        let life = Life(gone[0].clone());
        threads.spawn(&share, async move {
            let _life = life;
            std::future::pending::<()>().await;
        })
    };
    let running = {
        let life = Life(gone[1].clone());
        let turns = turns.clone();
        threads.spawn(&share, async move {
            let _life = life;
            spin(turns).await;
        })
    };
    until(|| turns.load(Ordering::Acquire) > 3).await;
    waiting.stop();
    until(|| gone[0].load(Ordering::Acquire)).await;
    // In line behind a thousand others whose share has the same thread.
    let crowd: Vec<_> = (0..1_000).map(|_| threads.spawn(&share, spin(turns.clone()))).collect();
    let life = Life(gone[2].clone());
    let queued = threads.spawn(&share, async move { drop(life) });
    queued.stop();
    let before = turns.load(Ordering::Acquire);
    until(|| gone[2].load(Ordering::Acquire)).await;
    assert!(turns.load(Ordering::Acquire) - before < 500, "it did not have to wait for its turn");
    running.stop();
    until(|| gone[1].load(Ordering::Acquire)).await;
    crowd.into_iter().for_each(Stop::stop);
}

#[tokio::test]
async fn waiting_guest_continues_when_woken() {
    let threads = threads(2);
    let bell = Arc::new(Notify::new());
    let rung = bell.clone();
    let rings = threads.run(&Share::default(), async move {
        for _ in 0..100 {
            rung.notified().await;
        }
        100
    });
    tokio::pin!(rings);
    loop {
        tokio::select! {
            rings = &mut rings => break assert_eq!(rings.unwrap(), 100),
            () = tokio::time::sleep(Duration::from_micros(50)) => bell.notify_one(),
        }
    }
}

#[tokio::test]
async fn panicking_guest_does_not_cost_a_thread() {
    let threads = threads(1);
    assert!(threads.run(&Share::default(), async { panic!("scripted") }).await.is_err());
    assert_eq!(threads.run(&Share::default(), async { 7 }).await.unwrap(), 7);
}

#[tokio::test]
async fn guests_are_dropped_with_their_threads() {
    let pool = threads(1);
    let turns = Arc::new(AtomicUsize::new(0));
    let gone: [Arc<AtomicBool>; 2] = Default::default();
    let life = Life(gone[0].clone());
    let spun = turns.clone();
    pool.spawn(&Share::default(), async move {
        let _life = life;
        spin(spun).await;
    });
    let life = Life(gone[1].clone());
    let waiting = pool.spawn(&Share::default(), async move {
        let _life = life;
        std::future::pending::<()>().await;
    });
    until(|| turns.load(Ordering::Acquire) > 3).await;
    drop(pool);
    until(|| gone[0].load(Ordering::Acquire)).await;
    waiting.stop();
    assert!(gone[1].load(Ordering::Acquire), "nobody is left who could do it later");
}

/// A pulse of these threads that runs, and says soon that they stand still.
fn pulse(of: &Threads) -> GuestPulse {
    let times = pulse::Times { every: Duration::from_millis(5), standstill_after: Duration::from_millis(500) };
    let pulse = GuestPulse::new(Arc::clone(&of.0), times);
    let runs = pulse.clone();
    tokio::spawn(async move { runs.run().await });
    pulse
}

/// Keeps so many threads, as no guest can, until what is returned is dropped.
async fn park(threads: &Threads, count: usize) -> Vec<std::sync::mpsc::Sender<()>> {
    let came = Arc::new(AtomicUsize::new(0));
    let keep = |_| {
        let (keeps, kept) = std::sync::mpsc::channel::<()>();
        let came = Arc::clone(&came);
        threads.spawn(&Share::default(), async move {
            came.fetch_add(1, Ordering::AcqRel);
            _ = kept.recv();
        });
        keeps
    };
    let keeps = (0..count).map(keep).collect();
    until(|| came.load(Ordering::Acquire) == count).await;
    keeps
}

#[tokio::test]
async fn pulse_of_parked_threads_stops_and_comes_back() {
    let threads = threads(2);
    let pulse = pulse(&threads);
    until(|| pulse.silent_for() < Duration::from_millis(100)).await;
    let parked = park(&threads, 2).await;
    until(|| pulse.stands_still()).await;
    // This one, the one that runs, and that of the no-op.
    assert!(Arc::strong_count(&pulse.passed_ms) <= 3, "one no-op waits in line, not one for every attempt");
    drop(parked);
    until(|| !pulse.stands_still()).await;
}

#[tokio::test]
async fn pulse_goes_on_among_guests_that_compute() {
    let threads = threads(1);
    let turns = Arc::new(AtomicUsize::new(0));
    let crowd: Vec<_> = (0..500).map(|_| threads.spawn(&Share::default(), spin(turns.clone()))).collect();
    until(|| turns.load(Ordering::Acquire) > 1_000).await;
    let pulse = pulse(&threads);
    let until_then = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until_then {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(!pulse.stands_still(), "{pulse:?}");
    }
    crowd.into_iter().for_each(Stop::stop);
}

#[tokio::test]
async fn pulse_ends_with_its_threads() {
    let threads = threads(1);
    let pulse = GuestPulse::new(
        Arc::clone(&threads.0),
        pulse::Times { every: Duration::from_millis(5), ..pulse::Times::default() },
    );
    let runs = tokio::spawn(async move { pulse.run().await });
    drop(threads);
    tokio::time::timeout(Duration::from_secs(60), runs).await.unwrap().unwrap();
}

#[tokio::test]
async fn end_waits_for_turns_in_progress() {
    for (turn_ms, within_ms, has_ended) in [(100, 20_000, true), (2_000, 1, false)] {
        let threads = threads(1);
        let begun = Arc::new(AtomicBool::new(false));
        let gone = Arc::new(AtomicBool::new(false));
        let life = Life(gone.clone());
        let is_begun = begun.clone();
        let _guest = threads.spawn(&Share::default(), async move {
            let _life = life;
            begun.store(true, Ordering::Release);
            std::thread::sleep(Duration::from_millis(turn_ms));
        });
        until(|| is_begun.load(Ordering::Acquire)).await;
        assert_eq!(threads.end(Duration::from_millis(within_ms)), has_ended);
        assert_eq!(gone.load(Ordering::Acquire), has_ended, "a turn of {turn_ms} ms");
    }
}

/// Computes for so long.
fn compute(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::black_box(begun);
    }
}

/// Waits until no guest is left for the threads.
async fn until_idle(threads: &Threads) {
    until(|| threads.pulse().load() == (0, 0)).await;
}

/// Whether the first turn of a call of this share is had on this thread.
fn begins_here(threads: &Threads, share: &Share, turn: Duration) -> bool {
    let (sender, receiver) = std::sync::mpsc::channel();
    threads.begin(share, async move {
        compute(turn);
        let _ = sender.send(thread::current().id());
    });
    receiver.recv().unwrap() == thread::current().id()
}

#[tokio::test]
async fn first_slice_of_a_short_call_is_had_here_and_charged() {
    let threads = threads(2);
    let share = Share::default();
    until_idle(&threads).await;
    // However little of this the processor gave to this thread, it is some.
    assert!(begins_here(&threads, &share, Duration::from_millis(2)));
    assert!(share.served_us() > 0);
    let pulse = threads.pulse();
    let load = Arc::new(Mutex::new((0, 0)));
    let seen = load.clone();
    threads.begin(&Share::default(), async move { *seen.lock() = pulse.load() });
    assert_eq!(
        (*load.lock(), threads.pulse().load()),
        ((1, 0), (0, 0)),
        "it counts as a busy thread, and not for ever"
    );
}

#[tokio::test]
async fn first_slice_of_a_loop_ends_with_its_turn() {
    let threads = threads(1);
    until_idle(&threads).await;
    let turns = Arc::new(AtomicUsize::new(0));
    let had_here = Arc::new(AtomicUsize::new(0));
    let counts = [turns.clone(), had_here.clone()];
    let here = thread::current().id();
    let looping = threads.begin(
        &Share::default(),
        poll_fn(move |context| {
            counts[1].fetch_add(usize::from(thread::current().id() == here), Ordering::AcqRel);
            counts[0].fetch_add(1, Ordering::AcqRel);
            context.waker().wake_by_ref();
            Poll::Pending
        }),
    );
    until(|| turns.load(Ordering::Acquire) > 10).await;
    assert_eq!(had_here.load(Ordering::Acquire), 1, "one turn here, the others among the guests");
    assert!(!begins_here(&threads, &Share::default(), Duration::ZERO), "the threads have something to do");
    looping.stop();
    until(|| begins_here(&threads, &Share::default(), Duration::ZERO)).await;
}

/// Which of so many calls, each begun in the first turn of the one before, have theirs on the thread of their request.
fn begin_within_each_other(threads: &Arc<Threads>, count: usize) -> Vec<bool> {
    let Some(within) = count.checked_sub(1) else { return Vec::new() };
    let inner = Arc::clone(threads);
    let here = thread::current().id();
    let (sender, receiver) = std::sync::mpsc::channel();
    threads.begin(&Share::default(), async move {
        let is_here = thread::current().id() == here;
        let mut seen = vec![is_here];
        // What begins on a guests' thread says nothing of those that read requests.
        if is_here {
            seen.extend(begin_within_each_other(&inner, within));
        }
        let _ = sender.send(seen);
    });
    receiver.recv().unwrap()
}

#[tokio::test]
async fn brief_calls_begin_here_beside_each_other_up_to_the_number_of_threads() {
    for count in [1, 2, 3] {
        let threads = Arc::new(threads(count));
        until_idle(&threads).await;
        let mut expected = vec![true; count];
        expected.push(false);
        assert_eq!(begin_within_each_other(&threads, 5), expected);
    }
}

#[tokio::test]
async fn call_begins_here_beside_a_guest_that_computes_while_a_thread_is_free() {
    let threads = threads(2);
    let loops: [Arc<AtomicUsize>; 2] = Default::default();
    let first = threads.spawn(&Share::default(), spin(loops[0].clone()));
    until(|| loops[0].load(Ordering::Acquire) > 3).await;
    until(|| begins_here(&threads, &Share::default(), Duration::ZERO)).await;
    let second = threads.spawn(&Share::default(), spin(loops[1].clone()));
    until(|| loops[1].load(Ordering::Acquire) > 3).await;
    assert!(!begins_here(&threads, &Share::default(), Duration::ZERO), "it waits for its turn among the guests");
    first.stop();
    second.stop();
}

#[tokio::test]
async fn first_slice_that_waits_goes_on_among_guests() {
    let threads = threads(1);
    until_idle(&threads).await;
    let bell = Arc::new(Notify::new());
    let rung = bell.clone();
    let (sender, receiver) = oneshot::channel();
    threads.begin(&Share::default(), async move {
        rung.notified().await;
        let _ = sender.send(thread::current().name() == Some("guest"));
    });
    bell.notify_one();
    assert_eq!(receiver.await, Ok(true));
}

#[tokio::test]
async fn share_with_a_long_turn_begins_among_guests_for_a_while() {
    let threads = threads(1);
    let slow = Share::default();
    until_idle(&threads).await;
    assert!(begins_here(&threads, &slow, Duration::from_millis(20)));
    until_idle(&threads).await;
    assert!(!begins_here(&threads, &slow, Duration::ZERO), "a long turn was had here less than two seconds ago");
    until_idle(&threads).await;
    assert!(begins_here(&threads, &Share::default(), Duration::ZERO), "which is nothing to another share");
    until(|| begins_here(&threads, &slow, Duration::ZERO)).await;
}

#[tokio::test]
async fn turns_that_are_long_are_had_among_guests() {
    let threads = Threads::start(&tokio::runtime::Handle::current(), 2 * TURN, || {}).unwrap();
    until_idle(&threads).await;
    assert!(!begins_here(&threads, &Share::default(), Duration::ZERO));
}

#[test]
fn first_slice_waits_on_the_runtime_of_guests() {
    let build = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let of_guests = build();
    let of_requests = build();
    let threads = Threads::start(of_guests.handle(), TURN, || {}).unwrap();
    let seen = of_requests.block_on(async {
        until_idle(&threads).await;
        let (sender, receiver) = std::sync::mpsc::channel();
        threads.begin(&Share::default(), async move {
            let _ = sender.send(tokio::runtime::Handle::current().id());
        });
        receiver.recv().unwrap()
    });
    assert_eq!(seen, of_guests.handle().id());
}

#[tokio::test]
async fn end_waits_for_a_first_slice() {
    let threads = Arc::new(threads(1));
    until_idle(&threads).await;
    let begun = Arc::new(AtomicBool::new(false));
    let gone = Arc::new(AtomicBool::new(false));
    let is_begun = begun.clone();
    let life = Life(gone.clone());
    let begins = Arc::clone(&threads);
    let request = thread::spawn(move || {
        begins.begin(&Share::default(), async move {
            let _life = life;
            begun.store(true, Ordering::Release);
            thread::sleep(Duration::from_millis(100));
            tokio::task::yield_now().await;
        });
    });
    until(|| is_begun.load(Ordering::Acquire)).await;
    assert!(threads.end(Duration::from_secs(20)));
    assert!(gone.load(Ordering::Acquire), "no guest is left to be polled or dropped later");
    request.join().unwrap();
}

/// A guest of a host that stops: it computes, sleeps, or does both by turns. It notes each turn that comes when all is
/// over.
async fn loaded_guest(number: usize, turns: Arc<AtomicUsize>, is_over: Arc<AtomicBool>, late: Arc<AtomicUsize>) {
    let note = || {
        turns.fetch_add(1, Ordering::AcqRel);
        late.fetch_add(usize::from(is_over.load(Ordering::Acquire)), Ordering::AcqRel);
    };
    loop {
        note();
        if !number.is_multiple_of(3) {
            // A timer of the I/O runtime: to poll it when that is gone is a panic.
            tokio::time::sleep(Duration::from_micros(number as u64 * 100)).await;
            note();
        }
        if number % 3 < 2 {
            compute(Duration::from_micros(50));
            tokio::task::yield_now().await;
        }
    }
}

/// The way of the program's end: the guests' threads, then the I/O runtime. Calls go on coming meanwhile.
#[test]
fn no_guest_has_a_turn_after_any_of_200_stops_under_load() {
    for stop in 0..200 {
        let io = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let queue = FairQueue::new(micros(TURN));
        let threads = Arc::new(Threads::start_with("guest", 2, io.handle(), queue, || {}).unwrap());
        let turns = Arc::<AtomicUsize>::default();
        let late = Arc::<AtomicUsize>::default();
        let is_over = Arc::<AtomicBool>::default();
        let shares = [Share::new(1), Share::new(3)];
        let guest = |number| loaded_guest(number, turns.clone(), is_over.clone(), late.clone());
        let guests: Vec<_> = (0..12).map(|number| threads.spawn(&shares[number % 2], guest(number))).collect();
        let requests = {
            let threads = Arc::clone(&threads);
            let share = shares[0].clone();
            let counts = [turns.clone(), late.clone()];
            let is_over = is_over.clone();
            thread::spawn(move || {
                let [turns, late] = counts;
                let mut begun = Vec::new();
                while !is_over.load(Ordering::Acquire) && begun.len() < 200 {
                    let guest = loaded_guest(begun.len(), turns.clone(), is_over.clone(), late.clone());
                    begun.push(threads.begin(&share, guest));
                    thread::sleep(Duration::from_micros(100));
                }
                begun
            })
        };
        // Each stop comes at another moment.
        while turns.load(Ordering::Acquire) < 20 + stop % 40 {
            thread::yield_now();
        }
        assert!(threads.end(Duration::from_secs(20)), "stop {stop}: a turn goes on");
        is_over.store(true, Ordering::Release);
        io.shutdown_background();
        let begun = requests.join().unwrap();
        for guest in guests.into_iter().chain(begun) {
            guest.stop();
        }
        assert_eq!(late.load(Ordering::Acquire), 0, "stop {stop}");
    }
}
