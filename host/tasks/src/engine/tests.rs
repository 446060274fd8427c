//! The engine with a scripted executor and the store in memory.

mod activity;
mod checking;
mod dormant;
mod driving;
mod expiry;
mod kept_from_its_end;
mod pausing;
mod queued;
mod racing;
mod resuming;
mod store_away;
mod tenant_usage;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::parts::admission::tests::limits;
use crate::*;
use bulkhead_calls::testing::ScriptedLevers;
use bulkhead_calls::{
    CallEvent, CallSpec, Catalog, Control, Executor, JournalPolicy, Journaling, Operation, Returned, RunningCall,
    StartError, StopOnDrop,
};
use bulkhead_domain::call::{
    CallError, ClientFeatures, ElicitationAction, FaultKind, InputRequest, InputRequestError, InputRequestKind,
    InputResponse,
};
use bulkhead_domain::clock::ManualClock;
use bulkhead_domain::limits::{CallLimits, Limits};
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_domain::task::{Active, Design, Era, Origin, Outcome, Phase, PluginVersion, TaskId, TaskOutput};
use bulkhead_domain::tool::{Tool, ToolOutput};
use bulkhead_domain::{Json, UnixMs};
use bulkhead_store::memory::MemoryStore;
use bulkhead_threads::Stop;

type Events = mpsc::Sender<CallEvent>;

/// Plays the guest: what it does depends on the tool's name.
struct Scripted {
    catalog: Arc<Catalog>,
    /// Calls that were started, by attempt.
    started: Arc<Mutex<Vec<u32>>>,
    tidying: Arc<Tidying>,
    instances: Arc<AtomicUsize>,
}

/// A guest that is in memory until it is stopped.
#[derive(Debug)]
struct Instance {
    guest: Arc<dyn Stop>,
    count: Arc<AtomicUsize>,
}

impl Stop for Instance {
    fn stop(self: Arc<Self>) {
        self.count.fetch_sub(1, Ordering::SeqCst);
        Arc::clone(&self.guest).stop();
    }
}

/// Guests that compute after they were cancelled.
#[derive(Default)]
struct Tidying {
    now: AtomicUsize,
    most: AtomicUsize,
    ever: AtomicUsize,
}

const TOOLS: [&str; 19] = [
    "quick",
    "forever",
    "again",
    "ask",
    "steered",
    "sleepy",
    "failing",
    "panics",
    "faulty",
    "asks late",
    "chatty",
    "tidy",
    // These keep a journal.
    "lasting",
    "lasting, insistently",
    "lasting, quietly",
    "lasting, with news",
    "lasting, asleep",
    "lasting, attentive",
    "lasting, with two questions",
];

impl Executor for Scripted {
    fn catalog(&self) -> Arc<Catalog> {
        self.catalog.clone()
    }

    fn start(&self, spec: CallSpec) -> Result<RunningCall, StartError> {
        assert_ne!(tool(&spec), "panics", "scripted");
        self.started.lock().push(spec.facts.attempt);
        let (sender, events) = mpsc::channel(16);
        let levers = Arc::new(ScriptedLevers::default());
        if matches!(tool(&spec), "tidy" | "lasting, attentive") {
            levers.look();
        }
        let control = Control::new(levers);
        let guest = Arc::new(tokio::spawn(guest(spec, sender, Arc::clone(&self.tidying))));
        let count = Arc::clone(&self.instances);
        count.fetch_add(1, Ordering::SeqCst);
        Ok(RunningCall { events, control, stop: StopOnDrop::new(Arc::new(Instance { guest, count })) })
    }

    fn engine_hash(&self) -> u64 {
        1
    }
}

fn tool(spec: &CallSpec) -> &str {
    match &spec.operation {
        Operation::CallTool { tool, .. } => tool,
        other => panic!("{other:?}"),
    }
}

async fn guest(spec: CallSpec, events: Events, tidying: Arc<Tidying>) {
    let output = |text: &str| {
        let mut output = ToolOutput::failure(text);
        output.is_error = false;
        output
    };
    let finished = match tool(&spec) {
        "quick" => Ok(output("done")),
        // Lost with its host the first time.
        "again" if spec.facts.attempt > 1 => Ok(output("done")),
        "failing" => Ok(ToolOutput::failure("no such city")),
        "faulty" => Err(CallError::Fault { kind: FaultKind::Trap, reason: "the tool trapped".into() }),
        "ask" => match ask(&events, &["name", "name"]).await {
            Ok(answers) => Ok(output(&format!("{} answers", answers.len()))),
            Err(error) => Ok(ToolOutput::failure(format!("{error:?}"))),
        },
        "lasting" if matches!(spec.journaling, Journaling::Check { .. }) => checking::checked(&spec),
        "lasting, with two questions" => dormant::ask_twice(&events, &spec.journaling).await,
        "lasting, asleep" => dormant::asleep(&events, &spec.journaling).await,
        "lasting" | "lasting, attentive" => match resuming::ask(&events, spec.journaling.clone()).await {
            Ok(answers) => Ok(output(&format!("{} answers", answers.len()))),
            Err(error) => Ok(ToolOutput::failure(format!("{error:?}"))),
        },
        "lasting, insistently" => {
            sleep(&events).await;
            let first = resuming::ask(&events, spec.journaling.clone()).await;
            let second = resuming::ask(&events, spec.journaling.clone()).await;
            Ok(output(&format!("{first:?}, then {second:?}")))
        }
        "lasting, with news" => {
            resuming::keep_soon(&spec.journaling);
            std::future::pending().await
        }
        "sleepy" => {
            sleep(&events).await;
            Ok(output("slept"))
        }
        "steered" => Ok(output(&steered(&events).await)),
        "asks late" => {
            steered(&events).await;
            let _ = ask(&events, &["name"]).await;
            Ok(output("asked"))
        }
        "chatty" => {
            while events.send(CallEvent::Status("still here".into())).await.is_ok() {}
            Ok(output("said"))
        }
        "tidy" => {
            let _ = ask(&events, &["name"]).await;
            tidying.compute().await;
            Ok(output("tidied"))
        }
        _ => std::future::pending().await,
    };
    let _ = events.send(CallEvent::Finished(finished.map(Returned::Tool))).await;
}

async fn sleep(events: &Events) {
    let (reply, slept) = oneshot::channel();
    events.send(CallEvent::Sleep { ms: 50, reply }).await.unwrap();
    slept.await.unwrap();
}

/// Waits for messages without a pause holding it: a scripted guest does not stand still.
async fn steered(events: &Events) -> String {
    loop {
        let (reply, messages) = oneshot::channel();
        events.send(CallEvent::Steering { journal: None, reply }).await.unwrap();
        let messages = messages.await.unwrap();
        if !messages.is_empty() {
            return messages.join(" ");
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

impl Tidying {
    async fn compute(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        let _computing = Computing(self);
        self.most.fetch_max(now, Ordering::SeqCst);
        self.ever.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A guest computes until it is done, or stopped at the end of its grace period.
struct Computing<'a>(&'a Tidying);

impl Drop for Computing<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn ask(events: &Events, keys: &[&str]) -> Result<Vec<InputResponse>, InputRequestError> {
    let kind = InputRequestKind::Form { message: "who?".into(), requested_schema: Json::new("{}") };
    let request = |key: &&str| InputRequest { key: (*key).into(), kind: kind.clone(), meta: Vec::new() };
    let (reply, answers) = oneshot::channel();
    let requests = keys.iter().map(request).collect();
    events.send(CallEvent::InputRequests { requests, journal: None, reply }).await.unwrap();
    answers.await.unwrap_or(Err(InputRequestError::Cancelled))
}

fn entry(name: &str) -> ToolEntry {
    let limits =
        CallLimits { result_bytes: 1 << 20, promote_after_ms: 10, cancel_grace_ms: 20, ..CallLimits::generous() };
    let rerun_on_restart = name == "again";
    let journal = name.starts_with("lasting").then(JournalPolicy::default);
    ToolEntry { rerun_on_restart, journal, ..ToolEntry::sample("scripted", Tool::sample(name), limits) }
}

/// Who called which tool, and how that ended.
type EndedOnce = (Requestor, String, Result<(), CallError>);

/// Refuses every call once it is told to, and remembers those that ended or diverged.
#[derive(Default)]
struct ScriptedHealth {
    /// Milliseconds; 0: nothing is refused.
    retry_after_ms: AtomicU64,
    ended: Mutex<Vec<EndedOnce>>,
    /// Whether new calls keep no journals.
    is_demoted: AtomicBool,
    diverged_at: Mutex<Vec<UnixMs>>,
}

impl CallHealth for ScriptedHealth {
    fn admit(&self, _: &Requestor, _: &PluginVersion, _: UnixMs) -> Result<(), u64> {
        match self.retry_after_ms.load(Ordering::SeqCst) {
            0 => Ok(()),
            retry_after_ms => Err(retry_after_ms),
        }
    }

    fn call_ended(&self, call: &EndedCall<'_>) {
        assert_eq!(call.version.name, "scripted");
        self.ended.lock().push((*call.requestor, call.tool.to_owned(), call.result.map_err(CallError::clone)));
    }

    fn may_keep_journal(&self, _: &PluginVersion) -> bool {
        !self.is_demoted.load(Ordering::SeqCst)
    }

    fn diverged(&self, version: &PluginVersion, at: UnixMs) {
        assert_eq!(version.name, "scripted");
        self.diverged_at.lock().push(at);
    }
}

struct World {
    tasks: Tasks,
    health: Arc<ScriptedHealth>,
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    started: Arc<Mutex<Vec<u32>>>,
    tidying: Arc<Tidying>,
    instances: Arc<AtomicUsize>,
}

const ANNA: Requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([1; 16]) };
const BOB: Requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([2; 16]) };

fn world() -> World {
    world_on(Arc::new(MemoryStore::new()), limits())
}

fn world_on(store: Arc<MemoryStore>, limits: Limits) -> World {
    world_with(store, limits, |_| {})
}

/// With other terms for each tool.
fn world_with(store: Arc<MemoryStore>, limits: Limits, change: fn(&mut ToolEntry)) -> World {
    let started = Arc::default();
    let tidying = Arc::<Tidying>::default();
    let changed = |name| {
        let mut entry = entry(name);
        change(&mut entry);
        Arc::new(entry)
    };
    let catalog = Arc::new(Catalog::new(TOOLS.into_iter().map(changed).collect()));
    let instances = Arc::<AtomicUsize>::default();
    let executor = Arc::new(Scripted {
        catalog,
        started: Arc::clone(&started),
        tidying: tidying.clone(),
        instances: Arc::clone(&instances),
    });
    let clock = Arc::new(ManualClock::at(1_000_000));
    let health = Arc::<ScriptedHealth>::default();
    let options = Options {
        store: store.clone(),
        executor,
        health: health.clone(),
        clock: clock.clone(),
        limits: limits.into(),
        cpu_weights: HashMap::new(),
        audit: bulkhead_audit::Audit::off(),
        tracer: bulkhead_traces::Tracer::default(),
        instances_max: 100,
    };
    World { tasks: Tasks::new(options).unwrap(), health, store, clock, started, tidying, instances }
}

impl World {
    fn call(&self, tool: &str) -> CallRequest {
        let tool = self.tasks.catalog(&ANNA).get(tool).unwrap().clone();
        CallRequest {
            tool,
            arguments: Json::new("{}"),
            client: ClientContext::default(),
            related: Vec::new(),
            may_become_task: true,
        }
    }

    async fn create(&self, requestor: &Requestor, tool: &str) -> Result<Arc<Task>, Error> {
        let request = TaskRequest { job: Job::Call(self.call(tool)), origin: origin(), ttl: RequestedTtl::Ms(5_000) };
        self.tasks.create(requestor, request).await
    }

    /// Waits until the record satisfies `wanted`; the time of day stands still meanwhile.
    async fn until(&self, id: TaskId, wanted: impl Fn(&Task) -> bool) -> Arc<Task> {
        for _ in 0..2_000 {
            let task = self.tasks.get(&ANNA, id).await.unwrap();
            if wanted(&task) {
                return task;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("the task did not get there: {:?}", self.tasks.get(&ANNA, id).await.unwrap().phase);
    }

    async fn ended(&self, id: TaskId) -> Outcome {
        let task = self.until(id, |task| task.outcome().is_some()).await;
        task.outcome().unwrap().clone()
    }
}

fn origin() -> Origin {
    Origin {
        era: Era::Legacy,
        design: Design::Core2025,
        session: None,
        features: ClientFeatures::default(),
        log_level: None,
        progress_token: None,
        trace: None,
    }
}

fn accept() -> InputResponse {
    InputResponse::Elicitation { action: ElicitationAction::Accept, content: Some(Json::new("{}")) }
}

#[tokio::test]
async fn a_task_runs_and_keeps_its_output() {
    let world = world();
    let task = world.create(&ANNA, "quick").await.unwrap();
    assert_eq!(world.ended(task.id).await, Outcome::Output { is_error: false });
    let TaskOutput::Tool(output) = world.tasks.output(&ANNA, task.id).await.unwrap() else {
        panic!("no output of a tool")
    };
    assert_eq!(output.content.len(), 1);
    assert!(matches!(world.tasks.get(&BOB, task.id).await, Err(Error::NotFound)));
    assert!(matches!(world.tasks.output(&BOB, task.id).await, Err(Error::NotFound)));
}

#[tokio::test]
async fn task_failure_kinds_are_told_apart() {
    let world = world();
    let failing = world.create(&ANNA, "failing").await.unwrap();
    assert_eq!(world.ended(failing.id).await, Outcome::Output { is_error: true });
    assert_eq!(world.tasks.get(&ANNA, failing.id).await.unwrap().status_message.as_deref(), Some("no such city"));
    let faulty = world.create(&ANNA, "faulty").await.unwrap();
    assert!(matches!(world.ended(faulty.id).await, Outcome::Error(CallError::Fault { .. })));
}

#[tokio::test]
async fn calls_of_an_unhealthy_plugin_are_refused() {
    let world = world();
    world.health.retry_after_ms.store(7, Ordering::SeqCst);
    let refused = [world.tasks.call(&ANNA, world.call("quick")).await.err(), world.create(&ANNA, "quick").await.err()];
    for error in refused {
        assert!(
            matches!(&error, Some(Error::Unavailable { why: Unavailable::Quarantined { plugin }, retry_after_ms: Some(7) })
                if plugin == "scripted"),
            "{error:?}"
        );
    }
    assert_eq!(world.started.lock().len(), 0);
    assert_eq!(world.tasks.list(&ANNA, None, 10).await.unwrap().len(), 0);
    world.health.retry_after_ms.store(0, Ordering::SeqCst);
    assert!(world.create(&ANNA, "quick").await.is_ok());
}

#[tokio::test]
async fn ended_calls_are_reported_to_plugin_health_once() {
    let world = world();
    for tool in ["quick", "failing", "faulty"] {
        let task = world.create(&ANNA, tool).await.unwrap();
        world.ended(task.id).await;
    }
    let mut plain = world.tasks.call(&BOB, world.call("faulty")).await.unwrap();
    assert!(matches!(plain.next().await, CallNews::Finished(Err(_))));
    let dropped = world.tasks.call(&BOB, world.call("forever")).await.unwrap();
    drop(dropped);
    let fault = Err(CallError::Fault { kind: FaultKind::Trap, reason: "the tool trapped".into() });
    let expected =
        [(ANNA, "quick", Ok(())), (ANNA, "failing", Ok(())), (ANNA, "faulty", fault.clone()), (BOB, "faulty", fault)];
    let ended = world.health.ended.lock();
    assert_eq!(*ended, expected.map(|(requestor, tool, result)| (requestor, tool.to_owned(), result)));
}

#[tokio::test]
async fn guest_panic_fails_one_task_alone() {
    let world = world();
    let panics = world.create(&ANNA, "panics").await.unwrap();
    let quick = world.create(&ANNA, "quick").await.unwrap();
    assert!(matches!(world.ended(panics.id).await, Outcome::Error(CallError::Internal { .. })));
    assert_eq!(world.ended(quick.id).await, Outcome::Output { is_error: false });
}

#[tokio::test]
async fn queued_task_runs_when_a_permit_is_free() {
    let world = world();
    let running = [world.create(&ANNA, "forever").await.unwrap(), world.create(&ANNA, "forever").await.unwrap()];
    let queued = world.create(&ANNA, "quick").await.unwrap();
    assert_eq!(queued.phase, Phase::Active(Active::Queued));
    assert_eq!(queued.status_message.as_deref(), Some("queued"));
    world.tasks.cancel(&ANNA, running[0].id).await.unwrap();
    assert_eq!(world.ended(queued.id).await, Outcome::Output { is_error: false });
}

#[tokio::test]
async fn task_over_queue_limit_is_not_stored() {
    let world = world();
    for _ in 0..5 {
        world.create(&ANNA, "forever").await.unwrap();
    }
    let refused = world.create(&ANNA, "forever").await;
    assert!(matches!(refused, Err(Error::Quota { limit: "tasks_queued_per_requestor", value: 3, .. })));
    assert_eq!(world.tasks.list(&ANNA, None, 100).await.unwrap().len(), 5);
    // Somebody else's place is not touched.
    let other = world.create(&BOB, "quick").await.unwrap();
    assert_eq!(other.phase, Phase::Active(Active::Running));
}

#[tokio::test]
async fn task_input_requests_wait_for_all_answers() {
    let world = world();
    let task = world.create(&ANNA, "ask").await.unwrap();
    let asked = world.until(task.id, |task| task.phase == Phase::Active(Active::InputRequired)).await;
    let keys: Vec<_> = asked.outstanding().map(|input| input.issued_key.clone()).collect();
    assert_eq!(keys, ["name", "name-2"]);
    world.tasks.answer(&ANNA, task.id, "name", accept()).await.unwrap();
    let late = world.tasks.answer(&ANNA, task.id, "name", InputResponse::Refused("late".into())).await.unwrap();
    assert_eq!(late.inputs[0].answer, Some(accept()), "the first answer stays");
    assert!(matches!(world.tasks.answer(&BOB, task.id, "name-2", accept()).await, Err(Error::NotFound)));
    world.tasks.answer(&ANNA, task.id, "name-2", accept()).await.unwrap();
    assert_eq!(world.ended(task.id).await, Outcome::Output { is_error: false });
}

#[tokio::test]
async fn task_cancel_is_final_and_frees_its_permit() {
    let world = world();
    let task = world.create(&ANNA, "forever").await.unwrap();
    let cancelled = world.tasks.cancel(&ANNA, task.id).await.unwrap();
    assert_eq!(cancelled.outcome(), Some(&Outcome::Cancelled));
    assert!(matches!(world.tasks.cancel(&ANNA, task.id).await, Err(Error::Ended)));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(world.tasks.inner.admission.running(), 0, "the place is free again");
}

#[tokio::test]
async fn paused_task_frees_its_permit_and_resumes() {
    let world = world();
    let task = world.create(&ANNA, "sleepy").await.unwrap();
    world.tasks.pause(&ANNA, task.id, Some("lunch".into())).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let paused = world.tasks.get(&ANNA, task.id).await.unwrap();
    assert_eq!(paused.phase, Phase::Paused { before: Active::Running });
    assert_eq!(world.tasks.inner.admission.running(), 0);
    world.tasks.resume(&ANNA, task.id).await.unwrap();
    assert_eq!(world.ended(task.id).await, Outcome::Output { is_error: false });
}

#[tokio::test]
async fn steering_reaches_the_guest_in_order() {
    let world = world();
    let task = world.create(&ANNA, "forever").await.unwrap();
    for message in ["a", "b", "c", "d"] {
        world.tasks.steer(&ANNA, task.id, message.into()).await.unwrap();
    }
    let full = world.tasks.steer(&ANNA, task.id, "e".into()).await;
    assert!(matches!(full, Err(Error::Invalid(text)) if text.contains('4')));
    let steered = world.create(&ANNA, "steered").await.unwrap();
    world.tasks.steer(&ANNA, steered.id, "left".into()).await.unwrap();
    assert_eq!(world.ended(steered.id).await, Outcome::Output { is_error: false });
}

#[tokio::test]
async fn recovery_fails_running_tasks_and_keeps_queued_ones() {
    let first = world();
    let ran = first.create(&ANNA, "forever").await.unwrap();
    let reruns = first.create(&ANNA, "again").await.unwrap();
    let waited = first.create(&ANNA, "quick").await.unwrap();
    assert_eq!(waited.phase, Phase::Active(Active::Queued));
    first.store.restart();
    let second = world_on(first.store.clone(), limits());
    drop(first);
    let recovered = second.tasks.recover().await.unwrap();
    assert_eq!((recovered.interrupted, recovered.queued), (1, 2));
    assert_eq!(second.ended(ran.id).await, Outcome::Error(CallError::Interrupted));
    assert_eq!(second.ended(reruns.id).await, Outcome::Output { is_error: false });
    assert_eq!(second.ended(waited.id).await, Outcome::Output { is_error: false });
    let mut attempts = second.started.lock().clone();
    attempts.sort_unstable();
    assert_eq!(attempts, [1, 2]);
}

#[tokio::test]
async fn task_outcome_is_retried_after_store_failure() {
    let world = world();
    let task = world.create(&ANNA, "sleepy").await.unwrap();
    world.store.fail_next_writes(1);
    assert_eq!(world.ended(task.id).await, Outcome::Output { is_error: false });
}

#[tokio::test]
async fn plain_call_stores_nothing_and_waits_for_permit() {
    let world = world();
    let mut call = world.tasks.call(&ANNA, world.call("sleepy")).await.unwrap();
    assert!(matches!(call.next().await, CallNews::Finished(Ok(_))));
    assert!(world.tasks.list(&ANNA, None, 10).await.unwrap().is_empty());
    let held = [
        world.tasks.call(&ANNA, world.call("forever")).await.unwrap(),
        world.tasks.call(&ANNA, world.call("forever")).await.unwrap(),
    ];
    let refused = world.tasks.call(&ANNA, world.call("quick")).await.err().unwrap();
    assert!(matches!(
        refused,
        Error::Quota { limit: "calls_running_per_requestor", value: 2, retry_after_ms: Some(_) }
    ));
    drop(held);
    assert!(world.tasks.call(&ANNA, world.call("quick")).await.is_ok());
}

#[tokio::test]
async fn plain_call_promotion_does_not_rerun_it() {
    let world = world();
    let mut call = world.tasks.call(&ANNA, world.call("sleepy")).await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(10), call.next()).await;
    assert!(early.is_err());
    let Ok(task) = call.promote(origin(), RequestedTtl::Default).await else { panic!("there is room") };
    assert_eq!(world.ended(task.id).await, Outcome::Output { is_error: false });
    assert_eq!(world.started.lock().len(), 1, "nothing ran twice");
}

#[tokio::test]
async fn drain_waits_for_sleeping_tasks_not_input_requests() {
    let world = world();
    let sleepy = world.create(&ANNA, "sleepy").await.unwrap();
    let asked = world.create(&ANNA, "ask").await.unwrap();
    world.until(asked.id, |task| task.phase == Phase::Active(Active::InputRequired)).await;
    let drain = world.tasks.drain(Duration::from_secs(60));
    tokio::time::timeout(Duration::from_secs(10), drain).await.unwrap().unwrap();
    world.store.restart();
    let outcome = async |id| bulkhead_store::TaskStore::get(&*world.store, &ANNA, id).await.unwrap().unwrap().phase;
    assert_eq!(outcome(sleepy.id).await, Phase::Ended(Outcome::Output { is_error: false }));
    assert_eq!(outcome(asked.id).await, Phase::Ended(Outcome::Error(CallError::Interrupted)));
}

#[tokio::test]
async fn a_drain_does_not_wait_for_a_call_that_is_parked() {
    let world = world();
    let mut call = world.tasks.call(&ANNA, world.call("ask")).await.unwrap();
    let CallNews::InputRequests { reply, .. } = call.next().await else { panic!("it asks") };
    assert!(!world.tasks.left_to_end().is_still(), "somebody waits for it");
    call.park();
    assert!(world.tasks.left_to_end().is_still());
    reply.send(Ok(Vec::new())).unwrap();
    let next = tokio::time::timeout(Duration::from_millis(1), call.next());
    drop(next.await);
    assert!(!world.tasks.left_to_end().is_still(), "it goes on");
    call.park();
    let drain = world.tasks.drain(Duration::from_secs(60));
    tokio::time::timeout(Duration::from_secs(10), drain).await.unwrap().unwrap();
}

#[tokio::test]
async fn draining_host_refuses_new_tasks() {
    let world = world();
    let task = world.create(&ANNA, "forever").await.unwrap();
    world.tasks.drain(Duration::from_millis(10)).await.unwrap();
    assert!(matches!(world.create(&ANNA, "quick").await, Err(Error::Unavailable { why: Unavailable::Draining, .. })));
    world.store.restart();
    let after = bulkhead_store::TaskStore::get(&*world.store, &ANNA, task.id).await.unwrap().unwrap();
    assert_eq!(after.outcome(), Some(&Outcome::Error(CallError::Interrupted)));
}

#[tokio::test]
async fn related_tasks_need_not_have_ended() {
    let world = world();
    let running = world.create(&ANNA, "forever").await.unwrap().id;
    let call = CallRequest { related: vec![running], ..world.call("quick") };
    let request = TaskRequest { job: Job::Call(call), origin: origin(), ttl: RequestedTtl::Ms(5_000) };
    let task = world.tasks.create(&ANNA, request).await.unwrap();
    assert_eq!(task.related, [running]);
    world.ended(task.id).await;
    assert_eq!(world.tasks.get(&ANNA, running).await.unwrap().outcome(), None);
}

#[tokio::test]
async fn tenant_weights_change_for_shares_in_use() {
    let shares = crate::parts::shares::Shares::new(HashMap::from([(ANNA.tenant, 2)]));
    let weight = |who: &Requestor| format!("{:?}", shares.of(who)).contains("weight: 5,");
    assert!(!weight(&ANNA));
    shares.set_weights(HashMap::from([(ANNA.tenant, 5)]));
    assert!(weight(&ANNA) && weight(&BOB), "requestors of a tenant have one share");
    let other = Requestor { tenant: TenantId([9; 16]), ..ANNA };
    assert!(!weight(&other));
    shares.set_weights(HashMap::from([(other.tenant, 5)]));
    assert!(!weight(&ANNA) && weight(&other), "who is not named any more has the usual weight");
}
