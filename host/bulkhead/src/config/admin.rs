//! `[admin]`: where administrators may come in over the network, and by which credential.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::document::{Node, Reader};
use super::exposure::{self, TlsConfig};

/// `[admin]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminConfig {
    pub listen: SocketAddr,
    pub secret: AdminSecret,
    pub tls: Option<TlsConfig>,
}

/// How the credential is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdminSecret {
    /// A file that holds the token.
    File(PathBuf),
    /// The SHA-256 of the token.
    Sha256([u8; 32]),
}

/// Reads `[admin]`.
pub(super) fn read(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<AdminConfig> {
    let table = reader.table("admin", node)?;
    let (mut listen, mut file, mut sha256, mut tls) = (None, None, None, None);
    let mut is_sound = true;
    for (key, node) in table {
        let path = format!("admin.{}", key.get_ref());
        is_sound &= match key.get_ref().as_ref() {
            "listen" => set(&mut listen, reader.parsed(&path, node, address)),
            "token_file" => set(&mut file, reader.text(&path, node).map(|text| reader.path(&text))),
            "token_sha256" => set(&mut sha256, reader.parsed(&path, node, digest)),
            "tls" => set(&mut tls, exposure::read_tls_of(reader, "admin.tls", node)),
            _ => {
                reader.refuse(key, format!("{path}: no such key; there are listen, token_file, token_sha256 and tls"));
                false
            }
        };
    }
    if !is_sound {
        return None;
    }
    let Some(listen) = listen else {
        reader.refuse(node, "admin.listen: missing; it is ADDR:PORT, such as 127.0.0.1:8809");
        return None;
    };
    let secret = match (file, sha256) {
        (Some(file), None) => AdminSecret::File(file),
        (None, Some(digest)) => AdminSecret::Sha256(digest),
        _ => {
            reader.refuse(node, "admin: needs the credential of administrators, as token_file or as token_sha256");
            return None;
        }
    };
    if tls.is_none() && !listen.ip().to_canonical().is_loopback() {
        reader.refuse(
            node,
            format!(
                "admin.listen = \"{listen}\" is reachable from other machines: set admin.tls = {{ certificate = \"…\", \
                 key = \"…\" }}, or listen on 127.0.0.1"
            ),
        );
        return None;
    }
    Some(AdminConfig { listen, secret, tls })
}

fn set<T>(place: &mut Option<T>, value: Option<T>) -> bool {
    *place = value;
    place.is_some()
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not ADDR:PORT with a numeric address, like 127.0.0.1:8809 or [::1]:8809"))
}

fn digest(text: &str) -> Result<[u8; 32], String> {
    let wrong = || "is not a SHA-256: 64 hexadecimal digits".to_owned();
    let byte = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let bytes: Option<Vec<u8>> = (0..64).step_by(2).map(byte).collect();
    bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(wrong)
}
