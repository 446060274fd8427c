//! What a service manager is told about this process: `sd_notify(3)` of systemd.
//!
//! Owns the socket that `NOTIFY_SOCKET` names. Must not decide whether the host is well: it is told. Invariant: a
//! manager that does not listen, or is not there, changes nothing about the host; it hears READY only after clients can
//! be served, and of its watchdog only while the host is healthy.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bulkhead_net::AbortOnDrop;
use rustix::time::{ClockId, clock_gettime};

use super::sources::variable;

/// How long a manager may take to read what it is told.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The manager that has started this process, if one did and wants to know; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ServiceManager(Option<Arc<Manager>>);

#[derive(Debug)]
struct Manager {
    socket: UnixDatagram,
    address: SocketAddr,
    /// How often it must hear that the host is healthy, before it kills it.
    watchdog: Option<Duration>,
    /// Whether it was told that the host serves: a reload says so again.
    is_ready: AtomicBool,
}

impl ServiceManager {
    /// The one that the environment names.
    pub fn of_environment() -> Self {
        let Some(path) = variable("NOTIFY_SOCKET") else { return Self::default() };
        match Manager::new(&path, watchdog(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"))) {
            Ok(manager) => Self(Some(Arc::new(manager))),
            Err(error) => {
                tracing::warn!(%error, "the service manager in NOTIFY_SOCKET cannot be told anything");
                Self::default()
            }
        }
    }

    /// Clients are served.
    pub(crate) fn ready(&self) {
        if let Some(manager) = &self.0 {
            manager.is_ready.store(true, Ordering::Release);
            manager.tell("READY=1");
        }
    }

    /// No new work is taken any more.
    pub(crate) fn stopping(&self) {
        if let Some(manager) = &self.0 {
            manager.is_ready.store(false, Ordering::Release);
            manager.tell("STOPPING=1");
        }
    }

    /// The configuration is read again, until what is returned is dropped.
    pub(crate) fn reloading(&self) -> Reloading {
        let manager = self.0.clone().filter(|manager| manager.is_ready.load(Ordering::Acquire));
        if let Some(manager) = &manager {
            let now = clock_gettime(ClockId::Monotonic);
            let us = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
            manager.tell(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
        }
        Reloading(manager)
    }

    /// Says again and again that the host is healthy, for as long as it is.
    pub(crate) fn watch(&self, is_healthy: impl Fn() -> bool + Send + 'static) -> Option<AbortOnDrop<()>> {
        let manager = self.0.clone()?;
        let every = manager.watchdog? / 2;
        Some(AbortOnDrop::spawn(async move {
            let mut ticks = tokio::time::interval(every);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                if is_healthy() {
                    manager.tell("WATCHDOG=1");
                }
            }
        }))
    }
}

/// A reload that goes on.
#[derive(Debug)]
pub(crate) struct Reloading(Option<Arc<Manager>>);

impl Drop for Reloading {
    fn drop(&mut self) {
        // A host that goes down meanwhile is not ready any more.
        if let Some(manager) = self.0.take().filter(|manager| manager.is_ready.load(Ordering::Acquire)) {
            manager.tell("READY=1");
        }
    }
}

impl Manager {
    /// `path`: of the file system, or with `@` in front of the abstract ones.
    fn new(path: &str, watchdog: Option<Duration>) -> io::Result<Self> {
        let address = match path.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None if path.starts_with('/') => SocketAddr::from_pathname(path)?,
            None => return Err(io::Error::other("it is neither a whole path nor @NAME")),
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(Self { socket, address, watchdog, is_ready: AtomicBool::new(false) })
    }

    fn tell(&self, what: &str) {
        if let Err(error) = self.socket.send_to_addr(what.as_bytes(), &self.address) {
            tracing::warn!(%error, what, "the service manager was not told");
        }
    }
}

/// What the manager expects to hear of, if it expects it of this process.
fn watchdog(usec: Option<String>, pid: Option<String>) -> Option<Duration> {
    let is_another = pid.is_some_and(|pid| pid != std::process::id().to_string());
    let usec = usec?.parse().ok().filter(|usec| *usec > 1 && !is_another)?;
    Some(Duration::from_micros(usec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_is_of_this_process_only() {
        let own = std::process::id().to_string();
        let wanted = |usec: &str, pid: Option<&str>| watchdog(Some(usec.to_owned()), pid.map(str::to_owned));
        assert_eq!(wanted("30000000", Some(&own)), Some(Duration::from_secs(30)));
        assert_eq!(wanted("30000000", None), Some(Duration::from_secs(30)));
        assert_eq!(wanted("30000000", Some("1")), None, "a child must not speak for its parent");
        for wrong in ["", "0", "1", "-5", "soon"] {
            assert_eq!(wanted(wrong, None), None, "{wrong:?}");
        }
        assert_eq!(watchdog(None, Some(own)), None);
    }

    #[test]
    fn reload_before_ready_says_nothing_and_after_it_ends_with_ready() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let heard = || {
            let mut buffer = [0; 256];
            let bytes = listener.recv(&mut buffer).ok()?;
            Some(String::from_utf8_lossy(&buffer[..bytes]).into_owned())
        };
        let manager = Manager::new(path.to_str().unwrap(), None).unwrap();
        let manager = ServiceManager(Some(Arc::new(manager)));
        drop(manager.reloading());
        assert_eq!(heard(), None);
        manager.ready();
        assert_eq!(heard().as_deref(), Some("READY=1"));
        let reloading = manager.reloading();
        let said = heard().unwrap();
        let since = said.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(since.parse::<u64>().unwrap() > 0, "{said}");
        drop(reloading);
        assert_eq!(heard().as_deref(), Some("READY=1"));
        let reloading = manager.reloading();
        heard();
        manager.stopping();
        drop(reloading);
        assert_eq!(heard().as_deref(), Some("STOPPING=1"));
        assert_eq!(heard(), None, "a host that goes down is not ready");
    }

    #[test]
    fn socket_is_a_whole_path_or_abstract() {
        for wrong in ["", "relative", "vsock:2:9999"] {
            assert!(Manager::new(wrong, None).is_err(), "{wrong:?}");
        }
        assert!(Manager::new("@bulkhead-test", None).is_ok());
    }
}
