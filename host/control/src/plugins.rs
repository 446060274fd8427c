//! The commands about plugins.
//!
//! What cannot be done because of the components themselves is an answer, not a failure: see [`PluginOutcome`].

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::commands::{
    PluginActivate, PluginAdd, PluginCanary, PluginChanges, PluginCommand, PluginDurable, PluginGrants, PluginList,
    PluginPromote, PluginRemove, PluginRollback, PluginStage, PluginTarget, PluginUpdate, PluginVerify, PluginVersions,
};
use super::task_control::OfflineTasks;
use super::views::{
    PluginGrantsView, PluginListView, PluginOutcome, PluginRemoveView, PluginResult, PluginUpdateView,
    PluginVersionsView, RefusedPlugin, RefusedView, StagedView, TenantGrantsView, VersionRemovedView,
};
use super::{Answer, ControlError, Request};
use bulkhead_calls::ListKind;
use bulkhead_domain::task::PluginVersion;
use bulkhead_identity::principal::Principals;
use bulkhead_plugins::sources::{ComponentFetcher, ConfiguredSource, Source, SourceError};
use bulkhead_plugins::{
    Calls, CanaryRequest, CanaryThresholdOverrides, Candidate, Digest, DrainThen, Error, Plugins, Stage, Staged,
    SwitchResult, Target, Tenant, VersionGrants,
};
use bulkhead_runtime::LoadError;
use bulkhead_store as store;

/// The plugins, and the way to more of them.
#[derive(Clone)]
pub struct PluginAdmin {
    pub plugins: Plugins,
    pub intake: Arc<ComponentFetcher>,
}

pub(super) async fn execute(
    plugin_admin: &PluginAdmin,
    principals: &Principals,
    command: PluginCommand,
) -> Result<Answer, ControlError> {
    let plugins = &plugin_admin.plugins;
    match command {
        PluginCommand::List(_) => {
            let plugins = plugins.list().await.map_err(failed)?;
            PluginList::answer(&PluginListView { plugins })
        }
        PluginCommand::Versions(PluginVersions { name }) => {
            let mut versions = plugins.versions(&name).await.map_err(failed)?;
            plugin_admin.intake.name_signers(&mut versions);
            PluginVersions::answer(&PluginVersionsView { name, versions })
        }
        PluginCommand::Changes(PluginChanges { name, version, tool }) => {
            let changes = plugins.compare(&Target { name, version }, tool.as_deref()).await;
            PluginChanges::answer(&changes.map_err(not_loaded)?)
        }
        PluginCommand::Grants(PluginGrants { name, version }) => {
            let grants = plugins.grants(&name, version).await.map_err(not_loaded)?;
            PluginGrants::answer(&grants_view(principals, name, grants).await?)
        }
        PluginCommand::Stage(PluginStage { source, sha256, name }) => {
            let source = parsed(&source)?;
            let pinned = digest(sha256)?;
            outcome::<PluginStage, _>(plugin_admin.stage(source, pinned, name).await.map(StagedView::from))
        }
        PluginCommand::Add(request) => outcome::<PluginAdd, _>(plugin_admin.add(request).await?),
        PluginCommand::Update(request) => outcome::<PluginUpdate, _>(plugin_admin.update(request).await?),
        PluginCommand::Activate(PluginActivate { targets, accept }) => {
            let targets: Vec<_> = targets.into_iter().map(Target::from).collect();
            outcome::<PluginActivate, _>(plugins.activate(&targets, accept).await)
        }
        PluginCommand::Canary(PluginCanary { targets, share, tenants, bounds, accept }) => {
            let request = canary_request(principals, targets, share, tenants, bounds).await?;
            outcome::<PluginCanary, _>(plugins.begin_canary(request, accept).await)
        }
        PluginCommand::Promote(PluginPromote { names }) => outcome::<PluginPromote, _>(plugins.promote(&names).await),
        PluginCommand::Rollback(PluginRollback { names }) => {
            outcome::<PluginRollback, _>(plugins.rollback(&names).await)
        }
        PluginCommand::Durable(PluginDurable { name, version, durable }) => {
            let outcome = plugins.set_durable(&Target { name, version }, durable).await;
            PluginDurable::answer(&outcome.map_err(failed)?)
        }
        PluginCommand::Remove(PluginRemove { name, version: None }) => {
            outcome::<PluginRemove, _>(plugins.remove(&name).await.map(PluginRemoveView::Plugin))
        }
        PluginCommand::Remove(PluginRemove { name, version: Some(version) }) => {
            let removed = plugins.remove_version(&name, &version).await;
            let view = |removed| PluginRemoveView::Version(VersionRemovedView { done: true, name, removed });
            outcome::<PluginRemove, _>(removed.map(view))
        }
        // Counts are the store's: `HostOperator::tool_usage` answers before plugins are needed.
        PluginCommand::Usage(_) => Err(ControlError::Invalid("the usage is read of the store".to_owned())),
        PluginCommand::Verify(PluginVerify { name }) => {
            PluginVerify::answer(&plugins.verify(name.as_deref()).await.map_err(failed)?)
        }
    }
}

/// With the names of the tenants.
async fn grants_view(
    principals: &Principals,
    name: String,
    grants: VersionGrants,
) -> Result<PluginGrantsView, ControlError> {
    let VersionGrants { version, imports, everybody, tenants: bounded } = grants;
    let named = if bounded.is_empty() { Vec::new() } else { principals.tenants().await? };
    let name_of = |id| named.iter().find(|(_, other)| *other == id).map(|(name, _)| name.clone());
    let tenants = bounded.into_iter().map(|(id, grants)| TenantGrantsView { tenant: name_of(id), grants }).collect();
    Ok(PluginGrantsView { name, version, imports, everybody, tenants })
}

/// Who is to get a version, with the ids of the tenants. One that nobody was ever of begins to exist with that, as one
/// does that the configuration names.
async fn canary_request(
    principals: &Principals,
    targets: Vec<PluginTarget>,
    share: Option<u16>,
    names: Vec<String>,
    bounds: CanaryThresholdOverrides,
) -> Result<CanaryRequest, ControlError> {
    let [target] = <[PluginTarget; 1]>::try_from(targets).map_err(|targets| {
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
    Ok(CanaryRequest { target: target.into(), share, tenants, bounds })
}

fn outcome<R, T>(done: Result<T, Error>) -> Result<Answer, ControlError>
where
    R: Request<Answer = PluginOutcome<T>>,
    T: PluginResult,
{
    let view = match done {
        Err(Error::Refused(errors)) => {
            let refused = |LoadError { plugin, problems, .. }| RefusedPlugin { plugin, problems };
            PluginOutcome::Refused(RefusedView { done: false, refused: errors.into_iter().map(refused).collect() })
        }
        done => PluginOutcome::Result(done.map_err(failed)?),
    };
    Ok(Answer { is_refusal: !view.is_done(), ..R::answer(&view)? })
}

/// A version that cannot be looked at because of what it is.
fn not_loaded(error: Error) -> ControlError {
    match error {
        Error::Refused(_) => ControlError::Invalid(error.to_string()),
        error => failed(error),
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
    /// From the file of a configured plugin that is composed comes the whole.
    async fn fetch(&self, source: Source, pinned: Option<Digest>, name: Option<String>) -> Result<Candidate, Error> {
        let configured = match &name {
            Some(name) => self.intake.configured(name).map(|configured| (name.clone(), configured)),
            None => self.intake.configured_from(&source).await,
        };
        let composed = configured.filter(|(_, of)| of.source.is_same(&source) && !of.compose.is_empty());
        let (name, wanted) = match composed {
            Some((of, composed)) => {
                let sha256 = pinned.or(composed.sha256);
                (Some(of), ConfiguredSource { sha256, ..composed })
            }
            None => (name, ConfiguredSource::single(source, pinned)),
        };
        let verified = self.intake.take_whole(&wanted).await.map_err(|error| {
            let plugin = name.clone().unwrap_or_else(|| wanted.source.to_string());
            Error::Refused(vec![LoadError::refused(plugin, vec![error.to_string()])])
        })?;
        Ok(verified.candidate(name))
    }

    async fn stage(&self, source: Source, pinned: Option<Digest>, name: Option<String>) -> Result<Staged, Error> {
        self.plugins.stage(self.fetch(source, pinned, name).await?).await
    }

    async fn add(&self, request: PluginAdd) -> Result<Result<SwitchResult, Error>, ControlError> {
        let PluginAdd { sources, sha256, name, accept } = request;
        if (name.is_some() || sha256.is_some()) && sources.len() > 1 {
            return Err(ControlError::Invalid("one name or digest cannot be that of several components".to_owned()));
        }
        let pinned = digest(sha256)?;
        let sources: Vec<_> = sources.iter().map(|source| parsed(source)).collect::<Result<_, _>>()?;
        // One after the other: a component may be large, and is in memory until it is staged.
        let candidates = sources.into_iter().map(|source| self.fetch(source, pinned, name.clone()));
        Ok(self.plugins.add(candidates, accept).await)
    }

    async fn update(&self, request: PluginUpdate) -> Result<Result<PluginUpdateView, Error>, ControlError> {
        let PluginUpdate { name, activate, accept } = request;
        let (source, pinned) = self.source_of(&name).await?;
        let staged = match self.stage(source, pinned, Some(name)).await {
            Ok(staged) if activate && staged.stage != Stage::Active => staged,
            // It should run and does not: what was fetched puts that right.
            Ok(staged) if staged.stage == Stage::Active && !self.plugins.is_running(&staged.version).await => staged,
            staged => return Ok(staged.map(|staged| PluginUpdateView::Staged(staged.into()))),
        };
        Ok(self.plugins.switch(&[staged.version], accept).await.map(PluginUpdateView::Switched))
    }

    /// Where a plugin comes from: as the configuration says, else as its newest version came.
    async fn source_of(&self, name: &str) -> Result<(Source, Option<Digest>), ControlError> {
        if let Some(configured) = self.intake.configured(name) {
            return Ok((configured.source, configured.sha256));
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

impl From<PluginTarget> for Target {
    fn from(PluginTarget { name, version }: PluginTarget) -> Self {
        Self { name, version }
    }
}

/// Without a host there are no calls, only records.
#[async_trait]
impl Calls for OfflineTasks {
    async fn tasks(&self) -> Result<HashMap<PluginVersion, usize>, store::Error> {
        self.store.unfinished_by_version().await
    }

    fn lists_changed(&self, _: &[ListKind]) {}

    async fn end(&self, _: &PluginVersion, _: DrainThen) {}
}
