//! What authors do with the journal of one call: `plugin call --journal` writes it, and `plugin replay` runs the call
//! again from it alone.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::{command, place};

const COUNTING: &str = r#"{"below": 3000000}"#;

/// A command that is over.
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

async fn plugin(arguments: &[&str]) -> Ended {
    let all = [&["plugin"], arguments].concat();
    let output = command::output(&mut command::bulkhead(), &all, None).await;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A component, and a folder for a journal of one of its calls.
struct Author {
    component: String,
    folder: TempDir,
}

impl Author {
    fn of(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { component: place::component(name).display().to_string(), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn journal(&self) -> PathBuf {
        self.path("call.journal")
    }

    /// Calls a tool, which has to succeed, and keeps its journal; what was said.
    async fn record(&self, tool: &str, arguments: &str, more: &[&str]) -> Ended {
        let journal = self.journal().display().to_string();
        let call = ["call", &self.component, tool, arguments, "--journal", &journal];
        let called = plugin(&[&call, more].concat()).await;
        assert_eq!(called.code, Some(0), "{}", called.err);
        called
    }

    async fn replay(&self, tool: &str, arguments: &str, more: &[&str]) -> Ended {
        replay(&self.component, tool, arguments, &self.journal(), more).await
    }
}

async fn replay(component: &str, tool: &str, arguments: &str, journal: &Path, more: &[&str]) -> Ended {
    let journal = journal.display().to_string();
    plugin(&[&["replay", component, tool, arguments, "--journal", &journal], more].concat()).await
}

/// Where the first entry of a journal ends, the header: its length stands in front of it, seven bits a byte.
fn header_end(journal: &[u8]) -> usize {
    let mut length = 0;
    let mut at = 0;
    loop {
        let byte = journal[at];
        length |= usize::from(byte & 0x7F) << (7 * at);
        at += 1;
        if byte & 0x80 == 0 {
            return at + length;
        }
    }
}

#[tokio::test]
async fn recorded_call_replays_equal_with_its_size_in_a_line() {
    let author = Author::of("primes");
    let called = author.record("count_primes", COUNTING, &[]).await;
    let facts = std::fs::metadata(author.journal()).expect("the journal");
    assert_eq!(facts.permissions().mode() & 0o777, 0o600, "what a tool saw is for its author");

    let replayed = author.replay("count_primes", COUNTING, &[]).await;
    assert_eq!(replayed.code, Some(0), "{}", replayed.err);
    let size = replayed.out.trim_end();
    assert!(size.contains(" entries, ") && size.contains(" steps, "), "{size}");
    assert!(size.ends_with(&format!(", {} bytes", facts.len())) && !size.contains('\n'), "{size}");
    assert!(called.err.contains(size), "the call says the same: {}", called.err);

    let replayed = author.replay("count_primes", COUNTING, &["--json"]).await;
    let verdict: Value = serde_json::from_str(&replayed.out).expect("JSON");
    assert_eq!((replayed.code, &verdict["equal"], &verdict["why"]), (Some(0), &json!(true), &Value::Null), "{verdict}");
    assert_eq!(verdict["bytes"], facts.len(), "{verdict}");
    assert!(verdict["steps"].as_u64() > Some(2) && verdict["entries"].as_u64() >= Some(2), "{verdict}");
}

#[tokio::test]
async fn replay_of_anything_else_says_where_it_differs() {
    let author = Author::of("primes");
    author.record("count_primes", COUNTING, &[]).await;

    let other = author.replay("count_primes", r#"{"below": 3000001}"#, &[]).await;
    assert_eq!(other.code, Some(5), "{}", other.err);
    assert!(other.err.contains("the journal is of a call with other arguments"), "{}", other.err);

    // The same code with a section that says nothing.
    let another = author.path("another.wasm");
    let mut component = std::fs::read(&author.component).expect("the component");
    component.extend([0, 3, 1, b'x', 0]);
    std::fs::write(&another, component).expect("a component");
    let another = another.display().to_string();
    let other = replay(&another, "count_primes", COUNTING, &author.journal(), &[]).await;
    assert_eq!(other.code, Some(5), "{}", other.err);
    assert!(other.err.contains("the journal is of another component"), "{}", other.err);

    let mut bytes = std::fs::read(author.journal()).expect("the journal");
    let begin = header_end(&bytes);
    let middle = begin + (bytes.len() - begin) / 2;
    bytes[middle] ^= 1;
    std::fs::write(author.journal(), &bytes).expect("a journal");
    let changed = author.replay("count_primes", COUNTING, &["--json"]).await;
    let verdict: Value = serde_json::from_str(&changed.out).expect("JSON");
    assert_eq!((changed.code, &verdict["equal"]), (Some(5), &json!(false)), "{verdict}");
    assert!(verdict["why"].as_str().is_some_and(|why| why.contains("call.journal: ")), "{verdict}");

    // Without its end it is the journal of a call that a host would go on with.
    std::fs::write(author.journal(), &bytes[..begin]).expect("a journal");
    let open = author.replay("count_primes", COUNTING, &[]).await;
    assert_eq!((open.code, open.out.as_str()), (Some(5), ""), "{}", open.err);
    assert!(open.err.contains("the journal has no end"), "{}", open.err);
}

#[tokio::test]
async fn replay_asks_nobody() {
    let author = Author::of("desk");
    let answers = author.path("answers.json");
    let content = json!({
        "journey": {"action": "accept", "content": {"destination": "Cork", "travellers": 1}},
        "details": {"action": "accept", "content": {"class": "economy", "confirm": true}}
    });
    std::fs::write(&answers, content.to_string()).expect("a file");
    let answers = answers.display().to_string();
    let called = author.record("book_trip", "{}", &["--answers", &answers]).await;
    assert!(called.out.contains("Booked 1 economy seats to Cork."), "{}", called.out);
    std::fs::remove_file(&answers).expect("the answers");
    let replayed = author.replay("book_trip", "{}", &[]).await;
    assert_eq!(replayed.code, Some(0), "{}", replayed.err);
    let said = "The destination is known";
    let again = &replayed.err;
    assert!(called.err.contains(said) && !again.contains(said), "nothing is said again: {again}");
}

#[tokio::test]
async fn file_that_is_no_journal_is_neither_replayed_nor_replaced() {
    let author = Author::of("text");
    let words = r#"{"text": "words"}"#;
    std::fs::write(author.journal(), "words").expect("a file");
    let none = author.replay("echo", words, &[]).await;
    assert_eq!(none.code, Some(5), "{}", none.err);
    assert!(none.err.contains("call.journal: the bytes are no journal: entry 0 cannot be read"), "{}", none.err);

    let journal = author.journal().display().to_string();
    let called = plugin(&["call", &author.component, "echo", words, "--journal", &journal]).await;
    assert_eq!((called.code, called.out.as_str()), (Some(1), ""), "the tool was not called: {}", called.err);
    assert!(called.err.contains("is there and is no journal: name another file"), "{}", called.err);
    assert_eq!(std::fs::read_to_string(author.journal()).expect("the file"), "words");

    std::fs::remove_file(author.journal()).expect("the file");
    let missing = author.replay("echo", words, &[]).await;
    assert!(missing.code == Some(1) && missing.err.contains("cannot be read"), "{:?} {}", missing.code, missing.err);
    author.record("echo", words, &[]).await;
    author.record("echo", words, &[]).await;
    assert_eq!(author.replay("echo", words, &[]).await.code, Some(0), "a journal is replaced");
}

#[tokio::test]
async fn call_that_gives_its_journal_up_says_why() {
    let author = Author::of("csv");
    let data = place::root().join("plugins/samples/csv/testdata").display().to_string();
    let grant = format!("{data}:/data");
    let journal = author.journal().display().to_string();
    let arguments = r#"{"path": "/data/airports.csv"}"#;
    let file = &author.component;
    let call = ["call", file, "csv_profile", arguments, "--dir", &grant, "--journal", &journal, "--json"];
    let called = plugin(&call).await;
    assert_eq!(called.code, Some(1), "{}", called.err);
    assert!(called.out.contains("3376"), "the result is there all the same: {}", called.out);
    let why = "is not written: the call gave its journal up (restart: it used a file of a granted directory)";
    assert!(called.err.contains(why), "{}", called.err);
    assert!(!author.journal().exists());
}
