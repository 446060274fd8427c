//! What `wit/` says, as Rust: generated, and used by the neighbours only.
//!
//! The bindings are those of the largest world. A component need not export all of it: each exported interface has
//! indices of its own, looked up when a component is loaded.

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "plugin-full",
    imports: { default: async | trappable },
    exports: { default: async },
});
