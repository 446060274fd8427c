//! What can be called right now: one immutable snapshot, exchanged as a whole. Where a version of a plugin is tried
//! with a part of the requestors there are several, and each requestor has one of them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use super::schema::Validator;
use super::{JournalPolicy, ListKind};
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::server_features::{Prompt, Resource, ResourceTemplate};
use bulkhead_domain::skills::Skill;
use bulkhead_domain::task::PluginVersion;
use bulkhead_domain::tool::Tool;
use bulkhead_domain::uri_template::UriTemplate;
use bulkhead_metrics::{ActivityCounts, Operation, ToolMetrics};

/// One tool with everything that a call of it needs.
#[derive(Debug)]
pub struct ToolEntry {
    /// As clients see it: under the operator's name, or with the prefix in front of its own, in the operator's words
    /// where there are any, task support after the operator's narrowing, schemas in the form that the most model
    /// interfaces take.
    pub tool: Tool,
    /// As the plugin declares it, where clients see something else.
    pub declared: Option<Box<Tool>>,
    /// Whether no client may see or call it.
    pub hidden: bool,
    pub plugin: PluginVersion,
    /// The name inside the plugin.
    pub plugin_tool: Arc<str>,
    /// The name that every client takes of that, without prefix: the configuration knows the tool by it.
    pub base_name: Arc<str>,
    pub limits: CallLimits,
    /// Whether an interrupted task may run again: the operator said so and the tool is idempotent.
    pub rerun_on_restart: bool,
    /// How its tasks keep journals; `None`: they keep none.
    pub journal: Option<JournalPolicy>,
    pub input: Validator,
    pub output: Option<Validator>,
    pub metrics: ToolMetrics,
    /// Of calls of it.
    pub activity: Arc<ActivityCounts>,
}

impl ToolEntry {
    /// The tool as its plugin declares it, whatever the operator says in its place.
    pub fn declared(&self) -> &Tool {
        self.declared.as_deref().unwrap_or(&self.tool)
    }

    /// Whether a name is the tool's without the operator's say: the one that every client takes, or that inside the
    /// plugin.
    pub fn is_own_name(&self, name: &str) -> bool {
        [&*self.base_name, &*self.plugin_tool].contains(&name)
    }
}

/// A plugin, for everything that is no call of a tool.
#[derive(Clone, Debug)]
pub struct CatalogPlugin {
    pub plugin: PluginVersion,
    pub limits: CallLimits,
    pub has_resources: bool,
    pub has_prompts: bool,
    pub has_completions: bool,
    /// Of what it is called for beside its tools.
    pub activity: Arc<ActivityCounts>,
}

impl CatalogPlugin {
    /// Whether there is anything beside tools.
    pub fn offers_anything(&self) -> bool {
        self.has_resources || self.has_prompts || self.has_completions
    }
}

/// One prompt.
#[derive(Debug)]
pub struct PromptEntry {
    /// As clients see it: prefix in front of the name.
    pub prompt: Prompt,
    /// The name inside the plugin.
    pub plugin_prompt: String,
    pub library: Arc<CatalogPlugin>,
    /// Of requests for it.
    pub metrics: Operation,
}

/// One family of resources.
#[derive(Debug)]
pub struct TemplateEntry {
    pub template: ResourceTemplate,
    pub parsed: UriTemplate,
    pub library: Arc<CatalogPlugin>,
}

/// One skill.
#[derive(Debug)]
pub struct SkillEntry {
    pub skill: Skill,
    pub library: Arc<CatalogPlugin>,
}

/// What one plugin offers beside its tools.
#[derive(Clone, Debug)]
pub struct PluginFeatures {
    pub library: Arc<CatalogPlugin>,
    pub prompts: Vec<Arc<PromptEntry>>,
    pub templates: Vec<Arc<TemplateEntry>>,
    /// The resources that it listed when it was loaded. It may list others later.
    pub resources: Vec<Resource>,
    /// Those that its component carries. Their files are resources of it.
    pub skills: Vec<Arc<SkillEntry>>,
}

/// The number of each list. Another number is another list, also in the catalog of another requestor; the same is the
/// same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListGenerations {
    pub tools: u64,
    pub resources: u64,
    pub prompts: u64,
}

impl ListGenerations {
    /// That of one list.
    pub fn of(&self, kind: ListKind) -> u64 {
        match kind {
            ListKind::Tools => self.tools,
            ListKind::Resources => self.resources,
            ListKind::Prompts => self.prompts,
        }
    }

    fn set(&mut self, kind: ListKind, generation: u64) {
        let list = match kind {
            ListKind::Tools => &mut self.tools,
            ListKind::Resources => &mut self.resources,
            ListKind::Prompts => &mut self.prompts,
        };
        *list = generation;
    }
}

/// Everything, tools and prompts in the order of their names.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    lists: ListGenerations,
    /// Others may have another one at the same time.
    for_some: bool,
    tools: Vec<Arc<ToolEntry>>,
    by_name: HashMap<String, usize>,
    /// In the order of the configuration.
    libraries: Vec<Arc<CatalogPlugin>>,
    prompts: Vec<Arc<PromptEntry>>,
    templates: Vec<Arc<TemplateEntry>>,
    skills: Vec<Arc<SkillEntry>>,
    owners: HashMap<String, Arc<CatalogPlugin>>,
}

impl Catalog {
    /// Tools alone. Sorts by name; names are unique by then.
    pub fn new(mut tools: Vec<Arc<ToolEntry>>) -> Self {
        tools.sort_by(|a, b| a.tool.name.cmp(&b.tool.name));
        let by_name = tools.iter().enumerate().map(|(at, entry)| (entry.tool.name.clone(), at)).collect();
        Self { tools, by_name, ..Self::default() }
    }

    /// Adds the resources and prompts of plugins; names and URIs are unique by then.
    #[must_use]
    pub fn with(mut self, offers: impl IntoIterator<Item = PluginFeatures>) -> Self {
        for plugin in offers {
            self.owners
                .extend(plugin.resources.into_iter().map(|resource| (resource.uri, Arc::clone(&plugin.library))));
            self.prompts.extend(plugin.prompts);
            self.templates.extend(plugin.templates);
            self.skills.extend(plugin.skills);
            self.libraries.push(plugin.library);
        }
        // Last of all: what a skill lists with a digest is read from its own plugin, whatever another one has listed.
        for entry in &self.skills {
            let files = entry.skill.files.iter().map(|file| (file.uri.clone(), Arc::clone(&entry.library)));
            self.owners.extend(files);
        }
        self.skills.sort_by(|a, b| a.skill.uri.cmp(&b.skill.uri));
        self.prompts.sort_by(|a, b| a.prompt.described.name.cmp(&b.prompt.described.name));
        self.templates.sort_by(|a, b| a.template.uri_template.cmp(&b.template.uri_template));
        self
    }

    /// Says that others may have another catalog at the same time.
    pub fn for_some(self) -> Self {
        Self { for_some: true, ..self }
    }

    /// The same without the resources and prompts of these plugins.
    #[must_use]
    pub fn without_offers(&self, plugins: &[&PluginVersion]) -> Self {
        let stays = |library: &CatalogPlugin| !plugins.contains(&&library.plugin);
        Self {
            lists: self.lists,
            for_some: true,
            tools: self.tools.clone(),
            by_name: self.by_name.clone(),
            libraries: self.libraries.iter().filter(|library| stays(library)).cloned().collect(),
            prompts: self.prompts.iter().filter(|entry| stays(&entry.library)).cloned().collect(),
            templates: self.templates.iter().filter(|entry| stays(&entry.library)).cloned().collect(),
            skills: self.skills.iter().filter(|entry| stays(&entry.library)).cloned().collect(),
            owners: self
                .owners
                .iter()
                .filter(|(_, owner)| stays(owner))
                .map(|(uri, owner)| (uri.clone(), Arc::clone(owner)))
                .collect(),
        }
    }

    /// The same without the tools that are not `shown`, and without what plugins offer beside tools that have none
    /// left; `plugin_shown` says so of those that never had any. A list that is left whole keeps its number; another
    /// one has a number of what is on it, so that nobody hears of changes of what is not shown. `searched`: its tools
    /// are not listed but searched for.
    #[must_use]
    pub fn narrowed(
        &self,
        shown: impl Fn(&ToolEntry) -> bool,
        plugin_shown: impl Fn(&CatalogPlugin) -> bool,
        searched: bool,
    ) -> Self {
        let tools: Vec<_> = self.tools.iter().filter(|entry| shown(entry)).cloned().collect();
        let has_tool =
            |tools: &[Arc<ToolEntry>], plugin: &PluginVersion| tools.iter().any(|entry| entry.plugin == *plugin);
        let is_hidden = |library: &&Arc<CatalogPlugin>| match has_tool(&self.tools, &library.plugin) {
            true => !has_tool(&tools, &library.plugin),
            false => !plugin_shown(library),
        };
        let hidden: Vec<_> = self.libraries.iter().filter(is_hidden).map(|library| &library.plugin).collect();
        let is_whole = tools.len() == self.tools.len() && !searched;
        let mut lists = self.lists;
        if !is_whole {
            let mut hasher = DefaultHasher::new();
            searched.hash(&mut hasher);
            tools.iter().for_each(|entry| entry.tool.hash(&mut hasher));
            lists.set(ListKind::Tools, hasher.finish());
        }
        if !hidden.is_empty() {
            for kind in [ListKind::Resources, ListKind::Prompts] {
                let mut hasher = DefaultHasher::new();
                (self.lists.of(kind), hidden.len()).hash(&mut hasher);
                hidden.iter().for_each(|plugin| plugin.name.hash(&mut hasher));
                lists.set(kind, hasher.finish());
            }
        }
        let narrowed = Self { lists, ..self.without_offers(&hidden) };
        let by_name = tools.iter().enumerate().map(|(at, entry)| (entry.tool.name.clone(), at)).collect();
        Self { tools, by_name, ..narrowed }
    }

    /// Whether all requestors have this catalog.
    pub fn is_for_everybody(&self) -> bool {
        !self.for_some
    }

    /// Which lists these are.
    pub fn lists(&self) -> ListGenerations {
        self.lists
    }

    /// Gives each list the number of an equal one, else the next number.
    pub fn number(&mut self, known: &[Arc<Self>], last: &mut u64) {
        for kind in ListKind::ALL {
            let equal = known.iter().find(|other| other.lists_like(self, kind)).map(|other| other.lists.of(kind));
            let generation = equal.unwrap_or_else(|| {
                *last += 1;
                *last
            });
            self.lists.set(kind, generation);
        }
    }

    /// The same with another number for one list.
    #[must_use]
    pub fn renewed(&self, kind: ListKind, generation: u64) -> Self {
        let mut renewed = self.clone();
        renewed.lists.set(kind, generation);
        renewed
    }

    /// Whether clients see the same list in both. What a plugin with resources lists is known only by asking it, so
    /// another version of it counts as another list.
    fn lists_like(&self, other: &Self, kind: ListKind) -> bool {
        match kind {
            ListKind::Tools => same(&self.tools, &other.tools, |entry| &entry.tool),
            ListKind::Prompts => same(&self.prompts, &other.prompts, |entry| &entry.prompt),
            ListKind::Resources => {
                let readers = |catalog: &Self| {
                    let libraries = catalog.libraries.iter().filter(|library| library.has_resources);
                    libraries.map(|library| library.plugin.clone()).collect::<Vec<_>>()
                };
                readers(self) == readers(other) && same(&self.templates, &other.templates, |entry| &entry.template)
            }
        }
    }

    /// The tool of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<ToolEntry>> {
        self.by_name.get(name).and_then(|at| self.tools.get(*at))
    }

    /// All tools, in order.
    pub fn tools(&self) -> &[Arc<ToolEntry>] {
        &self.tools
    }

    /// All plugins, in the order of the configuration.
    pub fn libraries(&self) -> &[Arc<CatalogPlugin>] {
        &self.libraries
    }

    /// All prompts, in order.
    pub fn prompts(&self) -> &[Arc<PromptEntry>] {
        &self.prompts
    }

    /// The prompt of this name.
    pub fn prompt(&self, name: &str) -> Option<&Arc<PromptEntry>> {
        let at = self.prompts.binary_search_by(|entry| entry.prompt.described.name.as_str().cmp(name)).ok()?;
        self.prompts.get(at)
    }

    /// All families of resources, in order.
    pub fn templates(&self) -> &[Arc<TemplateEntry>] {
        &self.templates
    }

    /// The family with this template.
    pub fn template(&self, uri_template: &str) -> Option<&Arc<TemplateEntry>> {
        self.templates.iter().find(|entry| entry.template.uri_template == uri_template)
    }

    /// All skills, in the order of their URIs.
    pub fn skills(&self) -> &[Arc<SkillEntry>] {
        &self.skills
    }

    /// The skill whose instructions have this URI.
    pub fn skill(&self, uri: &str) -> Option<&Arc<SkillEntry>> {
        let at = self.skills.binary_search_by(|entry| entry.skill.uri.as_str().cmp(uri)).ok()?;
        self.skills.get(at)
    }

    /// Whether any plugin offers resources.
    pub fn has_resources(&self) -> bool {
        self.libraries.iter().any(|library| library.has_resources)
    }

    /// Whether any plugin offers prompts.
    pub fn has_prompts(&self) -> bool {
        self.libraries.iter().any(|library| library.has_prompts)
    }

    /// Whether any plugin suggests values.
    pub fn has_completions(&self) -> bool {
        self.libraries.iter().any(|library| library.has_completions)
    }

    /// Whose resource this is, where it was listed when its plugin was loaded: by the host, for nobody in particular.
    pub fn owner(&self, uri: &str) -> Option<&Arc<CatalogPlugin>> {
        self.owners.get(uri)
    }

    /// Whether this plugin may list this URI: no other plugin listed it first.
    pub fn may_list(&self, library: &CatalogPlugin, uri: &str) -> bool {
        self.owners.get(uri).is_none_or(|owner| owner.plugin == library.plugin)
    }

    /// Who may have the resource with this URI, in the order in which to ask: its owner alone where there is one, else
    /// those with a family that it fits, then the others, for it may be one that is not listed.
    pub fn readers(&self, uri: &str) -> Vec<Arc<CatalogPlugin>> {
        if let Some(owner) = self.owners.get(uri) {
            return vec![Arc::clone(owner)];
        }
        let fits = |library: &CatalogPlugin| {
            self.templates.iter().any(|entry| entry.library.plugin == library.plugin && entry.parsed.fits(uri))
        };
        let readers = self.libraries.iter().filter(|library| library.has_resources);
        let (first, then): (Vec<_>, Vec<_>) = readers.cloned().partition(|library| fits(library));
        first.into_iter().chain(then).collect()
    }
}

fn same<E, T: PartialEq>(one: &[Arc<E>], other: &[Arc<E>], shown: impl Fn(&E) -> &T) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| Arc::ptr_eq(a, b) || shown(a) == shown(b))
}
