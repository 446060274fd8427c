//! The statistics of one column.
//!
//! A value is looked at once. The type is the narrowest that every value so far allows, so `1, 2, x` ends as text.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash as _, Hasher as _};

use schemars::JsonSchema;
use serde::Serialize;

/// Characters of a text that are kept as an example.
const EXAMPLE_CHARACTERS: usize = 100;

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Type {
    Empty,
    Boolean,
    Integer,
    Number,
    Date,
    Text,
}

/// What is known about a column in the end.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Summary {
    /// The name in the header.
    pub(crate) name: String,
    /// What its values are. Dates are written YYYY-MM-DD or YYYY/MM/DD; numbers with leading zeros are text.
    #[serde(rename = "type")]
    pub(crate) kind: Type,
    /// Missing values: empty, NA, N/A, null or NaN.
    pub(crate) nulls: u64,
    /// Different values.
    pub(crate) distinct: usize,
    /// False if there are more different values than were counted.
    pub(crate) distinct_exact: bool,
    /// The smallest number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub(crate) min: Option<f64>,
    /// The largest number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub(crate) max: Option<f64>,
    /// The mean of the numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub(crate) mean: Option<f64>,
    /// The first text or date in byte order, shortened to 100 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) first: Option<String>,
    /// The last text or date in byte order, shortened to 100 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) last: Option<String>,
}

/// The statistics while they are collected.
pub(crate) struct Column {
    name: String,
    /// None: no value yet.
    kind: Option<Type>,
    nulls: u64,
    /// Hashes instead of values: a collision of 64 bits is less likely than a broken disk.
    seen: HashSet<u64, BuildHasherDefault<DefaultHasher>>,
    distinct_max: usize,
    distinct_exact: bool,
    numbers: u64,
    min: f64,
    max: f64,
    mean: f64,
    first: Option<Vec<u8>>,
    last: Vec<u8>,
}

impl Column {
    pub(crate) fn new(name: &str, distinct_max: usize) -> Self {
        Self {
            name: name.to_owned(),
            kind: None,
            nulls: 0,
            seen: HashSet::default(),
            distinct_max,
            distinct_exact: true,
            numbers: 0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            mean: 0.0,
            first: None,
            last: Vec::new(),
        }
    }

    /// Takes one field as it stands in the file.
    pub(crate) fn add(&mut self, field: &[u8]) {
        let field = field.trim_ascii();
        if is_missing(field) {
            self.nulls += 1;
            return;
        }
        let text = std::str::from_utf8(field).unwrap_or("\u{FFFD}");
        let number = if self.kind == Some(Type::Text) { None } else { parse_number(text) };
        self.kind = Some(widen(self.kind, type_of(text, number)));
        if let Some(number) = number {
            self.numbers += 1;
            self.min = self.min.min(number);
            self.max = self.max.max(number);
            self.mean += (number - self.mean) / self.numbers as f64;
        }
        self.order(field);
        self.remember(field);
    }

    fn order(&mut self, field: &[u8]) {
        match &mut self.first {
            None => (self.first, self.last) = (Some(field.to_vec()), field.to_vec()),
            Some(first) if field < first.as_slice() => field.clone_into(first),
            Some(_) if field > self.last.as_slice() => field.clone_into(&mut self.last),
            Some(_) => {}
        }
    }

    fn remember(&mut self, field: &[u8]) {
        let mut hasher = DefaultHasher::new();
        field.hash(&mut hasher);
        let hash = hasher.finish();
        if self.seen.len() < self.distinct_max {
            self.seen.insert(hash);
        } else if self.distinct_exact && !self.seen.contains(&hash) {
            self.distinct_exact = false;
        }
    }

    pub(crate) fn finish(self) -> Summary {
        let kind = self.kind.unwrap_or(Type::Empty);
        let numeric = matches!(kind, Type::Integer | Type::Number);
        let ordered = matches!(kind, Type::Text | Type::Date);
        Summary {
            name: self.name,
            kind,
            nulls: self.nulls,
            distinct: self.seen.len(),
            distinct_exact: self.distinct_exact,
            min: numeric.then_some(self.min),
            max: numeric.then_some(self.max),
            mean: numeric.then_some(self.mean),
            first: self.first.filter(|_| ordered).as_deref().map(example),
            last: ordered.then(|| example(&self.last)),
        }
    }
}

fn example(field: &[u8]) -> String {
    String::from_utf8_lossy(field).chars().take(EXAMPLE_CHARACTERS).collect()
}

fn is_missing(field: &[u8]) -> bool {
    field.is_empty() || [b"NA".as_slice(), b"N/A", b"null", b"NULL", b"NaN", b"nan"].contains(&field)
}

/// A finite number in decimal notation. Leading zeros are refused: they belong to codes, not to quantities.
fn parse_number(text: &str) -> Option<f64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut bytes = digits.bytes();
    let starts_like_one = match (bytes.next(), bytes.next()) {
        (Some(b'0'), Some(next)) => !next.is_ascii_digit(),
        (Some(b'.'), Some(next)) => next.is_ascii_digit(),
        (Some(first), _) => first.is_ascii_digit(),
        (None, _) => false,
    };
    if starts_like_one { text.parse().ok().filter(|number: &f64| number.is_finite()) } else { None }
}

fn type_of(text: &str, number: Option<f64>) -> Type {
    if number.is_some() {
        return if text.parse::<i64>().is_ok() { Type::Integer } else { Type::Number };
    }
    if ["true", "false", "yes", "no"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return Type::Boolean;
    }
    if is_date(text) { Type::Date } else { Type::Text }
}

fn is_date(text: &str) -> bool {
    let separator = if text.contains('/') { '/' } else { '-' };
    let parts: Vec<&str> = text.split(separator).collect();
    let [year, month, day] = parts[..] else { return false };
    let within = |part: &str, length: usize, range: std::ops::RangeInclusive<u32>| {
        part.len() == length
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && part.parse().is_ok_and(|value| range.contains(&value))
    };
    within(year, 4, 0..=9999) && within(month, 2, 1..=12) && within(day, 2, 1..=31)
}

/// The narrowest type that holds both.
fn widen(so_far: Option<Type>, next: Type) -> Type {
    match (so_far, next) {
        (None, next) => next,
        (Some(so_far), next) if so_far == next => next,
        (Some(Type::Integer | Type::Number), Type::Integer | Type::Number) => Type::Number,
        (Some(_), _) => Type::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(fields: &[&str]) -> Summary {
        let mut column = Column::new("c", 3);
        for field in fields {
            column.add(field.as_bytes());
        }
        column.finish()
    }

    #[test]
    fn column_type_is_the_narrowest_that_fits() {
        let rows: [(&[&str], Type); 11] = [
            (&[], Type::Empty),
            (&["", "NA"], Type::Empty),
            (&["1", "-2"], Type::Integer),
            (&["1", "2.5"], Type::Number),
            (&["1e3", ".5"], Type::Number),
            (&["01"], Type::Text),
            (&["true", "NO"], Type::Boolean),
            (&["2026-11-20", "2026/01/02"], Type::Date),
            (&["2026-13-20"], Type::Text),
            (&["1", "true"], Type::Text),
            (&["inf", "1"], Type::Text),
        ];
        for (fields, expected) in rows {
            assert_eq!(summary(fields).kind, expected, "{fields:?}");
        }
    }

    #[test]
    fn numeric_column_has_range_and_mean() {
        let summary = summary(&["2", "", "4", "9"]);
        assert_eq!((summary.min, summary.max, summary.mean, summary.nulls), (Some(2.0), Some(9.0), Some(5.0), 1));
        assert_eq!((summary.first, summary.last), (None, None));
    }

    #[test]
    fn distinct_count_reports_when_inexact() {
        let exact = summary(&["a", "b", "c", "a"]);
        assert_eq!((exact.distinct, exact.distinct_exact), (3, true));
        let more = summary(&["a", "b", "c", "d"]);
        assert_eq!((more.distinct, more.distinct_exact), (3, false));
    }
}
