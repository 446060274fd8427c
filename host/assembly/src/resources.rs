//! What a command needs of the machine to begin with: threads and open files.
//!
//! Owns the numbers, and looks whether they are there. Must not keep what it took to look. Tokio panics where the
//! system refuses it a thread, or leaves work in its queue for ever, so the look comes before the first runtime.
//! Invariant: a command that passed it can start each thread that it begins with, unless other programs take them
//! meanwhile.

use std::fmt;
use std::io::pipe;
use std::thread::{self, Builder};

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};

/// A host's threads for each processor: those of the runtime, connections, large bodies, guests and messages.
const HOST_THREADS_PER_PROCESSOR: usize = 5;
/// Its threads besides: the store with its engine, the audit log, the clock of guests, processes that examine and
/// compile, reads of files.
const HOST_THREADS: usize = 32;
/// Those of a command without a host, besides one for each processor.
const COMMAND_THREADS: usize = 8;
/// Threads that a busy host starts besides: those that Tokio starts for reads of files and of the store, and for
/// look-ups of names.
const BUSY_HOST_THREADS: usize = 512;
const HOST_FILES: usize = 128;
const COMMAND_FILES: usize = 32;

/// Virtual memory that is reserved for instances: much, and nearly none of it is used.
const ADDRESS_SPACE_MIN: u64 = 1 << 40;

/// What has to be there.
#[derive(Clone, Copy, Debug)]
pub struct Resources {
    threads: usize,
    files: usize,
}

/// What the machine does not give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    pub found: String,
    pub remedy: String,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.found, self.remedy)
    }
}

impl std::error::Error for Shortage {}

impl Resources {
    /// For a start that serves plugins.
    pub fn of_host() -> Self {
        Self { threads: processors() * HOST_THREADS_PER_PROCESSOR + HOST_THREADS, files: HOST_FILES }
    }

    /// For one that serves under load.
    pub fn of_busy_host() -> Self {
        let Self { threads, files } = Self::of_host();
        Self { threads: threads + BUSY_HOST_THREADS, files }
    }

    pub fn of_command() -> Self {
        Self { threads: processors() + COMMAND_THREADS, files: COMMAND_FILES }
    }

    pub fn threads(self) -> usize {
        self.threads
    }

    /// Takes all of it for a moment.
    pub fn look(self) -> Result<(), Shortage> {
        self.judge_files(count_files(self.files))?;
        self.judge_threads(count_threads(self.threads), getrlimit(Resource::As).current)
    }

    /// Takes the threads alone.
    pub fn look_for_threads(self) -> Result<(), Shortage> {
        self.judge_threads(count_threads(self.threads), getrlimit(Resource::As).current)
    }

    fn judge_files(self, given: usize) -> Result<(), Shortage> {
        let wanted = self.files;
        if given >= wanted {
            return Ok(());
        }
        Err(Shortage {
            found: format!("the system opens {given} of the {wanted} files that are needed to begin with"),
            remedy: "Raise LimitNOFILE= (systemd), --ulimit nofile (containers) or `ulimit -n`.".to_owned(),
        })
    }

    fn judge_threads(self, given: usize, address_space: Option<u64>) -> Result<(), Shortage> {
        let wanted = self.threads;
        if given >= wanted {
            return Ok(());
        }
        // A thread's stack is address space.
        let or_memory = if address_space.is_some() { ", or remove `ulimit -v`, which is set" } else { "" };
        Err(Shortage {
            found: format!("the system starts {given} of the {wanted} threads that are needed"),
            remedy: format!("Raise TasksMax= (systemd), --pids-limit (containers) or `ulimit -u`{or_memory}."),
        })
    }
}

/// Why instances may have got no address space, if it is limited below what they reserve.
pub fn address_space_shortage(limit: Option<u64>) -> Option<Shortage> {
    let limit = limit.filter(|limit| *limit < ADDRESS_SPACE_MIN)?;
    Some(Shortage {
        found: format!("{} MiB", limit >> 20),
        remedy:
            "Remove `ulimit -v` (systemd: LimitAS=infinity): instances reserve virtual memory that they do not use."
                .to_owned(),
    })
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// How many of these threads the system gives at once.
fn count_threads(wanted: usize) -> usize {
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let closed = gate.lock();
        let started = (0..wanted).map_while(|_| Builder::new().spawn_scoped(scope, || drop(gate.lock())).ok());
        let threads: Vec<_> = started.collect();
        drop(closed);
        // The system counts a thread until it has ended, which the end of the scope alone does not wait for.
        threads.into_iter().filter_map(|thread| thread.join().ok()).count()
    })
}

/// How many of these files it opens at once.
fn count_files(wanted: usize) -> usize {
    let pipes: Vec<_> = (0..wanted.div_ceil(2)).map_while(|_| pipe().ok()).collect();
    pipes.len() * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortage_says_what_is_needed_and_what_to_raise() {
        let needed = Resources { threads: 42, files: 128 };
        assert_eq!((needed.judge_threads(42, None), needed.judge_files(128)), (Ok(()), Ok(())));
        let text = |judged: Result<(), Shortage>| judged.unwrap_err().to_string();
        assert_eq!(
            text(needed.judge_threads(7, None)),
            "the system starts 7 of the 42 threads that are needed. Raise TasksMax= (systemd), --pids-limit (containers) or `ulimit -u`."
        );
        assert!(
            text(needed.judge_threads(41, Some(1 << 30)))
                .ends_with("`ulimit -u`, or remove `ulimit -v`, which is set.")
        );
        assert!(text(needed.judge_files(20)).starts_with("the system opens 20 of the 128 files that"));
    }

    #[test]
    fn look_takes_what_is_there_and_gives_it_back() {
        for _ in 0..3 {
            assert_eq!((count_threads(9), count_files(9)), (9, 10));
        }
        assert_eq!(Resources::of_host().look(), Ok(()));
    }

    #[test]
    fn address_space_below_what_instances_reserve_is_a_shortage() {
        assert_eq!(address_space_shortage(None), None);
        assert_eq!(address_space_shortage(Some(1 << 41)), None);
        let shortage = address_space_shortage(Some(250 << 20)).unwrap();
        assert_eq!(shortage.found, "250 MiB");
        assert!(shortage.remedy.contains("`ulimit -v`"), "{shortage}");
    }
}
