//! The WIT package `bulkhead:plugin`, as wit-bindgen translates it: the layer under this crate.
//!
//! Use it for what the typed functions do not cover. Each world beside `plugin` has a module of its own; the types that
//! they share stay here.

wit_bindgen::generate!({
    path: "../../../wit",
    world: "plugin",
    pub_export_macro: true,
    export_macro_name: "export_tools",
    default_bindings_module: "bulkhead_plugin::bindings",
    generate_unused_types: true,
});

/// The world `resource-provider`.
pub mod resources {
    wit_bindgen::generate!({
        path: "../../../wit",
        world: "resource-provider",
        pub_export_macro: true,
        export_macro_name: "export_resources",
        default_bindings_module: "bulkhead_plugin::bindings::resources",
        with: {
            "bulkhead:plugin/types@0.1.0": crate::bindings::bulkhead::plugin::types,
            "bulkhead:plugin/task@0.1.0": crate::bindings::bulkhead::plugin::task,
            "bulkhead:plugin/config@0.1.0": crate::bindings::bulkhead::plugin::config,
            "bulkhead:plugin/keyvalue@0.1.0": crate::bindings::bulkhead::plugin::keyvalue,
        },
    });

    pub use exports::bulkhead::plugin::resources::*;
}

/// The world `prompt-provider`.
pub mod prompts {
    wit_bindgen::generate!({
        path: "../../../wit",
        world: "prompt-provider",
        pub_export_macro: true,
        export_macro_name: "export_prompts",
        default_bindings_module: "bulkhead_plugin::bindings::prompts",
        with: {
            "bulkhead:plugin/types@0.1.0": crate::bindings::bulkhead::plugin::types,
            "bulkhead:plugin/task@0.1.0": crate::bindings::bulkhead::plugin::task,
            "bulkhead:plugin/config@0.1.0": crate::bindings::bulkhead::plugin::config,
            "bulkhead:plugin/keyvalue@0.1.0": crate::bindings::bulkhead::plugin::keyvalue,
        },
    });

    pub use exports::bulkhead::plugin::prompts::*;
}

/// The world `completion-provider`.
pub mod completions {
    wit_bindgen::generate!({
        path: "../../../wit",
        world: "completion-provider",
        pub_export_macro: true,
        export_macro_name: "export_completions",
        default_bindings_module: "bulkhead_plugin::bindings::completions",
        with: {
            "bulkhead:plugin/types@0.1.0": crate::bindings::bulkhead::plugin::types,
            "bulkhead:plugin/task@0.1.0": crate::bindings::bulkhead::plugin::task,
            "bulkhead:plugin/config@0.1.0": crate::bindings::bulkhead::plugin::config,
            "bulkhead:plugin/keyvalue@0.1.0": crate::bindings::bulkhead::plugin::keyvalue,
        },
    });

    pub use exports::bulkhead::plugin::completions::*;
}
