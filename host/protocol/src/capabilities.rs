//! What a client says that it can do, in either era.

use serde::{Deserialize, Serialize};

use super::reader::AnyObject;
use super::version::Version;
use bulkhead_domain::call::{ClientFeature, ClientFeatures, UI_EXTENSION, VIEW_MIME_TYPE};

/// `ClientCapabilities`, as far as the host acts on them.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Capabilities {
    roots: Option<AnyObject>,
    sampling: Option<Sampling>,
    elicitation: Option<Elicitation>,
    tasks: Option<TaskAbilities>,
    experimental: Experimental,
    /// Whatever its type: the first era has no word for them, and what cannot be understood is not declared.
    extensions: serde_json::Value,
}

impl Capabilities {
    /// Whether the client shows views of the kind that there is.
    fn has_views(&self) -> bool {
        let kinds = self.extensions.get(UI_EXTENSION).and_then(|ui| ui.get("mimeTypes")?.as_array());
        kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == VIEW_MIME_TYPE))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Experimental {
    /// Whatever its type: an experiment that cannot be understood is none.
    #[serde(rename = "dev.bulkhead/task-interaction")]
    interaction: Option<serde_json::Value>,
}

/// The extension of tasks (SEP-2663).
pub(crate) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// Steer, pause and resume: a name of our own, because the draft's place is checked strictly by clients. An extension
/// in the modern era, an experiment in the legacy one.
pub(crate) const INTERACTION_EXTENSION: &str = "dev.bulkhead/task-interaction";

/// Which of steer, pause and resume a client knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Interaction {
    pub(crate) steer: bool,
    /// Resume as well, and in the modern era the status `paused`.
    pub(crate) pause: bool,
}

/// Which requests the client takes as tasks of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientTasks {
    pub(crate) elicitation: bool,
    pub(crate) sampling: bool,
    pub(crate) cancel: bool,
}

/// The experiment that a legacy client takes part in.
pub(crate) fn interaction(version: Version, declared: &Capabilities) -> Interaction {
    let settings = declared.experimental.interaction.as_ref().filter(|_| version.has_tasks());
    let has = |name: &str| settings.and_then(|settings| settings.get(name)).is_some_and(|value| *value == true);
    Interaction { steer: has("steer"), pause: has("pause") }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Sampling {
    context: Option<AnyObject>,
    tools: Option<AnyObject>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Elicitation {
    form: Option<AnyObject>,
    url: Option<AnyObject>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TaskAbilities {
    cancel: Option<AnyObject>,
    requests: TaskRequests,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TaskRequests {
    sampling: SamplingTasks,
    elicitation: ElicitationTasks,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SamplingTasks {
    #[serde(rename = "createMessage")]
    create_message: Option<AnyObject>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ElicitationTasks {
    create: Option<AnyObject>,
}

/// What the client can be asked for.
pub(crate) fn features(version: Version, declared: &Capabilities) -> ClientFeatures {
    let newest = version.has_tasks();
    let elicitation = declared.elicitation.as_ref().filter(|_| version.has_structured_output());
    // An empty object means forms: that is how it began.
    let form = elicitation.is_some_and(|modes| !newest || modes.form.is_some() || modes.url.is_none());
    let url = newest && elicitation.is_some_and(|modes| modes.url.is_some());
    let sampling = declared.sampling.as_ref();
    let requestable = [
        (ClientFeature::ElicitationForm, form),
        (ClientFeature::ElicitationUrl, url),
        (ClientFeature::Sampling, sampling.is_some()),
        (ClientFeature::SamplingTools, newest && sampling.is_some_and(|sampling| sampling.tools.is_some())),
        // The older revision has no word for it, so every client that samples may be asked.
        (ClientFeature::SamplingContext, sampling.is_some_and(|sampling| !newest || sampling.context.is_some())),
        (ClientFeature::Roots, declared.roots.is_some()),
    ]
    .into_iter()
    .filter(|(_, has)| *has)
    .fold(ClientFeatures::default(), |features, (feature, _)| features.with(feature));
    // Tools of the first revision have no metadata, so no view.
    if version.has_structured_output() && declared.has_views() { requestable.with_views() } else { requestable }
}

/// Which requests the client takes as tasks of its own.
pub(crate) fn client_tasks(version: Version, declared: &Capabilities) -> ClientTasks {
    match &declared.tasks {
        Some(tasks) if version.has_tasks() => ClientTasks {
            elicitation: tasks.requests.elicitation.create.is_some(),
            sampling: tasks.requests.sampling.create_message.is_some(),
            cancel: tasks.cancel.is_some(),
        },
        _ => ClientTasks::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(json: serde_json::Value) -> Capabilities {
        serde_json::from_value(json).unwrap()
    }

    fn has(version: Version, json: serde_json::Value) -> Vec<ClientFeature> {
        use ClientFeature::{ElicitationForm, ElicitationUrl, Roots, Sampling, SamplingContext, SamplingTools, Tasks};
        let features = features(version, &declared(json));
        [ElicitationForm, ElicitationUrl, Sampling, SamplingTools, SamplingContext, Roots, Tasks]
            .into_iter()
            .filter(|feature| features.contains(*feature))
            .collect()
    }

    #[test]
    fn empty_elicitation_capability_means_forms() {
        use serde_json::json;
        let newest = Version::V2025_11_25;
        assert_eq!(has(newest, json!({"elicitation": {}})), [ClientFeature::ElicitationForm]);
        assert_eq!(has(newest, json!({"elicitation": {"url": {}}})), [ClientFeature::ElicitationUrl]);
        assert_eq!(
            has(newest, json!({"roots": {"listChanged": true}, "extensions": {"a": 1}})),
            [ClientFeature::Roots]
        );
        assert_eq!(has(newest, json!({})), []);
        let older = json!({"elicitation": {"url": {}}, "sampling": {"tools": {}}});
        let expected = [ClientFeature::ElicitationForm, ClientFeature::Sampling, ClientFeature::SamplingContext];
        assert_eq!(has(Version::V2025_06_18, older.clone()), expected);
        assert_eq!(has(Version::V2025_03_26, older), [ClientFeature::Sampling, ClientFeature::SamplingContext]);
    }

    #[test]
    fn client_has_views_that_names_their_media_type() {
        use serde_json::json;
        let has_views = |version, ui| {
            let declared = declared(json!({"extensions": {"io.modelcontextprotocol/ui": ui, "x": 1}}));
            features(version, &declared).has_views()
        };
        let views = json!({"mimeTypes": ["text/plain", "text/html;profile=mcp-app"]});
        assert!(has_views(Version::V2025_11_25, views.clone()) && has_views(Version::V2025_06_18, views.clone()));
        assert!(!has_views(Version::V2025_03_26, views), "tools of that revision have no metadata");
        for other in [
            json!({}),
            json!({"mimeTypes": ["text/html"]}),
            json!({"mimeTypes": "text/html;profile=mcp-app"}),
            json!(7),
        ] {
            assert!(!has_views(Version::V2025_11_25, other.clone()), "{other}");
        }
    }

    #[test]
    fn client_tasks_are_read_per_request_type() {
        let json =
            serde_json::json!({"tasks": {"list": {}, "cancel": {}, "requests": {"elicitation": {"create": {}}}}});
        let expected = ClientTasks { elicitation: true, sampling: false, cancel: true };
        assert_eq!(client_tasks(Version::V2025_11_25, &declared(json)), expected);
    }
}
