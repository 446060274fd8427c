//! Which tools a requestor is shown, of those that it may call.
//!
//! Owns how toolsets combine: of all toolsets that are for a requestor, a tool is shown if one includes it and none
//! excludes it. Invariant: a toolset only narrows; it gives no right, and a requestor that no toolset is for is shown
//! everything that it may call.

use super::rights::matches;
use super::tool::{Tool, ToolAnnotations};

/// The tools of the host itself, which it lists in the place of all others where clients search for tools.
pub const HOST_TOOLS: [&str; 2] = [SEARCH_TOOLS, CALL_TOOL];
/// Finds tools.
pub const SEARCH_TOOLS: &str = "search_tools";
/// Calls one by its name.
pub const CALL_TOOL: &str = "call_tool";

/// One `[[toolset]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toolset {
    pub name: String,
    /// By name, the only tenants that it is for; empty: all.
    pub tenants: Vec<String>,
    /// By name, the only requestors that it is for; empty: all.
    pub requestors: Vec<String>,
    /// `None`: every tool.
    pub include: Option<ToolFilter>,
    pub exclude: ToolFilter,
    /// Whether its requestors search for tools; `None`: it does not say.
    pub tool_search: Option<bool>,
}

impl Toolset {
    fn is_for(&self, tenant: &str, requestor: &str) -> bool {
        let named = |list: &[String], name: &str| list.is_empty() || list.iter().any(|known| known == name);
        named(&self.tenants, tenant) && named(&self.requestors, requestor)
    }

    fn includes(&self, fits: impl Fn(&ToolFilter) -> bool) -> bool {
        self.include.as_ref().is_none_or(fits)
    }
}

/// Some tools: those that fit any of its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolFilter {
    /// Names of plugins; `*` stands for any text, here and below.
    pub plugins: Vec<String>,
    /// Names of tools, as clients see them.
    pub tools: Vec<String>,
    pub hints: Vec<(Hint, bool)>,
}

impl ToolFilter {
    /// Whether it names nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn fits(&self, plugin: &str, tool: &Tool) -> bool {
        self.fits_plugin(plugin)
            || self.tools.iter().any(|pattern| matches(pattern, &tool.name))
            || self.hints.iter().any(|(hint, value)| hint.of(tool.annotations.as_ref()) == *value)
    }

    fn fits_plugin(&self, plugin: &str) -> bool {
        self.plugins.iter().any(|pattern| matches(pattern, plugin))
    }
}

/// An annotation of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    ReadOnly,
    Destructive,
    Idempotent,
    OpenWorld,
}

impl Hint {
    /// What a tool says. One that says nothing is what the protocol assumes of it, which is the worst.
    fn of(self, hints: Option<&ToolAnnotations>) -> bool {
        let hinted = |hint: fn(&ToolAnnotations) -> Option<bool>| hints.and_then(hint);
        let read_only = hinted(|hints| hints.read_only).unwrap_or(false);
        match self {
            Self::ReadOnly => read_only,
            Self::Destructive => !read_only && hinted(|hints| hints.destructive).unwrap_or(true),
            Self::Idempotent => read_only || hinted(|hints| hints.idempotent).unwrap_or(false),
            Self::OpenWorld => hinted(|hints| hints.open_world).unwrap_or(true),
        }
    }
}

/// All toolsets of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toolsets {
    /// In the order of the configuration.
    pub sets: Vec<Toolset>,
    /// Whether requestors search for tools of which no toolset says so.
    pub tool_search: bool,
}

impl Toolsets {
    /// What holds for a requestor, by its names.
    pub fn of(&self, tenant: &str, requestor: &str) -> Selection {
        let sets = self.sets.iter().enumerate().filter(|(_, set)| set.is_for(tenant, requestor));
        let tool_search = sets.clone().find_map(|(_, set)| set.tool_search).unwrap_or(self.tool_search);
        Selection { sets: sets.map(|(at, _)| at).collect(), tool_search }
    }

    /// Whether a requestor with this selection is shown a tool.
    pub fn shows(&self, selection: &Selection, plugin: &str, tool: &Tool) -> bool {
        self.admits(selection, |filter| filter.fits(plugin, tool))
    }

    /// Whether it is shown what a plugin without any tool offers beside tools.
    pub fn shows_plugin(&self, selection: &Selection, plugin: &str) -> bool {
        self.admits(selection, |filter| filter.fits_plugin(plugin))
    }

    /// What names a plugin that none of these is, with the toolset that names it: mostly a slip of the pen.
    pub fn patterns_of_no_plugin<'a>(&'a self, plugins: &[&str]) -> Vec<(&'a str, &'a str)> {
        let fits_none = |pattern: &&str| !plugins.iter().any(|plugin| matches(pattern, plugin));
        let of_set = |set: &'a Toolset| {
            let filters = set.include.iter().chain([&set.exclude]);
            let patterns = filters.flat_map(|filter| &filter.plugins).map(String::as_str);
            patterns.filter(fits_none).map(|pattern| (set.name.as_str(), pattern))
        };
        self.sets.iter().flat_map(of_set).collect()
    }

    fn admits(&self, selection: &Selection, fits: impl Fn(&ToolFilter) -> bool) -> bool {
        let sets = || selection.sets.iter().filter_map(|at| self.sets.get(*at));
        selection.sets.is_empty() || sets().any(|set| set.includes(&fits)) && !sets().any(|set| fits(&set.exclude))
    }
}

/// The toolsets that are for one requestor. Equal ones show the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selection {
    /// Their places.
    sets: Vec<usize>,
    /// Whether it searches for tools instead of reading a list of them.
    pub tool_search: bool,
}

impl Selection {
    /// Whether it shows everything, as a list.
    pub fn is_everything(&self) -> bool {
        self.sets.is_empty() && !self.tool_search
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    fn tools(patterns: &[&str]) -> ToolFilter {
        ToolFilter { tools: names(patterns), ..ToolFilter::default() }
    }

    fn set(include: Option<ToolFilter>, exclude: ToolFilter) -> Toolset {
        Toolset { include, exclude, ..Toolset::default() }
    }

    fn shown(sets: Vec<Toolset>, tenant: &str, requestor: &str) -> Vec<&'static str> {
        let toolsets = Toolsets { sets, tool_search: false };
        let selection = toolsets.of(tenant, requestor);
        let all = [("csv", "csv_profile"), ("csv", "csv_delete"), ("text", "echo"), ("text", "diff")];
        let shown = all.into_iter().filter(|(plugin, name)| toolsets.shows(&selection, plugin, &Tool::sample(name)));
        shown.map(|(_, name)| name).collect()
    }

    #[test]
    fn requestor_without_toolset_is_shown_everything() {
        let other = Toolset { tenants: names(&["acme"]), ..set(Some(tools(&["echo"])), ToolFilter::default()) };
        assert_eq!(shown(vec![other.clone()], "other", "anna").len(), 4);
        assert_eq!(shown(vec![other], "acme", "anna"), ["echo"]);
        assert_eq!(shown(Vec::new(), "acme", "anna").len(), 4);
    }

    #[test]
    fn matching_toolsets_show_union_of_includes_minus_excludes() {
        let read = set(Some(tools(&["echo", "csv_*"])), ToolFilter::default());
        let more = set(Some(tools(&["diff"])), tools(&["*_delete"]));
        assert_eq!(shown(vec![read.clone()], "t", "r"), ["csv_profile", "csv_delete", "echo"]);
        for sets in [vec![read.clone(), more.clone()], vec![more.clone(), read]] {
            assert_eq!(shown(sets, "t", "r"), ["csv_profile", "echo", "diff"], "whatever their order");
        }
        assert_eq!(shown(vec![more, set(None, ToolFilter::default())], "t", "r"), ["csv_profile", "echo", "diff"]);
    }

    #[test]
    fn toolset_is_for_named_requestors_of_named_tenants() {
        let both = Toolset {
            tenants: names(&["acme"]),
            requestors: names(&["anna"]),
            ..set(Some(tools(&["echo"])), ToolFilter::default())
        };
        for (tenant, requestor, count) in [("acme", "anna", 1), ("acme", "ben", 4), ("other", "anna", 4)] {
            assert_eq!(shown(vec![both.clone()], tenant, requestor).len(), count, "{tenant}/{requestor}");
        }
    }

    #[test]
    fn tools_are_selected_by_plugin_and_by_any_part_of_a_filter() {
        let csv = ToolFilter { plugins: names(&["cs*"]), ..tools(&["echo"]) };
        assert_eq!(shown(vec![set(Some(csv.clone()), ToolFilter::default())], "t", "r").len(), 3);
        assert_eq!(shown(vec![set(None, csv)], "t", "r"), ["diff"]);
    }

    #[test]
    fn pattern_that_fits_no_plugin_is_told_with_its_toolset() {
        let plugins = |patterns: &[&str]| ToolFilter { plugins: names(patterns), ..ToolFilter::default() };
        let set = Toolset { name: "few".to_owned(), ..set(Some(plugins(&["cvs", "c*"])), plugins(&["text", "git"])) };
        let toolsets = Toolsets { sets: vec![set], tool_search: false };
        assert_eq!(toolsets.patterns_of_no_plugin(&["csv", "text"]), [("few", "cvs"), ("few", "git")]);
    }

    #[test]
    fn tool_without_annotations_is_what_the_protocol_assumes() {
        let hints = |hints: ToolAnnotations| {
            let values = [Hint::ReadOnly, Hint::Destructive, Hint::Idempotent, Hint::OpenWorld];
            values.map(|hint| hint.of(Some(&hints)))
        };
        assert_eq!(hints(ToolAnnotations::default()), [false, true, false, true]);
        assert!(Hint::Destructive.of(None) && !Hint::ReadOnly.of(None));
        let reads = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
        assert_eq!(hints(reads), [true, false, true, true], "a tool that only reads destroys nothing");
        let gentle =
            ToolAnnotations { destructive: Some(false), open_world: Some(false), ..ToolAnnotations::default() };
        assert_eq!(hints(gentle), [false, false, false, false]);
    }

    #[test]
    fn first_toolset_that_says_so_decides_about_tool_search() {
        let says = |tool_search| Toolset { tool_search, ..Toolset::default() };
        for (host, sets, searches) in [
            (true, vec![], true),
            (true, vec![says(None), says(Some(false)), says(Some(true))], false),
            (false, vec![says(None)], false),
            (false, vec![says(None), says(Some(true))], true),
        ] {
            assert_eq!(Toolsets { sets, tool_search: host }.of("t", "r").tool_search, searches);
        }
    }

    #[test]
    fn plugin_without_tools_is_shown_where_its_name_is() {
        let by_tool = set(Some(tools(&["*"])), ToolFilter::default());
        let by_plugin = set(Some(ToolFilter { plugins: names(&["docs"]), ..ToolFilter::default() }), tools(&["*"]));
        let excluded = set(None, ToolFilter { plugins: names(&["docs"]), ..ToolFilter::default() });
        for (set, shows) in [(by_tool, false), (by_plugin, true), (excluded, false)] {
            let toolsets = Toolsets { sets: vec![set], tool_search: false };
            assert_eq!(toolsets.shows_plugin(&toolsets.of("t", "r"), "docs"), shows);
        }
    }
}
