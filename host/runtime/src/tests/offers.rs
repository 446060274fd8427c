//! Resources, prompts and completions of a plugin that has them.

use super::*;
use crate::plugin_source::Source;
use bulkhead_domain::server_features::{Completion, PartialArgument, PromptOutput, Reference, ResourcePage};
use bulkhead_domain::tool::{ResourceBody, ResourceContents};

struct Library {
    house: House,
    library: Arc<bulkhead_calls::CatalogPlugin>,
}

impl Library {
    async fn open() -> Option<Self> {
        let plugin = sample("conformance")?;
        let house = House::new();
        house.publish(plugin).await;
        let library = Arc::clone(&house.sandbox.catalog().libraries()[0]);
        Some(Self { house, library })
    }

    async fn ask<T: TryFrom<Returned, Error = Returned>>(&self, operation: Operation) -> Result<T, CallError> {
        let plugin = self.library.plugin.clone();
        let limits = self.library.limits.clone();
        let share = Share::default();
        let spec = CallSpec {
            plugin,
            tenant: TENANT,
            operation,
            limits,
            share,
            activity: None,
            facts: facts(),
            journaling: Journaling::Off,
        };
        let mut running = self.house.sandbox.start(spec).unwrap();
        loop {
            let event = tokio::time::timeout(Duration::from_secs(30), running.events.recv()).await.unwrap();
            if let Some(CallEvent::Finished(outcome)) = event {
                return outcome.map(|returned| T::try_from(returned).unwrap());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_resources_and_prompts_are_in_the_catalog() {
    let Some(open) = Library::open().await else { return };
    let catalog = open.house.sandbox.catalog();
    assert!(catalog.has_resources() && catalog.has_prompts() && catalog.has_completions());
    let prompt = catalog.prompt("test_prompt_with_arguments").unwrap();
    assert_eq!(prompt.prompt.arguments.iter().filter(|argument| argument.required).count(), 2);
    assert!(catalog.template("test://template/{id}/data").is_some());
    assert_eq!(catalog.readers("test://static-text").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_are_listed_and_read() {
    let Some(open) = Library::open().await else { return };
    let page: ResourcePage = open.ask(Operation::ListResources { cursor: None }).await.unwrap();
    let uris: Vec<_> = page.items.iter().map(|resource| resource.uri.as_str()).collect();
    assert_eq!(uris, ["test://static-text", "test://static-binary", "test://watched-resource"]);
    assert_eq!(page.next, None);

    let read = async |uri: &str| -> Result<Vec<ResourceContents>, CallError> {
        open.ask(Operation::ReadResource { uri: uri.to_owned() }).await
    };
    let contents = read("test://template/12%203/data").await.unwrap();
    assert!(matches!(&contents[0].body, ResourceBody::Text(text) if text.contains(r#""id":"12 3""#)), "{contents:?}");
    assert!(
        matches!(&read("test://static-binary").await.unwrap()[0].body, ResourceBody::Blob(data) if data.len() == 69)
    );
    assert!(matches!(read("test://nothing").await, Err(CallError::NotFound(_))));
    let long = format!("test://{}", "x".repeat(3000));
    assert!(matches!(read(&long).await, Err(CallError::InvalidParams(text)) if text.contains("2 KiB")));
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_are_filled_in_and_completed() {
    let Some(open) = Library::open().await else { return };
    let arguments = vec![("arg1".to_owned(), "a".to_owned()), ("arg2".to_owned(), "b".to_owned())];
    let prompt = "test_prompt_with_arguments".to_owned();
    let output: PromptOutput = open.ask(Operation::GetPrompt { prompt: prompt.clone(), arguments }).await.unwrap();
    assert!(matches!(&output.messages[0].content.kind,
        ContentKind::Text(text) if text == "Prompt with arguments: arg1='a', arg2='b'"));

    let argument = PartialArgument { name: "arg1".to_owned(), value: "par".to_owned(), context: Vec::new() };
    let reference = Reference::Prompt(prompt);
    let completion: Completion = open.ask(Operation::Complete { reference, argument }).await.unwrap();
    assert_eq!(completion.values, ["paris", "park", "party"]);
    assert_eq!((completion.total, completion.has_more), (Some(3), false));
}

#[tokio::test(flavor = "multi_thread")]
async fn prompt_prefix_applies_and_resource_clashes_are_refused() {
    let Some(first) = sample("conformance") else { return };
    let Source::File(file) = first.component.clone() else { panic!() };
    let mut second = source(Source::File(file));
    second.name = Some("again".to_owned());
    second.prefix = "again_".to_owned();
    let house = House::new();
    let first = house.sandbox.load(first).await.unwrap();
    let second = house.sandbox.load(second).await.unwrap();
    assert!(second.offers.prompts.iter().all(|entry| entry.prompt.described.name.starts_with("again_test_")));
    let (_, refused) = house.sandbox.publish(vec![first, second]);
    assert_eq!(refused.len(), 1);
    let problems = refused[0].problems.join("\n");
    assert!(
        problems.contains(r#"resource "test://static-text" is offered by plugin conformance already"#),
        "{problems}"
    );
    assert!(problems.contains(r#"resource template "test://template/{id}/data""#), "{problems}");
    assert!(!problems.contains("prompt"), "{problems}");
}

#[tokio::test(flavor = "multi_thread")]
async fn views_of_one_component_under_two_names_are_told_apart() {
    let Some(first) = sample("chart") else { return };
    let Source::File(file) = first.component.clone() else { panic!() };
    let mut second = source(Source::File(file));
    second.name = Some("again".to_owned());
    second.prefix = "two_".to_owned();
    let house = House::new();
    let first = house.sandbox.load(first).await.unwrap();
    let second = house.sandbox.load(second).await.unwrap();
    assert_eq!(first.views(), second.views(), "what is accepted is the same whatever stands in front");
    assert_eq!(house.sandbox.publish(vec![first, second]).1, []);
    let catalog = house.sandbox.catalog();
    let view = "ui://two_chart/view.html";
    let meta = &catalog.get("two_chart").unwrap().tool.meta;
    assert_eq!(meta[0].1.as_str(), r#"{"resourceUri":"ui://two_chart/view.html"}"#);
    let owner = catalog.owner(view).unwrap();
    assert_eq!(owner.plugin.name, "again");
    assert_eq!(catalog.owner("ui://chart/view.html").unwrap().plugin.name, "chart");
    let library = Arc::clone(owner);
    let open = Library { house, library };
    let page: ResourcePage = open.ask(Operation::ListResources { cursor: None }).await.unwrap();
    assert_eq!(page.items.iter().map(|resource| resource.uri.as_str()).collect::<Vec<_>>(), [view]);
    let read = async |uri: &str| -> Result<Vec<ResourceContents>, CallError> {
        open.ask(Operation::ReadResource { uri: uri.to_owned() }).await
    };
    let contents = read(view).await.unwrap();
    assert_eq!(contents[0].uri, view);
    assert!(matches!(&contents[0].body, ResourceBody::Text(html) if html.contains("ui/initialize")));
    assert!(matches!(read("ui://chart/view.html").await, Err(CallError::NotFound(_))), "that of another plugin");
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_without_resources_has_no_resource_readers() {
    let Some(plugin) = sample("text") else { return };
    let house = House::new();
    house.publish(plugin).await;
    let catalog = house.sandbox.catalog();
    assert!(!catalog.has_resources() && !catalog.has_prompts() && !catalog.has_completions());
    assert!(catalog.readers("test://static-text").is_empty());
}
