//! What a server asks over its standard output while it works on a call, and the lines that it reads as answers.
//!
//! Owns when that happens: the moment its guest waits for anything, which is the same when the call runs again.
//! Invariant: a question passes every check that one of a plugin passes, and is refused in words where the client
//! cannot be asked.

use futures::future::poll_immediate;
use serde_json::{Value, json};
use wasmtime::Result;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::WasiView as _;
use wasmtime_wasi_io::bindings::wasi::io::streams::{self, HostInputStream as _};
use wasmtime_wasi_io::poll::Pollable as _;
use wasmtime_wasi_io::streams::{DynInputStream, StreamError};

use super::McpEra;
use super::calls::ROUNDS_MAX;
use super::messages::ServerRequest;
use super::multi_round_trip::{answer_text, is_question, question};
use super::stdio::Conversation;
use crate::bindings::bulkhead::plugin::task::{AskError, Host as _, InputRequest};
use crate::call::Call;
use crate::limits::LimitHit;
use bulkhead_calls::journal::names;
use bulkhead_domain::call::ClientFeature;

const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL_ERROR: i64 = -32603;

impl Call {
    /// The guest waits: what its server asked is asked now, and it learns that it was cancelled.
    pub(crate) async fn attend(&mut self) -> Result<()> {
        let Some(conversation) = self.conversation.clone() else { return Ok(()) };
        let (cancelled, _) = self.shared.look();
        if self.shown_signals(u8::from(cancelled))? & 1 != 0 {
            conversation.cancel();
        }
        while let Some((era, request, count)) = conversation.next_request() {
            if count > ROUNDS_MAX {
                return Err(LimitHit::Rounds { count_max: ROUNDS_MAX }.into());
            }
            let answered = self.answer(era, &request, count).await?;
            conversation.push(&line(&request, answered));
        }
        Ok(())
    }

    /// The result, or the error, that a request of the server gets.
    async fn answer(
        &mut self,
        era: McpEra,
        request: &ServerRequest,
        count: u32,
    ) -> Result<std::result::Result<String, (i64, String)>> {
        if request.method == "ping" {
            return Ok(Ok("{}".to_owned()));
        }
        if era == McpEra::Modern {
            let words = "servers of 2026-07-28 send no requests; answer the call with `input_required`";
            return Ok(Err((METHOD_NOT_FOUND, words.to_owned())));
        }
        let question = match question(&request.method, request.params()) {
            Ok(question) => question,
            Err(wrong) if is_question(&request.method) => return Ok(Err((INVALID_PARAMS, wrong))),
            Err(wrong) => return Ok(Err((METHOD_NOT_FOUND, wrong))),
        };
        let key = format!("request-{count}");
        let mut responses = match self.ask(vec![InputRequest { key, question, meta: Vec::new() }]).await? {
            Ok(responses) => responses.into_iter(),
            Err(AskError::Unsupported(feature)) => {
                let words = format!("the client does not support {}", ClientFeature::from(feature));
                return Ok(Err((METHOD_NOT_FOUND, words)));
            }
            Err(AskError::Invalid(wrong)) => return Ok(Err((INVALID_PARAMS, wrong))),
            Err(AskError::Unreachable(why)) => return Ok(Err((INTERNAL_ERROR, why))),
            Err(AskError::Cancelled) => return Ok(Err((INTERNAL_ERROR, "the call was cancelled".to_owned()))),
        };
        let answer = responses.next().map(|response| answer_text(response.answer, false));
        Ok(answer.unwrap_or_else(|| Err("nobody answered".to_owned())).map_err(|why| (INTERNAL_ERROR, why)))
    }

    /// What is looked at for being ready is counted from here on, of the call of a server.
    pub(crate) fn count_looks(&self) {
        self.conversation.iter().for_each(Conversation::count_looks);
    }

    /// Whether the guest waits for so many things that are all its input, none of which is ready: then it gets to the
    /// end of that.
    pub(crate) fn ends_input_for(&self, count: usize) -> bool {
        self.conversation.as_ref().is_some_and(|conversation| conversation.ends_for(count))
    }

    /// Has a guest wait for a moment that looks for input in a loop.
    pub(crate) async fn nap_for_input(&mut self) {
        if let Some(conversation) = self.conversation.clone().filter(Conversation::was_looked_at) {
            conversation.nap().await;
        }
    }

    /// Before a read that waits. A server's guest that reads like this does nothing else meanwhile.
    async fn before_read(&mut self, stream: &Resource<DynInputStream>) -> Result<()> {
        let Some(conversation) = self.conversation.clone() else { return Ok(()) };
        self.step(names::POLLABLE_BLOCK)?;
        self.attend().await?;
        conversation.count_looks();
        let stream = self.ctx().table.get_mut(stream)?;
        if poll_immediate(stream.ready()).await.is_none() {
            conversation.ends_for(1);
        }
        Ok(())
    }

    async fn blocking_read(&mut self, stream: Resource<DynInputStream>, size: u64) -> Result<Read<Vec<u8>>> {
        self.before_read(&stream).await?;
        let read = self.ctx().table.blocking_read(stream, size).await;
        self.read(read)
    }

    async fn blocking_skip(&mut self, stream: Resource<DynInputStream>, size: u64) -> Result<Read<u64>> {
        self.before_read(&stream).await?;
        let skipped = self.ctx().table.blocking_skip(stream, size).await;
        self.read(skipped)
    }

    fn read<T>(&mut self, read: std::result::Result<T, StreamError>) -> Result<Read<T>> {
        match read {
            Ok(read) => Ok(Ok(read)),
            Err(error) => streams::Host::convert_stream_error(self.ctx().table, error).map(Err),
        }
    }
}

/// What a guest is told of a read.
type Read<T> = std::result::Result<T, streams::StreamError>;

/// Has reads that wait pass here: the library gives them the stream alone.
pub(crate) fn add_to_linker(linker: &mut Linker<Call>) -> Result<()> {
    linker.allow_shadowing(true);
    let mut instance = linker.instance("wasi:io/streams@0.2.12")?;
    instance.func_wrap_async("[method]input-stream.blocking-read", |mut store, (stream, size): (_, u64)| {
        Box::new(async move { Ok((store.data_mut().blocking_read(stream, size).await?,)) })
    })?;
    instance.func_wrap_async("[method]input-stream.blocking-skip", |mut store, (stream, size): (_, u64)| {
        Box::new(async move { Ok((store.data_mut().blocking_skip(stream, size).await?,)) })
    })?;
    linker.allow_shadowing(false);
    Ok(())
}

/// The line that answers a request.
fn line(request: &ServerRequest, answered: std::result::Result<String, (i64, String)>) -> String {
    let id = &request.id;
    match answered {
        Ok(result) => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
        Err((code, message)) => {
            let error: Value = json!({"code": code, "message": message});
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
        }
    }
}
