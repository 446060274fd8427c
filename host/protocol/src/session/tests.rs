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
