//! Write tools for Bulkhead, the WebAssembly plugin host for MCP.
//!
//! A plugin is a list of tools (and, where it wants, of [resources](Resource) and [prompts](Prompt): see [`export!`]),
//! and a tool is a Rust function. Its arguments are a type that says what clients may send, its result is a type that
//! says what they get back; the JSON Schemas of both come from the types. This is a whole plugin:
//!
//! ```
//! use bulkhead_plugin::tool;
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Greet {
//!     /// Who is greeted.
//!     name: String,
//! }
//!
//! /// Greets someone by name.
//! #[tool(read_only)]
//! fn greet(who: Greet) -> String {
//!     format!("Hello, {}!", who.name)
//! }
//!
//! bulkhead_plugin::manifest!(r#"name = "greeter""#);
//! bulkhead_plugin::export!([greet]);
//! # fn main() {}
//! ```
//!
//! Compile it with `crate-type = ["cdylib"]` for `wasm32-wasip2`, and give the file to `bulkhead serve --plugin FILE`.
//!
//! # Results
//!
//! What a tool returns decides what the client sees ([`IntoOutput`]):
//!
//! - `String` or `&'static str`: one text block.
//! - [`Json<T>`]: structured content with an output schema, and a text block with the same JSON for clients that only
//!   read text.
//! - [`Output`]: anything else, such as images or links.
//! - `Result` of one of them with [`Error`]: `?` works on every error, and turns it into a result that says `isError`,
//!   which a model can read and react to.
//!
//! # Talking to the host
//!
//! [`task`] reports progress, waits and looks whether to stop; [`ask`] puts questions to the user or the client's
//! model; [`call`] tells what is known about the call; [`config`] reads the operator's settings for the plugin; [`kv`]
//! keeps bytes from one call to the next. All of it works in a plain call and in a task alike.
//!
//! ```no_run
//! use bulkhead_plugin::{Error, Json, task};
//! use schemars::JsonSchema;
//! use serde::Serialize;
//!
//! #[derive(Serialize, JsonSchema)]
//! struct Total {
//!     /// Bytes in all files.
//!     bytes: u64,
//! }
//!
//! fn total_size() -> Result<Json<Total>, Error> {
//!     let names: Vec<_> = std::fs::read_dir("/data")?.collect();
//!     let mut bytes = 0;
//!     for (done, name) in (0u32..).zip(&names) {
//!         task::checkpoint()?;
//!         bytes += name.as_ref().map_err(Error::new)?.metadata()?.len();
//!         task::progress(f64::from(done) + 1.0, Some(names.len() as f64), None);
//!     }
//!     Ok(Json(Total { bytes }))
//! }
//! ```
//!
//! # Outside a host
//!
//! Tools are plain functions, so `cargo test` can call them natively as long as they stay away from the five modules
//! above: those need a host and panic without one.

mod app;
pub mod ask;
pub mod bindings;
pub mod call;
mod complete;
pub mod config;
mod error;
mod input;
pub mod kv;
mod listing;
mod output;
mod plugin;
mod prompt;
mod pure;
mod resource;
mod schema;
pub mod task;
mod uri_template;

pub use app::App;
pub use bindings::bulkhead::plugin::types::{Annotations, CallError, ClientFeature, Icon, Role};
pub use bindings::exports::bulkhead::plugin::tools::TaskSupport;
pub use complete::Partial;
pub use error::Error;
pub use output::{IntoOutput, Json, Output};
pub use plugin::{Handler, Plugin, Tool};
pub use prompt::{Arguments, IntoMessages, Messages, Prompt};
pub use resource::{Body, IntoBody, Resource, ResourceTemplate, Variables};

/// Makes a function a tool: its name is the tool's, its doc comment is the description, which is what a model reads to
/// decide whether to call it. The function stays as it is.
///
/// The function has no parameter, or one: the type of the whole arguments object ([`Handler`]). What it returns decides
/// what clients see ([`IntoOutput`]). The tools are named in [`export!`] or [`plugin!`]; `greet::tool()` is the
/// [`Tool`] of `greet`, for whatever has no option here.
///
/// | option | says |
/// | --- | --- |
/// | `name = "…"` | another name than the function's |
/// | `title = "…"` | a name for people |
/// | `description = "…"` | another description than the doc comment |
/// | `task = "optional"`, `"required"` | [`Tool::task_optional`], [`Tool::task_required`] |
/// | `read_only` | [`Tool::read_only`] |
/// | `idempotent` | [`Tool::idempotent`] |
/// | `destructive`, `destructive = false` | [`Tool::destructive`] |
/// | `open_world`, `open_world = false` | [`Tool::open_world`] |
///
/// ```
/// use bulkhead_plugin::{Error, Json, TaskSupport, tool};
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Circle {
///     /// In metres.
///     #[schemars(range(min = 0.0))]
///     radius: f64,
/// }
///
/// #[derive(Serialize, JsonSchema)]
/// struct Area {
///     /// In square metres.
///     area: f64,
/// }
///
/// /// The area of a circle.
/// #[tool(title = "Area", task = "optional", read_only, idempotent, open_world = false)]
/// fn area(Circle { radius }: Circle) -> Result<Json<Area>, Error> {
///     if radius > 1e6 {
///         return Err(Error::new("circles are smaller than that"));
///     }
///     Ok(Json(Area { area: std::f64::consts::PI * radius * radius }))
/// }
///
/// assert_eq!(area(Circle { radius: 0.0 }).unwrap().0.area, 0.0);
/// let plugin = bulkhead_plugin::plugin![area];
/// let tool = plugin.list().remove(0);
/// assert_eq!((tool.name.as_str(), tool.description.as_str()), ("area", "The area of a circle."));
/// assert_eq!(tool.task_support, TaskSupport::Optional);
/// assert!(tool.output_schema.unwrap().contains("In square metres."));
/// assert!(plugin.call("area", r#"{"radius": 2e6}"#).unwrap().is_error);
/// ```
///
/// What cannot be a tool is an error where it is written:
///
/// ```compile_fail
/// # use bulkhead_plugin::tool;
/// #[tool]
/// fn nobody_knows_what_this_does() {}
/// ```
///
/// ```compile_fail
/// # use bulkhead_plugin::tool;
/// /// Adds.
/// #[tool(readonly)]
/// fn add() -> String { String::new() }
/// ```
///
/// ```compile_fail
/// # use bulkhead_plugin::tool;
/// /// Adds.
/// #[tool]
/// fn add(a: u32, b: u32) -> String { (a + b).to_string() }
/// ```
///
/// ```compile_fail
/// # use bulkhead_plugin::tool;
/// /// Greets.
/// #[tool]
/// fn greet(name: String) -> String { name }
/// ```
///
/// ```compile_fail,E0277
/// # use bulkhead_plugin::tool;
/// #[derive(serde::Deserialize)] // and no `schemars::JsonSchema`
/// struct Greet { name: String }
///
/// /// Greets.
/// #[tool]
/// fn greet(who: Greet) -> String { who.name }
/// ```
pub use bulkhead_plugin_macros::tool;

/// A [`Plugin`] of functions with [`#[tool]`](macro@tool), in this order; more can be added to it.
///
/// ```
/// use bulkhead_plugin::{Plugin, Resource, tool};
///
/// mod numbers {
///     /// The ratio of a circle's circumference to its diameter.
///     #[bulkhead_plugin::tool(read_only)]
///     pub(super) fn pi() -> &'static str {
///         "3.14159"
///     }
/// }
///
/// /// Euler's number.
/// #[tool(read_only)]
/// fn e() -> &'static str {
///     "2.71828"
/// }
///
/// fn plugin() -> Plugin {
///     bulkhead_plugin::plugin![numbers::pi, e].resource(Resource::new("numbers://phi", "phi", || "1.61803"))
/// }
///
/// bulkhead_plugin::export!(plugin, resources);
/// # fn main() {
/// assert_eq!(plugin().list().len(), 2);
/// # }
/// ```
#[macro_export]
macro_rules! plugin {
    ($($($tool:ident)::+),* $(,)?) => { $crate::Plugin::new()$(.tool($($tool)::+::tool()))* };
}

/// Makes a function that returns a [`Plugin`] the plugin of this component, or a list of functions with
/// [`#[tool]`](macro@tool). Once in a crate, at its root.
///
/// Tools are always exported. `resources`, `prompts` and `completions` are named where the plugin has any: clients are
/// told that they exist by what is exported.
///
/// ```
/// use bulkhead_plugin::{Messages, Plugin, Prompt, Resource, Tool};
///
/// fn plugin() -> Plugin {
///     Plugin::new()
///         .tool(Tool::new("pi", "The number.", || "3.14159"))
///         .resource(Resource::new("numbers://pi", "pi", || "3.14159"))
///         .prompt(
///             Prompt::new("explain", "Explains a number.", |arguments| {
///                 Messages::new().user(format!("What is special about {}?", arguments.get("number")))
///             })
///             .required_argument("number", "Which one.")
///             .complete("number", |_| vec!["pi".to_owned(), "e".to_owned()]),
///         )
/// }
///
/// bulkhead_plugin::manifest!(r#"name = "numbers""#);
/// bulkhead_plugin::export!(plugin, resources, prompts, completions);
/// ```
#[macro_export]
macro_rules! export {
    ([$($tools:tt)*]) => {
        fn __bulkhead_plugin() -> $crate::Plugin {
            $crate::plugin![$($tools)*]
        }

        $crate::export!(__bulkhead_plugin);
    };
    ($plugin:path $(, $more:ident)* $(,)?) => {
        $crate::__export_tools!($plugin);
        $( $crate::__export_more!($more $plugin); )*
    };
}

/// The rest of [`export!`].
#[doc(hidden)]
#[macro_export]
macro_rules! __export_more {
    (resources $plugin:path) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            use $crate::bindings::resources;

            struct Exported;

            impl resources::Guest for Exported {
                fn list_templates()
                -> ::std::result::Result<::std::vec::Vec<resources::ResourceTemplate>, resources::CallError> {
                    ::std::result::Result::Ok($plugin().list_templates())
                }

                fn list_resources(
                    cursor: ::std::option::Option<::std::string::String>,
                ) -> ::std::result::Result<resources::ResourcePage, resources::CallError> {
                    $plugin().list_resources(cursor.as_deref())
                }

                fn read_resource(
                    uri: ::std::string::String,
                ) -> ::std::result::Result<::std::vec::Vec<resources::ResourceContents>, resources::CallError> {
                    $plugin().read(&uri)
                }
            }

    $crate::bindings::resources::export_resources!(Exported with_types_in $crate::bindings::resources);
        };
    };
    (prompts $plugin:path) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            use $crate::bindings::prompts;

            struct Exported;

            impl prompts::Guest for Exported {
                fn list_prompts() -> ::std::result::Result<::std::vec::Vec<prompts::Prompt>, prompts::CallError> {
                    ::std::result::Result::Ok($plugin().list_prompts())
                }

                fn get_prompt(
                    name: ::std::string::String,
                    arguments: ::std::vec::Vec<(::std::string::String, ::std::string::String)>,
                ) -> ::std::result::Result<prompts::PromptOutput, prompts::CallError> {
                    $plugin().get_prompt(&name, arguments)
                }
            }

    $crate::bindings::prompts::export_prompts!(Exported with_types_in $crate::bindings::prompts);
        };
    };
    (completions $plugin:path) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            use $crate::bindings::completions;

            struct Exported;

            impl completions::Guest for Exported {
                fn complete(
                    reference: completions::Reference,
                    argument: completions::PartialArgument,
                ) -> ::std::result::Result<completions::Completion, completions::CallError> {
                    $plugin().complete(reference, argument)
                }
            }

    $crate::bindings::completions::export_completions!(Exported with_types_in $crate::bindings::completions);
        };
    };
}

/// The beginning of [`export!`].
#[doc(hidden)]
#[macro_export]
macro_rules! __export_tools {
    ($plugin:path) => {
        const _: fn() -> $crate::Plugin = $plugin;

        #[cfg(target_family = "wasm")]
        const _: () = {
            use $crate::bindings::exports::bulkhead::plugin::tools;

            struct Exported;

            impl tools::Guest for Exported {
                fn list_tools() -> ::std::vec::Vec<tools::Tool> {
                    $plugin().list()
                }

                fn call_tool(
                    name: ::std::string::String,
                    arguments: ::std::string::String,
                ) -> ::std::result::Result<tools::ToolOutput, tools::CallError> {
                    $plugin().call(&name, &arguments)
                }
            }

    $crate::bindings::export_tools!(Exported with_types_in $crate::bindings);
        };
    };
}

/// Says what the plugin is called and what it would like to be allowed, in TOML. Once in a crate, at its root.
///
/// The text becomes the custom section `bulkhead:manifest` of the core module, survives linking and stripping, and is
/// what `bulkhead plugin inspect` shows. It asks; it does not grant: what a plugin may do is the operator's decision,
/// and a plugin never gets more than both agree on. The tables have the names of the operator's configuration:
///
/// ```
/// bulkhead_plugin::manifest!(
///     r#"
///     name = "reports"
///     description = "Turns folders of numbers into reports."
///
///     [grants]
///     directories = [{ guest = "/data", write = false, reason = "the numbers" }]
///     http = ["https://api.example.com"]
///     env = ["REPORTS_REGION"]
///
///     [call]
///     cpu_ms = 60000
///     "#
/// );
/// ```
///
/// `manifest!(include_str!("../manifest.toml"))` keeps it in a file of its own.
#[macro_export]
macro_rules! manifest {
    ($text:expr) => {
        const _: () = {
            const TEXT: &str = $text;

            #[cfg(target_family = "wasm")]
            #[used]
            #[unsafe(link_section = "bulkhead:manifest")]
            static MANIFEST: [u8; TEXT.len()] = $crate::__bytes(TEXT);
        };
    };
}

/// What [`#[tool]`](macro@tool) asks of the type of a tool's arguments.
#[doc(hidden)]
pub const fn __arguments<A: serde::de::DeserializeOwned + schemars::JsonSchema>() {}

/// What [`#[tool]`](macro@tool) asks of the type of a tool's result.
#[doc(hidden)]
pub const fn __result<R: IntoOutput>() {}

/// The bytes of a text as an array, which is the only shape that a custom section can be written from.
#[doc(hidden)]
#[must_use]
pub const fn __bytes<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(text.as_bytes());
    bytes
}
