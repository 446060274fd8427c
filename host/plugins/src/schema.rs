//! How one JSON Schema differs from another: which values one takes that the other does not.
//!
//! Owns the comparison, and nothing of what follows from it. Invariant: when nothing is [`Direction::Narrowed`], every
//! value that the old schema took is taken by the new one; what cannot be compared counts as narrowed and widened at
//! once. One case is an exception on purpose: a new optional property of an object that was open. A value that had an
//! unknown member of this name was taken before, but nothing ever acted on it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::canonical::canonical;

/// What became of the set of values that are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Something may be given that could not be given before.
    Added,
    /// Something that was taken is refused.
    Narrowed,
    /// Something that was refused is taken.
    Widened,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// JSON Pointer into the schema; empty for the root.
    pub path: String,
    pub direction: Direction,
    pub what: String,
}

/// Nesting to which references are followed.
const DEPTH_MAX: usize = 48;
/// Differences worth telling.
const DIFFERENCES_MAX: usize = 64;

/// Keywords that say nothing about which values are taken.
const ANNOTATIONS: [&str; 17] = [
    "$schema",
    "$id",
    "$anchor",
    "$dynamicAnchor",
    "$comment",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "format",
    "contentEncoding",
    "contentMediaType",
];
/// Keywords that are compared by rules of their own.
const RULED: [&str; 22] = [
    "$ref",
    "type",
    "enum",
    "const",
    "minimum",
    "exclusiveMinimum",
    "minLength",
    "minItems",
    "minProperties",
    "maximum",
    "exclusiveMaximum",
    "maxLength",
    "maxItems",
    "maxProperties",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "multipleOf",
    "anyOf",
    "allOf",
    "uniqueItems",
];

/// Every difference, in the order of the schema, up to a bounded number.
pub fn compare(old: &Value, new: &Value) -> Vec<Difference> {
    let mut comparison = Comparison { old_root: old, new_root: new, seen: BTreeSet::new(), found: Vec::new() };
    comparison.schemas(old, new, "", 0);
    comparison.found
}

struct Comparison<'a> {
    old_root: &'a Value,
    new_root: &'a Value,
    /// Pairs of references that are being compared: a recursive schema comes by again.
    seen: BTreeSet<(String, String)>,
    found: Vec<Difference>,
}

impl<'a> Comparison<'a> {
    fn say(&mut self, path: &str, direction: Direction, what: impl Into<String>) {
        if self.found.len() < DIFFERENCES_MAX || direction == Direction::Narrowed {
            self.found.push(Difference { path: path.to_owned(), direction, what: what.into() });
        }
    }

    fn both(&mut self, path: &str, what: &str) {
        self.say(path, Direction::Narrowed, what);
        self.say(path, Direction::Widened, what);
    }

    /// A rule that one of the two may not have: that it is added narrows, that it goes away widens. Gives it if both
    /// have it.
    fn rule<T>(&mut self, path: &str, old: Option<T>, new: Option<T>, added: &str, removed: &str) -> Option<(T, T)> {
        match (&old, &new) {
            (None, Some(_)) => self.say(path, Direction::Narrowed, added),
            (Some(_), None) => self.say(path, Direction::Widened, removed),
            _ => {}
        }
        old.zip(new)
    }

    /// Values that only one of the two takes.
    fn values<T: AsRef<str> + Ord>(&mut self, path: &str, old: &BTreeSet<T>, new: &BTreeSet<T>) {
        let only = |of: &BTreeSet<T>, other| of.difference(other).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
        if !new.is_superset(old) {
            self.say(path, Direction::Narrowed, format!("no longer takes: {}", only(old, new)));
        }
        if !old.is_superset(new) {
            self.say(path, Direction::Widened, format!("also takes: {}", only(new, old)));
        }
    }

    fn schemas(&mut self, old: &'a Value, new: &'a Value, path: &str, depth: usize) {
        if depth > DEPTH_MAX {
            self.both(path, "nested too deeply to be compared");
            return;
        }
        let key = (canonical(old), canonical(new));
        let has_reference = [old, new].iter().any(|schema| schema.get("$ref").is_some());
        if has_reference && !self.seen.insert(key) {
            return;
        }
        match (everything(old), everything(new), nothing(old), nothing(new)) {
            (true, true, ..) | (.., true, true) => {}
            (true, ..) => self.say(path, Direction::Narrowed, "was free, and has rules now"),
            (_, true, ..) => self.say(path, Direction::Widened, "had rules, and is free now"),
            (.., true, _) => self.say(path, Direction::Widened, "was forbidden, and is allowed now"),
            (.., true) => self.say(path, Direction::Narrowed, "was allowed, and is forbidden now"),
            _ => {
                if let (Some(old), Some(new)) = (old.as_object(), new.as_object()) {
                    self.objects(old, new, path, depth);
                }
            }
        }
    }

    fn objects(&mut self, old: &'a Map<String, Value>, new: &'a Map<String, Value>, path: &str, depth: usize) {
        self.references(old, new, path, depth);
        self.types(old, new, path);
        self.choices(old, new, path);
        for keyword in ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"] {
            self.bound(old, new, keyword, path, false);
        }
        for keyword in ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"] {
            self.bound(old, new, keyword, path, true);
        }
        self.multiple(old, new, path);
        self.required(old, new, path);
        self.properties(old, new, path, depth);
        self.unique(old, new, path);
        if old.get("prefixItems") == new.get("prefixItems") {
            self.inner(old.get("items"), new.get("items"), &format!("{path}/items"), depth);
        } else if old.get("items") != new.get("items") {
            self.both(&format!("{path}/items"), "changed together with prefixItems");
        }
        self.any_of(old, new, path);
        self.all_of(old, new, path, depth);
        self.the_rest(old, new, path);
    }

    fn references(&mut self, old: &'a Map<String, Value>, new: &'a Map<String, Value>, path: &str, depth: usize) {
        let resolved = |root: &'a Value, schema: &Map<String, Value>| match schema.get("$ref") {
            None => Some(&Value::Bool(true)),
            Some(target) => target.as_str().and_then(|target| root.pointer(target.strip_prefix('#')?)),
        };
        if old.get("$ref").is_none() && new.get("$ref").is_none() {
            return;
        }
        match (resolved(self.old_root, old), resolved(self.new_root, new)) {
            (Some(old), Some(new)) => self.schemas(old, new, path, depth + 1),
            _ if old.get("$ref") == new.get("$ref") => {}
            _ => self.both(path, "refers to something else"),
        }
    }

    fn types(&mut self, old: &Map<String, Value>, new: &Map<String, Value>, path: &str) {
        self.values(&format!("{path}/type"), &types(old.get("type")), &types(new.get("type")));
    }

    fn choices(&mut self, old: &Map<String, Value>, new: &Map<String, Value>, path: &str) {
        let pointer = format!("{path}/enum");
        let added = "takes only the listed values";
        let both = self.rule(&pointer, choices(old), choices(new), added, "takes more than the listed values");
        if let Some((old, new)) = both {
            self.values(&pointer, &old, &new);
        }
    }

    /// A lower bound, or an upper one.
    fn bound(&mut self, old: &Map<String, Value>, new: &Map<String, Value>, keyword: &str, path: &str, is_upper: bool) {
        let value = |schema: &Map<String, Value>| schema.get(keyword).and_then(Value::as_f64);
        let was = value(old);
        let is = value(new);
        // A lower bound of a size that is zero says nothing.
        let trivial = !is_upper && keyword != "minimum" && keyword != "exclusiveMinimum";
        let was = was.filter(|was| !trivial || *was > 0.0);
        let is = is.filter(|is| !trivial || *is > 0.0);
        let direction = match (was, is) {
            (None, None) => return,
            (None, Some(_)) => Direction::Narrowed,
            (Some(_), None) => Direction::Widened,
            (Some(was), Some(is)) if was.total_cmp(&is).is_eq() => return,
            (Some(was), Some(is)) if (is < was) == is_upper => Direction::Narrowed,
            (Some(_), Some(_)) => Direction::Widened,
        };
        let text = |value: Option<f64>| value.map_or("none".to_owned(), |value| value.to_string());
        self.say(&format!("{path}/{keyword}"), direction, format!("{} became {}", text(was), text(is)));
    }

    fn multiple(&mut self, old: &Map<String, Value>, new: &Map<String, Value>, path: &str) {
        let pointer = format!("{path}/multipleOf");
        let old = old.get("multipleOf");
        let new = new.get("multipleOf");
        let both = self.rule(&pointer, old, new, "takes only multiples", "takes more than multiples");
        if both.is_some_and(|(old, new)| canonical(old) != canonical(new)) {
            self.both(&pointer, "takes other multiples");
        }
    }

    fn unique(&mut self, old: &Map<String, Value>, new: &Map<String, Value>, path: &str) {
        let of =
            |schema: &Map<String, Value>| schema.get("uniqueItems").filter(|is| **is == Value::Bool(true)).map(|_| ());
        let pointer = format!("{path}/uniqueItems");
        self.rule(&pointer, of(old), of(new), "takes no repetitions any more", "takes repetitions");
    }

    fn required(&mut self, old: &Map<String, Value>, new: &Map<String, Value>, path: &str) {
        let old = names(old.get("required"));
        let new = names(new.get("required"));
        for name in new.difference(&old) {
            self.say(&format!("{path}/required"), Direction::Narrowed, format!("{name:?} must be given now"));
        }
        for name in old.difference(&new) {
            self.say(&format!("{path}/required"), Direction::Widened, format!("{name:?} may be left out"));
        }
    }

    fn properties(&mut self, old: &'a Map<String, Value>, new: &'a Map<String, Value>, path: &str, depth: usize) {
        if old.get("patternProperties").map(canonical) != new.get("patternProperties").map(canonical) {
            // Which names a pattern covers is not worth finding out.
            self.both(&format!("{path}/patternProperties"), "names other properties");
        }
        let before = members(old.get("properties"));
        let after = members(new.get("properties"));
        let others_before = old.get("additionalProperties");
        let others_after = new.get("additionalProperties");
        for (name, schema) in &before {
            let pointer = format!("{path}/properties/{}", escaped(name));
            match after.get(name) {
                Some(now) => self.schemas(schema, now, &pointer, depth + 1),
                None if nothing(schema) => self.inner(Some(schema), others_after, &pointer, depth),
                None => self.say(&pointer, Direction::Narrowed, "is gone"),
            }
        }
        for (name, schema) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
            let pointer = format!("{path}/properties/{}", escaped(name));
            match others_before {
                // Members of this name had rules before.
                Some(rules) if !nothing(rules) && !everything(rules) => {
                    self.schemas(rules, schema, &pointer, depth + 1)
                }
                _ if nothing(schema) => self.say(&pointer, Direction::Narrowed, "is forbidden"),
                _ => self.say(&pointer, Direction::Added, "is new"),
            }
        }
        self.inner(others_before, others_after, &format!("{path}/additionalProperties"), depth);
    }

    /// Schemas that take everything when they are absent.
    fn inner(&mut self, old: Option<&'a Value>, new: Option<&'a Value>, path: &str, depth: usize) {
        let absent = &Value::Bool(true);
        self.schemas(old.unwrap_or(absent), new.unwrap_or(absent), path, depth + 1);
    }

    fn any_of(&mut self, old: &Map<String, Value>, new: &Map<String, Value>, path: &str) {
        let branches = |schema: &Map<String, Value>| {
            let list = schema.get("anyOf")?.as_array()?;
            Some(list.iter().map(canonical).collect::<BTreeSet<_>>())
        };
        let pointer = format!("{path}/anyOf");
        let added = "has to be one of several forms";
        let both = self.rule(&pointer, branches(old), branches(new), added, "takes more than the listed forms");
        let Some((old, new)) = both else { return };
        // Branches with references mean what the definitions say: those are compared where they are used alone.
        if old.iter().chain(&new).any(|branch| self.means_something_else(branch)) {
            self.both(&pointer, "its forms refer to definitions that may have changed");
            return;
        }
        if !new.is_superset(&old) {
            self.say(&pointer, Direction::Narrowed, "a form is gone");
        }
        if !old.is_superset(&new) {
            self.say(&pointer, Direction::Widened, "takes another form");
        }
    }

    fn all_of(&mut self, old: &'a Map<String, Value>, new: &'a Map<String, Value>, path: &str, depth: usize) {
        let parts = |schema: &'a Map<String, Value>| {
            schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
        };
        let old = parts(old);
        let new = parts(new);
        for at in 0..old.len().max(new.len()) {
            self.inner(old.get(at), new.get(at), &format!("{path}/allOf/{at}"), depth);
        }
    }

    /// Keywords that can only be the same or not. A rule that is added narrows, one that goes away widens.
    fn the_rest(&mut self, old: &Map<String, Value>, new: &Map<String, Value>, path: &str) {
        let keywords: BTreeSet<_> = old.keys().chain(new.keys()).map(String::as_str).collect();
        let left = |keyword: &&str| {
            !ANNOTATIONS.contains(keyword) && !RULED.contains(keyword) && *keyword != "patternProperties"
        };
        for keyword in keywords.into_iter().filter(left) {
            let pointer = format!("{path}/{}", escaped(keyword));
            match (old.get(keyword), new.get(keyword)) {
                // How often something is contained may be loosened by a rule.
                (None, Some(_)) | (Some(_), None) if keyword.ends_with("Contains") => self.both(&pointer, "changed"),
                (None, Some(_)) => self.say(&pointer, Direction::Narrowed, "is a new rule"),
                (Some(_), None) => self.say(&pointer, Direction::Widened, "is no rule any more"),
                (Some(old), Some(new)) if canonical(old) != canonical(new) => self.both(&pointer, "changed"),
                (Some(rule), Some(_)) if self.means_something_else(&canonical(rule)) => {
                    self.both(&pointer, "refers to definitions that may have changed");
                }
                // These speak about what the other rules leave over.
                (Some(_), Some(_)) if keyword.starts_with("unevaluated") && old != new => {
                    self.both(&pointer, "leaves over something else");
                }
                _ => {}
            }
        }
    }

    /// Whether equal texts may mean different things in the two documents.
    fn means_something_else(&self, text: &str) -> bool {
        (text.contains("\"$ref\"") || text.contains("\"$dynamicRef\""))
            && canonical(self.old_root) != canonical(self.new_root)
    }
}

/// Whether a schema takes every value.
fn everything(schema: &Value) -> bool {
    match schema {
        Value::Bool(flag) => *flag,
        Value::Object(rules) => rules.keys().all(|keyword| ANNOTATIONS.contains(&keyword.as_str())),
        _ => false,
    }
}

/// Whether a schema takes no value.
fn nothing(schema: &Value) -> bool {
    *schema == Value::Bool(false)
}

const TYPES: [&str; 7] = ["null", "boolean", "object", "array", "string", "integer", "number"];

/// `number` includes `integer`, so that one is always there with the other.
fn types(value: Option<&Value>) -> BTreeSet<&'static str> {
    let named: Vec<&str> = match value {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => return TYPES.into(),
    };
    TYPES.into_iter().filter(|name| named.contains(name) || (*name == "integer" && named.contains(&"number"))).collect()
}

/// The listed values, as canonical texts.
fn choices(schema: &Map<String, Value>) -> Option<BTreeSet<String>> {
    let listed = schema.get("enum").and_then(Value::as_array).map(|values| values.iter().map(canonical).collect());
    let single = schema.get("const").map(|value| BTreeSet::from([canonical(value)]));
    match (listed, single) {
        (Some(listed), Some(single)) => Some(single.intersection(&listed).cloned().collect()),
        (listed, single) => listed.or(single),
    }
}

fn names(value: Option<&Value>) -> BTreeSet<&str> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

fn members(value: Option<&Value>) -> BTreeMap<&str, &Value> {
    value.and_then(Value::as_object).into_iter().flatten().map(|(name, schema)| (name.as_str(), schema)).collect()
}

/// A name as a step of a JSON Pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests;
