//! Requests of the host to a client, from sending to the final answer.
//!
//! Owns where a client is asked, and the waiting: time limits, withdrawal, and clients that answer with a task of their
//! own, which is then polled and fetched. Two users: a plain call waits for its answers itself ([`ask`]); a task's
//! questions are offered on a stream ([`SentInputRequests`]) and answered whenever and wherever the response arrives.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::arguments::INLINE_BYTES_MAX;
use crate::exchange::FrameSender;
use crate::input_requests::{self, InputRequestOptions};
use crate::jsonrpc::{self, RequestId};
use crate::session::{HOST, Reply, Session, TaskInputRequest};
use crate::wire::RelatedTask;
use crate::{ProtocolContext, error, reader};
use bulkhead_domain::call::{ClientFeatures, InputRequest, InputRequestError, InputRequestKind, InputResponse};
use bulkhead_domain::task::{NodeId, Task, TaskId};

/// How often a client's own task is looked at, whatever it suggests.
const POLL_MS_MIN: u64 = 50;
/// Milliseconds between two checks whether the client can be asked now.
const POLL_MS_MAX: u64 = 30_000;
const POLL_MS_DEFAULT: u64 = 1_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClientTask {
    task_id: String,
    status: String,
    poll_interval: Option<u64>,
}

/// The task that a client made of a request, if that was allowed and is what it answered.
pub(super) fn client_task(session: &Session, kind: &InputRequestKind, reply: &Reply) -> Option<ClientTask> {
    #[derive(Deserialize)]
    struct Created {
        task: ClientTask,
    }
    let result = reply.as_ref().ok().filter(|_| input_requests::as_client_task(session.settled.client_tasks, kind))?;
    // What is larger is an answer, not the promise of one.
    let result = Some(result).filter(|result| result.len() <= INLINE_BYTES_MAX)?;
    reader::read_if_fits::<Created>(result).map(|created| created.task)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TaskParams<'a> {
    task_id: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Cancelled<'a> {
    request_id: &'a str,
    reason: &'a str,
}

/// Where requests to a client are said.
#[derive(Clone)]
pub(super) enum RequestStream {
    /// On the stream of the client's own request.
    Request(FrameSender),
    /// On the standalone stream of the session.
    Standalone(mpsc::Sender<String>),
}

impl RequestStream {
    /// For a request of this session; `None` if no client would receive it.
    pub(super) fn of(session: &Session, frames: &FrameSender, reads_events: bool) -> Option<Self> {
        if reads_events {
            return Some(Self::Request(frames.clone()));
        }
        session.standalone().map(Self::Standalone)
    }

    /// Whether the message was taken; `None` (it could not be written) never is.
    fn say(&self, message: Option<String>) -> bool {
        match (self, message) {
            (_, None) => false,
            (Self::Request(frames), message) => {
                frames.send(message);
                true
            }
            (Self::Standalone(sender), Some(message)) => sender.try_send(message).is_ok(),
        }
    }
}

/// What a client can be asked on behalf of its request: nothing while there is no stream that it reads. It shows views
/// all the same.
pub(super) fn features(session: &Session, reads_events: bool) -> ClientFeatures {
    let features = session.settled.features;
    if reads_events || session.standalone().is_some() { features } else { features.unasked() }
}

/// What stands in an id before the name of a task's question.
const QUESTION: char = '.';

/// The name of a question of a task: the task, and a digest of the key.
fn question_name(input_request: &TaskInputRequest) -> String {
    format!("{}{QUESTION}{}", input_request.task, key_digest(&input_request.issued_key))
}

fn key_digest(issued_key: &str) -> String {
    use sha2::{Digest as _, Sha256};
    let digest = Sha256::digest(issued_key.as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The outstanding question of a task that another host has asked under this id; `None`: there is none that this
/// requestor may answer.
pub(super) async fn asked_elsewhere(
    shared: &ProtocolContext,
    session: &Session,
    id: &RequestId,
) -> Option<TaskInputRequest> {
    let RequestId::Text(text) = id else { return None };
    let (_, question) = text.split_once(QUESTION)?;
    let (task, digest) = question.split_once(QUESTION)?;
    let task = shared.tasks.get(session.requestor(), TaskId::parse(task)?).await.ok()?;
    let input = task.outstanding().find(|input| key_digest(&input.issued_key) == digest)?;
    Some(TaskInputRequest {
        task: task.id,
        related: RelatedTask::from(&*task),
        issued_key: input.issued_key.clone(),
        kind: input.request.kind.clone(),
    })
}

/// The id of a request on the wire, with the host that sends it where others may get the answer.
fn request_id(session: &Session, number: u64, host: Option<NodeId>) -> String {
    let id = session.request_id(number);
    host.map_or_else(|| id.clone(), |host| format!("{id}{HOST}{host}"))
}

/// A request that was sent.
struct ServerRequest {
    session: Arc<Session>,
    stream: RequestStream,
    /// Of the question, as the client knows it.
    id: String,
    /// The request that waits now: the question itself, or a look at the client's task.
    number: u64,
    /// This host, where the answers may come to others.
    host: Option<NodeId>,
    client_task: Option<String>,
    /// Whether the client is told when this is dropped unanswered.
    withdraw: Arc<AtomicBool>,
}

impl ServerRequest {
    /// Sends a question, or says why it cannot be sent.
    fn new(
        shared: &ProtocolContext,
        session: &Arc<Session>,
        stream: &RequestStream,
        request: &InputRequest,
        input_request: Option<TaskInputRequest>,
    ) -> Result<(Self, oneshot::Receiver<Reply>), InputRequestError> {
        let as_task = input_requests::as_client_task(session.settled.client_tasks, &request.kind);
        let related = input_request.as_ref().map(|input_request| input_request.related.clone());
        let options = InputRequestOptions {
            version: session.settled.version,
            related: related.as_ref(),
            task_ttl_ms: as_task.then_some(shared.options.request_timeout_ms),
        };
        let withdraw = Arc::new(AtomicBool::new(input_request.is_none()));
        let question = input_request.as_ref().filter(|_| shared.tasks.is_shared()).map(question_name);
        let (number, reply) = session.expect(input_request);
        // Where several hosts serve the client, the id says who asks, and which question of a task it is: the answer
        // may come to any of them.
        let host = shared.tasks.host_name();
        let id = question.map_or_else(
            || request_id(session, number, host),
            |question| format!("{}{QUESTION}{question}", request_id(session, number, host)),
        );
        let line = input_requests::request(&id, request, options);
        let is_json = line.is_some();
        if !stream.say(line) {
            session.forget(number);
            return Err(match is_json {
                true => InputRequestError::Unreachable(
                    "the client does not read the stream that it would be asked on".to_owned(),
                ),
                false => InputRequestError::Invalid("the request is not valid JSON".to_owned()),
            });
        }
        let session = Arc::clone(session);
        let stream = stream.clone();
        Ok((Self { session, stream, id, number, host, client_task: None, withdraw }, reply))
    }

    /// The final response: of the request, or of the task that the client made of it. `None`: another request took the
    /// answer.
    async fn outcome(&mut self, kind: &InputRequestKind, reply: oneshot::Receiver<Reply>) -> Option<Reply> {
        let reply = reply.await.ok()?;
        let Some(mut task) = client_task(&self.session, kind, &reply) else { return Some(reply) };
        let id = task.task_id.clone();
        self.client_task = Some(id.clone());
        while !matches!(task.status.as_str(), "completed" | "failed" | "cancelled") {
            let poll_ms = task.poll_interval.unwrap_or(POLL_MS_DEFAULT).clamp(POLL_MS_MIN, POLL_MS_MAX);
            tokio::time::sleep(Duration::from_millis(poll_ms)).await;
            let looked = self.call("tasks/get", &id).await?;
            let seen = looked.as_ref().ok().and_then(|result| reader::read_if_fits(result));
            let Some(seen) = seen else { return Some(looked) };
            task = seen;
        }
        let result = self.call("tasks/result", &id).await;
        self.client_task = None;
        result
    }

    async fn call(&mut self, method: &str, task_id: &str) -> Option<Reply> {
        let (number, reply) = self.session.expect(None);
        self.number = number;
        let id = request_id(&self.session, number, self.host);
        if !self.stream.say(jsonrpc::request(&id, method, &TaskParams { task_id })) {
            self.session.forget(number);
        }
        reply.await.ok()
    }
}

impl Drop for ServerRequest {
    fn drop(&mut self) {
        if !self.withdraw.load(Ordering::Acquire) {
            return;
        }
        let waited = self.session.forget(self.number);
        match self.client_task.take() {
            Some(task_id) if self.session.settled.client_tasks.cancel => {
                let (number, _) = self.session.expect(None);
                let id = self.session.request_id(number);
                self.session.forget(number);
                self.stream.say(jsonrpc::request(&id, "tasks/cancel", &TaskParams { task_id: &task_id }));
            }
            Some(_) => {}
            None if waited => {
                let params = Cancelled { request_id: &self.id, reason: "the answer is not needed any more" };
                self.stream.say(jsonrpc::notification("notifications/cancelled", Some(&params)));
            }
            None => {}
        }
    }
}

/// Asks the client on behalf of a plain call, all questions at once, and waits for every answer: on the call's own
/// stream, or on the standalone one if the client does not read that. Dropping this tells the client that the answers
/// are not needed any more.
pub(super) async fn ask(
    shared: Arc<ProtocolContext>,
    session: Arc<Session>,
    frames: FrameSender,
    reads_events: bool,
    requests: Vec<InputRequest>,
) -> Result<Vec<InputResponse>, InputRequestError> {
    session.askable().await;
    let stream = RequestStream::of(&session, &frames, reads_events);
    let asks = requests.iter().map(|request| ask_one(&shared, &session, stream.as_ref(), request));
    futures::future::try_join_all(asks).await
}

async fn ask_one(
    shared: &ProtocolContext,
    session: &Arc<Session>,
    stream: Option<&RequestStream>,
    request: &InputRequest,
) -> Result<InputResponse, InputRequestError> {
    let unsupported = || InputRequestError::Unsupported(request.kind.feature());
    let can_answer = input_requests::can_answer(session.settled.features, &request.kind);
    let stream = stream.filter(|_| can_answer).ok_or_else(unsupported)?;
    let (mut sent, reply) = ServerRequest::new(shared, session, stream, request, None)?;
    let limit = Duration::from_millis(shared.options.request_timeout_ms);
    match tokio::time::timeout(limit, sent.outcome(&request.kind, reply)).await {
        Ok(Some(reply)) => {
            Ok(input_requests::answer_offloaded(&shared.tasks, session.requestor(), &request.kind, reply).await)
        }
        Ok(None) => Err(InputRequestError::Unreachable("too many questions wait for this client".to_owned())),
        Err(_) => Err(InputRequestError::Unreachable("the client did not answer in time".to_owned())),
    }
}

/// The questions of tasks that were sent on one stream.
pub(super) struct SentInputRequests {
    shared: Arc<ProtocolContext>,
    session: Arc<Session>,
    stream: RequestStream,
    open: Vec<SentInputRequest>,
}

struct SentInputRequest {
    task: TaskId,
    issued_key: String,
    withdraw: Arc<AtomicBool>,
    work: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl SentInputRequest {
    /// The client is told that the answer is not needed any more.
    fn withdraw(self) {
        self.withdraw.store(true, Ordering::Release);
    }
}

impl SentInputRequests {
    pub(super) fn new(shared: &Arc<ProtocolContext>, session: &Arc<Session>, frames: FrameSender) -> Self {
        let stream = RequestStream::Request(frames);
        Self { shared: Arc::clone(shared), session: Arc::clone(session), stream, open: Vec::new() }
    }

    /// Withdraws what was answered elsewhere, and sends the outstanding questions that `claim` says are for this
    /// stream.
    pub(super) fn update(&mut self, task: &Task, claim: impl Fn(&str, &InputRequestKind) -> bool) {
        self.withdraw(task.id, |key| !task.outstanding().any(|input| input.issued_key == key));
        for input in task.outstanding() {
            let kind = &input.request.kind;
            let is_open = self.open.iter().any(|offer| offer.task == task.id && offer.issued_key == input.issued_key);
            if is_open
                || !input_requests::can_answer(self.session.settled.features, kind)
                || !claim(&input.issued_key, kind)
            {
                continue;
            }
            let input_request = TaskInputRequest {
                task: task.id,
                related: RelatedTask::from(task),
                issued_key: input.issued_key.clone(),
                kind: kind.clone(),
            };
            self.send(&input.request, input_request);
        }
    }

    /// Withdraws what was sent for a task that is over.
    pub(super) fn close(&mut self, task: TaskId) {
        self.withdraw(task, |_| true);
    }

    fn withdraw(&mut self, task: TaskId, which: impl Fn(&str) -> bool) {
        self.open
            .extract_if(.., |offer| offer.task == task && which(&offer.issued_key))
            .for_each(SentInputRequest::withdraw);
    }

    fn send(&mut self, request: &InputRequest, input_request: TaskInputRequest) {
        let sent = ServerRequest::new(&self.shared, &self.session, &self.stream, request, Some(input_request.clone()));
        let (sent, reply) = match sent {
            Ok(sent) => sent,
            Err(error) => {
                let _ =
                    error::RpcError::host_failure(format_args!("a question of task {}: {error:?}", input_request.task));
                return;
            }
        };
        let task = input_request.task;
        let issued_key = input_request.issued_key.clone();
        let withdraw = Arc::clone(&sent.withdraw);
        let work = pursue(Arc::clone(&self.shared), sent, reply, input_request);
        self.open.push(SentInputRequest { task, issued_key, withdraw, work: Box::pin(work) });
    }

    /// Drives the open offers; returns when one of them is done. Cancel-safe.
    pub(super) async fn settle(&mut self) {
        futures::future::poll_fn(|context| {
            let before = self.open.len();
            self.open.retain_mut(|offer| offer.work.as_mut().poll(context).is_pending());
            if self.open.len() < before { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Waits for what becomes of a question. Responses that are answers were passed on where they arrived; what comes here
/// is the result of a client's task.
async fn pursue(
    shared: Arc<ProtocolContext>,
    mut sent: ServerRequest,
    reply: oneshot::Receiver<Reply>,
    input_request: TaskInputRequest,
) {
    let limit = Duration::from_millis(shared.options.request_timeout_ms);
    match tokio::time::timeout(limit, sent.outcome(&input_request.kind, reply)).await {
        Ok(Some(reply)) => settle(&shared, &sent.session, &input_request, reply).await,
        Ok(None) => {}
        Err(_) => {
            // The task keeps its question: it is sent again when a stream opens.
            sent.withdraw.store(true, Ordering::Release);
            shared.stream_router.lost(input_request.task, &input_request.issued_key);
        }
    }
}

/// Hands the answer to a task's question on. The first one wins: the engine ignores what comes later.
pub(super) async fn settle(
    shared: &ProtocolContext,
    session: &Session,
    input_request: &TaskInputRequest,
    reply: Reply,
) {
    let answer = input_requests::answer_offloaded(&shared.tasks, session.requestor(), &input_request.kind, reply).await;
    match shared.tasks.answer(session.requestor(), input_request.task, &input_request.issued_key, answer).await {
        Ok(_) => {
            session.forget_input_request(input_request.task, &input_request.issued_key);
            shared.stream_router.answered(input_request.task, &input_request.issued_key);
        }
        // The task is over or gone, or the failure was logged where it happened; the question stays open in that case.
        Err(error) => tracing::debug!(task = %input_request.task, %error, "an answer came to nothing"),
    }
}
