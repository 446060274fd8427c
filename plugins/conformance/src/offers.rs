//! Resources, prompts and completions.

use bulkhead_plugin::{Arguments, Error, Messages, Partial, Plugin, Prompt, Resource, ResourceTemplate};
use serde_json::{Value, json};

use crate::changing;
use crate::content::PNG;
use crate::questions::{field, form};

pub(crate) fn all(plugin: Plugin) -> Plugin {
    prompts(resources(plugin))
}

fn resources(plugin: Plugin) -> Plugin {
    let text = Resource::new(
        "test://static-text",
        "Static Text Resource",
        || "This is the content of the static text resource.",
    );
    let binary = Resource::new("test://static-binary", "Static Binary Resource", || PNG.to_vec());
    let watched = Resource::new("test://watched-resource", "Watched Resource", || "Watched resource content");
    let template = ResourceTemplate::new("test://template/{id}/data", "Resource Template", |of| {
        let id = of.get("id");
        json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") }).to_string()
    });
    plugin
        .resource(text.description("A static text resource for testing").mime_type("text/plain"))
        .resource(binary.description("A static image for testing").mime_type("image/png"))
        .resource(watched.description("A resource that can be subscribed to").mime_type("text/plain"))
        .resource_template(
            template
                .description("A resource template with parameter substitution")
                .mime_type("application/json")
                .complete("id", |partial| beginning(&["1", "12", "123"], partial)),
        )
}

fn prompts(plugin: Plugin) -> Plugin {
    let plugin = if changing::is_there(changing::PROMPT) {
        plugin.prompt(Prompt::new("test_changing_prompt", "Comes and goes.", |_| "This prompt comes and goes."))
    } else {
        plugin
    };
    let simple = Prompt::new(
        "test_simple_prompt",
        "A simple prompt without arguments",
        |_| "This is a simple prompt for testing.",
    );
    let with_arguments = Prompt::new("test_prompt_with_arguments", "A prompt with two arguments", |arguments| {
        format!("Prompt with arguments: arg1='{}', arg2='{}'", arguments.get("arg1"), arguments.get("arg2"))
    });
    let with_resource =
        Prompt::new("test_prompt_with_embedded_resource", "A prompt with a resource inside", |arguments| {
            Messages::new()
                .resource(arguments.get("resourceUri"), "text/plain", "Embedded resource content for testing.")
                .user("Please process the embedded resource above.")
        });
    let with_image = Prompt::new("test_prompt_with_image", "A prompt with an image", |_| {
        Messages::new().image(PNG, "image/png").user("Please analyze the image above.")
    });
    let asking = Prompt::new("test_input_required_result_prompt", "A prompt that asks for its context", asking);
    plugin
        .prompt(simple)
        .prompt(
            with_arguments
                .required_argument("arg1", "First test argument")
                .required_argument("arg2", "Second test argument")
                .complete("arg1", |partial| beginning(&["test", "testing", "paris", "park", "party"], partial)),
        )
        .prompt(with_resource.required_argument("resourceUri", "URI of the resource to embed"))
        .prompt(with_image)
        .prompt(asking)
}

fn asking(_: &Arguments) -> Result<String, Error> {
    let schema = field("context", json!({ "type": "string" }));
    let answer = form("user_context", "What context should the prompt use?", &schema)?;
    let content: Value = serde_json::from_str(answer.content.as_deref().unwrap_or("{}"))?;
    Ok(format!("Use this context: {}", content["context"].as_str().unwrap_or("none")))
}

fn beginning(words: &[&str], partial: &Partial) -> Vec<String> {
    words.iter().filter(|word| word.starts_with(partial.value())).map(|word| (*word).to_owned()).collect()
}
