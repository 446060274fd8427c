//! Certificates and keys in files of operators.
//!
//! Must not read the files. Invariant: what stands in front of the first line of a text hides nothing of it.

use bulkhead_domain::byte_order_mark;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The certificates of a PEM text, in their order. `None`: it has none, or one that is none.
pub fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(without_mark(pem)).collect();
    found.ok().filter(|found| !found.is_empty())
}

/// The first private key of a PEM text.
pub(crate) fn private_key(pem: &[u8]) -> Option<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(without_mark(pem)).ok()
}

/// To a reader of PEM, the line with a mark in front is none of its own: of a chain, the first certificate would be
/// left out without a word.
fn without_mark(pem: &[u8]) -> &[u8] {
    pem.get(byte_order_mark(pem)..).unwrap_or_default()
}
