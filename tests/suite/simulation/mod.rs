//! The engine under random calls, faults and restarts, with a model beside it that knows what must hold.
//!
//! Everything is drawn from one seed, printed at the start; `XTASK_TEST_SEED` repeats a run. A life of the engine is
//! one runtime: dropping it is the crash, because nothing of the engine goes on and nothing is tidied up.

mod guest;
mod model;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_domain::Json;
use bulkhead_domain::call::{ClientFeatures, ElicitationAction, InputResponse};
use bulkhead_domain::clock::ManualClock;
use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_domain::task::{Design, Era, Origin, Phase, Task, TaskId};
use bulkhead_plugins::HealthMonitor;
use bulkhead_store as store;
use bulkhead_store::memory::MemoryStore;
use bulkhead_tasks::{CallRequest, ClientContext, Error, Job, Options, RequestedTtl, TaskRequest, Tasks};
use tests::place::rounds;

use guest::{Order, Stage};
use model::Model;

const RUNNING_MAX: u32 = 3;
const QUEUED_MAX: u32 = 4;

/// A sequence of numbers that is the same for the same seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end.max(1)
    }

    fn of<'a, T>(&mut self, things: &'a [T]) -> Option<&'a T> {
        let at = self.below(things.len() as u64) as usize;
        things.get(at)
    }
}

fn requestors() -> Vec<Requestor> {
    let requestor = |tenant, id| Requestor { tenant: TenantId([tenant; 16]), id: RequestorId([id; 16]) };
    vec![requestor(1, 1), requestor(1, 2), requestor(2, 3), requestor(2, 4)]
}

fn limits() -> Limits {
    Limits {
        calls_running_per_requestor: RUNNING_MAX,
        calls_running_per_tenant: 5,
        calls_running_total: 8,
        call_queue_ms_max: 50,
        tasks_running_per_requestor: RUNNING_MAX,
        tasks_running_per_tenant: 5,
        tasks_queued_per_requestor: QUEUED_MAX,
        tasks_waiting_per_requestor: 8,
        tasks_paused_per_requestor: 8,
        tasks_stored_per_requestor: 40,
        tasks_stored_bytes_per_requestor: 64 << 20,
        tasks_stored_per_tenant: 60,
        tasks_stored_bytes_per_tenant: 128 << 20,
        requests_per_second: 1_000_000,
        request_bytes_per_second: 1 << 30,
        request_bytes_per_second_per_tenant: 1 << 30,
        task_creations_per_second: 1_000_000,
        ttl_ms_default: 60_000,
        ttl_ms_max: 120_000,
        ttl_unlimited: false,
        steer_queue: 4,
        steer_bytes_max: 1024,
        failed_lookups_per_minute: 1_000_000,
        failed_lookups_block_ms: 60_000,
        early_polls_per_minute: 1_000_000,
        calls_queued_per_requestor: 16,
        calls_queued_per_tenant: 64,
        calls_queued_total: 64,
        tasks_queued_per_tenant: 2 * QUEUED_MAX,
        tasks_queued_total: 4 * QUEUED_MAX,
        tasks_waiting_per_tenant: 16,
        tasks_paused_per_tenant: 16,
        calls_resting_per_tenant: 28,
        calls_resting_total: 56,
        tasks_resident_total: 64,
        task_evict_after_ms: 10_000,
        task_evict_cpu_ms: 2_000,
        requests_per_second_per_tenant: 1_000_000,
        task_creations_per_second_per_tenant: 1_000_000,
        requests_open_per_requestor: 64,
        requests_open_per_tenant: 64,
        requests_open_total: 64,
        request_bytes_open_per_requestor: 1 << 30,
        request_bytes_open_per_tenant: 1 << 30,
        request_bytes_open_total: 1 << 30,
        sessions_per_tenant: 64,
        sessions_total: 64,
        requestors_per_tenant: 1_000,
        requestor_creations_per_second_per_tenant: 1_000,
        tenants_total: 1_000,
        event_bytes_per_requestor: 1 << 20,
        event_bytes_per_tenant: 1 << 20,
        event_bytes_total: 1 << 20,
        answer_bytes_per_requestor: 1 << 20,
        answer_bytes_per_tenant: 1 << 20,
        answer_bytes_total: 1 << 20,
    }
}

/// One life of the engine.
struct Life {
    runtime: tokio::runtime::Runtime,
    tasks: Tasks,
    stage: Arc<Stage>,
}

impl Life {
    fn begin(store: &Arc<MemoryStore>, clock: &Arc<ManualClock>) -> Self {
        store.restart();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let stage = Arc::new(Stage::new());
        let options = Options {
            store: store.clone(),
            executor: stage.clone(),
            health: Arc::<HealthMonitor>::default(),
            clock: clock.clone(),
            limits: limits().into(),
            cpu_weights: HashMap::new(),
            audit: bulkhead_audit::Audit::off(),
            tracer: bulkhead_traces::Tracer::default(),
            instances_max: 64,
        };
        let tasks = {
            let _inside = runtime.enter();
            Tasks::new(options).expect("an engine")
        };
        runtime.block_on(tasks.recover()).expect("it recovers");
        let tend = tasks.clone();
        runtime.spawn(async move { tend.run_maintenance().await });
        let life = Self { runtime, tasks, stage };
        life.settle();
        life
    }

    /// Lets everything that can go on go on.
    fn settle(&self) {
        self.runtime.block_on(async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        });
    }

    /// Also lets everything happen that is retried after a while.
    fn settle_long(&self) {
        self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1_200)).await });
        self.settle();
    }
}

struct World {
    seed: u64,
    dice: Dice,
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    model: Model,
    life: Life,
    /// What was done, for the report of a failure.
    journal: Vec<String>,
}

impl World {
    fn new(seed: u64) -> Self {
        let store = Arc::new(MemoryStore::new());
        let clock = Arc::new(ManualClock::at(1_000_000_000));
        let life = Life::begin(&store, &clock);
        let model = Model::new(requestors());
        Self { seed, dice: Dice(seed | 1), store, clock, model, life, journal: Vec::new() }
    }

    fn note(&mut self, line: impl Into<String>) {
        self.journal.push(line.into());
    }

    fn step(&mut self) {
        match self.dice.below(100) {
            0..28 => self.create(),
            28..50 => self.order(),
            50..60 => self.answer(),
            60..68 => self.cancel(),
            68..74 => self.pause_or_resume(),
            74..84 => self.time(),
            84..89 => self.fault(),
            89..91 => self.crash(),
            91..92 => self.drain(),
            _ => self.steer(),
        }
        self.life.settle();
        let checked = self.model.check(&self.life.runtime, &self.life.tasks, &self.clock);
        let running = checked.and_then(|()| self.model.check_running(&self.life.stage));
        if let Err(broken) = running {
            let from = self.journal.len().saturating_sub(40);
            panic!("seed {}: {broken}\nthe last steps:\n{}", self.seed, self.journal[from..].join("\n"));
        }
    }

    fn create(&mut self) {
        let requestor = *self.dice.of(&requestors()).expect("there are some");
        let ttl = 1 + self.dice.below(30_000);
        let name = match self.dice.below(6) {
            0 | 1 => "again",
            2 => "lasting",
            _ => "once",
        };
        let tool = self.life.tasks.catalog(&requestor).get(name).expect("the tool").clone();
        let call = CallRequest {
            tool,
            arguments: Json::new("{}"),
            client: ClientContext::default(),
            related: Vec::new(),
            may_become_task: true,
        };
        let origin = Origin {
            era: Era::Legacy,
            design: Design::Core2025,
            session: None,
            features: ClientFeatures::default(),
            log_level: None,
            progress_token: None,
            trace: None,
        };
        let request = TaskRequest { job: Job::Call(call), origin, ttl: RequestedTtl::Ms(ttl) };
        match self.life.runtime.block_on(self.life.tasks.create(&requestor, request)) {
            Ok(task) => {
                self.note(format!("create {} {name} ttl {ttl} by {}", task.id, requestor.id));
                self.model.created(&task);
            }
            Err(error @ (Error::Quota { .. } | Error::Host { .. } | Error::Unavailable { .. })) => {
                self.note(format!("create refused: {error}"));
            }
            Err(error) => panic!("seed {}: create gave {error:?}", self.seed),
        }
    }

    /// Tells a random guest what to do.
    fn order(&mut self) {
        let order = match self.dice.below(6) {
            0 => Order::Fail,
            1 => Order::Break,
            2 | 3 => Order::Ask,
            _ => Order::Finish,
        };
        let guests = self.life.stage.idle();
        if let Some(id) = self.dice.of(&guests).cloned() {
            self.note(format!("{order:?} to {id}"));
            self.life.stage.tell(&id, order);
        }
    }

    fn known(&mut self) -> Option<(Requestor, TaskId)> {
        let known = self.model.ids();
        self.dice.of(&known).copied()
    }

    fn answer(&mut self) {
        let Some((requestor, id)) = self.known() else { return };
        let tasks = self.life.tasks.clone();
        let Ok(task) = self.life.runtime.block_on(tasks.get(&requestor, id)) else { return };
        let Some(key) = task.outstanding().next().map(|input| input.issued_key.clone()) else { return };
        self.note(format!("answer {key} of {id}"));
        let answer = InputResponse::Elicitation { action: ElicitationAction::Accept, content: Some(Json::new("{}")) };
        let _ = self.life.runtime.block_on(tasks.answer(&requestor, id, &key, answer.clone()));
        // Somebody else's answer changes nothing, whoever it is.
        for other in requestors().into_iter().filter(|other| *other != requestor) {
            let result = self.life.runtime.block_on(tasks.answer(&other, id, &key, answer.clone()));
            assert!(matches!(result, Err(Error::NotFound)), "seed {}: a foreign answer: {result:?}", self.seed);
        }
    }

    fn cancel(&mut self) {
        let Some((requestor, id)) = self.known() else { return };
        self.note(format!("cancel {id}"));
        let _ = self.life.runtime.block_on(self.life.tasks.cancel(&requestor, id));
    }

    fn pause_or_resume(&mut self) {
        let Some((requestor, id)) = self.known() else { return };
        let pause = self.dice.below(2) == 0;
        self.note(format!("{} {id}", if pause { "pause" } else { "resume" }));
        self.model.paused(id);
        let tasks = self.life.tasks.clone();
        let _ = self.life.runtime.block_on(async {
            if pause { tasks.pause(&requestor, id, None).await } else { tasks.resume(&requestor, id).await }
        });
    }

    fn steer(&mut self) {
        let Some((requestor, id)) = self.known() else { return };
        let result = self.life.runtime.block_on(self.life.tasks.steer(&requestor, id, "on".to_owned()));
        self.note(format!("steer {id}: {}", result.is_ok()));
    }

    fn time(&mut self) {
        let ms = self.dice.below(8_000);
        self.note(format!("{ms} ms go by"));
        self.clock.advance(ms);
    }

    fn fault(&mut self) {
        let count = 1 + self.dice.below(2) as u32;
        let failed = || store::Error::Engine("it was made to fail".to_owned());
        if self.dice.below(2) == 0 {
            self.note(format!("{count} writes will fail"));
            let away = || store::Error::Unavailable { retry_after_ms: 1 };
            self.store.fail_with(if self.dice.below(2) == 0 { failed } else { away });
            self.store.fail_next_writes(count);
        } else {
            self.note(format!("{count} acknowledgements will get lost"));
            self.store.fail_with(if self.dice.below(2) == 0 { failed } else { || store::Error::InDoubt });
            self.store.lose_next_acknowledgements(count);
        }
    }

    fn heal(&self) {
        self.store.fail_next_writes(0);
        self.store.lose_next_acknowledgements(0);
    }

    fn crash(&mut self) {
        self.note("crash");
        self.restart();
    }

    fn drain(&mut self) {
        self.note("drain");
        self.heal();
        let drained = self.life.runtime.block_on(self.life.tasks.drain(Duration::ZERO));
        assert!(drained.is_ok(), "seed {}: {drained:?}", self.seed);
        self.restart();
    }

    fn restart(&mut self) {
        self.heal();
        // The old life ends before the new one opens the store, as with a process.
        let store = self.store.clone();
        let clock = self.clock.clone();
        let empty = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        drop(std::mem::replace(&mut self.life.runtime, empty));
        self.life = Life::begin(&store, &clock);
    }

    /// What a guest did while its task was paused shows now.
    fn resume_all(&mut self) {
        for task in self.model.unfinished(&self.life.runtime, &self.store, &self.clock) {
            if let Phase::Paused { .. } = task.phase {
                let tasks = &self.life.tasks;
                // One whose hosts ended again and again is held, which an operator ends.
                let resumed = self.life.runtime.block_on(async {
                    match task.is_held() {
                        true => tasks.release(&task.requestor, task.id).await,
                        false => tasks.resume(&task.requestor, task.id).await,
                    }
                });
                assert!(resumed.is_ok(), "seed {}: {resumed:?}", self.seed);
            }
        }
    }

    /// When nothing goes wrong any more, nothing may hang.
    fn come_to_rest(&mut self) {
        self.heal();
        self.life.settle_long();
        self.resume_all();
        self.life.settle_long();
        let left: Vec<Task> = self.model.unfinished(&self.life.runtime, &self.store, &self.clock);
        for task in &left {
            let alive = self.life.stage.has(&task.id.to_string());
            let running = model::is_running(task);
            assert!(
                !running || alive,
                "seed {}: {} runs on paper only\n{}",
                self.seed,
                task.id,
                self.journal.join("\n")
            );
        }
        let drained = self.life.runtime.block_on(self.life.tasks.drain(Duration::ZERO));
        assert!(drained.is_ok(), "seed {}: {drained:?}", self.seed);
        self.store.restart();
        let left = self.model.unfinished(&self.life.runtime, &self.store, &self.clock);
        let running: Vec<_> = left.iter().filter(|task| model::is_running(task)).map(|task| task.id).collect();
        assert_eq!(running, Vec::<TaskId>::new(), "seed {}: after a drain nothing runs", self.seed);
    }
}

#[test]
fn random_simulated_task_histories_keep_invariants() {
    let fixed = std::env::var("XTASK_TEST_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seeds: Vec<u64> = match fixed {
        Some(seed) => vec![seed],
        None => (1..=u64::from(rounds(6, 100))).map(|round| round.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect(),
    };
    for seed in seeds {
        println!("seed {seed}");
        let mut world = World::new(seed);
        for _ in 0..rounds(250, 2_000) {
            world.step();
        }
        world.come_to_rest();
    }
}
