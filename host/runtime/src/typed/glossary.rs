//! What authors wrote about their types, under the types themselves: a function's type names the types that it is made
//! of, but not what they are called.
//!
//! Owns how a description is found for a type. Invariant: where two types that look the same are described differently,
//! neither description is used.

use std::collections::{BTreeMap, HashMap};

use wasmtime::component::types::{ComponentItem, Type};
use wasmtime::component::{Component, types};

use super::docs::Docs;
use super::names;
use super::shape::{Reader, Shape};

/// Described types of one component; more are left out.
const TYPES_MAX: usize = 1024;

/// Interfaces of this namespace belong to the platform, and nothing that the author wrote is about them.
const PLATFORM: &str = "wasi:";

/// What was written about one type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TypeDocs {
    /// About the type; empty where nothing was.
    pub(super) text: String,
    /// About its fields, cases, flags or alternatives.
    pub(super) parts: BTreeMap<String, String>,
}

impl TypeDocs {
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.parts.is_empty()
    }

    /// About a part.
    pub(super) fn part(&self, name: &str) -> Option<&str> {
        self.parts.get(name).map(String::as_str)
    }
}

/// Described types.
#[derive(Debug, Default)]
pub(super) struct Glossary {
    /// None where descriptions contradict each other.
    by_shape: HashMap<Shape, Option<TypeDocs>>,
}

impl Glossary {
    /// Brings together what a component calls its types and what was written under those names.
    pub(super) fn of(component: &Component, docs: &Docs) -> Self {
        let mut glossary = Self::default();
        if !docs.has_types() {
            return glossary;
        }
        let engine = component.engine();
        let ty = component.component_type();
        let imports = ty.imports(engine).filter(|(name, _)| !name.starts_with(PLATFORM));
        for (name, item) in imports.chain(ty.exports(engine)) {
            match item.ty {
                ComponentItem::Type(ty) => glossary.read("", name, &ty, docs),
                ComponentItem::ComponentInstance(instance) => glossary.read_instance(component, name, &instance, docs),
                _ => {}
            }
        }
        glossary
    }

    /// What was written about a type.
    pub(super) fn find(&self, shape: &Shape) -> Option<&TypeDocs> {
        if has_name(shape) { self.by_shape.get(shape)?.as_ref() } else { None }
    }

    fn read_instance(&mut self, component: &Component, name: &str, instance: &types::ComponentInstance, docs: &Docs) {
        let interface = names::unversioned(name);
        for (name, item) in instance.exports(component.engine()) {
            if let ComponentItem::Type(ty) = item.ty {
                self.read(interface, name, &ty, docs);
            }
        }
    }

    fn read(&mut self, interface: &str, name: &str, ty: &Type, docs: &Docs) {
        let Some(words) = docs.find_type(interface, name).filter(|_| self.by_shape.len() < TYPES_MAX) else { return };
        // What is no tool's type, such as a type that holds a resource, needs no description.
        if let Ok(shape) = Reader::new().shape(ty) {
            self.add(shape, words);
        }
    }

    pub(super) fn add(&mut self, shape: Shape, words: &TypeDocs) {
        if has_name(&shape) {
            let known = self.by_shape.entry(shape).or_insert_with(|| Some(words.clone()));
            if known.as_ref() != Some(words) {
                *known = None;
            }
        }
    }
}

/// Of other types there are too many that look the same: a text about one string is not about all of them.
fn has_name(shape: &Shape) -> bool {
    matches!(shape, Shape::Record(_) | Shape::Variant(_) | Shape::Enum(_) | Shape::Flags(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wit_types_with_conflicting_docs_stay_undescribed() {
        let shape = || Shape::Enum(vec!["left".to_owned(), "right".to_owned()]);
        let words = |text: &str| TypeDocs { text: text.to_owned(), ..TypeDocs::default() };
        let mut glossary = Glossary::default();
        glossary.add(shape(), &words("A hand."));
        glossary.add(shape(), &words("A hand."));
        assert_eq!(glossary.find(&shape()), Some(&words("A hand.")));
        glossary.add(shape(), &words("A side of the street."));
        assert_eq!(glossary.find(&shape()), None);
        glossary.add(shape(), &words("A hand."));
        assert_eq!(glossary.find(&shape()), None);
        glossary.add(Shape::Text, &words("A name."));
        assert_eq!(glossary.find(&Shape::Text), None);
    }
}
