//! The files of `tests/`: what is called, in which world, and what is expected.
//!
//! Owns the keys of these files. Invariant: a key that nobody reads is an error, because a test that is not what its
//! author thinks passes for the wrong reason.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::Value;
use toml::value::Datetime;

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TestFile {
    /// What the plugin's settings are.
    #[serde(default)]
    pub(super) settings: BTreeMap<String, Value>,
    /// Grants the key-value store, with what is kept before each case.
    pub(super) kv: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) secrets: BTreeMap<String, TestSecret>,
    #[serde(default)]
    pub(super) directories: Vec<TestDirectory>,
    /// The wall clock of every case; it stands.
    pub(super) clock: Option<Datetime>,
    /// Answers of servers, for every case.
    #[serde(default)]
    pub(super) http: Vec<Recorded>,
    #[serde(rename = "case")]
    pub(super) cases: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TestSecret {
    pub(super) value: String,
    /// `https://HOST[:PORT][/PATH]`.
    pub(super) to: Vec<String>,
    /// `header`, `query` or `body`.
    #[serde(default = "header", rename = "in")]
    pub(super) places: Vec<String>,
}

fn header() -> Vec<String> {
    vec!["header".to_owned()]
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TestDirectory {
    /// From the project's folder.
    pub(super) host: PathBuf,
    pub(super) guest: String,
    #[serde(default)]
    pub(super) write: bool,
}

/// What a server answers to one request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recorded {
    #[serde(default = "get")]
    pub(super) method: String,
    pub(super) url: String,
    #[serde(default = "ok")]
    pub(super) status: u16,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) body: String,
    /// Instead of `body`; the content type is then `application/json`.
    pub(super) json: Option<Value>,
    /// Headers that the request must have.
    #[serde(default)]
    pub(super) request_headers: BTreeMap<String, String>,
    /// What the request's body must be, as text or as JSON.
    pub(super) request_body: Option<Value>,
}

fn get() -> String {
    "GET".to_owned()
}

fn ok() -> u16 {
    200
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) tool: String,
    #[serde(default)]
    pub(super) arguments: BTreeMap<String, Value>,
    /// As in the file of `plugin call --answers`.
    #[serde(default)]
    pub(super) answers: serde_json::Map<String, Value>,
    pub(super) clock: Option<Datetime>,
    /// Answers of servers, for this case; every one of them must be asked for.
    #[serde(default)]
    pub(super) http: Vec<Recorded>,
    pub(super) expect: Expectation,
}

/// What must come out. All that is named must hold.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expectation {
    /// All texts of the result, one a line.
    pub(super) text: Option<String>,
    /// A part of them.
    pub(super) text_contains: Option<String>,
    /// `structuredContent`, exactly.
    pub(super) structured: Option<Value>,
    /// The whole result as a client would see it, exactly.
    pub(super) result: Option<Value>,
    /// Members that the result has, among others.
    pub(super) contains: Option<Value>,
    /// A part of the error's text: the call must fail, or its result be an error.
    pub(super) error: Option<String>,
}

impl Expectation {
    fn is_empty(&self) -> bool {
        let Self { text, text_contains, structured, result, contains, error } = self;
        let texts = [text, text_contains, error].into_iter().all(Option::is_none);
        texts && [structured, result, contains].into_iter().all(Option::is_none)
    }
}

/// Reads a file.
///
/// # Errors
///
/// It is no such file; with the line and the key.
pub(super) fn read(path: &Path) -> anyhow::Result<TestFile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    parse(&text).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> anyhow::Result<TestFile> {
    let file: TestFile = toml::from_str(text)?;
    anyhow::ensure!(!file.cases.is_empty(), "it has no [[case]]");
    for case in &file.cases {
        anyhow::ensure!(
            !case.expect.is_empty(),
            "case {:?}: `expect` needs one of text, text_contains, structured, result, contains, error",
            case.name
        );
        case.clock.or(file.clock).map(unix_ms).transpose().with_context(|| format!("case {:?}: `clock`", case.name))?;
    }
    Ok(file)
}

/// Milliseconds since the Unix epoch.
pub(super) fn unix_ms(at: Datetime) -> anyhow::Result<u64> {
    let Datetime { date: Some(date), time: Some(time), offset: Some(offset) } = at else {
        anyhow::bail!("{at} is no instant; write a date, a time and a zone, such as 2026-01-31T09:00:00Z");
    };
    let offset_minutes = match offset {
        toml::value::Offset::Z => 0,
        toml::value::Offset::Custom { minutes } => i64::from(minutes),
    };
    // The year begins in March here, so that the leap day is its last.
    let year = i64::from(date.year);
    let month = i64::from(date.month);
    let day = i64::from(date.day);
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    let seconds = i64::from(time.second.unwrap_or_default());
    let minutes = days * 1440 + i64::from(time.hour) * 60 + i64::from(time.minute) - offset_minutes;
    let ms = (minutes * 60 + seconds) * 1000 + i64::from(time.nanosecond.unwrap_or_default() / 1_000_000);
    u64::try_from(ms).with_context(|| format!("{at} is before 1970"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_of_a_test_is_an_instant() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-11-21T02:03:39.123Z", 1_795_226_619_123),
            ("2024-02-29T23:59:59Z", 1_709_251_199_000),
            ("2026-01-01T01:00:00+01:00", 1_767_225_600_000),
        ] {
            let at: Datetime = text.parse().unwrap();
            assert_eq!(unix_ms(at).unwrap(), ms, "{text}");
        }
        assert_eq!(bulkhead_domain::timestamp::iso8601(1_795_226_619_123), "2026-11-21T02:03:39.123Z");
        for wrong in ["2026-01-01", "2026-01-01T00:00:00", "1969-12-31T23:59:59Z"] {
            assert!(unix_ms(wrong.parse().unwrap()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn test_file_with_unknown_key_or_without_expectation_is_refused() {
        let case = "[[case]]\nname = 'a'\ntool = 't'\n";
        assert!(parse(&format!("{case}expect = {{ text = 'x' }}")).is_ok());
        assert!(parse(&format!("\u{feff}{case}expect = {{ text = 'x' }}")).is_ok(), "a byte order mark is skipped");
        for (text, why) in [
            (format!("{case}expect = {{}}"), "`expect` needs one of"),
            (format!("{case}expect = {{ txt = 'x' }}"), "txt"),
            (format!("{case}expect = {{ text = 'x' }}\nargument = {{}}"), "argument"),
            (case.to_owned(), "expect"),
            ("case = []".to_owned(), "no [[case]]"),
            (format!("clock = 2026-01-01\n{case}expect = {{ text = 'x' }}"), "no instant"),
        ] {
            let error = format!("{:#}", parse(&text).unwrap_err());
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
