//! The configuration file as a tree with places: every value knows the path of its key and its line, and complains with
//! both.
//!
//! Owns what the readers of all sections share. Invariant: a table is opened with the keys that it may have, and every
//! other key is refused.

use std::borrow::Cow;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::key::{Number, Scope, Value};
use super::keys;
use super::layer::{self, Values};
use super::report::{ConfigLocation, Report};

/// The configuration file, already read.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// As the operator wrote it; names the place of problems, and relative paths in the file start at its folder.
    pub path: &'a Path,
    pub text: &'a str,
}

/// A key with its span.
pub(super) type Name<'a> = Spanned<Cow<'a, str>>;

/// What an operator may look for in the file although it must not be there.
const KEPT_ELSEWHERE: &[(&str, &str)] = &[
    ("store.url", "an address may hold a password, and is not kept in the configuration; use url_file or url_env"),
    ("encryption.key", "keys are not kept in the configuration; use key_file or key_env"),
    (
        "auth.issuer.client_secret",
        "secrets are not kept in the configuration; use client_secret_file or client_secret_env",
    ),
    ("dashboard.oidc.client_secret", "secrets are not kept in the configuration; use client_secret_file"),
];

/// Knows where each part of the file was written, and where to complain.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) file: File<'a>,
    pub(super) report: &'a Report,
}

impl<'a> Reader<'a> {
    /// The line of a byte offset.
    pub(super) fn location(self, offset: usize) -> ConfigLocation {
        let before = self.file.text.as_bytes().get(..offset).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        ConfigLocation::File { file: self.file.path.display().to_string(), line }
    }

    /// Complains about a part of the file.
    pub(super) fn refuse<T>(self, at: &Spanned<T>, message: impl Into<String>) {
        self.report.add(&self.location(at.span().start), message);
    }

    /// Where relative paths of the file start.
    pub(super) fn folder(self) -> &'a Path {
        self.file.path.parent().unwrap_or(Path::new(""))
    }
}

/// A value, with the path of its key.
#[derive(Clone)]
pub(super) struct Item<'a> {
    pub(super) reader: Reader<'a>,
    pub(super) path: String,
    pub(super) node: &'a Spanned<DeValue<'a>>,
}

impl<'a> Item<'a> {
    /// Where it was written.
    pub(super) fn location(&self) -> ConfigLocation {
        self.reader.location(self.node.span().start)
    }

    /// Complains about it.
    pub(super) fn refuse(&self, message: impl Display) {
        self.reader.refuse(self.node, format!("{}: {message}", self.path));
    }

    fn typed<T>(&self, found: Option<T>, what: &str) -> Option<T> {
        if found.is_none() {
            self.refuse(format_args!("must be {what}, not {}", self.node.get_ref().type_str()));
        }
        found
    }

    /// The text, complaining where it is none; the functions below do so likewise.
    pub(super) fn text(&self) -> Option<&'a str> {
        self.typed(self.node.get_ref().as_str(), "a string")
    }

    pub(super) fn switch(&self) -> Option<bool> {
        self.typed(self.node.get_ref().as_bool(), "true or false")
    }

    /// What a text means.
    pub(super) fn parsed<T, E: Display>(&self, parse: impl Fn(&str) -> Result<T, E>) -> Option<T> {
        parse(self.text()?).map_err(|wrong| self.refuse(wrong)).ok()
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        self.parsed(|text| {
            let found = choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
            let words = || choices.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
            found.ok_or_else(|| format!("{text:?} is not one of {}", words()))
        })
    }

    /// A path, which starts at the file's folder.
    pub(super) fn file(&self) -> Option<PathBuf> {
        self.text().map(|text| self.reader.folder().join(text))
    }

    /// The items of a list; their path is the list's.
    pub(super) fn items(&self) -> Vec<Self> {
        let nodes = self.typed(self.node.get_ref().as_array(), "a list").map(|array| array.iter());
        nodes.into_iter().flatten().map(|node| Self { node, ..self.clone() }).collect()
    }

    /// What the texts of a list mean.
    pub(super) fn texts<T, E: Display>(&self, parse: impl Fn(&str) -> Result<T, E>) -> Vec<T> {
        self.items().iter().filter_map(|item| item.parsed(&parse)).collect()
    }

    /// A number within bounds.
    pub(super) fn number<N: TryFrom<u64>>(&self, bounds: RangeInclusive<u64>) -> Option<N> {
        let number = self.integer().filter(|number| bounds.contains(number)).and_then(|number| number.try_into().ok());
        if number.is_none() {
            self.refuse(format_args!("must be a whole number from {} to {}", bounds.start(), bounds.end()));
        }
        number
    }

    /// The tables of `[[NAME]]`, one for each `what`.
    pub(super) fn tables(&self, what: &str) -> Vec<Self> {
        if self.node.get_ref().is_array() {
            return self.items();
        }
        self.refuse(format_args!("write [[{}]] with two brackets, once for each {what}", self.path));
        Vec::new()
    }

    pub(super) fn is_table(&self) -> bool {
        self.node.get_ref().is_table()
    }

    fn table(&self) -> Option<&'a DeTable<'a>> {
        self.typed(self.node.get_ref().as_table(), "a table")
    }

    /// The members of a table that may have any keys.
    pub(super) fn members(&self) -> Vec<(&'a Name<'a>, Self)> {
        let member = |(name, node): (&'a Name<'a>, &'a Spanned<DeValue<'a>>)| {
            (name, Self { reader: self.reader, path: format!("{}.{}", self.path, name.get_ref()), node })
        };
        self.table().into_iter().flatten().map(member).collect()
    }

    /// A table that has no other keys than these.
    pub(super) fn section(&self, keys: impl IntoIterator<Item = &'static str>) -> Option<Section<'a>> {
        self.section_of("key", keys)
    }

    /// The same where a message calls a key otherwise.
    pub(super) fn section_of(&self, what: &str, keys: impl IntoIterator<Item = &'static str>) -> Option<Section<'a>> {
        let section = self.open(keys)?;
        for (name, _) in section.table.into_iter().filter(|(name, _)| !section.takes(name.get_ref())) {
            let path = format!("{}.{}", self.path, name.get_ref());
            let why = KEPT_ELSEWHERE.iter().find(|(key, _)| *key == path).map(|(_, why)| (*why).to_owned());
            let why = why.unwrap_or_else(|| format!("no such {what}; there {}", listed(&section.keys)));
            self.reader.refuse(name, format!("{path}: {why}"));
        }
        Some(section)
    }

    /// A table that has these keys and others, which the caller reads.
    pub(super) fn open(&self, keys: impl IntoIterator<Item = &'static str>) -> Option<Section<'a>> {
        let problems_before = self.reader.report.len();
        Some(Section { item: self.clone(), table: self.table()?, keys: keys.into_iter().collect(), problems_before })
    }

    /// A scalar or a list of texts.
    pub(super) fn value(&self) -> Value {
        match self.node.get_ref() {
            DeValue::Integer(_) => self.integer().map_or(Value::Other("a negative or too large number"), Value::Number),
            DeValue::Boolean(switch) => Value::Switch(*switch),
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Array(array) => {
                let texts: Option<Vec<_>> =
                    array.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect();
                texts.map_or(Value::Other("a list of something else"), Value::List)
            }
            DeValue::Float(_) => Value::Other("a number with a fraction"),
            DeValue::Datetime(_) => Value::Other("a date"),
            DeValue::Table(_) => Value::Other("a table"),
        }
    }

    fn integer(&self) -> Option<u64> {
        match self.node.get_ref() {
            DeValue::Integer(integer) => u64::from_str_radix(integer.as_str(), integer.radix()).ok(),
            _ => None,
        }
    }

    /// Overrides of `[limits]` or `[call]`, which `section` says.
    pub(super) fn overrides(&self, section: &str) -> Values {
        let mut values = Values::new();
        let prefix = self.path.strip_suffix(section).unwrap_or_default();
        for (name, item) in self.members() {
            item.override_value(prefix, section, name.get_ref(), &mut values);
        }
        values
    }

    /// One override. `prefix` stands in front of the section in messages.
    pub(super) fn override_value(&self, prefix: &str, section: &str, name: &str, values: &mut Values) {
        let refuse = |message: String| self.reader.refuse(self.node, format!("{prefix}{section}.{name}: {message}"));
        match keys::find(section, name) {
            None => refuse(format!("no such key in [{section}]{}", keys::hint(section, name))),
            Some(key) if key.scope == Scope::Host => {
                refuse(format!("holds for the whole host; set it in [{section}]"));
            }
            Some(key) => layer::set(values, key, self.value(), prefix, &self.location(), self.reader.report),
        }
    }
}

/// As the end of a sentence that begins with "there".
fn listed(keys: &[&str]) -> String {
    match keys {
        [] => "are none".to_owned(),
        [only] => format!("is {only}"),
        [all @ .., last] => format!("are {} and {last}", all.join(", ")),
    }
}

/// A table whose keys are known. A key that is not there is `None`, as is one whose value was refused.
pub(super) struct Section<'a> {
    pub(super) item: Item<'a>,
    table: &'a DeTable<'a>,
    keys: Vec<&'static str>,
    problems_before: usize,
}

impl<'a> Section<'a> {
    /// Whether nothing of it was refused yet.
    pub(super) fn is_sound(&self) -> bool {
        self.item.reader.report.len() == self.problems_before
    }

    /// Whether it has no keys at all.
    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Whether the key is there, whatever its value.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Whether it is one of its keys.
    pub(super) fn takes(&self, key: &str) -> bool {
        self.keys.contains(&key)
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<Item<'a>> {
        debug_assert!(self.takes(key), "{}.{key} would be refused", self.item.path);
        let node = self.table.get(key)?;
        Some(Item { reader: self.item.reader, path: format!("{}.{key}", self.item.path), node })
    }

    /// Complains, at the table, about one of its keys.
    pub(super) fn refuse(&self, key: &str, message: impl Display) {
        self.item.reader.refuse(self.item.node, format!("{}.{key}: {message}", self.item.path));
    }

    pub(super) fn text(&self, key: &str) -> Option<String> {
        self.get(key)?.text().map(str::to_owned)
    }

    pub(super) fn file(&self, key: &str) -> Option<PathBuf> {
        self.get(key)?.file()
    }

    pub(super) fn parsed<T, E: Display>(&self, key: &str, parse: impl Fn(&str) -> Result<T, E>) -> Option<T> {
        self.get(key)?.parsed(parse)
    }

    /// The items of a list; none where there is no list.
    pub(super) fn items(&self, key: &str) -> Vec<Item<'a>> {
        self.get(key).map(|item| item.items()).unwrap_or_default()
    }

    /// What the texts of a list mean.
    pub(super) fn texts<T, E: Display>(&self, key: &str, parse: impl Fn(&str) -> Result<T, E>) -> Vec<T> {
        self.items(key).iter().filter_map(|item| item.parsed(&parse)).collect()
    }

    pub(super) fn switch(&self, key: &str) -> Option<bool> {
        self.get(key)?.switch()
    }

    /// A number as it is declared.
    pub(super) fn number(&self, number: &Number) -> Option<u64> {
        self.get(number.name)?.number(number.min..=number.max)
    }
}
