//! Threads of a running host that stand still while its others go on.
//!
//! A signal stops a process as a whole; a tracer stops single threads. So nothing of this has to be built into the
//! host.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use crate::host::Host;

/// The threads of one name, stopped until this is dropped.
pub struct ParkedThreads {
    release: Option<Sender<()>>,
    /// Only the thread that traces may let go.
    tracer: Option<JoinHandle<()>>,
}

impl ParkedThreads {
    /// Stops those that are there now. They stand still when this returns.
    pub fn of(host: &Host, name: &str) -> Self {
        let threads = threads(host.pid(), name);
        assert!(!threads.is_empty(), "the host has no thread {name:?}");
        let (release, released) = channel::<()>();
        let (parked, is_parked) = channel();
        let tracer = std::thread::spawn(move || {
            threads.iter().for_each(|thread| stop(*thread));
            parked.send(()).expect("the test waits");
            _ = released.recv();
            threads.iter().for_each(|thread| trace(libc::PTRACE_DETACH, *thread));
        });
        is_parked.recv().expect("the threads can be traced");
        Self { release: Some(release), tracer: Some(tracer) }
    }
}

impl Drop for ParkedThreads {
    fn drop(&mut self) {
        drop(self.release.take());
        _ = self.tracer.take().map(JoinHandle::join);
    }
}

fn threads(process: u32, name: &str) -> Vec<libc::pid_t> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("the host runs");
    let named = tasks.flatten().filter(|task| {
        let comm = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        comm.trim_end() == name
    });
    named.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

fn stop(thread: libc::pid_t) {
    trace(libc::PTRACE_SEIZE, thread);
    trace(libc::PTRACE_INTERRUPT, thread);
    #[allow(unsafe_code, reason = "no safe library waits for a thread of another process")]
    // SAFETY: without a status there is nothing that it writes to.
    let waited = unsafe { libc::waitpid(thread, std::ptr::null_mut(), libc::__WALL) };
    assert_eq!(waited, thread, "{}", std::io::Error::last_os_error());
}

fn trace(request: libc::c_uint, thread: libc::pid_t) {
    let nothing = std::ptr::null_mut::<libc::c_void>();
    #[allow(unsafe_code, reason = "no safe library traces")]
    // SAFETY: these requests take neither an address nor data.
    let done = unsafe { libc::ptrace(request, thread, nothing, nothing) };
    assert_eq!(done, 0, "tracing thread {thread}: {}", std::io::Error::last_os_error());
}
