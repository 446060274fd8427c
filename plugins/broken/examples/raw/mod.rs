//! A tool list that bypasses the SDK, which would not let most of these mistakes happen.

use bulkhead_plugin::TaskSupport;
use bulkhead_plugin::bindings::exports::bulkhead::plugin::tools::Tool;

/// An input schema without a mistake.
#[allow(dead_code, reason = "not every example that includes this module uses it")]
pub(crate) const ANYTHING: &str = r#"{"type":"object"}"#;

/// A tool with only a name and an input schema.
pub(crate) fn tool(name: &str, input_schema: &str) -> Tool {
    Tool {
        name: name.to_owned(),
        title: None,
        description: "Does not matter.".to_owned(),
        input_schema: input_schema.to_owned(),
        output_schema: None,
        annotations: None,
        task_support: TaskSupport::Forbidden,
        icons: Vec::new(),
        meta: Vec::new(),
    }
}

/// Makes a list of tools this component's plugin.
macro_rules! plugin {
    ($tools:expr) => {
        /// The list, which also type-checks natively.
        #[cfg_attr(not(target_family = "wasm"), expect(dead_code, reason = "only a component exports it"))]
        fn tools() -> Vec<bulkhead_plugin::bindings::exports::bulkhead::plugin::tools::Tool> {
            $tools
        }

        #[cfg(target_family = "wasm")]
        const _: () = {
            use bulkhead_plugin::bindings::exports::bulkhead::plugin::tools as exported;

            struct Exported;

            impl exported::Guest for Exported {
                fn list_tools() -> Vec<exported::Tool> {
                    tools()
                }

                fn call_tool(name: String, _: String) -> Result<exported::ToolOutput, exported::CallError> {
                    Err(exported::CallError::NotFound(name))
                }
            }

    bulkhead_plugin::bindings::export_tools!(Exported with_types_in bulkhead_plugin::bindings);
        };
    };
}

pub(crate) use plugin;
