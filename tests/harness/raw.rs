//! Bytes on a TCP connection, for what no client library sends.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::host::Host;
use crate::wait::PATIENCE;

/// After so long without a byte a host has nothing more to say.
const QUIET: Duration = Duration::from_millis(400);

/// What a host answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Everything that came back on a connection.
#[derive(Debug)]
pub struct Heard {
    pub answers: Vec<Answer>,
    /// Whether the host closed the connection.
    pub closed: bool,
    /// What is no answer.
    pub rest: Vec<u8>,
}

impl Heard {
    /// The statuses, in order.
    pub fn statuses(&self) -> Vec<u16> {
        self.answers.iter().map(|answer| answer.status).collect()
    }
}

/// Where a host listens, as a socket address.
pub fn address(host: &Host) -> String {
    host.address("").trim_start_matches("http://").to_owned()
}

/// A connection of its own.
pub async fn connect(host: &Host) -> TcpStream {
    let stream = TcpStream::connect(address(host)).await.expect("a connection");
    stream.set_nodelay(true).expect("an open socket");
    stream
}

/// Sends these bytes on a connection of their own and reads until the host closes it or is quiet for a while. A host
/// that hangs up while it is still written to is fine.
pub async fn exchange(host: &Host, bytes: &[u8]) -> Heard {
    let mut stream = connect(host).await;
    let _ = tokio::time::timeout(PATIENCE, stream.write_all(bytes)).await.expect("the host reads or hangs up");
    hear(&mut stream).await
}

/// Reads until the host closes the connection or is quiet for a while.
pub async fn hear(stream: &mut TcpStream) -> Heard {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 * 1024];
    let closed = loop {
        // The first answer may take longer on a busy machine; what comes behind it does not.
        let patience = if bytes.is_empty() { Duration::from_secs(5) } else { QUIET };
        match tokio::time::timeout(patience, stream.read(&mut chunk)).await {
            Err(_) => break false,
            Ok(Ok(0) | Err(_)) => break true,
            Ok(Ok(count)) => bytes.extend_from_slice(&chunk[..count]),
        }
    };
    let mut answers = Vec::new();
    let mut rest = bytes.as_slice();
    while let Some((answer, behind)) = parse(rest, closed) {
        // Asked to go on with the body: no answer yet.
        if answer.status != 100 {
            answers.push(answer);
        }
        rest = behind;
    }
    Heard { answers, closed, rest: rest.to_vec() }
}

fn parse(bytes: &[u8], closed: bool) -> Option<(Answer, &[u8])> {
    let end = find(bytes, b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut answer = Answer { status, headers, body: String::new() };
    let rest = &bytes[end + 4..];
    let (body, behind) = if answer.header("transfer-encoding").is_some() {
        chunks(rest)
    } else {
        let length = answer.header("content-length").and_then(|length| length.parse().ok());
        let length = length.unwrap_or(if closed && status >= 200 && status != 204 { rest.len() } else { 0 });
        (rest.get(..length)?.to_vec(), rest.get(length..)?)
    };
    answer.body = String::from_utf8_lossy(&body).into_owned();
    Some((answer, behind))
}

/// As much of a body in chunks as is there.
fn chunks(mut bytes: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut body = Vec::new();
    while let Some(end) = find(bytes, b"\r\n") {
        let size = std::str::from_utf8(&bytes[..end]).ok().and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
        let Some(size) = size else { break };
        let data = end + 2..end + 2 + size;
        let (Some(data), Some(behind)) = (bytes.get(data.clone()), bytes.get(data.end + 2..)) else { break };
        body.extend_from_slice(data);
        bytes = behind;
        if size == 0 {
            break;
        }
    }
    (body, bytes)
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
