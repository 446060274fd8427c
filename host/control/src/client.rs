//! The command line's end of the control socket.
//!
//! Must not set a host a time: what it was told to do may take long. Invariant: a host that is stopped (SIGSTOP) is not
//! waited for.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;

use super::commands::StdioAttach;
use super::{Answer, Command, ControlError, Operator, REPLY_BYTES_MAX, socket, socket_path, wire};

/// How often a host that does not answer is looked at. It counts as stopped when it was so twice in a row.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A running host, seen from outside.
pub struct ControlClient {
    connection: Mutex<Connection>,
    /// The host's process, if it is in this one's name space.
    process: Option<i32>,
}

struct Connection {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

impl ControlClient {
    /// The host that serves this data directory; `None` when none does.
    ///
    /// # Errors
    /// There is a socket, but it cannot be used: it belongs to another user, for example.
    pub async fn connect(data: &Path) -> io::Result<Option<Self>> {
        let stream = socket::connect(&socket_path(data)).await?;
        Ok(stream.map(Self::over))
    }

    fn over(stream: UnixStream) -> Self {
        let process = stream.peer_cred().ok().and_then(|host| host.pid()).filter(|process| *process > 0);
        let (reader, writer) = stream.into_split();
        Self { process, connection: Mutex::new(Connection { reader: BufReader::new(reader), writer }) }
    }

    /// Turns the connection into one that carries MCP.
    ///
    /// # Errors
    /// The host refused, or went away.
    pub async fn attach(self) -> Result<(BufReader<OwnedReadHalf>, OwnedWriteHalf), ControlError> {
        self.execute(StdioAttach {}).await?;
        let Connection { reader, writer } = self.connection.into_inner();
        Ok((reader, writer))
    }
}

#[async_trait]
impl Operator for ControlClient {
    /// Who ordered it is the user of this process, whom the host asks the kernel for.
    async fn execute_for(&self, _: &str, command: Command) -> Result<Answer, ControlError> {
        let mut connection = self.connection.lock().await;
        let mut line = wire::write_request(&command).map_err(broken)?;
        line.push(b'\n');
        tokio::select! {
            reply = connection.exchange(&line) => reply,
            process = until_stopped(self.process) => {
                Err(broken(format!("the host, process {process}, is stopped; `kill -CONT {process}` lets it go on")))
            }
        }
    }
}

impl Connection {
    async fn exchange(&mut self, request: &[u8]) -> Result<Answer, ControlError> {
        self.writer.write_all(request).await.map_err(broken)?;
        let mut line = Vec::new();
        (&mut self.reader).take(REPLY_BYTES_MAX).read_until(b'\n', &mut line).await.map_err(broken)?;
        if line.last() != Some(&b'\n') {
            return Err(broken("the host ended it before it had answered"));
        }
        wire::read_reply(&line).ok_or_else(|| broken("the host said something that is no reply"))?
    }
}

/// Waits until the process is seen to stand still, by a signal or a debugger.
async fn until_stopped(process: Option<i32>) -> i32 {
    let Some(process) = process else { return std::future::pending().await };
    let mut was_stopped = false;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let is_stopped = is_stopped(&stat);
        if is_stopped && was_stopped {
            return process;
        }
        was_stopped = is_stopped;
    }
}

/// Whether the state in a line of `/proc/PID/stat` is one of a stopped process. The name before it may hold anything.
fn is_stopped(stat: &str) -> bool {
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('T' | 't'))
}

fn broken(error: impl ToString) -> ControlError {
    ControlError::Connection(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::process::{Command as Process, Stdio};

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    #[test]
    fn stopped_process_is_known_by_its_state() {
        for (stat, expected) in [
            ("7 (bulkhead) T 1 7", true),
            ("7 (bulkhead) t 1 7", true),
            ("7 (bulkhead) S 1 7", false),
            ("7 (a) T (b) R 1 7", false),
            ("7 (bulkhead", false),
            ("", false),
        ] {
            assert_eq!(is_stopped(stat), expected, "{stat}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn host_is_waited_for_until_it_is_stopped() {
        let mut child = Process::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let process = i32::try_from(child.id()).unwrap();
        let running = tokio::time::timeout(LOOK_EVERY * 10, until_stopped(Some(process))).await;
        assert!(running.is_err(), "it sleeps, as a host does that works");
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::STOP).unwrap();
        assert_eq!(tokio::time::timeout(LOOK_EVERY * 600_000, until_stopped(Some(process))).await, Ok(process));
        kill_process(pid, Signal::KILL).unwrap();
        child.wait().unwrap();
    }
}
