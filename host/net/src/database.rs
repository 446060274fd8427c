//! Connections to a PostgreSQL server.
//!
//! Owns how TLS is asked for, and what a proof of a password is bound to. Must not know who signs in, or what is asked
//! afterwards. Invariant: nothing of a session is sent before the server's certificate was checked for the name that an
//! operator wrote.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use rustls::pki_types::{CertificateDer, ServerName};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::dial::{DialError, connect_plain, start_tls};

/// The request for TLS: its length, and its number.
const REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// An idle server is looked for after this time, so often, and then counts as gone.
const PROBE_AFTER: Duration = Duration::from_secs(10);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
/// How long what was sent may stay unacknowledged before the connection ends.
const UNACKNOWLEDGED_MS_MAX: u32 = 20_000;

type Digest = fn(&[u8]) -> Vec<u8>;

/// Object identifiers, as they stand in a certificate, of signatures with the digest that the certificate is to be
/// digested with.
const SIGNATURES: [(&[u8], Digest); 7] = [
    // MD5 and SHA-1 with RSA stand for SHA-256 (RFC 5929).
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05", sha256),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b", sha256),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c", sha384),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d", sha512),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x02", sha256),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x03", sha384),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x04", sha512),
];

/// Why a server is not used.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("the database's server offers no TLS: set ssl = on there, with a certificate for its name")]
    NoTls,
}

/// A connection whose handshake is done.
pub struct DatabaseStream {
    pub stream: TlsStream<TcpStream>,
    /// The digest of the server's certificate (`tls-server-end-point`); none for kinds of signatures that have no
    /// digest.
    pub end_point: Option<Vec<u8>>,
}

/// Connects, asks for TLS and checks the certificate.
///
/// # Errors
///
/// [`DatabaseError`]; time is bounded by the caller.
pub async fn connect(host: &str, port: u16, tls: Arc<rustls::ClientConfig>) -> Result<DatabaseStream, DatabaseError> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| DialError::Name)?;
    let mut stream = connect_plain(host, port).await?;
    // A kernel that cannot do it leaves what it does by itself.
    let _ = probe_when_idle(&stream);
    let answer = async {
        stream.write_all(&REQUEST).await?;
        // One byte: what follows it unasked would not be protected, and is an error of the handshake.
        stream.read_u8().await
    };
    if answer.await.map_err(DialError::Connect)? != b'S' {
        return Err(DatabaseError::NoTls);
    }
    let stream = start_tls(tls, name, stream).await?;
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let end_point = certificates.first().and_then(end_point);
    Ok(DatabaseStream { stream, end_point })
}

/// Has the kernel notice a server that went away without a word.
fn probe_when_idle(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MS_MAX)
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    Sha256::digest(bytes).to_vec()
}

fn sha384(bytes: &[u8]) -> Vec<u8> {
    Sha384::digest(bytes).to_vec()
}

fn sha512(bytes: &[u8]) -> Vec<u8> {
    Sha512::digest(bytes).to_vec()
}

fn end_point(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let algorithm = signature_algorithm(certificate)?;
    let (_, digest) = SIGNATURES.iter().find(|(known, _)| *known == algorithm)?;
    Some(digest(certificate))
}

/// The identifier behind what is signed: certificate (sequence), what is signed (sequence), algorithm (sequence) of an
/// identifier.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    const SEQUENCE: u8 = 0x30;
    const IDENTIFIER: u8 = 0x06;
    let (inside, _) = element(certificate, SEQUENCE)?;
    let (_, behind) = element(inside, SEQUENCE)?;
    let (algorithm, _) = element(behind, SEQUENCE)?;
    element(algorithm, IDENTIFIER).map(|(identifier, _)| identifier)
}

/// The content of an element of DER, and what follows it.
fn element(bytes: &[u8], kind: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first()?;
    if *first != kind {
        return None;
    }
    let (length, rest) = match *length {
        short @ 0..0x80 => (usize::from(short), rest),
        long => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            let folded =
                digits.iter().try_fold(0_usize, |sum, digit| sum.checked_mul(256)?.checked_add(usize::from(*digit)));
            (folded?, rest)
        }
    };
    rest.split_at_checked(length)
}

impl DatabaseError {
    /// Whether trying again may help, without an operator.
    pub fn passes(&self) -> bool {
        match self {
            Self::NoTls | Self::Dial(DialError::Name | DialError::Prohibited(_)) => false,
            // A certificate that is refused is so until it is changed; a connection that ends in the handshake is not.
            Self::Dial(DialError::Tls(error)) => error.kind() != io::ErrorKind::InvalidData,
            Self::Dial(DialError::Lookup(_) | DialError::NoAddress | DialError::Connect(_)) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate in outline: what is signed, and by which algorithm.
    fn certificate(identifier: &[u8], filler: usize) -> Vec<u8> {
        let wrapped = |kind: u8, inside: &[u8]| {
            let length = inside.len();
            let head = match length {
                0..0x80 => vec![kind, length as u8],
                _ => vec![kind, 0x82, (length >> 8) as u8, length as u8],
            };
            [head, inside.to_vec()].concat()
        };
        let signed = wrapped(0x30, &vec![5; filler]);
        let algorithm = wrapped(0x30, &wrapped(0x06, identifier));
        wrapped(0x30, &[signed, algorithm, wrapped(0x03, b"signature")].concat())
    }

    #[test]
    fn certificate_is_digested_as_its_signature_is() {
        for (identifier, digest) in SIGNATURES {
            for filler in [3, 700] {
                let whole = certificate(identifier, filler);
                assert_eq!(end_point(&CertificateDer::from(whole.as_slice())), Some(digest(&whole)));
            }
        }
        let ed25519 = certificate(b"\x2b\x65\x70", 9);
        assert_eq!(end_point(&CertificateDer::from(ed25519.as_slice())), None);
    }

    #[test]
    fn damaged_certificate_has_no_digest() {
        let whole = certificate(SIGNATURES[1].0, 300);
        for length in 0..whole.len() {
            assert_eq!(signature_algorithm(&whole[..length]), None, "{length}");
        }
        assert_eq!(signature_algorithm(b"\x30\xff\xff\xff"), None);
    }
}
