//! `wasi:config`: the plugin's settings as texts.

use serde_json::Value;
use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Linker, Lower};

use crate::call::Call;
use bulkhead_calls::journal::names;
use bulkhead_domain::Json;

/// The interface was called `runtime` once.
const NAMES: [&str; 4] = [
    "wasi:config/store@0.2.0-draft",
    "wasi:config/store@0.2.0-draft-2024-09-27",
    "wasi:config/store@0.2.0-rc.1",
    "wasi:config/runtime@0.2.0-draft",
];

/// What may go wrong where settings come from elsewhere.
#[derive(ComponentType, Lower)]
#[component(variant)]
#[allow(dead_code, reason = "settings are here before the call begins, so nothing goes wrong")]
enum Error {
    #[component(name = "upstream")]
    Upstream(String),
    #[component(name = "io")]
    Io(String),
}

type Told<T> = wasmtime::Result<(Result<T, Error>,)>;

pub(super) fn add_to_linker(linker: &mut Linker<Call>) -> wasmtime::Result<()> {
    for name in NAMES {
        let mut interface = linker.instance(name)?;
        interface.func_wrap_async("get", |mut store: StoreContextMut<'_, Call>, (key,): (String,)| {
            Box::new(async move { get(store.data_mut(), &key).await })
        })?;
        interface.func_wrap_async("get-all", |mut store: StoreContextMut<'_, Call>, (): ()| {
            Box::new(async move { get_all(store.data_mut()).await })
        })?;
    }
    Ok(())
}

async fn get(call: &mut Call, key: &str) -> Told<Option<String>> {
    call.enter(names::WASI_CONFIG_GET).await?;
    let found = call.denials.granted().settings.get(key).map(text);
    if found.is_none() {
        call.denials.looked_for_setting(key);
    }
    Ok((Ok(found),))
}

async fn get_all(call: &mut Call) -> Told<Vec<(String, String)>> {
    call.enter(names::WASI_CONFIG_GET_ALL).await?;
    let settings = call.denials.granted().settings.iter();
    Ok((Ok(settings.map(|(key, value)| (key.clone(), text(value))).collect()),))
}

/// A text is itself, anything else is JSON.
fn text(setting: &Json) -> String {
    match serde_json::from_str(setting.as_str()) {
        Ok(Value::String(text)) => text,
        _ => setting.as_str().to_owned(),
    }
}
