//! Where the database is, and who the host is to it.
//!
//! Owns what is accepted of a URL. Must not put any of it into a message or a log: it may hold a password. Invariant:
//! over a network there is always TLS with a checked certificate, and a password is proved, never sent.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr as _;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, SslMode, SslNegotiation};

use super::super::Error;
use super::errors::refuse;

/// The folder with the socket of Debian's server: where no host is named.
const SOCKET_FOLDER: &str = "/var/run/postgresql";
const PORT: u16 = 5432;
/// The longest name of a schema that the server keeps whole.
const SCHEMA_BYTES_MAX: usize = 63;

/// The way to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// A socket in the file system.
    Socket(PathBuf),
    /// TCP with TLS.
    Network { host: String, port: u16 },
}

/// A database of a server, and the role by which it is used.
#[derive(Clone)]
pub struct Address {
    pub(super) endpoint: Endpoint,
    pub(super) config: Config,
}

/// Never the password, or what else the URL says.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

/// As it may be shown: without role and password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = self.config.get_dbname().unwrap_or("the role's own");
        match &self.endpoint {
            Endpoint::Socket(path) => write!(f, "the database {database} at the socket {}", path.display()),
            Endpoint::Network { host, port } => write!(f, "the database {database} at {host}:{port}"),
        }
    }
}

impl Address {
    /// Reads `postgresql://role:password@host/database`, or `host=… dbname=… user=…`.
    ///
    /// # Errors
    ///
    /// [`Error::Engine`], in a sentence without any part of the text.
    pub fn parse(text: &str) -> Result<Self, Error> {
        // What others call the strictest mode is what this host always does.
        let text = text.trim().replace("sslmode=verify-full", "sslmode=require");
        let parsed = Config::from_str(&text);
        let mut config = parsed.map_err(|_| {
            refuse(
                "the address of the database cannot be read: write postgresql://role:password@host/database, or \
                 host=/var/run/postgresql dbname=bulkhead user=bulkhead; certificates are named by [store] ca_file",
            )
        })?;
        if config.get_hosts().len() > 1 || !config.get_hostaddrs().is_empty() {
            return Err(refuse("the address of the database names several hosts: name the one that takes writes"));
        }
        let port = config.get_ports().first().copied().unwrap_or(PORT);
        let endpoint = match config.get_hosts().first() {
            None => Endpoint::Socket(socket(SOCKET_FOLDER.into(), port)),
            Some(Host::Unix(folder)) => Endpoint::Socket(socket(folder.clone(), port)),
            Some(Host::Tcp(_)) if config.get_ssl_mode() == SslMode::Disable => {
                return Err(refuse(
                    "the address of the database switches TLS off: leave sslmode=disable out, or name the folder of a socket as host",
                ));
            }
            Some(Host::Tcp(host)) => Endpoint::Network { host: host.clone(), port },
        };
        config.application_name("bulkhead");
        match endpoint {
            Endpoint::Socket(_) => config.ssl_mode(SslMode::Disable).channel_binding(ChannelBinding::Disable),
            // The dialer has done the handshake when the client library gets the connection.
            Endpoint::Network { .. } => config
                .ssl_mode(SslMode::Require)
                .ssl_negotiation(SslNegotiation::Direct)
                .channel_binding(ChannelBinding::Require),
        };
        Ok(Self { endpoint, config })
    }
}

fn socket(folder: PathBuf, port: u16) -> PathBuf {
    folder.join(format!(".s.PGSQL.{port}"))
}

/// The name of a schema, as it may stand in a statement.
///
/// # Errors
///
/// [`Error::Engine`]: it would have to be quoted.
pub(super) fn check_schema(name: &str) -> Result<(), Error> {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    let is_plain = name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit());
    let begins = name.bytes().next().is_some_and(is_letter) && !name.starts_with("pg_");
    if is_plain && begins && name.len() <= SCHEMA_BYTES_MAX && name != "public" {
        return Ok(());
    }
    Err(refuse(
        "[store] schema is a name of its own, of small letters, digits and `_`, at most 63 of them, such as bulkhead",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_leads_to_a_socket_or_to_tls() {
        for (text, endpoint) in [
            ("postgresql:///bulkhead", Endpoint::Socket("/var/run/postgresql/.s.PGSQL.5432".into())),
            ("host=/tmp/x port=7 dbname=d user=u", Endpoint::Socket("/tmp/x/.s.PGSQL.7".into())),
            ("postgresql://u:p@db.example/d", Endpoint::Network { host: "db.example".into(), port: 5432 }),
            (
                "postgresql://u:p@db.example:7/d?sslmode=verify-full",
                Endpoint::Network { host: "db.example".into(), port: 7 },
            ),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(address.endpoint, endpoint, "{text}");
            let binding = match endpoint {
                Endpoint::Socket(_) => ChannelBinding::Disable,
                Endpoint::Network { .. } => ChannelBinding::Require,
            };
            assert_eq!(address.config.get_channel_binding(), binding);
        }
    }

    #[test]
    fn address_that_is_refused_is_in_no_message() {
        for text in [
            "postgresql://u:hunter2@a,b/d",
            "postgresql://u:hunter2@a/d?sslmode=disable",
            "postgresql://u:hunter2@a/d?hunter2=1",
            "hunter2",
            "mysql://u:hunter2@a/d",
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        let shown = format!("{:?}", Address::parse("postgresql://u:hunter2@a/d").unwrap());
        assert!(!shown.contains("hunter2") && !shown.contains('u'.to_string().as_str().repeat(3).as_str()), "{shown}");
    }

    #[test]
    fn schema_is_a_plain_name() {
        for name in ["bulkhead", "_b2", "a"] {
            check_schema(name).unwrap();
        }
        let long = "a".repeat(64);
        for name in ["", "2b", "B", "a b", "a\"b", "public", "pg_x", "é", long.as_str()] {
            assert!(check_schema(name).is_err(), "{name}");
        }
    }
}
