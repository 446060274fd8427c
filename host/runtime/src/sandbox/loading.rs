//! How plugins get into the sandbox: read, compiled or taken from the cache, linked, listed, put on the operator's
//! terms, kept.

use std::sync::Arc;
use std::time::Instant;

use wasmtime::component::Component;

use super::Sandbox;
use crate::compile::CompileError;
use crate::component_store::Wit;
use crate::engine::EngineKind;
use crate::engines::GuestEngine;
use crate::files;
use crate::granted::{Granted, GrantedTo};
use crate::inspect::{self, Inspection};
use crate::journal;
use crate::link;
use crate::load::{self, Linked, Listed, LoadError, LoadedPlugin, Wrong};
use crate::plugin::CallCount;
use crate::plugin_source::{PluginSource, Source, UnknownTools};
use crate::published::Published;
use crate::read::{self, ComponentBytes};
use crate::typed;
use crate::wasi_needs::WasiVersion;
use bulkhead_calls::Durability;
use bulkhead_calls::policy::{Bound, GrantSides};
use bulkhead_domain::hex;
use bulkhead_domain::task::PluginVersion;

impl Sandbox {
    /// Checks a plugin and makes it ready; nobody can call it before it is [published](Self::publish). What passes is
    /// kept in the data directory.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, at once.
    pub async fn load(self: &Arc<Self>, source: PluginSource) -> Result<LoadedPlugin, LoadError> {
        self.load_as(source, UnknownTools::Refuse, None).await
    }

    async fn load_as(
        self: &Arc<Self>,
        source: PluginSource,
        unknown_tools: UnknownTools,
        kept: Option<[u8; 32]>,
    ) -> Result<LoadedPlugin, LoadError> {
        let _under_way = self.loads.begin();
        let fallback = label(&source);
        let (listed, bytes) = self.prepare(source, kept).await.map_err(|wrong| wrong.of(fallback))?;
        let version = listed.linked.version.clone();
        let refuse = |problems| LoadError::refused(&version.name, problems);
        let mut loaded = load::finish(listed, unknown_tools, &self.host_context.metrics).map_err(refuse)?;
        if kept.is_some() {
            return Ok(loaded);
        }
        let wit = match &loaded.source.component {
            Source::File(path) if loaded.is_typed() => typed::wit_file(&path.with_extension("wit")).ok(),
            _ => None,
        };
        let host = Arc::clone(self);
        let digest = version.digest;
        let kept = tokio::task::spawn_blocking(move || {
            // Before the component: what is there without it is nothing yet.
            host.kept.keep_wit(&digest, &Wit::Free(wit.flatten()))?;
            host.kept.keep(&digest, &bytes)
        });
        let kept = kept.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        kept.map_err(|error| {
            LoadError::passing(&version.name, format!("it cannot be kept in the data directory: {error}"))
        })?;
        // From here on its file, which costs no memory.
        loaded.source.component = Source::File(self.kept.path(&version.digest));
        Ok(loaded)
    }

    /// Reads a component, and says what it would be called and its SHA-256, without compiling it.
    ///
    /// # Errors
    ///
    /// It cannot be read, is no component, or has no usable name.
    pub async fn identify(&self, source: PluginSource) -> Result<PluginVersion, LoadError> {
        let fallback = label(&source);
        let identified = tokio::task::spawn_blocking(move || {
            let raw = read::read(&source.component)?;
            let name = read::name(&source, raw.manifest.as_ref()).map_err(|wrong| vec![wrong])?;
            Ok(PluginVersion { name, digest: raw.digest })
        });
        let identified =
            identified.await.unwrap_or_else(|_| Err(vec!["the host panicked while reading it".to_owned()]));
        identified.map_err(|problems| LoadError::refused(fallback, problems))
    }

    /// Everything up to the operator's terms. What is read must have the digest that is expected, if one is.
    async fn prepare(
        self: &Arc<Self>,
        source: PluginSource,
        expected: Option<[u8; 32]>,
    ) -> Result<(Listed, Arc<[u8]>), Wrong> {
        let host = Arc::clone(self);
        let name = label(&source);
        let read = tokio::task::spawn_blocking(move || {
            let raw = read::read(&source.component).map_err(|problems| match expected {
                Some(digest) => host.kept.verify(&digest).map_or_else(|changed| vec![changed], |_| problems),
                None => problems,
            })?;
            if expected.is_some_and(|expected| expected != raw.digest) {
                return Err(Wrong::from(vec![
                    "its kept component has been changed: `bulkhead plugin add` repairs it".to_owned(),
                ]));
            }
            let target = host.compile_target(&raw, raw.needs.version(source.wasi)?.into())?;
            let ready = host.cache.load(&target.engine.engine, &raw.digest, target.engine.hash);
            Ok((source, raw, target, ready))
        });
        let panicked = || vec!["the host panicked while reading it".to_owned()];
        let (source, raw, mut target, ready) = read.await.unwrap_or_else(|_| Err(Wrong::from(panicked())))?;
        if let Some(counted) = &self.code_metrics {
            counted.looked_up(ready.is_some());
        }
        let component = match ready {
            Some(component) => Ok(component),
            None => self.compile(&mut target, &raw, name).await,
        };
        let engine = target.engine;
        let host = Arc::clone(self);
        let linked = tokio::task::spawn_blocking(move || {
            let mut problems = Vec::new();
            let name = read::name(&source, raw.manifest.as_ref()).map_err(|wrong| problems.push(wrong));
            let granted = host.grant(&source, &raw).map_err(|wrong| problems.extend(wrong));
            // What is wrong with the component itself stays wrong, whatever else has failed.
            let passing = problems.is_empty() && matches!(component, Err(CompileError::Passing(_)));
            let component = component.map_err(|wrong| problems.push(wrong.to_string()));
            let linked = component.and_then(|component| {
                link::link(&engine.linker, &component, &raw).map_err(|wrong| problems.extend(wrong))
            });
            let (Ok(name), Ok(granted), Ok((instance, exports))) = (name, granted, linked) else {
                return Err(Wrong { problems, passing });
            };
            let version = PluginVersion { name, digest: raw.digest };
            let wanted = raw.manifest.map(|manifest| manifest.requested).unwrap_or_default();
            let linked = Linked {
                source,
                version,
                granted: Arc::new(granted),
                wanted: Arc::new(wanted),
                skills: Arc::new(raw.skills),
                engine,
                instance,
                exports: Arc::new(exports),
                call_count: CallCount::default(),
            };
            Ok((linked, raw.bytes))
        });
        let (linked, bytes) = linked.await.unwrap_or_else(|_| Err(Wrong::from(panicked())))?;
        Ok((self.list(linked).await?, bytes))
    }

    /// Lists its tools, resources and prompts, on the guests' threads.
    async fn list(&self, linked: Linked) -> Result<Listed, Wrong> {
        let host_context = Arc::clone(&self.host_context);
        let listing = self.guests.run(&self.own_share, async move { load::list(&host_context, linked).await });
        listing.await.unwrap_or_else(|_| Err(vec!["the host panicked while listing its tools".to_owned()].into()))
    }

    /// Lists a version again, with every check of a load. What comes back can be published in the place of the version
    /// as it was; calls of both are calls of one version.
    ///
    /// # Errors
    ///
    /// All problems of its present lists.
    pub async fn relist(&self, loaded: &LoadedPlugin) -> Result<LoadedPlugin, LoadError> {
        self.list_again(loaded, loaded.source.clone(), Arc::clone(&loaded.plugin.granted)).await
    }

    /// The same version on other terms: other grants, limits and names. What comes back can be published as after
    /// [`relist`](Self::relist); calls that have begun keep the terms that they began with.
    ///
    /// # Errors
    ///
    /// A grant of the terms is impossible, or its lists are wrong under them.
    pub async fn under(&self, loaded: &LoadedPlugin, terms: &PluginSource) -> Result<LoadedPlugin, LoadError> {
        let source = PluginSource {
            component: loaded.source.component.clone(),
            name: Some(loaded.version.name.clone()),
            ..terms.clone()
        };
        let refuse = |problems| LoadError::refused(loaded.version.name.clone(), problems);
        let component = source.component.clone();
        // What it wants stands in the component.
        let raw = tokio::task::spawn_blocking(move || read::read(&component)).await;
        let raw = raw.unwrap_or_else(|_| Err(vec!["the host panicked while reading it".to_owned()])).map_err(refuse)?;
        if raw.digest != loaded.version.digest {
            return Err(refuse(vec![
                "its kept component has been changed: `bulkhead plugin add` repairs it".to_owned(),
            ]));
        }
        raw.needs.version(source.wasi).map_err(refuse)?;
        let granted = self.grant(&source, &raw).map_err(refuse)?;
        self.list_again(loaded, source, Arc::new(granted)).await
    }

    async fn list_again(
        &self,
        loaded: &LoadedPlugin,
        source: PluginSource,
        granted: Arc<GrantedTo>,
    ) -> Result<LoadedPlugin, LoadError> {
        let plugin = &loaded.plugin;
        let linked = Linked {
            source,
            version: loaded.version.clone(),
            granted,
            wanted: Arc::clone(&plugin.wanted),
            skills: Arc::clone(&plugin.skills),
            engine: Arc::clone(&plugin.engine),
            instance: plugin.instance.clone(),
            exports: Arc::clone(&plugin.exports),
            call_count: plugin.call_count.clone(),
        };
        // A policy may be about a tool that is not there at the moment.
        let finished = self
            .list(linked)
            .await
            .and_then(|listed| Ok(load::finish(listed, UnknownTools::Ignore, &self.host_context.metrics)?));
        finished.map_err(|wrong| wrong.of(loaded.version.name.clone()))
    }

    /// Every version that a call could begin with at once.
    pub fn ready_versions(&self) -> Vec<LoadedPlugin> {
        self.published.load().versions.values().cloned().collect()
    }

    /// Puts versions in the place of the same ones as they were; those that are not ready any more are not made so. No
    /// call begins with one of the `lost` as it was.
    pub fn replace_ready(&self, versions: Vec<LoadedPlugin>, lost: &[PluginVersion]) {
        self.published.rcu(|published| {
            let still = versions.iter().filter(|loaded| published.versions.contains_key(&loaded.version));
            still.fold(published.without(lost), |next, loaded| next.with(loaded))
        });
    }

    /// Where a component runs.
    fn compile_target(&self, raw: &ComponentBytes, kind: EngineKind) -> Result<CompileTarget, Wrong> {
        let engines = &self.host_context.engines;
        if let Some(imaged) = engines.imaged(kind, &raw.bytes) {
            match engines.with_image(&imaged) {
                Ok(engine) => return Ok(CompileTarget { engine, code: imaged.code, is_imaged: true }),
                Err(error) => tracing::warn!(component = hex(&raw.digest), %error, "its memory stays in the pool"),
            }
        }
        let engine = engines.of(kind).map_err(|failure| Wrong::passing(failure.to_string()))?;
        Ok(CompileTarget { engine, code: Arc::clone(&raw.bytes), is_imaged: false })
    }

    /// Compiles what is not in the cache, and keeps it there.
    async fn compile(
        self: &Arc<Self>,
        target: &mut CompileTarget,
        raw: &ComponentBytes,
        name: String,
    ) -> Result<Component, CompileError> {
        let compiled = self.compile_for(&target.engine, &target.code, raw.digest, name.clone()).await;
        if !target.is_imaged || !matches!(compiled, Err(CompileError::Refused(_))) {
            return compiled;
        }
        // What is wrong is said of the component as its author knows it.
        let kind = target.engine.kind;
        let engine =
            self.host_context.engines.of(kind).map_err(|failure| CompileError::Passing(failure.to_string()))?;
        *target = CompileTarget { engine, code: Arc::clone(&raw.bytes), is_imaged: false };
        self.compile_for(&target.engine, &target.code, raw.digest, name).await
    }

    /// Compiles `code`, which is a component or what stands for it.
    async fn compile_for(
        self: &Arc<Self>,
        engine: &Arc<GuestEngine>,
        code: &Arc<[u8]>,
        digest: [u8; 32],
        name: String,
    ) -> Result<Component, CompileError> {
        let panicked = || CompileError::Refused("the host panicked while taking over its code".to_owned());
        let _turn = self.compiler.turn().await;
        let host = Arc::clone(self);
        let own = Arc::clone(engine);
        // Somebody else may have compiled the same meanwhile.
        let ready = move || host.cache.load(&own.engine, &digest, own.hash);
        if let Some(ready) = tokio::task::spawn_blocking(ready).await.map_err(|_| panicked())? {
            return Ok(ready);
        }
        let _under_way = self.loads.compile(name);
        let begin = Instant::now();
        let bytes = code.len();
        let code = self.compiler.compile(&engine.engine, engine.kind, code).await?;
        let took_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(component = hex(&digest), bytes, took_ms, "a component was compiled");
        if let Some(counted) = &self.code_metrics {
            counted.compiled(begin.elapsed());
        }
        let host = Arc::clone(self);
        let own = Arc::clone(engine);
        let take = move || host.cache.accept(&own.engine, &code, &digest, own.hash);
        let taken = tokio::task::spawn_blocking(take).await.map_err(|_| panicked())?;
        taken.map_err(CompileError::Refused)
    }

    /// What its calls may reach: the grants that its manifest requests, within the bounds of each tenant.
    fn grant(&self, source: &PluginSource, raw: &ComponentBytes) -> Result<GrantedTo, Vec<String>> {
        let manifest = raw.manifest.as_ref();
        let mut problems = Vec::new();
        if source.manifest_required && manifest.is_none() {
            problems.push("it carries no manifest, and the configuration requires one".to_owned());
        }
        let directories = &source.grants.directories;
        for (at, directory) in directories.iter().enumerate() {
            problems.extend(files::problem(directory));
            if directories.iter().take(at).any(|other| other.guest == directory.guest) {
                problems.push(format!("two granted directories are {:?} for the guest", directory.guest));
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let wanted = manifest.map(|manifest| manifest.requested.grants.clone()).unwrap_or_default();
        let unwanted = source.grants.unwanted(&wanted);
        if !unwanted.is_empty() {
            tracing::warn!(
                plugin.name = label(source),
                ?unwanted,
                "granted, but the plugin's manifest does not ask for it"
            );
        }
        let effective = source.grants.within(&wanted);
        let ready = |tenant: &Bound| {
            let grants = effective.within(tenant);
            let missing_directories = grants.missing_directories(&wanted);
            let missing_variables = grants.missing_variables(&wanted);
            let read = |key: &String| (self.environment)(key).map(|value| (key.clone(), value));
            let environment = grants.env.iter().filter_map(read).collect();
            let settings = source.config.clone();
            Arc::new(Granted {
                directories: grants.directories,
                http: grants.http,
                environment,
                settings,
                keyvalue: grants.keyvalue,
                missing_directories,
                missing_variables,
                sides: Arc::new(GrantSides {
                    manifest: wanted.clone(),
                    operator: source.grants.clone(),
                    tenant: tenant.clone(),
                }),
                usable: raw.usable_grants.clone(),
            })
        };
        let tenants = source.tenants.iter().map(|(id, bound)| (*id, ready(bound))).collect();
        let granted = GrantedTo { others: ready(&Bound::default()), tenants };
        if source.durable == Durability::Required {
            let is_concurrent = raw.needs.version(source.wasi)? == WasiVersion::V0_3;
            if let Some(why) = journal::hindrance(is_concurrent, &granted.others) {
                return Err(vec![format!("the configuration requires that it is durable, and {why}")]);
            }
        }
        Ok(granted)
    }

    /// Makes a kept version ready, under these terms if it is not ready yet. No compiler runs when its code is cached.
    ///
    /// # Errors
    ///
    /// As [`Self::load`], or its component is not there or was changed.
    pub async fn load_kept(
        self: &Arc<Self>,
        version: &PluginVersion,
        policy: &PluginSource,
    ) -> Result<LoadedPlugin, LoadError> {
        if let Some(ready) = self.published.load().versions.get(version) {
            return Ok(ready.clone());
        }
        let component = Source::File(self.kept.path(&version.digest));
        let source = PluginSource { component, name: Some(version.name.clone()), ..policy.clone() };
        self.load_as(source, UnknownTools::Ignore, Some(version.digest)).await
    }

    /// Makes an older version of a plugin ready again, under the plugin's present grants and limits.
    pub(super) async fn revive(self: &Arc<Self>, version: &PluginVersion) -> Result<LoadedPlugin, LoadError> {
        let unconfigured = || LoadError::refused(&version.name, vec!["it is not configured any more".to_owned()]);
        let _one_at_a_time = self.loading.lock().await;
        loop {
            let policy = self.published.load().sources.get(&version.name).cloned().ok_or_else(unconfigured)?;
            let loaded = self.load_kept(version, &policy).await?;
            // The terms may have changed meanwhile: then it is made ready on the new ones.
            let holds = |published: &Published| {
                published.sources.get(&version.name).is_some_and(|policy| loaded.is_under(policy))
                    && !published.versions.contains_key(version)
            };
            let before = self.published.rcu(|published| match holds(published) {
                true => Arc::new(published.with(&loaded)),
                false => Arc::clone(published),
            });
            if let Some(ready) = before.versions.get(version) {
                return Ok(ready.clone());
            }
            if holds(&before) {
                return Ok(loaded);
            }
        }
    }

    /// Looks into a component without granting it anything.
    ///
    /// # Errors
    ///
    /// As [`Self::load`].
    pub async fn inspect(self: &Arc<Self>, source: PluginSource) -> Result<Inspection, LoadError> {
        let loaded = self.load(source).await?;
        let component = loaded.plugin.instance.component();
        let (imports, exports) = inspect::functions(component.engine(), component);
        let raw = read::read(&loaded.source.component)
            .map_err(|problems| LoadError::refused(&loaded.version.name, problems))?;
        let wasi = raw.needs.version(loaded.source.wasi);
        let wasi = wasi.map_err(|problems| LoadError::refused(&loaded.version.name, problems))?;
        Ok(Inspection {
            is_concurrent: wasi == WasiVersion::V0_3,
            name: loaded.version.name.clone(),
            digest: hex(&loaded.version.digest),
            size: raw.bytes.len() as u64,
            usable_grants: raw.usable_grants,
            manifest: raw.manifest,
            imports,
            exports,
            typed: loaded.is_typed(),
            mcp: loaded.mcp_server().cloned(),
            left_out: loaded.plugin.exports.left_out().to_vec(),
            tools: loaded.tools.iter().map(|entry| entry.tool.clone()).collect(),
            own_names: loaded.tools.iter().map(|entry| entry.plugin_tool.to_string()).collect(),
            prompts: loaded.offers.prompts.iter().map(|entry| entry.prompt.clone()).collect(),
            templates: loaded.offers.templates.iter().map(|entry| entry.template.clone()).collect(),
            views: loaded.views().clone(),
            skills: loaded.skills().clone(),
            resources: loaded.offers.resources,
        })
    }
}

/// Where a component runs.
struct CompileTarget {
    engine: Arc<GuestEngine>,
    /// What is compiled for that: the component, or what stands for it beside its image.
    code: Arc<[u8]>,
    is_imaged: bool,
}

/// What a plugin is called before its name is known.
fn label(source: &PluginSource) -> String {
    match (&source.name, &source.component) {
        (Some(name), _) => name.clone(),
        (None, Source::File(path)) => path.display().to_string(),
        (None, Source::Bytes(_)) => "(unnamed)".to_owned(),
    }
}
