//! The load generator: connections that are kept open, requests that are written as bytes, replies that are read to
//! their end.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// One connection.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    authority: String,
    /// Further header lines, each with its line end.
    headers: String,
}

impl Connection {
    /// Connects to the server behind a URL.
    pub(crate) async fn open(url: &str, headers: &[(&str, &str)]) -> anyhow::Result<Self> {
        let authority = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/mcp")).context("an MCP URL")?;
        let stream = TcpStream::connect(authority).await?;
        stream.set_nodelay(true)?;
        let headers = headers.iter().map(|(key, value)| format!("{key}: {value}\r\n")).collect();
        Ok(Self { stream, buffer: Vec::with_capacity(4096), authority: authority.to_owned(), headers })
    }

    /// Sends these header lines from now on.
    pub(crate) fn set_headers(&mut self, headers: &[(&str, &str)]) {
        self.headers = headers.iter().map(|(key, value)| format!("{key}: {value}\r\n")).collect();
    }

    /// Sends a body.
    pub(crate) async fn send(&mut self, body: &str) -> anyhow::Result<()> {
        let head = format!(
            "POST /mcp HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\n{}content-length: {}\r\n\r\n{body}",
            self.authority,
            self.headers,
            body.len()
        );
        self.buffer.clear();
        Ok(self.stream.write_all(head.as_bytes()).await?)
    }

    /// Reads a stream until it has said this, and forgets it up to there.
    pub(crate) async fn until(&mut self, said: &str) -> anyhow::Result<()> {
        loop {
            if let Some(at) = find(&self.buffer, said.as_bytes()) {
                self.buffer.drain(..at + said.len());
                return Ok(());
            }
            self.more().await?;
        }
    }

    /// Sends a body and gives the reply's.
    pub(crate) async fn post(&mut self, body: &str) -> anyhow::Result<&[u8]> {
        self.send(body).await?;
        let (head_end, length) = loop {
            self.more().await?;
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                let head = std::str::from_utf8(&self.buffer[..at])?.to_ascii_lowercase();
                ensure!(head.starts_with("http/1.1 20"), "{head}");
                break (at + 4, body_length(&head)?);
            }
        };
        let Some(length) = length else { return self.chunked(head_end).await };
        while self.buffer.len() < head_end + length {
            self.more().await?;
        }
        Ok(&self.buffer[head_end..])
    }

    /// A chunked body, as it came: sizes and all. It ends with an empty chunk.
    async fn chunked(&mut self, from: usize) -> anyhow::Result<&[u8]> {
        while !self.buffer.ends_with(b"0\r\n\r\n") {
            self.more().await?;
        }
        Ok(&self.buffer[from..])
    }

    async fn more(&mut self) -> anyhow::Result<()> {
        ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "the server hung up");
        Ok(())
    }

    /// Sends a request that must have a result; the whole reply.
    pub(crate) async fn call(&mut self, body: &str) -> anyhow::Result<&[u8]> {
        let reply = self.post(body).await?;
        if find(reply, b"\"result\"").is_none() || find(reply, b"\"isError\":true").is_some() {
            bail!("no good result: {}", String::from_utf8_lossy(reply));
        }
        Ok(reply)
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn body_length(head: &str) -> anyhow::Result<Option<usize>> {
    match head.lines().find_map(|line| line.strip_prefix("content-length:")) {
        Some(length) => Ok(Some(length.trim().parse()?)),
        None => Ok(None),
    }
}

/// How a measurement went.
pub(crate) struct Measured {
    pub(crate) per_second: f64,
    /// Sorted.
    times: Vec<Duration>,
}

impl Measured {
    pub(crate) fn new(elapsed: Duration, mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self { per_second: times.len() as f64 / elapsed.as_secs_f64(), times }
    }

    pub(crate) fn calls(&self) -> usize {
        self.times.len()
    }

    /// Several turns of the same length as one measurement.
    pub(crate) fn of_turns(turns: Vec<Self>) -> Self {
        let per_second = turns.iter().map(|turn| turn.per_second).sum::<f64>() / turns.len() as f64;
        let mut times: Vec<_> = turns.into_iter().flat_map(|turn| turn.times).collect();
        times.sort_unstable();
        Self { per_second, times }
    }

    /// In microseconds; `part` is 0.5 for the median.
    pub(crate) fn quantile_us(&self, part: f64) -> f64 {
        let at = ((self.times.len() as f64 * part) as usize).min(self.times.len().saturating_sub(1));
        self.times.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
    }
}

/// Keeps every connection busy for a while, after a short time to get warm.
pub(crate) async fn drive(
    connections: Vec<Connection>,
    each: Duration,
    body: impl Fn(usize, u64) -> String + Clone + Send + 'static,
) -> anyhow::Result<Measured> {
    let warm = each / 5;
    let running = connections.into_iter().enumerate().map(|(who, mut connection)| {
        let body = body.clone();
        tokio::spawn(async move {
            let begin = Instant::now();
            let mut times = Vec::new();
            for turn in 0.. {
                let request = body(who, turn);
                let sent = Instant::now();
                if sent - begin > warm + each {
                    break;
                }
                connection.call(&request).await?;
                if sent - begin > warm {
                    times.push(sent.elapsed());
                }
            }
            anyhow::Ok(times)
        })
    });
    let running: Vec<_> = running.collect();
    let mut all = Vec::new();
    for one in running {
        all.extend(one.await??);
    }
    Ok(Measured::new(each, all))
}
