//! A fixture for the tests of every crate: a sandbox for the tests of real guests.

use std::path::Path;

use crate::{CompilerMode, SandboxConfig};
use bulkhead_domain::limits::CompileLimits;

impl SandboxConfig {
    /// A small sandbox that compiles by itself: a test cannot be its own compiler.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn sample(data: &Path) -> Self {
        Self {
            data: data.to_owned(),
            code: None,
            calls_running_total: 8,
            calls_resting_total: 768,
            compile: CompileLimits { memory_bytes: 2 << 30, cpu_ms: 120_000, functions_max: 200_000 },
            compiler: CompilerMode::InProcess,
            epoch_tick_ms: 10,
            memory_images: true,
            io: tokio::runtime::Handle::current(),
            environment: |_| None,
            tenant_names: None,
            metrics: Default::default(),
        }
    }
}
