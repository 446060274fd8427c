//! `wasi:logging`: records of the guest's log, under the bounds of those that `bulkhead:plugin/task` takes.

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker};

use crate::call::Call;
use bulkhead_calls::journal::names;
use bulkhead_domain::Json;
use bulkhead_domain::call::LogLevel;

const NAMES: [&str; 2] = ["wasi:logging/logging", "wasi:logging/logging@0.1.0-draft"];

#[allow(dead_code, reason = "values are made from what a guest passes, by what is derived")]
#[derive(Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
enum Level {
    #[component(name = "trace")]
    Trace,
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
    #[component(name = "error")]
    Error,
    #[component(name = "critical")]
    Critical,
}

impl From<Level> for LogLevel {
    fn from(level: Level) -> Self {
        match level {
            Level::Trace | Level::Debug => Self::Debug,
            Level::Info => Self::Info,
            Level::Warn => Self::Warning,
            Level::Error => Self::Error,
            Level::Critical => Self::Critical,
        }
    }
}

pub(super) fn add_to_linker(linker: &mut Linker<Call>) -> wasmtime::Result<()> {
    for name in NAMES {
        let mut interface = linker.instance(name)?;
        interface.func_wrap_async(
            "log",
            |mut store: StoreContextMut<'_, Call>, (level, context, message): (Level, String, String)| {
                Box::new(async move {
                    let call = store.data_mut();
                    call.enter(names::LOGGING_LOG).await?;
                    let logger = Some(context).filter(|context| !context.is_empty());
                    let as_string = |text| Json::new(serde_json::Value::String(text).to_string());
                    call.log_record(level.into(), logger, message, as_string);
                    Ok(())
                })
            },
        )?;
    }
    Ok(())
}
