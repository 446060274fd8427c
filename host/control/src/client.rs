//! The command line's end of the control socket.

use std::io;
use std::path::Path;

use async_trait::async_trait;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;

use super::commands::StdioAttach;
use super::{Answer, Command, ControlError, Operator, REPLY_BYTES_MAX, socket, socket_path, wire};

/// A running host, seen from outside.
pub struct ControlClient {
    connection: Mutex<Connection>,
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
        let (reader, writer) = stream.into_split();
        Self { connection: Mutex::new(Connection { reader: BufReader::new(reader), writer }) }
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
        connection.writer.write_all(&line).await.map_err(broken)?;
        let mut line = Vec::new();
        (&mut connection.reader).take(REPLY_BYTES_MAX).read_until(b'\n', &mut line).await.map_err(broken)?;
        if line.last() != Some(&b'\n') {
            return Err(broken("the host ended it before it had answered"));
        }
        wire::read_reply(&line).ok_or_else(|| broken("the host said something that is no reply"))?
    }
}

fn broken(error: impl ToString) -> ControlError {
    ControlError::Connection(error.to_string())
}
