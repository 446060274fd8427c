//! Loops of files that import each other.
//!
//! Owns the graph of a crate's files: an import leads to the file that declares the name, whatever re-exports it on the
//! way. Must not count what passes a name on without using it. Invariant: in a loop no file can be read, tested or
//! moved without all the others, so none has more than [`FILES_MAX`] files.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;

use crate::Finding;
use crate::code::{Source, Token};
use crate::repository::Repository;

/// The largest loop of files.
const FILES_MAX: usize = 10;

pub(crate) fn check(repository: &Repository) -> anyhow::Result<Vec<Finding>> {
    let mut by_crate: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in repository.host() {
        by_crate.entry(source.name.split('/').next().unwrap_or_default()).or_default().push(source);
    }
    Ok(by_crate.values().flat_map(|sources| findings(sources)).collect())
}

fn findings(sources: &[&Source]) -> Vec<Finding> {
    let files = Crate::read(sources);
    let too_large = files.loops().into_iter().filter(|files| files.len() > FILES_MAX);
    too_large.map(|files| format!("{} files import each other: {}", files.len(), files.join(", "))).collect()
}

/// A module by the names on the way to it; the root of the crate has none.
type ModulePath = Vec<String>;

/// The modules that each leads to.
type Graph<'a> = BTreeMap<&'a ModulePath, BTreeSet<&'a ModulePath>>;

/// One name that a `use` brings in.
struct Import {
    path: Vec<String>,
    /// The name in this file; `*` for all of a module's.
    name: String,
    /// Whether others get the name here.
    is_public: bool,
}

/// What one file imports, declares and mentions.
struct Module {
    file: String,
    imports: Vec<Import>,
    /// The modules in files of their own that it declares.
    children: BTreeSet<String>,
    /// The paths of two and more parts in its code, and its single words.
    mentions: BTreeSet<Vec<String>>,
}

/// The files of a crate by module.
struct Crate(BTreeMap<ModulePath, Module>);

impl Crate {
    fn read(sources: &[&Source]) -> Self {
        Self(sources.iter().map(|source| (module_path(&source.name), Module::read(source))).collect())
    }

    /// The groups of files in which each imports every other, directly or through others.
    fn loops(&self) -> Vec<Vec<&str>> {
        let targets: Graph<'_> = self.0.keys().map(|module| (module, self.targets(module))).collect();
        let reached: Graph<'_> = self.0.keys().map(|module| (module, reached(&targets, module))).collect();
        let mut loops: Vec<Vec<&str>> = Vec::new();
        let mut seen = BTreeSet::new();
        for (module, targets) in &reached {
            let is_mutual = |other: &&&ModulePath| reached.get(**other).is_some_and(|back| back.contains(*module));
            let members: Vec<_> = targets.iter().filter(is_mutual).copied().collect();
            if members.len() > 1 && seen.insert(members.clone()) {
                loops.push(members.iter().filter_map(|member| Some(self.0.get(*member)?.file.as_str())).collect());
            }
        }
        loops
    }

    /// The modules whose names a module uses.
    fn targets(&self, path: &ModulePath) -> BTreeSet<&ModulePath> {
        let Some(module) = self.0.get(path) else { return BTreeSet::new() };
        let used = module.imports.iter().filter(|import| !import.is_public || module.uses(&import.name));
        let paths = used.map(|import| &import.path).chain(module.mentions.iter().filter(|mention| mention.len() > 1));
        paths.filter_map(|named| self.declaring(path, named, 0)).filter(|target| *target != path).collect()
    }

    /// The module that declares what a path names, seen from a module; none outside of the crate.
    fn declaring(&self, from: &ModulePath, path: &[String], depth: usize) -> Option<&ModulePath> {
        // Re-exports in a circle do not compile; this only guards against what is read wrongly.
        if depth > 8 {
            return None;
        }
        let (first, rest) = path.split_first()?;
        let module = self.0.get(from)?;
        let (mut current, mut rest) = match first.as_str() {
            "crate" => (ModulePath::new(), rest),
            "self" => (from.clone(), rest),
            "super" => {
                let above = path.iter().take_while(|part| *part == "super").count();
                (from.get(..from.len().saturating_sub(above))?.to_vec(), path.get(above..)?)
            }
            child if module.children.contains(child) => (from.clone(), path),
            name => {
                let import = module.imports.iter().find(|import| import.name == *name && import.path != path)?;
                let whole: Vec<_> = import.path.iter().chain(rest).cloned().collect();
                return self.declaring(from, &whole, depth + 1);
            }
        };
        while let Some((next, after)) = rest.split_first() {
            current.push(next.clone());
            if !self.0.contains_key(&current) {
                current.pop();
                break;
            }
            rest = after;
        }
        let (found, module) = self.0.get_key_value(&current)?;
        let passed_on = rest.first().and_then(|name| module.imports.iter().find(|import| import.name == *name));
        match passed_on {
            Some(import) => {
                let whole: Vec<_> = import.path.iter().chain(rest.get(1..)?).cloned().collect();
                self.declaring(&current, &whole, depth + 1)
            }
            None => Some(found),
        }
    }
}

/// Every module that one leads to, directly or through others.
fn reached<'a>(targets: &Graph<'a>, start: &'a ModulePath) -> BTreeSet<&'a ModulePath> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start];
    while let Some(module) = open.pop() {
        for target in targets.get(module).into_iter().flatten() {
            if reached.insert(*target) {
                open.push(target);
            }
        }
    }
    reached
}

impl Module {
    fn read(source: &Source) -> Self {
        let mut items = Items::default();
        items.visit_file(&source.file);
        Self {
            file: source.name.clone(),
            imports: items.imports,
            children: items.children,
            mentions: mentions(source.tokens()),
        }
    }

    fn uses(&self, name: &str) -> bool {
        self.mentions.iter().any(|mention| mention.first().is_some_and(|first| first == name))
    }
}

/// `store/sled/head.rs` is the module `sled::head`.
fn module_path(file: &str) -> ModulePath {
    let mut parts: ModulePath = file.trim_end_matches(".rs").split('/').skip(1).map(str::to_owned).collect();
    if parts.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

#[derive(Default)]
struct Items {
    imports: Vec<Import>,
    children: BTreeSet<String>,
}

impl<'a> Visit<'a> for Items {
    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        let is_public = !matches!(item.vis, syn::Visibility::Inherited);
        self.flatten(&item.tree, &[], is_public);
    }

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if item.content.is_none() {
            self.children.insert(item.ident.to_string());
        }
        syn::visit::visit_item_mod(self, item);
    }
}

impl Items {
    fn flatten(&mut self, tree: &syn::UseTree, above: &[String], is_public: bool) {
        let below = |part: &syn::Ident| above.iter().cloned().chain([part.to_string()]).collect::<Vec<_>>();
        let mut add = |mut path: Vec<String>, name: String| {
            let is_module = path.last().is_some_and(|last| last == "self");
            if is_module {
                path.pop();
            }
            let name = if name == "self" { path.last().cloned().unwrap_or_default() } else { name };
            self.imports.push(Import { path, name, is_public });
        };
        match tree {
            syn::UseTree::Path(path) => self.flatten(&path.tree, &below(&path.ident), is_public),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.flatten(tree, above, is_public)),
            syn::UseTree::Name(name) => add(below(&name.ident), name.ident.to_string()),
            syn::UseTree::Rename(name) => add(below(&name.ident), name.rename.to_string()),
            syn::UseTree::Glob(_) => add(above.to_vec(), "*".to_owned()),
        }
    }
}

/// The paths and words of a file's code, without its imports and the declarations of its modules.
fn mentions(tokens: &[Token]) -> BTreeSet<Vec<String>> {
    let text = |index: usize| tokens.get(index).map_or("", |token| token.text.as_str());
    let is_word = |word: &str| word.starts_with(|first: char| first.is_alphabetic() || first == '_');
    let mut found = BTreeSet::new();
    let mut index = 0;
    while index < tokens.len() {
        if text(index) == "use" || (text(index) == "mod" && text(index + 2) == ";") {
            while index < tokens.len() && text(index) != ";" {
                index += 1;
            }
        } else if is_word(text(index)) {
            let mut path = vec![text(index).to_owned()];
            while text(index + 1) == ":" && text(index + 2) == ":" && is_word(text(index + 3)) {
                path.push(text(index + 3).to_owned());
                index += 3;
            }
            found.insert(path);
        }
        index += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::source;

    fn loops(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let sources: Vec<_> = files.iter().map(|(name, text)| source(&format!("x/{name}"), text)).collect();
        let files = Crate::read(&sources.iter().collect::<Vec<_>>());
        files.loops().into_iter().map(|names| names.into_iter().map(str::to_owned).collect()).collect()
    }

    #[test]
    fn loop_is_found_through_re_exports_paths_and_parents() {
        let found = loops(&[
            ("lib.rs", "mod a; mod b; mod c; mod deep; pub use deep::Leaf;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "use super::Leaf; pub struct B;"),
            ("deep/mod.rs", "mod leaf; pub use leaf::Leaf;"),
            ("deep/leaf.rs", "pub struct Leaf; fn f() { crate::a::f() }"),
            ("c.rs", "use crate::{a, b::{self, B}};"),
        ]);
        assert_eq!(found, [["x/a.rs", "x/b.rs", "x/deep/leaf.rs"]]);
    }

    #[test]
    fn what_only_passes_names_on_is_in_no_loop() {
        let parent = "mod a; pub(crate) use a::A;";
        assert!(loops(&[("lib.rs", parent), ("a.rs", "pub struct A; use crate::A as Other;")]).is_empty());
        let user = "mod a; pub(crate) use a::A; const C: usize = 1; fn f(_: A) {}";
        assert_eq!(loops(&[("lib.rs", user), ("a.rs", "pub struct A; use super::C;")]).len(), 1);
    }

    #[test]
    fn loop_that_is_too_large_is_refused() {
        let text = |index: usize| format!("use crate::m{}::f as g; pub fn f() {{}}", (index + 1) % 11);
        let sources: Vec<_> = (0..11).map(|index| source(&format!("x/m{index}.rs"), &text(index))).collect();
        let modules: String = (0..11).map(|index| format!("mod m{index};")).collect();
        let root = source("x/lib.rs", &modules);
        let all: Vec<_> = sources.iter().chain([&root]).collect();
        assert_eq!(findings(&all).len(), 1);
        let opened: Vec<_> = all.iter().filter(|source| source.name != "x/m5.rs").copied().collect();
        assert!(findings(&opened).is_empty());
    }
}
