//! What is known before a call to keep it from being brought back.
//!
//! Owns the words for it, which operators read. Must not look at a component: whether it is concurrent is told.
//! Invariant: a journal is begun only where nothing is found here.

use std::collections::BTreeMap;

use super::header::{Header, PINNED_BYTES_MAX};
use crate::granted::Granted;
use bulkhead_calls::journal::Reason;
use bulkhead_calls::policy::Grants;
use bulkhead_domain::Json;

/// Why calls of a plugin with these grants and settings cannot be brought back, or not all of them; `None`: nothing is
/// known that keeps them from it. What variables hold is not known here, and counts as nothing.
pub fn durable_hindrance(is_concurrent: bool, grants: &Grants, settings: &BTreeMap<String, Json>) -> Option<String> {
    let directories = grants.directories.clone();
    let settings = settings.clone();
    hindrance(is_concurrent, &Granted { directories, settings, ..Granted::default() })
}

/// Why calls with these grants cannot be brought back, or not all of them; `None`: nothing is known that keeps them
/// from it.
pub(crate) fn hindrance(is_concurrent: bool, granted: &Granted) -> Option<String> {
    if is_concurrent {
        return Some(Reason::Concurrent.to_string());
    }
    if !granted.directories.is_empty() {
        let guests: Vec<_> = granted.directories.iter().map(|grant| grant.guest.as_str()).collect();
        return Some(format!("directories are granted: {}", guests.join(", ")));
    }
    (!Header::fits(granted)).then(|| Reason::Settings { bytes_max: PINNED_BYTES_MAX }.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_calls::policy::DirGrant;

    #[test]
    fn directories_settings_and_wasi_03_keep_calls_from_being_brought_back() {
        let none = Grants::default();
        let no_settings = BTreeMap::new();
        assert_eq!(durable_hindrance(false, &none, &no_settings), None);
        let why = |grants: &Grants, settings: &BTreeMap<String, Json>| durable_hindrance(false, grants, settings);
        let data = DirGrant { host: "/srv".into(), guest: "/data".to_owned(), write: false, bytes_max: None };
        let granted = Grants { directories: vec![data], ..Grants::default() };
        assert_eq!(why(&granted, &no_settings).as_deref(), Some("directories are granted: /data"));
        let settings = BTreeMap::from([("key".to_owned(), Json::new(format!("\"{}\"", "x".repeat(16 << 10))))]);
        assert_eq!(why(&none, &settings).as_deref(), Some("its settings and variables are larger than 16 KiB"));
        assert_eq!(durable_hindrance(true, &none, &no_settings).as_deref(), Some("its component uses WASI 0.3"));
    }
}
