//! The resources that a client follows.
//!
//! Owns them as digests, which fit into the row of a session. Must not decide who may follow what. Invariants: a report
//! of another plugin than the one that has the resource is taken for none of it, but in one of 256 cases, where it
//! tells its own requestor alone; and only what other hosts are to know is written down.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// Bytes of a digest of a resource that are kept.
const RESOURCE: usize = 5;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Subscriptions {
    /// The first bytes of the digest of each resource, and of the name of the plugin that has it.
    followed: BTreeMap<[u8; RESOURCE], u8>,
    is_shared: bool,
}

fn digest<const N: usize>(text: &str) -> [u8; N] {
    let mut digest = [0; N];
    digest.iter_mut().zip(Sha256::digest(text.as_bytes())).for_each(|(to, from)| *to = from);
    digest
}

impl Subscriptions {
    /// False when there are as many as there may be.
    pub(super) fn add(&mut self, uri: &str, plugin: &str, count_max: usize, is_shared: bool) -> bool {
        let resource = digest(uri);
        let [plugin] = digest(plugin);
        if self.followed.len() >= count_max && !self.followed.contains_key(&resource) {
            return false;
        }
        self.followed.insert(resource, plugin);
        self.is_shared = is_shared;
        true
    }

    /// Whether it was there.
    pub(super) fn remove(&mut self, uri: &str) -> bool {
        self.followed.remove(&digest(uri)).is_some()
    }

    pub(super) fn has(&self, uri: &str, plugin: &str) -> bool {
        self.followed.get(&digest(uri)).is_some_and(|owner| [*owner] == digest(plugin))
    }

    /// For the state of a session; empty where nobody else is to know.
    pub(super) fn encode(&self) -> String {
        if !self.is_shared {
            return String::new();
        }
        let bytes: Vec<u8> = self.followed.iter().flat_map(|(uri, plugin)| [&uri[..], &[*plugin]].concat()).collect();
        URL_SAFE_NO_PAD.encode(bytes)
    }

    pub(super) fn decode(text: &str) -> Self {
        let bytes = URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
        let (parts, _) = bytes.as_chunks::<{ RESOURCE + 1 }>();
        let followed = parts.iter().map(|[a, b, c, d, e, plugin]| ([*a, *b, *c, *d, *e], *plugin)).collect();
        Self { followed, is_shared: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn followed_resources_are_read_as_they_were_written() {
        let mut own = Subscriptions::default();
        assert!(own.add("a://1", "p", 2, true) && own.add("a://2", "q", 2, true) && own.add("a://2", "q", 2, true));
        assert!(!own.add("a://3", "p", 2, true), "there are as many as there may be");
        let again = Subscriptions::decode(&own.encode());
        assert_eq!(again, own);
        assert!(again.has("a://1", "p") && again.has("a://2", "q"));
        assert!(!again.has("a://1", "q") && !again.has("a://3", "p"));
        assert!(own.remove("a://1") && !own.remove("a://1"));
        assert!(!own.has("a://1", "p"));
        assert_eq!(Subscriptions::decode("?").followed.len(), 0);
    }

    #[test]
    fn followed_resources_of_a_host_without_others_are_not_written_down() {
        let mut own = Subscriptions::default();
        assert!(own.add("a://1", "p", 2, false));
        assert_eq!(own.encode(), "");
    }
}
