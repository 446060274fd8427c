//! `[admin]`: where administrators may come in over the network, and by which credential.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::plugin::digest;
use super::reader::{Item, Section};
use super::tls::{TlsConfig, read_tls};
use bulkhead_plugins::sources::Digest;

/// `[admin]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    pub listen: SocketAddr,
    pub secret: AdminSecret,
    pub tls: Option<TlsConfig>,
}

/// How the credential is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminSecret {
    /// A file that holds the token.
    File(PathBuf),
    /// The SHA-256 of the token.
    Sha256([u8; 32]),
}

table!(ADMIN, AdminKeys, "[admin]",
    "A listener for administrators (`bulkhead limits --url` and others) and the one credential that it takes.", {
    listen: SocketAddr = |item| item.parsed(address), "",
        "ADDR:PORT to listen on";
    token_file: PathBuf = Item::file, "",
        "File with the token that administrators show, at least 32 characters";
    token_sha256: Digest = |item| item.parsed(digest), "",
        "In place of token_file: the SHA-256 of the token, as 64 hexadecimal digits";
    tls: TlsConfig = read_tls, "",
        "As of [server]; required for anything but a loopback address";
});

impl AdminSecret {
    /// The credential of a listener: in a file or as a digest, and not both.
    pub(super) fn of(file: Option<PathBuf>, sha256: Option<Digest>) -> Option<Self> {
        match (file, sha256) {
            (Some(file), None) => Some(Self::File(file)),
            (None, Some(Digest(sha256))) => Some(Self::Sha256(sha256)),
            _ => None,
        }
    }
}

/// Reads `[admin]`.
pub(super) fn read(item: &Item<'_>) -> Option<AdminConfig> {
    let section = item.section(ADMIN.names())?;
    let AdminKeys { listen, token_file, token_sha256, tls } = AdminKeys::read(&section);
    let secret = AdminSecret::of(token_file, token_sha256);
    if !section.is_sound() {
        return None;
    }
    let Some(listen) = listen else {
        section.refuse("listen", "missing; it is ADDR:PORT, such as 127.0.0.1:8809");
        return None;
    };
    let Some(secret) = secret else {
        section.item.refuse("needs the credential of administrators, as token_file or as token_sha256");
        return None;
    };
    if tls.is_none() && !listen.ip().to_canonical().is_loopback() {
        refuse_reachable(&section, "admin", "", listen);
        return None;
    }
    Some(AdminConfig { listen, secret, tls })
}

/// Refuses a listener for operators that other machines reach in the clear. `also` stands before the certificate among
/// what is to be set.
pub(super) fn refuse_reachable(section: &Section<'_>, table: &str, also: &str, listen: SocketAddr) {
    section.item.reader.refuse(
        section.item.node,
        format!(
            "{table}.listen = \"{listen}\" is reachable from other machines: set {also}{table}.tls = {{ certificate = \"…\", \
             key = \"…\" }}, or listen on 127.0.0.1"
        ),
    );
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not ADDR:PORT with a numeric address, like 127.0.0.1:8809 or [::1]:8809"))
}
