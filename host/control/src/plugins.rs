//! The commands about plugins.
//!
//! What cannot be done because of the components themselves is an answer, not a failure: `done` is false, and `refused` or `held`
//! say why.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::operator::OfflineTasks;
use super::{Command, ControlError, PluginTarget};
use bulkhead_domain::task::PluginVersion;
use bulkhead_identity::principal::Principals;
use bulkhead_plugins::sources::{ComponentFetcher, Source, SourceError};
use bulkhead_plugins::{
    Calls, CanaryRequest, CanaryThresholdOverrides, Digest, DrainThen, Error, Plugins, Stage, Staged, Target, Tenant,
};
use bulkhead_runtime::{ListKind, LoadError};
use bulkhead_store as store;

/// Tasks that are read at once.
const PAGE_TASKS: usize = 256;

/// The plugins, and the way to more of them.
#[derive(Clone)]
pub struct PluginAdmin {
    pub plugins: Plugins,
    pub intake: Arc<ComponentFetcher>,
}

pub(super) async fn execute(
    plugin_admin: &PluginAdmin,
    principals: &Principals,
    command: Command,
) -> Result<Value, ControlError> {
    let plugins = &plugin_admin.plugins;
    let done = match command {
        Command::PluginList => plugins.list().await.map(|plugins| json!({ "plugins": plugins })),
        Command::PluginVersions { name } => {
            plugins.versions(&name).await.map(|versions| json!({ "name": name, "versions": versions }))
        }
        Command::PluginStage { source, sha256, name } => {
            let (source, pinned) = (parsed(&source)?, digest(sha256)?);
            plugin_admin.stage(&source, pinned, name).await.map(|staged| shown(&staged))
        }
        Command::PluginUpdate { name, activate, accept } => {
            let (source, pinned) = plugin_admin.source_of(&name).await?;
            match plugin_admin.stage(&source, pinned, Some(name)).await {
                Ok(staged) if activate && staged.stage != Stage::Active => {
                    plugins.activate(&[target(&staged.version)], accept).await.map(|switched| json!(switched))
                }
                staged => staged.map(|staged| shown(&staged)),
            }
        }
        Command::PluginAdd { sources, sha256, name, accept } => {
            if (name.is_some() || sha256.is_some()) && sources.len() > 1 {
                return Err(ControlError::Invalid(
                    "one name or digest cannot be that of several components".to_owned(),
                ));
            }
            let pinned = digest(sha256)?;
            let sources: Vec<_> = sources.iter().map(|source| parsed(source)).collect::<Result<_, _>>()?;
            let mut targets = Vec::new();
            for source in &sources {
                match plugin_admin.stage(source, pinned, name.clone()).await {
                    Ok(staged) => targets.push(target(&staged.version)),
                    Err(error) => return outcome(Err(error)),
                }
            }
            plugins.activate(&targets, accept).await.map(|switched| json!(switched))
        }
        Command::PluginActivate { targets, accept } => {
            let targets: Vec<_> =
                targets.into_iter().map(|PluginTarget { name, version }| Target { name, version }).collect();
            plugins.activate(&targets, accept).await.map(|switched| json!(switched))
        }
        Command::PluginCanary { targets, share, tenants, bounds, accept } => {
            let wish = wish(principals, targets, share, tenants, bounds).await?;
            plugins.begin_canary(wish, accept).await.map(|switched| json!(switched))
        }
        Command::PluginPromote { names } => plugins.promote(&names).await.map(|switched| json!(switched)),
        Command::PluginRollback { names } => plugins.rollback(&names).await.map(|switched| json!(switched)),
        Command::PluginRemove { name, version: None } => plugins.remove(&name).await.map(|switched| json!(switched)),
        Command::PluginRemove { name, version: Some(version) } => {
            let removed = plugins.remove_version(&name, &version).await;
            removed.map(|version| json!({ "done": true, "name": name, "removed": version }))
        }
        Command::PluginVerify { name } => plugins.verify(name.as_deref()).await.map(|verified| json!(verified)),
        _ => return Err(ControlError::Invalid("not a command about plugins".to_owned())),
    };
    outcome(done)
}

/// Who is to get a version, with the ids of the tenants. One that nobody was ever of begins to exist with that, as one does that the
/// configuration names.
async fn wish(
    principals: &Principals,
    targets: Vec<PluginTarget>,
    share: Option<u16>,
    names: Vec<String>,
    bounds: CanaryThresholdOverrides,
) -> Result<CanaryRequest, ControlError> {
    let [PluginTarget { name, version }] = <[PluginTarget; 1]>::try_from(targets).map_err(|targets| {
        let names: Vec<_> = targets.iter().map(|target| target.name.as_str()).collect();
        ControlError::Invalid(format!(
            "a canary is of one plugin, and a set ({}) is switched as a whole: begin one canary after the other",
            names.join(", ")
        ))
    })?;
    let mut tenants = Vec::new();
    for name in names {
        let id = principals.tenant(&name).await?.to_string();
        tenants.push(Tenant { name, id });
    }
    let tenants = (!tenants.is_empty()).then_some(tenants);
    Ok(CanaryRequest { target: Target { name, version }, share, tenants, bounds })
}

fn outcome(done: Result<Value, Error>) -> Result<Value, ControlError> {
    match done {
        Err(Error::Refused(errors)) => {
            let refused: Vec<_> =
                errors.iter().map(|error| json!({ "plugin": error.plugin, "problems": error.problems })).collect();
            Ok(json!({ "done": false, "refused": refused }))
        }
        done => done.map_err(failed),
    }
}

pub(super) fn failed(error: Error) -> ControlError {
    match error {
        Error::NotFound(text) => ControlError::NotFound(text),
        Error::Invalid(text) => ControlError::Invalid(text),
        Error::Store(error) => ControlError::from(error),
        error => ControlError::Failed(error.to_string()),
    }
}

impl PluginAdmin {
    async fn stage(&self, source: &Source, pinned: Option<Digest>, name: Option<String>) -> Result<Staged, Error> {
        let verified = self.intake.take(source, pinned).await.map_err(|error| {
            let plugin = name.clone().unwrap_or_else(|| source.to_string());
            Error::Refused(vec![LoadError::refused(plugin, vec![error.to_string()])])
        })?;
        self.plugins.stage(verified.candidate(name)).await
    }

    /// Where a plugin comes from: as the configuration says, else as its newest version came.
    async fn source_of(&self, name: &str) -> Result<(Source, Option<Digest>), ControlError> {
        if let Some(configured) = self.intake.configured(name) {
            return Ok(configured);
        }
        let versions = self.plugins.versions(name).await.map_err(failed)?;
        let source = versions.first().map(|version| version.source.clone()).unwrap_or_default();
        Ok((parsed(&source)?.unpinned(), None))
    }
}

fn parsed(source: &str) -> Result<Source, ControlError> {
    source.parse().map_err(|error: SourceError| ControlError::Invalid(error.to_string()))
}

fn digest(text: Option<String>) -> Result<Option<Digest>, ControlError> {
    let parse = |text: String| Digest::try_from(text.strip_prefix("sha256:").unwrap_or(&text).to_owned());
    text.map(parse).transpose().map_err(|wrong| ControlError::Invalid(format!("sha256: {wrong}")))
}

fn target(version: &PluginVersion) -> Target {
    Target { name: version.name.clone(), version: Some(Digest(version.digest).to_string()) }
}

fn shown(staged: &Staged) -> Value {
    json!({
        "done": true,
        "name": staged.version.name,
        "version": Digest(staged.version.digest),
        "state": staged.stage,
        "tools": staged.tools,
        "changes": staged.changes,
        "held": staged.held,
    })
}

/// Without a host there are no calls, only records.
#[async_trait]
impl Calls for OfflineTasks {
    async fn tasks(&self) -> Result<HashMap<PluginVersion, usize>, store::Error> {
        let mut counts = HashMap::new();
        let mut after = None;
        loop {
            let page = self.store.scan(after, PAGE_TASKS).await?;
            after = page.last().map(|task| (task.requestor, task.id));
            let is_last = page.len() < PAGE_TASKS;
            for task in page.into_iter().filter(|task| task.outcome().is_none()) {
                *counts.entry(task.plugin).or_default() += 1;
            }
            if is_last {
                return Ok(counts);
            }
        }
    }

    fn lists_changed(&self, _: &[ListKind]) {}

    async fn end(&self, _: &PluginVersion, _: DrainThen) {}
}
