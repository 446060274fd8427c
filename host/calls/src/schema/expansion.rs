//! What a schema becomes when its references are followed.
//!
//! A few hundred bytes of references to each other can stand for millions of checks (as with entities in XML), and a
//! schema that refers to itself twice doubles with each level of the value. Counted before anything is compiled.
//! Invariant: counting takes time in proportion to the schema, never to what it expands to.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Expansion {
    /// Places with every reference followed, each loop once.
    pub(super) places: u64,
    /// References back to a place on the way to them: how much one level of a value may multiply.
    pub(super) loops: u64,
}

/// What holds values, not schemas.
const VALUES: [&str; 5] = ["const", "enum", "default", "examples", "example"];

/// Follows every reference of a schema.
pub(super) fn of(schema: &Value) -> Expansion {
    let mut walk = Walk { root: schema, anchors: HashMap::new(), known: HashMap::new() };
    find_anchors(schema, &mut walk.anchors);
    walk.place(schema)
}

/// The regular expressions of a schema.
pub(super) fn patterns(schema: &Value) -> usize {
    match schema {
        Value::Object(members) => members
            .iter()
            .filter(|(name, _)| !VALUES.contains(&name.as_str()))
            .map(|(name, value)| {
                let own = match (name.as_str(), value) {
                    ("pattern", Value::String(_)) => 1,
                    ("patternProperties", Value::Object(patterns)) => patterns.len(),
                    _ => 0,
                };
                own + patterns(value)
            })
            .sum(),
        Value::Array(items) => items.iter().map(patterns).sum(),
        _ => 0,
    }
}

fn find_anchors<'a>(schema: &'a Value, anchors: &mut HashMap<&'a str, Vec<&'a Value>>) {
    match schema {
        Value::Object(members) => {
            for (name, value) in members {
                if let ("$anchor" | "$dynamicAnchor", Value::String(anchor)) = (name.as_str(), value) {
                    anchors.entry(anchor).or_default().push(schema);
                }
                find_anchors(value, anchors);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| find_anchors(item, anchors)),
        _ => {}
    }
}

struct Walk<'a> {
    root: &'a Value,
    anchors: HashMap<&'a str, Vec<&'a Value>>,
    /// By place; `None` while the walk is inside of it.
    known: HashMap<*const Value, Option<Expansion>>,
}

impl<'a> Walk<'a> {
    fn place(&mut self, schema: &'a Value) -> Expansion {
        match schema {
            Value::Object(members) => {
                match self.known.get(&std::ptr::from_ref(schema)) {
                    Some(Some(known)) => return *known,
                    Some(None) => return Expansion { places: 1, loops: 1 },
                    None => {}
                }
                self.known.insert(schema, None);
                let mut all = Expansion { places: 1, loops: 0 };
                for (name, value) in members.iter().filter(|(name, _)| !VALUES.contains(&name.as_str())) {
                    all = match (name.as_str(), value) {
                        ("$ref" | "$dynamicRef", Value::String(target)) => self.reference(target, all),
                        // Followed from where they are referred to.
                        ("$defs" | "definitions", Value::Object(_)) => all,
                        _ => sum(all, self.place(value)),
                    };
                }
                self.known.insert(schema, Some(all));
                all
            }
            Value::Array(items) => items.iter().fold(Expansion::default(), |all, item| sum(all, self.place(item))),
            _ => Expansion::default(),
        }
    }

    fn reference(&mut self, target: &str, before: Expansion) -> Expansion {
        let fragment = target.trim_start_matches('#');
        let mut places = Vec::new();
        if fragment.is_empty() {
            places.push(self.root);
        } else if fragment.starts_with('/') {
            // What leads nowhere is for the compiler to refuse.
            places.extend(self.root.pointer(&percent_decode_str(fragment).decode_utf8_lossy()));
        } else {
            places.extend(self.anchors.get(fragment).into_iter().flatten());
        }
        places.into_iter().fold(before, |all, schema| sum(all, self.place(schema)))
    }
}

fn sum(one: Expansion, other: Expansion) -> Expansion {
    Expansion { places: one.places.saturating_add(other.places), loops: one.loops.saturating_add(other.loops) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn schema_expansion_counts_references_and_loops() {
        assert_eq!(of(&json!({"type": "object"})), Expansion { places: 1, loops: 0 });
        let twice =
            json!({"$defs": {"a b": {"not": {}}}, "allOf": [{"$ref": "#/$defs/a%20b"}, {"$ref": "#/$defs/a%20b"}]});
        assert_eq!(of(&twice), Expansion { places: 7, loops: 0 });
        let tree = json!({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}});
        assert_eq!(of(&tree).loops, 2);
        let named = json!({"$defs": {"a": {"$anchor": "here", "items": {"$ref": "#here"}}}, "$ref": "#here"});
        assert_eq!(of(&named).loops, 1);
        assert_eq!(of(&json!({"const": {"$ref": "#"}, "enum": [{"$ref": "#"}]})).loops, 0);
        assert_eq!(of(&json!({"$ref": "#/nowhere"})), Expansion { places: 1, loops: 0 });
    }

    #[test]
    fn schema_expansion_of_a_bomb_is_counted_quickly() {
        let mut defs = serde_json::Map::new();
        for number in 0..1_000 {
            let next = json!({"$ref": format!("#/$defs/a{}", number + 1)});
            defs.insert(format!("a{number}"), json!({"allOf": [next, next, next]}));
        }
        defs.insert("a1000".to_owned(), json!({}));
        assert_eq!(of(&json!({"$defs": defs, "$ref": "#/$defs/a0"})).places, u64::MAX);
    }

    #[test]
    fn schema_patterns_are_counted_everywhere() {
        let schema = json!({"properties": {"pattern": {"pattern": "a"}, "b": {"patternProperties": {"x": {}, "y": {"pattern": "z"}}}},
            "default": {"pattern": "no"}});
        assert_eq!(patterns(&schema), 4);
    }
}
