//! A command: `args` and `stdin` in, standard output and the exit code out.
//!
//! Owns the streams of one call, whichever version of WASI they are written through. Standard output is the result, so
//! writing more of it than a result may hold ends the call; standard error goes to the operator's log, and its end to
//! the caller if the program fails.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{I32Exit, WasiCtxBuilder};
use wasmtime_wasi_io::poll::Pollable;
use wasmtime_wasi_io::streams::{OutputStream, StreamError, StreamResult};

use super::answers::{argument_error, said, text};
use crate::bindings::bulkhead::plugin::types as wit;
use crate::bindings::exports::bulkhead::plugin::tools::ToolOutput;
use crate::content::{base64_size, block_size};
use crate::events::Outbox;
use crate::json::accept;
use crate::last_words::LastWords;
use crate::limits::{LimitHit, STDIO_BYTES_MAX};
use crate::wasi_context::{Printed, StderrTail};

/// Arguments of one run. Each costs some bytes of the host, however short it is, and again whenever the guest asks for
/// them.
const ARGUMENTS_MAX: usize = 256;

/// Where the bytes of a program come from that are no text.
const STDOUT_URI: &str = "bulkhead:stdout";

pub(super) fn description(plugin: &str) -> String {
    format!(
        "Runs the program {plugin} once, with these arguments and this standard input, and returns what it writes to standard output. \
         An exit code other than 0 is an error, which shows the end of standard error."
    )
}

pub(super) fn input_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "args": {
                "type": "array",
                "items": {"type": "string"},
                "maxItems": ARGUMENTS_MAX,
                "description": "The arguments of the command line, without the program's name."
            },
            "stdin": {"type": "string", "description": "What the program reads from standard input."}
        },
        "additionalProperties": false
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    stdin: String,
}

/// What one run has around it; cheap to clone.
#[derive(Clone)]
pub(crate) struct Program {
    /// The plugin's name comes first, as a program's does.
    arguments: Arc<[String]>,
    stdin: MemoryInputPipe,
    stdout: Sink<Stdout>,
    stderr: Sink<Stderr>,
    last_words: LastWords,
}

impl Program {
    /// Of a call with these arguments.
    ///
    /// # Errors
    ///
    /// They do not fit.
    pub(super) fn new(
        plugin: &str,
        arguments: &str,
        stdout_bytes_max: u64,
        last_words: LastWords,
    ) -> Result<Self, String> {
        let Arguments { args, stdin } = serde_json::from_str(arguments)
            .map_err(|error| format!("the arguments do not fit: {}", argument_error(&error)))?;
        if args.len() > ARGUMENTS_MAX {
            return Err(format!("args: {} arguments; {ARGUMENTS_MAX} is the most", args.len()));
        }
        Ok(Self {
            arguments: [plugin.to_owned()].into_iter().chain(args).collect(),
            stdin: MemoryInputPipe::new(stdin),
            stdout: Sink::new(Stdout { bytes: Vec::new(), bytes_max: stdout_bytes_max, is_full: false }),
            stderr: Sink::new(Stderr { printed: Printed::new(plugin.into(), "stderr"), tail: StderrTail::default() }),
            last_words,
        })
    }

    /// Gives the guest its arguments and streams. What it prints is logged while the outbox, if there is one, is not
    /// silent.
    pub(crate) fn set_up(&self, world: &mut WasiCtxBuilder, heard: Option<Outbox>) {
        self.stderr.0.lock().printed.set_outbox(heard);
        world.args(&self.arguments).stdin(self.stdin.clone()).stdout(self.stdout.clone()).stderr(self.stderr.clone());
    }

    /// The end of standard error.
    pub(crate) fn stderr(&self) -> StderrTail {
        self.stderr.0.lock().tail.clone()
    }

    /// What a run is that ended so.
    pub(super) fn ended(&self, returned: wasmtime::Result<Result<(), ()>>) -> wasmtime::Result<ToolOutput> {
        // Through WASI 0.3, writing too much is an error that the guest may make anything of.
        self.stdout.0.lock().check()?;
        let code = match returned {
            Ok(Ok(())) => 0,
            Ok(Err(())) => 1,
            Err(error) => match error.downcast_ref::<I32Exit>() {
                Some(exit) => exit.0,
                None => return Err(error),
            },
        };
        Ok(self.output(code))
    }

    fn output(&self, code: i32) -> ToolOutput {
        let (stdout, bytes_max) = {
            let mut stdout = self.stdout.0.lock();
            (std::mem::take(&mut stdout.bytes), stdout.bytes_max)
        };
        if code == 0 {
            return success(stdout);
        }
        failure(
            code,
            &self.last_words.for_caller(&self.stderr()),
            stdout,
            usize::try_from(bytes_max).unwrap_or(usize::MAX),
        )
    }
}

/// Words, and standard output beside them. A program that fails is an error that it reports, so what does not fit into
/// a result is cut off: of standard output, which is incomplete anyway, before the end of standard error.
fn failure(code: i32, stderr: &str, stdout: Vec<u8>, bytes_max: usize) -> ToolOutput {
    const END_OF_STDERR: &str = " The end of its standard error:\n";
    const CUT: &str = " Its standard output does not fit here as a whole.";
    let ended = format!("The program ended with exit code {code}.");
    let bytes_left = bytes_max.saturating_sub(block_size(&text(ended.as_str())));
    let end = stderr.len().saturating_sub(bytes_left.saturating_sub(END_OF_STDERR.len()));
    let stderr = stderr.get(stderr.ceil_char_boundary(end)..).filter(|end| !end.is_empty());
    let reason = stderr.map(|stderr| format!("{END_OF_STDERR}{stderr}")).unwrap_or_default();
    let bytes_left = bytes_left.saturating_sub(reason.len());
    let whole = block(stdout);
    let (cut, stdout) = match whole {
        Some(whole) if block_size(&whole) > bytes_left => match bytes_left.checked_sub(CUT.len()) {
            Some(bytes_left) => (CUT, beginning_of(whole, bytes_left)),
            None => ("", None),
        },
        whole => ("", whole),
    };
    let mut output = said(format!("{ended}{cut}{reason}"));
    output.content.extend(stdout);
    output
}

/// The beginning of a block of standard output that has so many bytes at most; nothing for nothing.
fn beginning_of(mut whole: wit::Content, bytes_max: usize) -> Option<wit::Content> {
    let size = block_size(&whole);
    match &mut whole {
        wit::Content::Text(text) => {
            let fits = (text.text.len() + bytes_max).saturating_sub(size);
            text.text.truncate(text.text.floor_char_boundary(fits));
            (!text.text.is_empty()).then_some(whole)
        }
        wit::Content::Resource(wit::EmbeddedResource {
            contents: wit::ResourceContents { body: wit::ResourceBody::Blob(data), .. },
            ..
        }) => {
            // Three bytes take four.
            let fits = (base64_size(data) + bytes_max).saturating_sub(size);
            data.truncate(fits / 4 * 3);
            (!data.is_empty()).then_some(whole)
        }
        _ => None,
    }
}

/// JSON stands in the structured content, and the protocol repeats it as text; anything else is text. A number or a
/// word is JSON by accident only.
fn success(stdout: Vec<u8>) -> ToolOutput {
    let mut content = Vec::new();
    let mut structured = None;
    let is_json = |text: &str| text.trim_start().starts_with(['{', '[']) && accept(text).is_ok();
    match String::from_utf8(stdout) {
        Ok(text) if is_json(&text) => structured = Some(text),
        Ok(text) => content.extend(block(text.into_bytes())),
        Err(binary) => content.extend(block(binary.into_bytes())),
    }
    ToolOutput { content, structured, is_error: false, meta: Vec::new() }
}

/// Text as it is, other bytes as a resource; nothing for nothing.
fn block(stdout: Vec<u8>) -> Option<wit::Content> {
    match String::from_utf8(stdout) {
        Ok(empty) if empty.is_empty() => None,
        Ok(stdout) => Some(text(stdout)),
        Err(binary) => {
            let contents = wit::ResourceContents {
                uri: STDOUT_URI.to_owned(),
                mime_type: Some("application/octet-stream".to_owned()),
                body: wit::ResourceBody::Blob(binary.into_bytes()),
                meta: Vec::new(),
            };
            Some(wit::Content::Resource(wit::EmbeddedResource { contents, annotations: None, meta: Vec::new() }))
        }
    }
}

/// What takes a guest's bytes.
trait Take: Send + 'static {
    fn take(&mut self, bytes: &[u8]) -> Result<(), LimitHit>;
}

/// Standard output, whole.
struct Stdout {
    bytes: Vec<u8>,
    bytes_max: u64,
    /// More was written than it may hold: it takes nothing any more.
    is_full: bool,
}

impl Stdout {
    fn check(&self) -> Result<(), LimitHit> {
        let hit = LimitHit::Output { what: "standard output", bytes_max: self.bytes_max };
        if self.is_full { Err(hit) } else { Ok(()) }
    }
}

impl Take for Stdout {
    fn take(&mut self, bytes: &[u8]) -> Result<(), LimitHit> {
        self.is_full |= (self.bytes.len() + bytes.len()) as u64 > self.bytes_max;
        self.check()?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

/// Standard error: logged as that of every plugin, and its end kept.
struct Stderr {
    printed: Printed,
    tail: StderrTail,
}

impl Take for Stderr {
    fn take(&mut self, bytes: &[u8]) -> Result<(), LimitHit> {
        self.printed.show(bytes);
        self.tail.push(bytes);
        Ok(())
    }
}

/// An output stream of a guest; all clones are the same one.
struct Sink<W>(Arc<Mutex<W>>);

impl<W> Sink<W> {
    fn new(taker: W) -> Self {
        Self(Arc::new(Mutex::new(taker)))
    }
}

impl<W> Clone for Sink<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<W> IsTerminal for Sink<W> {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl<W: Take> StdoutStream for Sink<W> {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl<W: Take> AsyncWrite for Sink<W> {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // Of the kinds of errors, this one is told to the guest alone: the library has a line in the host's log for
        // each other one.
        let full = |hit: LimitHit| io::Error::new(io::ErrorKind::BrokenPipe, hit);
        Poll::Ready(self.0.lock().take(bytes).map(|()| bytes.len()).map_err(full))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[async_trait::async_trait]
impl<W: Take> Pollable for Sink<W> {
    async fn ready(&mut self) {}
}

#[async_trait::async_trait]
impl<W: Take> OutputStream for Sink<W> {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.0.lock().take(&bytes).map_err(|hit| StreamError::Trap(hit.into()))
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(STDIO_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::wasi_context::tests::logged;

    fn last_words() -> LastWords {
        LastWords::new(Arc::default(), true)
    }

    fn program(arguments: &Value) -> Program {
        Program::new("tool", &arguments.to_string(), 10, last_words()).unwrap()
    }

    fn texts(output: &ToolOutput) -> Vec<&str> {
        let blocks = output.content.iter().map(|block| match block {
            wit::Content::Text(text) => text.text.as_str(),
            other => panic!("{other:?}"),
        });
        blocks.collect()
    }

    #[test]
    fn program_name_precedes_its_arguments() {
        assert_eq!(*program(&json!({"args": ["-n", "7"]})).arguments, ["tool", "-n", "7"]);
        assert_eq!(*program(&json!({})).arguments, ["tool"]);
    }

    #[test]
    fn arguments_that_do_not_fit_are_refused() {
        let too_many = json!({"args": vec![""; ARGUMENTS_MAX + 1]});
        for (arguments, why) in [
            (too_many, "256 is the most"),
            (json!({"args": "-n"}), "do not fit"),
            (json!({"argv": []}), "unknown field `argv`"),
        ] {
            let wrong = Program::new("tool", &arguments.to_string(), 10, last_words()).err().unwrap();
            assert!(wrong.contains(why), "{wrong}");
        }
    }

    #[test]
    fn refusal_names_the_beginning_of_an_unknown_argument() {
        let wrong = Program::new("tool", &json!({"x".repeat(100_000): 1}).to_string(), 10, last_words()).err().unwrap();
        assert!(wrong.contains("unknown field `xxx") && wrong.len() < 400, "{} bytes", wrong.len());
    }

    #[test]
    fn json_on_stdout_is_structured_content_and_accidental_json_is_text() {
        let printed = |text: &str| success(text.as_bytes().to_vec());
        for json in ["{\"a\": 1}\n", " [1,\n 2]"] {
            let output = printed(json);
            assert_eq!((output.structured.as_deref(), output.content.len()), (Some(json), 0), "{json}");
        }
        for text in ["42\n", "null", "{not json", "{} {}", "plain"] {
            let output = printed(text);
            assert_eq!((output.structured.as_ref(), texts(&output)), (None, vec![text]));
        }
        assert!(printed("").content.is_empty());
    }

    #[test]
    fn binary_stdout_is_an_embedded_resource() {
        let output = success(vec![0x89, b'P', 0xFF]);
        let [wit::Content::Resource(embedded)] = output.content.as_slice() else { panic!("{output:?}") };
        assert!(matches!(&embedded.contents.body, wit::ResourceBody::Blob(data) if data == &[0x89, b'P', 0xFF]));
    }

    #[test]
    fn stdout_ends_at_the_result_limit() {
        let mut stdout = program(&json!({})).stdout;
        stdout.write(Bytes::from_static(b"0123456789")).unwrap();
        let Err(StreamError::Trap(error)) = stdout.write(Bytes::from_static(b"x")) else { panic!("it went on") };
        assert!(error.downcast_ref::<LimitHit>().is_some_and(|hit| hit.to_string().contains("call.result_bytes")));
    }

    #[test]
    fn streams_of_wasi_03_are_the_same_ones_and_their_limit_ends_the_call() {
        let program = program(&json!({}));
        let write = |stream: Box<dyn AsyncWrite + Send + Sync>, bytes: &[u8]| {
            tokio::io::AsyncWriteExt::write_all(&mut Box::into_pin(stream), bytes)
                .now_or_never()
                .expect("it never waits")
        };
        write(program.stdout.async_stream(), b"half").unwrap();
        write(program.stderr.async_stream(), b"because\n").unwrap();
        assert_eq!(program.stderr().text(), "because");
        write(program.stdout.async_stream(), b" of it").unwrap();
        let output = program.ended(Ok(Ok(()))).unwrap();
        assert_eq!(texts(&output), ["half of it"]);

        let refused = write(program.stdout.async_stream(), b"01234567890").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
        assert!(
            write(program.stdout.async_stream(), b"x").is_err(),
            "what was left out would be missing in the middle"
        );
        for returned in [Ok(Ok(())), Ok(Err(())), Err(wasmtime::Error::msg("it did not like that"))] {
            let error = program.ended(returned).unwrap_err();
            assert!(error.downcast_ref::<LimitHit>().is_some_and(|hit| hit.to_string().contains("call.result_bytes")));
        }
    }

    #[test]
    fn failure_of_any_size_fits_into_a_result() {
        let size = |output: &ToolOutput| output.content.iter().map(block_size).sum::<usize>();
        for (stdout, stderr) in [(b"ab\xC3\xBC".repeat(2000), "ü"), (vec![0xFF; 2000], "ü"), (vec![], "")] {
            for lines in [0, 1, 100, 3000] {
                let stderr = stderr.repeat(lines);
                for bytes_max in 1024..1200 {
                    let output = failure(-2_147_483_648, &stderr, stdout.clone(), bytes_max);
                    assert!(output.is_error && size(&output) <= bytes_max, "{} of {bytes_max}", size(&output));
                }
            }
        }
        let output = failure(1, "no such file", b"x".repeat(4096), 4096);
        let [words, stdout] = texts(&output)[..] else { panic!("{output:?}") };
        assert_eq!(
            words,
            "The program ended with exit code 1. Its standard output does not fit here as a whole. The end of its standard error:\n\
             no such file"
        );
        assert!(stdout.len() > 3800 && size(&output) == 4096, "as much as there is room for: {}", stdout.len());
        let output = failure(1, &format!("{}the reason", "x".repeat(4096)), b"x".repeat(4096), 1024);
        let [words] = texts(&output)[..] else { panic!("{output:?}") };
        assert!(words.ends_with("xthe reason"), "{words}");
        let output = failure(1, "", vec![0xFF; 4096], 4096);
        assert!(
            matches!(&output.content[..], [_, wit::Content::Resource(_)]) && size(&output) > 4090,
            "{}",
            size(&output)
        );
    }

    #[test]
    fn program_that_runs_again_says_nothing_twice() {
        let records = logged(|| {
            let program = Program::new("tool", "{}", 16 << 10, last_words()).unwrap();
            let outbox = Outbox::new(tokio::sync::mpsc::channel(1).0, 1, 1);
            outbox.set_silent(true);
            program.set_up(&mut WasiCtxBuilder::new(), Some(outbox.clone()));
            _ = program.stderr.clone().write(Bytes::from_static(b"again\n"));
            outbox.set_silent(false);
            _ = program.stderr.clone().write(Bytes::from_static(b"anew\n"));
        });
        assert!(records.contains("anew") && !records.contains("again"), "{records}");
    }

    #[test]
    fn failure_shows_code_stdout_and_end_of_stderr() {
        let mut program = Program::new("tool", "{}", 16 << 10, last_words()).unwrap();
        program.stdout.write(Bytes::from_static(b"half")).unwrap();
        program.stderr.write(Bytes::from("ü".repeat(4096))).unwrap();
        program.stderr.write(Bytes::from_static(b"no such\nfile\n")).unwrap();
        let output = program.output(3);
        assert!(output.is_error);
        let [words, "half"] = texts(&output)[..] else { panic!("{output:?}") };
        assert!(words.starts_with("The program ended with exit code 3. The end of its standard error:\nü"), "{words}");
        assert!(words.ends_with("üno such\nfile") && words.len() < 4096 + 100, "{words}");
    }
}
