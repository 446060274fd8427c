//! An index of tools by their words, and which of them fit a query best (BM25).
//!
//! Owns the words of one catalog and the ranking. Must not know who asks: what may be found is decided by its caller,
//! for each tool. Invariant: tools that may not be found have no part in the numbers either. The order of what is found
//! is the one that a host without the others would give, so that it tells nothing of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::words::words;
use bulkhead_calls::ToolEntry;
use bulkhead_domain::tool::Tool;

/// Words of one tool that are indexed, the name's and the title's first.
const TOOL_WORDS_MAX: usize = 1024;
/// Words of a description that are indexed: what comes later is about details, and would take the place of the
/// arguments.
const DESCRIPTION_WORDS_MAX: usize = 512;
/// How deep arguments lie that are indexed.
const DEPTH_MAX: usize = 8;
/// Words of a query that are looked up.
const QUERY_WORDS_MAX: usize = 64;

/// How much more of the same word says.
const SATURATION: f64 = 1.2;
/// How much the length of a tool's texts counts against it.
const LENGTH: f64 = 0.75;

/// What a word weighs by the place where it stands.
const NAME: f64 = 3.0;
const TITLE: f64 = 2.0;
const DESCRIPTION: f64 = 1.0;
const ARGUMENT_NAME: f64 = 1.0;
const ARGUMENT_DESCRIPTION: f64 = 0.5;

/// See the module.
pub(crate) struct ToolIndex {
    tools: Vec<IndexedTool>,
    /// By word: the places of the tools that have it, with its weight in each.
    places: HashMap<String, Vec<(usize, f64)>>,
}

struct IndexedTool {
    entry: Arc<ToolEntry>,
    /// The weight of all its words.
    length: f64,
}

impl ToolIndex {
    pub(crate) fn new(tools: &[Arc<ToolEntry>]) -> Self {
        let mut index = Self { tools: Vec::with_capacity(tools.len()), places: HashMap::new() };
        for (at, entry) in tools.iter().enumerate() {
            let weights = weights(&entry.tool);
            index.tools.push(IndexedTool { entry: Arc::clone(entry), length: weights.values().sum() });
            for (word, weight) in weights {
                index.places.entry(word).or_default().push((at, weight));
            }
        }
        index
    }

    /// The tools that fit best, at most so many, of those that may be found.
    pub(crate) fn search(&self, query: &str, limit: usize, may: impl Fn(&ToolEntry) -> bool) -> Vec<&Arc<ToolEntry>> {
        // Asked once for each tool, however often it is looked at.
        let visible: Vec<_> = self.tools.iter().map(|tool| may(&tool.entry)).collect();
        let sees = |at: &usize| visible.get(*at).copied().unwrap_or_default();
        let lengths = self.tools.iter().zip(&visible).filter(|(_, visible)| **visible).map(|(tool, _)| tool.length);
        let (count, total) = lengths.fold((0.0, 0.0), |(count, total), length| (count + 1.0, total + length));
        let mean = if count > 0.0 && total > 0.0 { total / count } else { 1.0 };
        let mut scores: HashMap<usize, f64> = HashMap::new();
        let query: HashSet<_> = words(query).take(QUERY_WORDS_MAX).collect();
        for word in &query {
            let having: Vec<_> =
                self.places.get(word).into_iter().flatten().filter(|(at, _)| sees(at)).copied().collect();
            let rarity = rarity(having.len(), count);
            for (at, weight) in having {
                let length = self.tools.get(at).map_or(mean, |tool| tool.length);
                let damping = SATURATION * (1.0 - LENGTH + LENGTH * length / mean);
                *scores.entry(at).or_default() += rarity * weight * (SATURATION + 1.0) / (weight + damping);
            }
        }
        let mut ranked: Vec<_> = scores.into_iter().collect();
        // Words come in any order from a set, and sums of the same numbers may differ in the last bit by that: equal
        // scores are in the order of names.
        ranked.sort_by(|(a, first), (b, second)| rounded(*second).cmp(&rounded(*first)).then(a.cmp(b)));
        ranked.into_iter().take(limit).filter_map(|(at, _)| self.tools.get(at).map(|tool| &tool.entry)).collect()
    }
}

/// A score as a whole number of billionths.
fn rounded(score: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "scores are small and not negative")]
    let whole = (score * 1e9).round() as u64;
    whole
}

/// What a word says that so many of the tools have.
fn rarity(having: usize, count: f64) -> f64 {
    let having = f64::from(u32::try_from(having).unwrap_or(u32::MAX));
    (1.0 + (count - having + 0.5) / (having + 0.5)).ln()
}

/// The words of a tool with their weights.
fn weights(tool: &Tool) -> HashMap<String, f64> {
    let schema: Value = serde_json::from_str(tool.input_schema.as_str()).unwrap_or_default();
    let mut arguments = Vec::new();
    collect(&schema, 0, &mut arguments);
    let first = words(&tool.name).map(|word| (word, NAME));
    let title = words(tool.title.as_deref().unwrap_or_default()).map(|word| (word, TITLE));
    let description = words(&tool.description).take(DESCRIPTION_WORDS_MAX).map(|word| (word, DESCRIPTION));
    let arguments = arguments.into_iter().flat_map(|(text, weight)| words(text).map(move |word| (word, weight)));
    let mut weights = HashMap::new();
    for (word, weight) in first.chain(title).chain(description).chain(arguments).take(TOOL_WORDS_MAX) {
        *weights.entry(word).or_default() += weight;
    }
    weights
}

/// The names and descriptions of a schema's arguments, and of what they are made of.
fn collect<'a>(schema: &'a Value, depth: usize, texts: &mut Vec<(&'a str, f64)>) {
    if depth > DEPTH_MAX || texts.len() > TOOL_WORDS_MAX {
        return;
    }
    if depth > 0
        && let Some(description) = schema.get("description").and_then(Value::as_str)
    {
        texts.push((description, ARGUMENT_DESCRIPTION));
    }
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        texts.push((name, ARGUMENT_NAME));
        collect(property, depth + 1, texts);
    }
    if let Some(items) = schema.get("items") {
        collect(items, depth + 1, texts);
    }
    for keyword in ["oneOf", "anyOf", "allOf"] {
        let choices = schema.get(keyword).and_then(Value::as_array);
        choices.into_iter().flatten().for_each(|choice| collect(choice, depth + 1, texts));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_domain::Json;
    use bulkhead_domain::limits::CallLimits;

    fn entry(name: &str, description: &str, schema: &str) -> Arc<ToolEntry> {
        let tool = Tool { description: description.to_owned(), input_schema: Json::new(schema), ..Tool::sample(name) };
        Arc::new(ToolEntry::sample("p", tool, CallLimits::generous()))
    }

    fn found(tools: &[Arc<ToolEntry>], query: &str, may: impl Fn(&ToolEntry) -> bool) -> Vec<String> {
        let index = ToolIndex::new(tools);
        index.search(query, 5, may).iter().map(|entry| entry.tool.name.clone()).collect()
    }

    fn some() -> Vec<Arc<ToolEntry>> {
        let nested = r#"{"type":"object","properties":{"where":{"type":"object","properties":{"harbour":
            {"type":"string","description":"Of the vessel."}}}}}"#;
        vec![
            entry("a_moor", "Does something.", nested),
            entry("b_ship", "Sends a parcel to a harbour.", "{}"),
            entry("shipIt", "Sends something.", "{}"),
            entry("z", "Counts parcels.", "{}"),
        ]
    }

    #[test]
    fn tools_are_found_by_name_description_and_arguments() {
        let all = |_: &ToolEntry| true;
        assert_eq!(found(&some(), "vessels", all), ["a_moor"]);
        assert_eq!(found(&some(), "counting", all), ["z"]);
        assert_eq!(found(&some(), "SHIP", all), ["shipIt", "b_ship"]);
        assert_eq!(found(&some(), "the parcel for a harbour", all)[0], "b_ship");
        assert_eq!(found(&some(), "nothing like it", all), [""; 0]);
        assert_eq!(found(&some(), "", all), [""; 0]);
        assert_eq!(found(&[], "ship", all), [""; 0]);
    }

    #[test]
    fn tools_that_may_not_be_found_do_not_change_the_order() {
        let shown = some();
        let mut with_hidden = shown.clone();
        // So many that the rare word is a common one.
        with_hidden.extend((0..40).map(|at| entry(&format!("h{at}"), "A harbour, a harbour and a ship.", "{}")));
        for query in ["harbour parcel", "ship parcel something", "harbour ship count sends"] {
            let may = |entry: &ToolEntry| !entry.tool.name.starts_with('h');
            assert_eq!(found(&with_hidden, query, may), found(&shown, query, |_| true), "{query}");
        }
    }

    #[test]
    fn index_and_query_are_bounded() {
        let endless: String = (0..5_000).map(|at| format!("w{at} ")).collect();
        let index = ToolIndex::new(&[entry("t", &endless, "{}")]);
        assert!(index.places.len() <= TOOL_WORDS_MAX);
        let properties: String = (0..5_000).map(|at| format!(r#""a{at}":{{}},"#)).collect();
        let schema = format!(r#"{{"properties":{{{}}}}}"#, properties.trim_end_matches(','));
        let index = ToolIndex::new(&[entry("t", "", &schema)]);
        assert!(index.places.len() <= TOOL_WORDS_MAX);
        let padded = format!("{} parcel", (0..QUERY_WORDS_MAX).map(|at| format!("q{at} ")).collect::<String>());
        assert_eq!(found(&some(), &padded, |_| true), [""; 0], "what comes later is not looked up");
    }
}
