//! Which descriptors of a call lead to directories with a quota.
//!
//! Invariant: a descriptor belongs to the directory that it was opened from, and a call without quotas pays one look-up
//! in an empty table.

use std::collections::HashMap;

use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::Descriptor;

use super::quota::DirectoryQuota;

/// Where the descriptors of a call belong.
#[derive(Debug, Default)]
pub(crate) struct DirectoryQuotas {
    /// By the guest's name of the directory.
    pub(super) granted: Vec<(String, DirectoryQuota)>,
    /// By the number of the descriptor: every one of them comes from here, so a number that is used again means the
    /// later one.
    open: HashMap<u32, DirectoryQuota>,
}

impl DirectoryQuotas {
    pub(super) fn add(&mut self, guest: String, quota: DirectoryQuota) {
        self.granted.push((guest, quota));
    }

    pub(super) fn of(&self, descriptor: &Resource<Descriptor>) -> Option<DirectoryQuota> {
        if self.granted.is_empty() { None } else { self.open.get(&descriptor.rep()).cloned() }
    }

    pub(super) fn set(&mut self, descriptor: &Resource<Descriptor>, quota: Option<DirectoryQuota>) {
        match quota {
            Some(quota) => _ = self.open.insert(descriptor.rep(), quota),
            None => _ = self.open.remove(&descriptor.rep()),
        }
    }
}
