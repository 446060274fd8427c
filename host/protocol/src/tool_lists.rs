//! Which tools each requestor is offered: the catalog without what no toolset of the requestor shows, and the index of
//! those that search.
//!
//! Owns the toolsets in force and what was made of them for a catalog. Must not widen: rights are asked for each tool
//! as well, later. Invariant: what a toolset hides is in no catalog that a request sees, so that it is absent to lists,
//! searches, calls and suggestions alike. A list that differs has another number, and an equal one the same, whenever
//! it was made.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

use super::tool_search::ToolIndex;
use bulkhead_calls::{Catalog, CatalogPlugin, ToolEntry};
use bulkhead_domain::rights::Rights;
use bulkhead_domain::toolset::{Selection, Toolsets};

/// Tools of a page unless the operator says otherwise. Many clients read the first page only.
pub const TOOLS_PER_PAGE: usize = 200;
/// Bytes of the texts and schemas on one page of tools; a tool that is larger has a page of its own.
pub(crate) const PAGE_BYTES_MAX: usize = 1 << 20;
/// Narrowed catalogs that are kept: one for each combination of toolsets and canaries that asked. More are made again
/// when they are asked for.
const VIEWS_MAX: usize = 256;

/// How tools are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolListing {
    pub toolsets: Toolsets,
    pub per_page: usize,
}

impl Default for ToolListing {
    fn default() -> Self {
        Self { toolsets: Toolsets::default(), per_page: TOOLS_PER_PAGE }
    }
}

/// What is offered to one requestor.
#[derive(Clone)]
pub(crate) struct Offered {
    pub(crate) catalog: Arc<Catalog>,
    /// Where the requestor finds tools, if it searches instead of reading a list.
    pub(crate) search: Option<Arc<ToolIndex>>,
    /// Tools of a page.
    pub(crate) page: usize,
}

/// See the module.
#[derive(Default)]
pub(crate) struct ToolLists(RwLock<Arc<InForce>>);

/// Toolsets with what was made of them.
#[derive(Default)]
struct InForce {
    listing: ToolListing,
    made: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    /// By the selection and the address of the catalog that was narrowed, which nothing else has while it is referred
    /// to.
    views: HashMap<(Selection, usize), (Weak<Catalog>, Arc<Catalog>)>,
    /// One of each catalog that is searched, whatever is shown of it.
    indexes: HashMap<usize, (Weak<Catalog>, Arc<ToolIndex>)>,
}

impl ToolLists {
    pub(crate) fn set(&self, listing: ToolListing) {
        *self.0.write() = Arc::new(InForce { listing, made: Mutex::default() });
    }

    /// What is left of a catalog to a requestor, by its names.
    pub(crate) fn narrowed(&self, rights: &Rights, catalog: Arc<Catalog>) -> Offered {
        let in_force = Arc::clone(&self.0.read());
        let ToolListing { toolsets, per_page } = &in_force.listing;
        let (tenant, requestor) = rights.names();
        let selection = toolsets.of(tenant, requestor);
        if selection.is_everything() {
            return Offered { catalog, search: None, page: *per_page };
        }
        let mut made = in_force.made.lock();
        let search = selection.tool_search.then(|| made.index(&catalog));
        let catalog = made.view(&catalog, selection, toolsets);
        Offered { catalog, search, page: *per_page }
    }

    /// Whether a tool would be left that is in no catalog any more.
    pub(crate) fn shows(&self, rights: &Rights, entry: &ToolEntry) -> bool {
        let in_force = Arc::clone(&self.0.read());
        let toolsets = &in_force.listing.toolsets;
        let (tenant, requestor) = rights.names();
        !entry.hidden && toolsets.shows(&toolsets.of(tenant, requestor), &entry.plugin.name, &entry.tool)
    }
}

impl Made {
    fn index(&mut self, catalog: &Arc<Catalog>) -> Arc<ToolIndex> {
        let key = Arc::as_ptr(catalog).addr();
        if let Some((_, index)) = self.indexes.get(&key) {
            return Arc::clone(index);
        }
        self.indexes.retain(|_, (base, _)| base.strong_count() > 0);
        let index = Arc::new(ToolIndex::new(catalog.tools()));
        self.indexes.insert(key, (Arc::downgrade(catalog), Arc::clone(&index)));
        index
    }

    fn view(&mut self, catalog: &Arc<Catalog>, selection: Selection, toolsets: &Toolsets) -> Arc<Catalog> {
        let key = (selection, Arc::as_ptr(catalog).addr());
        if let Some((_, view)) = self.views.get(&key) {
            return Arc::clone(view);
        }
        self.views.retain(|_, (base, _)| base.strong_count() > 0);
        if self.views.len() >= VIEWS_MAX {
            self.views.clear();
        }
        let shows = |entry: &ToolEntry| toolsets.shows(&key.0, &entry.plugin.name, &entry.tool);
        let shows_plugin = |library: &CatalogPlugin| toolsets.shows_plugin(&key.0, &library.plugin.name);
        let view = Arc::new(catalog.narrowed(shows, shows_plugin, key.0.tool_search));
        self.views.insert(key, (Arc::downgrade(catalog), Arc::clone(&view)));
        view
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_domain::limits::CallLimits;
    use bulkhead_domain::tool::Tool;
    use bulkhead_domain::toolset::{ToolFilter, Toolset};

    fn catalog(names: &[&str]) -> Arc<Catalog> {
        let entry = |name: &&str| Arc::new(ToolEntry::sample("p", Tool::sample(name), CallLimits::generous()));
        Arc::new(Catalog::new(names.iter().map(entry).collect()))
    }

    fn lists(include: &[&str], tool_search: bool) -> ToolLists {
        let include = include.iter().map(|name| (*name).to_owned()).collect();
        let include = Some(ToolFilter { tools: include, ..ToolFilter::default() });
        let set = Toolset { tenants: vec!["acme".to_owned()], include, ..Toolset::default() };
        let lists = ToolLists::default();
        lists.set(ToolListing { toolsets: Toolsets { sets: vec![set], tool_search }, ..ToolListing::default() });
        lists
    }

    fn acme() -> Rights {
        Rights::default().named("acme".to_owned(), "anna".to_owned())
    }

    #[test]
    fn catalog_is_narrowed_and_indexed_once() {
        let lists = lists(&["a"], true);
        let catalog = catalog(&["a", "b"]);
        let [first, second] = [(); 2].map(|()| lists.narrowed(&acme(), Arc::clone(&catalog)));
        assert!(Arc::ptr_eq(&first.catalog, &second.catalog));
        let other = lists.narrowed(&Rights::default(), catalog);
        let indexes = [first.search, second.search, other.search].map(Option::unwrap);
        assert!(Arc::ptr_eq(&indexes[0], &indexes[1]) && Arc::ptr_eq(&indexes[0], &indexes[2]));
        assert_eq!((first.catalog.tools().len(), other.catalog.tools().len()), (1, 2));
    }

    #[test]
    fn requestor_without_toolset_has_the_catalog_itself() {
        let lists = lists(&["a"], false);
        let catalog = catalog(&["a", "b"]);
        let offered = lists.narrowed(&Rights::default(), Arc::clone(&catalog));
        assert!(Arc::ptr_eq(&offered.catalog, &catalog) && offered.search.is_none());
    }

    #[test]
    fn narrowed_list_is_numbered_by_what_is_on_it() {
        let number = |lists: &ToolLists, names: &[&str]| lists.narrowed(&acme(), catalog(names)).catalog.lists().tools;
        let one = lists(&["a"], false);
        assert_eq!(number(&one, &["a", "b"]), number(&one, &["a", "c"]), "what is not on it is no difference");
        assert_eq!(number(&one, &["a", "b"]), number(&lists(&["a"], false), &["a", "b"]), "also after a reload");
        assert_ne!(number(&one, &["a", "b"]), number(&lists(&["a", "b"], false), &["a", "b"]));
        assert_ne!(number(&one, &["a"]), number(&lists(&["a"], true), &["a"]), "a search is another list");
    }

    #[test]
    fn kept_views_are_bounded() {
        let lists = lists(&["a"], true);
        let catalogs: Vec<_> = (0..VIEWS_MAX + 10).map(|_| catalog(&["a"])).collect();
        for catalog in &catalogs {
            lists.narrowed(&acme(), Arc::clone(catalog));
        }
        assert!(lists.0.read().made.lock().views.len() <= VIEWS_MAX);
        drop(catalogs);
        lists.narrowed(&acme(), catalog(&["a"]));
        let in_force = Arc::clone(&lists.0.read());
        let made = in_force.made.lock();
        assert_eq!((made.views.len(), made.indexes.len()), (1, 1), "of catalogs that are no more nothing is kept");
    }
}
