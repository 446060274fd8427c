//! `[[toolset]]`: which tools some requestors are shown, of those that they may call.

use super::reader::{Item, Section};
use super::report::{ConfigLocation, Report};
use bulkhead_domain::names::check_name;
use bulkhead_domain::toolset::{Hint, ToolFilter, Toolset};

/// Toolsets of a host: each request of a requestor asks all of them.
const TOOLSETS_MAX: usize = 256;
/// Names and patterns in one list of a toolset: each tool asks all of them.
const PATTERNS_MAX: usize = 1024;
/// Bytes of a name or a pattern.
const PATTERN_BYTES_MAX: usize = 512;

/// One toolset, and where it was written.
#[derive(Debug)]
pub(super) struct ToolsetEntry {
    set: Toolset,
    pub(super) location: ConfigLocation,
}

impl ToolsetEntry {
    pub(super) fn name(&self) -> &str {
        &self.set.name
    }

    /// The names and patterns of tools in it, each with the key that it is under.
    pub(super) fn tools(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let include = self.set.include.iter().flat_map(|filter| &filter.tools).map(|pattern| ("include", &**pattern));
        include.chain(self.set.exclude.tools.iter().map(|pattern| ("exclude", &**pattern)))
    }
}

/// Reads every `[[toolset]]`.
pub(super) fn read(item: &Item<'_>) -> Vec<ToolsetEntry> {
    let tables = item.tables("toolset");
    if tables.len() > TOOLSETS_MAX {
        item.refuse(format_args!("there are {} toolsets; {TOOLSETS_MAX} is the most", tables.len()));
    }
    tables.into_iter().filter_map(read_one).collect()
}

table!(TOOLSET, ToolsetKeys, "[[toolset]]",
    "Which tools some requestors are shown, of those that they may call. Of several for one requestor, a tool is shown if one includes it and none excludes it; without any, everything is.", {
    name: String = |item| item.parsed(named), "",
        "Its name";
    tenants: Vec<String> = |item| Some(item.texts(named)), "all",
        "Tenants for whose requestors it is";
    requestors: Vec<String> = |item| Some(item.texts(pattern)), "all",
        "Requestors for whom it is; with tenants, those of these tenants";
    include: ToolFilter = read_filter, "every tool",
        "Table with plugins, tools (`*` stands for any text) and annotations (read_only, destructive, idempotent, open_world); a tool that fits any of them is included";
    exclude: ToolFilter = read_filter, "no tool",
        "The same for tools that are not shown";
    tool_search: bool = Item::switch, "server.tool_search",
        "Whether its requestors search for tools; of several toolsets the first that says so decides";
});

fn read_one(mut item: Item<'_>) -> Option<ToolsetEntry> {
    let table = item.node.get_ref().as_table();
    let name = table.and_then(|table| table.get("name")?.get_ref().as_str()).unwrap_or("?");
    if table.is_some() {
        item.path = format!("toolset.{name}");
    }
    let location = item.location();
    let section = item.section(TOOLSET.names())?;
    let keys = ToolsetKeys::read(&section);
    if !section.has("name") {
        section.refuse("name", "missing; messages and you know the toolset by it");
    }
    let set = Toolset {
        name: keys.name.unwrap_or_default(),
        tenants: who(&section, "tenants", keys.tenants),
        requestors: who(&section, "requestors", keys.requestors),
        include: keys.include,
        exclude: keys.exclude.unwrap_or_default(),
        tool_search: keys.tool_search,
    };
    Some(ToolsetEntry { set, location })
}

fn named(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned()).map_err(|wrong| wrong.to_string())
}

/// A list of those for whom a toolset is. An empty one is refused: it would be for all, and reads like for none.
fn who(section: &Section<'_>, key: &str, texts: Option<Vec<String>>) -> Vec<String> {
    let item = section.get(key);
    if item.is_some_and(|item| item.node.get_ref().as_array().is_some_and(|list| list.iter().next().is_none())) {
        section.refuse(key, "is empty; leave it out for all");
    }
    bounded(section, key, texts)
}

fn read_filter(item: &Item<'_>) -> Option<ToolFilter> {
    let section = item.section(["plugins", "tools", "annotations"])?;
    let hints = section.get("annotations").map(read_hints).unwrap_or_default();
    let listed = |key| bounded(&section, key, section.get(key).map(|item| item.texts(pattern)));
    let filter = ToolFilter { plugins: listed("plugins"), tools: listed("tools"), hints };
    if filter.is_empty() && section.is_sound() {
        section.item.refuse("names nothing: name plugins, tools or annotations, or leave it out");
    }
    Some(filter)
}

fn read_hints(item: Item<'_>) -> Vec<(Hint, bool)> {
    let names = ["read_only", "destructive", "idempotent", "open_world"];
    let hints = [Hint::ReadOnly, Hint::Destructive, Hint::Idempotent, Hint::OpenWorld];
    let Some(section) = item.section_of("annotation", names) else {
        return Vec::new();
    };
    names.into_iter().zip(hints).filter_map(|(name, hint)| Some((hint, section.switch(name)?))).collect()
}

fn bounded(section: &Section<'_>, key: &str, texts: Option<Vec<String>>) -> Vec<String> {
    let texts = texts.unwrap_or_default();
    if texts.len() > PATTERNS_MAX {
        section.refuse(key, format_args!("has {} entries; {PATTERNS_MAX} is the most", texts.len()));
    }
    texts
}

fn pattern(text: &str) -> Result<String, String> {
    match text.len() {
        0 => Err("must not be empty".to_owned()),
        length if length > PATTERN_BYTES_MAX => Err(format!("has {length} bytes; {PATTERN_BYTES_MAX} is the most")),
        _ => Ok(text.to_owned()),
    }
}

/// A name stands for one toolset.
pub(super) fn distinct(entries: Vec<ToolsetEntry>, report: &Report) -> Vec<Toolset> {
    for (at, entry) in entries.iter().enumerate() {
        let name = &entry.set.name;
        if let Some(first) = entries.iter().take(at).find(|earlier| earlier.set.name == *name && !name.is_empty()) {
            report.add(&entry.location, format!("toolset.name: {name:?} is already the toolset at {}", first.location));
        }
    }
    entries.into_iter().map(|entry| entry.set).collect()
}
