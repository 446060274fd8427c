use super::*;
use bulkhead_domain::call::ClientFeature;

fn session() -> Arc<Session> {
    let settled = Negotiated {
        requestor: Requestor { tenant: TenantId([1; 16]), id: RequestorId([2; 16]) },
        version: Version::V2025_11_25,
        features: ClientFeatures::default().with(ClientFeature::Roots),
        client_tasks: ClientTasks { elicitation: true, ..ClientTasks::default() },
        interaction: Interaction { steer: true, pause: false },
        client_name: "\u{1F600}".repeat(1000),
        client_version: "\"".repeat(1000),
        offered: AnnouncedLists { resources: true, prompts: true },
    };
    Arc::new(Session::open(settled, ListGenerations::default()).unwrap())
}

#[test]
fn session_is_restored_from_its_state() {
    let session = session();
    session.set_log_level(LogLevel::Alert);
    session.set_initialized();
    assert_eq!(session.changes(), 2);
    let state = session.state();
    assert!(state.len() <= 4000, "{}", state.len());
    assert!(!String::from_utf8_lossy(&state).contains(session.id()));
    let again = Session::restore(session.id(), &state).unwrap();
    assert_eq!(again.digest(), session.digest());
    assert_eq!(again.log_level(), LogLevel::Alert);
    assert_eq!(again.settled.interaction, session.settled.interaction);
    assert_eq!(again.state(), state);
    assert!(Session::restore(session.id(), b"{}").is_none());
}

#[test]
fn session_ids_are_long_visible_and_unique() {
    let one = session();
    let two = session();
    assert_ne!(one.id(), two.id());
    assert_eq!(one.id().len(), 32);
    assert!(one.id().bytes().all(|byte| (0x21..=0x7e).contains(&byte)));
}

#[test]
fn session_reply_matches_one_request_once() {
    let session = session();
    let (number, _reply) = session.expect(None);
    let id = RequestId::Text(session.request_id(number));
    assert!(
        session.take_expected(&RequestId::Text(format!("00000000-{number}")), |_| true).is_none() || session.birth == 0
    );
    assert!(session.take_expected(&id, |_| false).is_none());
    assert!(session.take_expected(&id, |_| true).is_some());
    assert!(session.take_expected(&id, |_| true).is_none());
}

#[test]
fn state_of_another_host_is_adopted_with_what_the_client_follows() {
    let here = session();
    let there = Session::restore(here.id(), &here.state()).unwrap();
    assert!((0..256).all(|number| there.subscribe(&format!("a://{number}"), "p", 256, true)));
    assert!(!there.subscribe("a://256", "p", 256, true));
    there.set_log_level(LogLevel::Alert);
    there.set_initialized();
    let state = there.state();
    assert!(state.len() <= 4000, "{}", state.len());
    here.adopt(&state);
    assert!(here.follows("a://255", "p") && !here.follows("a://255", "q"));
    assert_eq!(here.log_level(), LogLevel::Alert);
    assert!(here.initialized.initialized());
    let changes = here.changes();
    here.adopt(&state);
    assert_eq!(here.changes(), changes, "it is nothing new");
    there.unsubscribe("a://255", true);
    here.adopt(&there.state());
    assert!(!here.follows("a://255", "p") && here.follows("a://254", "p"));
    let alone = session();
    let before = alone.changes();
    assert!(alone.subscribe("a://1", "p", 256, false));
    assert_eq!(alone.changes(), before, "a host without others writes nothing");
}

#[tokio::test]
async fn reply_that_came_to_another_host_reaches_the_request_and_no_question_of_a_task() {
    let session = session();
    let reply = || Ok(Box::<str>::from("{}"));
    let host = "ab".repeat(16);
    let (number, receiver) = session.expect(None);
    let id = format!("{}~{host}", session.request_id(number));
    crate::legacy::replied_elsewhere(&session, format!("{id}x"), reply(), false);
    assert_eq!(&*receiver.await.unwrap().unwrap(), "{}");
    let task = TaskId([7; 16]);
    let related = RelatedTask::core(task);
    let input_request = TaskInputRequest { task, related, issued_key: "a".to_owned(), kind: InputRequestKind::Roots };
    let (number, mut receiver) = session.expect(Some(input_request));
    let id = format!("{}~{host}.x.y", session.request_id(number));
    crate::legacy::replied_elsewhere(&session, id, reply(), true);
    assert!(receiver.try_recv().is_err(), "the host where it came has put it into the record");
    assert!(!session.cancel(&RequestId::Integer(1)));
}

#[test]
fn request_id_in_use_is_refused_until_released() {
    let session = session();
    let id = RequestId::Integer(1);
    let first = session.begin(&id).unwrap();
    assert!(session.begin(&id).is_none());
    drop(first);
    assert!(session.begin(&id).is_some());
}

#[test]
fn published_revisions_can_be_negotiated() {
    assert_eq!(Version::ALL.map(Version::name), crate::VERSIONS[1..]);
}

#[test]
fn idle_session_uses_little_memory() {
    assert!(size_of::<Session>() < 1024, "{}", size_of::<Session>());
}
