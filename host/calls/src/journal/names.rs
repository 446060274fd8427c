//! The imports that pass the journal, each with a number made of its name.
//!
//! Owns their list. What the journal does with each is in the table of imports (`bulkhead_domain::imports`), and a test
//! compares the two.

/// One import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Import {
    pub interface: &'static str,
    pub function: &'static str,
    /// Of both names. What journals fold into their hash.
    pub hash: u32,
}

impl Import {
    const fn new(interface: &'static str, function: &'static str) -> Self {
        let hash = fnv(fnv(0x811C_9DC5, interface.as_bytes()), function.as_bytes());
        Self { interface, function, hash }
    }

    /// Before the first import of a call.
    pub const BEGIN: Self = Self::new("", "the begin of the call");
}

impl std::fmt::Display for Import {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.interface {
            "" => f.write_str(self.function),
            interface => write!(f, "{} of {interface}", self.function),
        }
    }
}

/// FNV-1a, going on from a hash.
pub const fn fnv(mut hash: u32, bytes: &[u8]) -> u32 {
    let mut rest = bytes;
    while let [byte, others @ ..] = rest {
        hash = (hash ^ *byte as u32).wrapping_mul(0x0100_0193);
        rest = others;
    }
    hash
}

macro_rules! imports {
    ($($interface:literal { $($name:ident = $function:literal),* $(,)? })*) => {
        $($(pub const $name: Import = Import::new($interface, $function);)*)*

        /// Every one of them.
        pub const ALL: &[Import] = &[$($($name),*),*];
    };
}

imports! {
    "bulkhead:plugin/task" {
        TASK_PROGRESS = "progress",
        TASK_SET_STATUS = "set-status",
        TASK_LOG = "log",
        TASK_ASK = "ask",
        TASK_DETACH = "detach",
        TASK_STEERING = "steering",
        TASK_SLEEP = "sleep",
        TASK_SAFE_POINT = "safe-point",
        TASK_LISTS_CHANGED = "lists-changed",
        TASK_RESOURCE_UPDATED = "resource-updated",
        TASK_CALL_ID = "call-id",
        TASK_TASK_ID = "task-id",
        TASK_ATTEMPT = "attempt",
        TASK_IDEMPOTENCY_KEY = "idempotency-key",
        TASK_REQUESTOR_ID = "requestor-id",
        TASK_CLIENT_SUPPORTS = "client-supports",
        TASK_CLIENT_EXTENSION = "client-extension",
        TASK_WANTED_LOG_LEVEL = "wanted-log-level",
        TASK_RELATED_TASKS = "related-tasks",
        TASK_CHECKPOINT = "checkpoint",
        TASK_RESTORED = "restored",
    }
    "bulkhead:plugin/config" {
        CONFIG_GET = "get",
        CONFIG_ALL = "all",
    }
    "bulkhead:plugin/keyvalue" {
        KEYVALUE_GET = "get",
        KEYVALUE_SET = "set",
        KEYVALUE_DELETE = "delete",
        KEYVALUE_LIST_KEYS = "list-keys",
    }
    "wasi:clocks/wall-clock" {
        WALL_NOW = "now",
        WALL_RESOLUTION = "resolution",
    }
    "wasi:clocks/monotonic-clock" {
        MONOTONIC_NOW = "now",
        MONOTONIC_RESOLUTION = "resolution",
        SUBSCRIBE_INSTANT = "subscribe-instant",
        SUBSCRIBE_DURATION = "subscribe-duration",
    }
    "wasi:random/random" {
        RANDOM_BYTES = "get-random-bytes",
        RANDOM_U64 = "get-random-u64",
    }
    "wasi:random/insecure" {
        INSECURE_BYTES = "get-insecure-random-bytes",
        INSECURE_U64 = "get-insecure-random-u64",
    }
    "wasi:random/insecure-seed" {
        INSECURE_SEED = "insecure-seed",
    }
    "wasi:io/poll" {
        POLL = "poll",
        POLLABLE_READY = "[method]pollable.ready",
        POLLABLE_BLOCK = "[method]pollable.block",
    }
    "wasi:http/outgoing-handler" {
        HTTP_HANDLE = "handle",
    }
    "wasi:config/store" {
        WASI_CONFIG_GET = "get",
        WASI_CONFIG_GET_ALL = "get-all",
    }
    "wasi:keyvalue/store" {
        STORE_OPEN = "open",
        BUCKET_GET = "[method]bucket.get",
        BUCKET_SET = "[method]bucket.set",
        BUCKET_DELETE = "[method]bucket.delete",
        BUCKET_EXISTS = "[method]bucket.exists",
        BUCKET_LIST_KEYS = "[method]bucket.list-keys",
    }
    "wasi:keyvalue/atomics" {
        ATOMICS_INCREMENT = "increment",
        ATOMICS_SWAP = "swap",
        CAS_NEW = "[static]cas.new",
        CAS_CURRENT = "[method]cas.current",
    }
    "wasi:keyvalue/batch" {
        BATCH_GET_MANY = "get-many",
        BATCH_SET_MANY = "set-many",
        BATCH_DELETE_MANY = "delete-many",
    }
    "wasi:logging/logging" {
        LOGGING_LOG = "log",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn imports_have_different_hashes() {
        let hashes: BTreeSet<_> = ALL.iter().map(|import| import.hash).collect();
        assert_eq!(hashes.len(), ALL.len());
    }
}
