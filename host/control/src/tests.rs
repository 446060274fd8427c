mod audit;
mod durable;
mod listeners;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Notify;

use super::client::ControlClient;
use super::commands::*;
use super::operator::{HostOperator, StoreMaintenance};
use super::server::{Attach, AttachedReader, AttachedWriter, Server};
use super::task_control::OfflineTasks;
use super::views::{StoreCheckView, StoreRebuildView, TaskStatus};
use super::*;
use bulkhead_domain::Json;
use bulkhead_domain::clock::ManualClock;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_domain::task::*;
use bulkhead_identity::principal::Principals;
use bulkhead_store::memory::MemoryStore;
use bulkhead_store::sled::{Moved, Rekeyed, Report};
use bulkhead_store::{self as store, Creation, Store, StoredCaps, TaskStore};

/// The memory store has nothing to keep up: what a rebuild would have said, and what was asked for.
#[derive(Default)]
struct FakeMaintenance {
    rebuilt: Mutex<Option<StoreRebuildView>>,
    erasing: Mutex<Vec<TenantId>>,
    removals: AtomicU64,
}

#[async_trait]
impl StoreMaintenance for FakeMaintenance {
    async fn check(&self) -> Result<StoreCheckView, store::Error> {
        Ok(Report { tasks: 3, ..Report::default() }.into())
    }
    async fn export(&self, _: &Path) -> Result<Moved, store::Error> {
        Err(store::Error::Exists)
    }
    async fn rebuild(&self, _: Option<&Path>) -> Result<StoreRebuildView, store::Error> {
        self.rebuilt.lock().clone().ok_or_else(|| store::Error::Engine("no".to_owned()))
    }
    async fn backup(&self, _: &Path) -> Result<u64, store::Error> {
        Err(store::Error::Locked("x".to_owned()))
    }
    async fn rekey(&self) -> Result<Rekeyed, store::Error> {
        Err(store::Error::Sealed("no key".to_owned()))
    }
    async fn remove_old_stores(&self) -> Result<u64, store::Error> {
        self.removals.fetch_add(1, Ordering::Relaxed);
        Ok(1)
    }
    async fn remove_sessions(&self, _: TenantId) -> Result<u64, store::Error> {
        Ok(0)
    }
    async fn erasing(&self) -> Result<Vec<TenantId>, store::Error> {
        Ok(self.erasing.lock().clone())
    }
    async fn set_erasing(&self, tenants: &[TenantId]) -> Result<(), store::Error> {
        *self.erasing.lock() = tenants.to_vec();
        Ok(())
    }
}

/// Says what it reads back in capitals.
struct Shouting;

#[async_trait]
impl Attach for Shouting {
    async fn attach(&self, mut reader: AttachedReader, mut writer: AttachedWriter) {
        let mut line = String::new();
        while reader.read_line(&mut line).await.is_ok_and(|bytes| bytes > 0) {
            writer.write_all(line.to_uppercase().as_bytes()).await.unwrap();
            line.clear();
        }
    }
}

fn operator(store: &Arc<MemoryStore>) -> HostOperator {
    operator_with(store, Arc::default())
}

fn operator_with(store: &Arc<MemoryStore>, maintenance: Arc<FakeMaintenance>) -> HostOperator {
    let clock = Arc::new(ManualClock::at(1_000));
    let store: Arc<dyn Store> = store.clone();
    let task_control = Arc::new(OfflineTasks { store: store.clone(), clock: clock.clone() });
    HostOperator::new(store, maintenance, task_control, clock)
}

#[tokio::test]
async fn tenant_purge_keeps_old_store_with_unreadable_tasks() {
    let store = Arc::new(MemoryStore::new());
    let maintenance = Arc::new(FakeMaintenance::default());
    let operator = operator_with(&store, maintenance.clone());
    let tenant = Principals::new(store.clone()).tenant("acme").await.unwrap();
    let rebuilt = |lost: &[&str], old_store: &str| StoreRebuildView {
        moved: Moved { lost: lost.iter().map(ToString::to_string).collect(), ..Moved::default() },
        old_store: old_store.into(),
    };
    *maintenance.rebuilt.lock() = Some(rebuilt(&["task 7 is damaged"], "/data/store.old-1"));
    let purge = || operator.execute(TenantPurge { tenant: "acme".to_owned() });
    let refused = purge().await.unwrap_err().to_string();
    assert!(refused.contains("task 7 is damaged") && refused.contains("/data/store.old-1"), "{refused}");
    assert_eq!(maintenance.removals.load(Ordering::Relaxed), 0);
    assert_eq!(*maintenance.erasing.lock(), [tenant], "it is not over");

    *maintenance.rebuilt.lock() = Some(rebuilt(&[], "/data/store.old-2"));
    let purged = purge().await.unwrap();
    assert_eq!(purged.tenants, [tenant.to_string()]);
    assert!(maintenance.removals.load(Ordering::Relaxed) > 0 && maintenance.erasing.lock().is_empty());
}

async fn put_task(store: &MemoryStore, requestor: Requestor, id: u8) -> Task {
    let task = Task {
        created_at: 900 + u64::from(id),
        updated_at: 900 + u64::from(id),
        retention: Retention::FromCreation { ttl_ms: if id == 9 { 10 } else { 60_000 } },
        call_id: CallId([id; 16]),
        ..Task::sample(requestor, TaskId([id; 16]))
    };
    let caps = StoredCaps {
        tasks_per_requestor: 99,
        bytes_per_requestor: 1 << 20,
        tasks_per_tenant: 99,
        bytes_per_tenant: 1 << 20,
    };
    let arguments = Json::new(r#"{"secret":"argument"}"#);
    store.create(Creation { task, arguments, output: None, reserved_bytes: 0, caps, journal: None }).await.unwrap()
}

async fn listed(operator: &HostOperator, requestor: Option<&str>, tenant: Option<&str>) -> Vec<String> {
    let requestor = requestor.map(str::to_owned);
    let tenant = tenant.map(str::to_owned);
    let reply = operator.execute(TasksList { requestor, tenant, count_max: 100 }).await.unwrap();
    reply.tasks.into_iter().map(|task| task.id).collect()
}

#[tokio::test]
async fn operator_lists_and_cancels_tasks_of_all_requestors() {
    let store = Arc::new(MemoryStore::new());
    let principals = Principals::new(store.clone());
    let local = principals.local_requestor().await.unwrap();
    let token = principals.create_token("alice", "acme", None, 1).await.unwrap().token;
    let alice = principals.resolve_token(&token, 1).await.unwrap().unwrap().requestor;
    let first = put_task(&store, local, 1).await.id.to_string();
    let second = put_task(&store, alice, 2).await.id.to_string();
    let expired = put_task(&store, alice, 9).await.id.to_string();
    let operator = operator(&store);

    assert_eq!(listed(&operator, None, None).await.len(), 2);
    assert_eq!(listed(&operator, Some("alice"), None).await, std::slice::from_ref(&second));
    assert_eq!(listed(&operator, None, Some("default")).await, std::slice::from_ref(&first));
    assert!(listed(&operator, Some("nobody"), None).await.is_empty());

    let shown = operator.execute(TasksShow { id: second.clone() }).await.unwrap();
    assert_eq!((shown.task.requestor.as_deref(), shown.task.status), (Some("alice"), TaskStatus::Queued));
    let json = serde_json::to_string(&shown).unwrap();
    assert!(!json.contains("argument"));
    // The order of the members is that of the table and of `--json`.
    let digest = "07".repeat(32);
    assert_eq!(
        json,
        format!(
            r#"{{"id":"{second}","status":"queued","tool":"count_primes","requestor":"alice","tenant":"acme","created_at":902,"updated_at":902,"expires_at":60902,"status_message":null,"plugin":"primes","plugin_sha256":"{digest}","call_id":"{second}","attempt":0,"revision":1,"inputs":[],"steering_waiting":0,"error":null}}"#
        )
    );
    for id in [expired, "00".repeat(16), "x".to_owned()] {
        let refused = operator.execute(TasksShow { id }).await.unwrap_err();
        assert!(matches!(refused, ControlError::NotFound(_)), "{refused:?}");
    }
    let pause = |message: Option<&str>| TasksPause { id: second.clone(), message: message.map(str::to_owned) };
    for wrong in ["", "two\nlines", &"x".repeat(1_001)] {
        let refused = operator.execute(pause(Some(wrong))).await.unwrap_err();
        assert!(matches!(refused, ControlError::Invalid(_)), "{refused:?}");
    }
    let paused = operator.execute(pause(None)).await.unwrap();
    let says = paused.task.status_message.as_deref();
    assert_eq!((paused.task.status, says), (TaskStatus::Paused, Some("paused by the operator")));
    let again = operator.execute(pause(Some("once more"))).await.unwrap_err();
    assert!(matches!(&again, ControlError::Invalid(why) if why.contains("already paused")), "{again:?}");
    let resume = TasksResume { id: second.clone() };
    let resumed = operator.execute(resume.clone()).await.unwrap();
    assert_eq!((resumed.task.status, resumed.task.status_message), (TaskStatus::Queued, None));
    let again = operator.execute(resume).await.unwrap_err();
    assert!(matches!(&again, ControlError::Invalid(why) if why.contains("not paused")), "{again:?}");
    let cancelled = operator.execute(TasksCancel { id: second.clone() }).await.unwrap();
    assert_eq!((cancelled.task.status, cancelled.timeline), (TaskStatus::Cancelled, None));
    let shown = operator.execute(TasksShow { id: second.clone() }).await.unwrap();
    let timeline = serde_json::to_string(&shown.timeline.unwrap().entries).unwrap();
    let at = shown.task.updated_at;
    assert_eq!(
        timeline,
        format!(
            r#"[{{"at":{at},"transition":"paused"}},{{"at":{at},"transition":"resumed"}},{{"at":{at},"transition":"cancelled","from":"queued"}}]"#
        )
    );
    let again = operator.execute(TasksCancel { id: second }).await.unwrap_err();
    assert!(matches!(again, ControlError::Invalid(_)), "{again:?}");
}

/// The control socket of a host that has started.
fn serving(path: &Path, operator: Arc<dyn Operator>) -> Server {
    let server = Server::spawn(path, Arc::new(String::new)).unwrap();
    server.serve(operator, Arc::new(Shouting));
    server
}

#[tokio::test]
async fn starting_host_says_how_far_it_is_and_lets_mcp_wait() {
    let folder = tempfile::tempdir().unwrap();
    let loaded = Arc::new(AtomicU64::new(2));
    let counted = Arc::clone(&loaded);
    let describe = move || format!("{} of 7 done", counted.load(Ordering::Relaxed));
    let server = Server::spawn(&socket_path(folder.path()), Arc::new(describe)).unwrap();
    let client = ControlClient::connect(folder.path()).await.unwrap().unwrap();
    for far in [2, 3] {
        loaded.store(far, Ordering::Relaxed);
        let refused = client.execute(TokenList {}).await.unwrap_err();
        assert_eq!(refused, ControlError::Starting(format!("{far} of 7 done")));
    }
    let attached = ControlClient::connect(folder.path()).await.unwrap().unwrap();
    let attaching = tokio::spawn(attached.attach());
    tokio::task::yield_now().await;
    server.serve(Arc::new(operator(&Arc::new(MemoryStore::new()))), Arc::new(Shouting));
    assert!(client.execute(TokenList {}).await.is_ok(), "the same connection");
    let (mut reader, mut writer) = attaching.await.unwrap().unwrap();
    writer.write_all(b"hello\n").await.unwrap();
    let mut line = String::new();
    reader.read_line(&mut line).await.unwrap();
    assert_eq!(line, "HELLO\n");
}

#[tokio::test]
async fn control_socket_tokens_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::new());
    assert!(ControlClient::connect(folder.path()).await.unwrap().is_none());
    let server = serving(&socket_path(folder.path()), Arc::new(operator(&store)));
    let client = ControlClient::connect(folder.path()).await.unwrap().unwrap();
    let create = |expires_at| TokenCreate {
        requestor: "bob".to_owned(),
        tenant: "acme".to_owned(),
        expires_at,
        name: None,
        scopes: None,
    };
    let made = client.execute(create(None)).await.unwrap();
    assert!(Principals::new(store).resolve_token(&made.token, 1).await.unwrap().is_some());
    let listed = client.execute(TokenList {}).await.unwrap();
    assert!(!format!("{listed:?}").contains(&made.token));
    assert_eq!(listed.tokens.iter().map(|token| &token.requestor).collect::<Vec<_>>(), ["bob"]);
    assert!(matches!(client.execute(create(Some(1_000))).await, Err(ControlError::Invalid(_))));
    client.execute(TokenRevoke { id: made.info.id }).await.unwrap();
    drop(server);
    assert!(!socket_path(folder.path()).exists());
}

#[tokio::test]
async fn control_socket_is_private_and_replaces_a_dead_one() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("d".repeat(120));
    std::fs::create_dir(&deep).unwrap();
    for data in [folder.path(), deep.as_path()] {
        let path = socket_path(data);
        // Closing a listener leaves its file, as a killed host does.
        drop(super::socket::listen(&path).unwrap());
        assert!(path.exists() && ControlClient::connect(data).await.unwrap().is_none());
        let server = serving(&path, Arc::new(operator(&Arc::new(MemoryStore::new()))));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let client = ControlClient::connect(data).await.unwrap().unwrap();
        let checked = client.execute(StoreCheck {}).await.unwrap();
        assert!(checked.sound && checked.report.tasks == 3);
        drop(server);
    }
    std::fs::write(socket_path(folder.path()), "mine").unwrap();
    assert!(Server::spawn(&socket_path(folder.path()), Arc::new(String::new)).is_err());
    assert_eq!(std::fs::read(socket_path(folder.path())).unwrap(), b"mine");
}

#[tokio::test]
async fn bad_control_requests_are_answered_and_long_ones_disconnect() {
    let folder = tempfile::tempdir().unwrap();
    let path = socket_path(folder.path());
    let operator = Arc::new(operator(&Arc::new(MemoryStore::new())));
    let _server = serving(&path, operator);
    let mut stream = BufReader::new(UnixStream::connect(&path).await.unwrap());
    for bad in ["{\n", "{\"command\":\"fly\"}\n", "[]\n", "\n"] {
        stream.write_all(bad.as_bytes()).await.unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        assert!(line.contains("\"invalid\""), "{line}");
    }
    let long = vec![b'x'; usize::try_from(REQUEST_BYTES_MAX).unwrap()];
    stream.write_all(&long).await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("at most"), "{rest}");
}

#[tokio::test]
async fn attached_control_connection_carries_raw_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let operator = Arc::new(operator(&Arc::new(MemoryStore::new())));
    let _server = serving(&socket_path(folder.path()), operator);
    let client = ControlClient::connect(folder.path()).await.unwrap().unwrap();
    let (mut reader, mut writer) = client.attach().await.unwrap();
    writer.write_all(b"hello\n").await.unwrap();
    let mut line = String::new();
    reader.read_line(&mut line).await.unwrap();
    assert_eq!(line, "HELLO\n");
}

/// Takes as long as it is told to, and knows whose commands it has done.
#[derive(Default)]
struct Slow {
    begun: Notify,
    go_on: Notify,
    done: Mutex<Vec<String>>,
}

#[async_trait]
impl Operator for Slow {
    async fn execute_for(&self, who: &str, _: Command) -> Result<Answer, ControlError> {
        self.begun.notify_one();
        self.go_on.notified().await;
        self.done.lock().push(who.to_owned());
        Answer::of(&())
    }
}

impl Slow {
    /// Who ordered it, once the command is done that was given over this connection, which is gone meanwhile.
    async fn done_without(&self, connection: impl AsyncWriteExt) -> String {
        tokio::time::timeout(std::time::Duration::from_secs(20), self.begun.notified()).await.expect("it begins");
        drop(connection);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        assert!(self.done.lock().is_empty());
        self.go_on.notify_one();
        for _ in 0..500 {
            if let Some(who) = self.done.lock().first() {
                return who.clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("a command that was begun was not done");
    }
}

#[tokio::test]
async fn control_command_continues_after_client_hangs_up() {
    let folder = tempfile::tempdir().unwrap();
    let slow = Arc::new(Slow::default());
    let path = socket_path(folder.path());
    let _server = serving(&path, slow.clone());
    let mut connection = UnixStream::connect(&path).await.unwrap();
    for command in [Command::from(DrainBegin {}), DrainEnd {}.into()] {
        let line = [crate::wire::write_request(&command).unwrap(), b"\n".to_vec()].concat();
        connection.write_all(&line).await.unwrap();
    }
    let who = slow.done_without(connection).await;
    assert!(who.starts_with("user "), "{who}");
    // Nobody is there to hear of the first one, so the second one is not for anybody either.
    let second = tokio::time::timeout(std::time::Duration::from_millis(200), slow.begun.notified()).await;
    assert!(second.is_err(), "what was not begun is not");
}

#[tokio::test]
async fn remote_control_command_continues_after_hangup() {
    let slow = Arc::new(Slow::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let secret = remote::AdminTokenDigest::of_token("a token of administrators");
    let parts = remote::RemoteParts {
        listener,
        secret,
        certificate: None,
        operator: slow.clone(),
        audit: bulkhead_audit::Audit::off(),
    };
    let _remote = remote::Remote::spawn(parts).unwrap();
    let mut connection = TcpStream::connect(address).await.unwrap();
    let body = String::from_utf8(crate::wire::write_request(&DrainBegin {}.into()).unwrap()).unwrap();
    let head = format!(
        "POST /admin HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer a token of administrators\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(slow.done_without(connection).await, "administrator at 127.0.0.1");
}

#[tokio::test]
async fn only_reads_are_done_without_a_note() {
    let operator = operator(&Arc::new(MemoryStore::new()));
    let page = TasksPage { filter: TaskFilter::default(), after: None, count_max: 10 };
    let read = operator.read_unnoted(page.into()).await.unwrap();
    assert!(read.read::<TasksPage>().unwrap().tasks.is_empty());
    let id = || "0123456789abcdef0123456789abcdef".to_owned();
    let changes: [Command; 10] = [
        TasksHold { id: id(), message: None }.into(),
        TasksRelease { id: id() }.into(),
        TasksFail { id: id(), message: None }.into(),
        TasksPause { id: id(), message: None }.into(),
        TasksPurge { id: id() }.into(),
        TokenRevoke { id: id() }.into(),
        TenantPurge { tenant: id() }.into(),
        DrainBegin {}.into(),
        ConfigReload { check: true }.into(),
        PluginRollback { names: vec![id()] }.into(),
    ];
    for command in changes {
        let refused = operator.read_unnoted(command.clone()).await;
        assert!(matches!(refused, Err(ControlError::Invalid(why)) if why.contains("noted")), "{command:?}");
    }
}
