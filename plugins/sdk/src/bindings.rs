//! The WIT package `bulkhead:plugin`, as wit-bindgen translates it: the layer under this crate.
//!
//! Use it for what the typed functions do not cover. Another world of the package (resources, prompts, completions)
//! gets a module like this one; the shared types stay here.

wit_bindgen::generate!({
    path: "../../wit",
    world: "plugin",
    pub_export_macro: true,
    export_macro_name: "export_tools",
    default_bindings_module: "bulkhead_plugin::bindings",
    generate_unused_types: true,
});
