//! What this host is called, for operators who have several open.

use std::sync::LazyLock;

use crate::text;

/// The version of the program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The name of the machine, as it was when it was first asked for; nothing where the system has none.
pub(crate) static HOST_NAME: LazyLock<String> = LazyLock::new(|| {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    text::line(name.trim())
});
