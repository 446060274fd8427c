//! The crate against a collector in memory.

mod cost;

use std::time::Duration;

use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::trace::TraceContext;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;

const PARENT: TraceContext = TraceContext { trace_id: [7; 16], parent_id: [9; 8], is_sampled: true };
const TENANT: TenantId = TenantId([1; 16]);
const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const BUSY: &[u8] = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";
const WRONG: &[u8] = b"HTTP/1.1 400 No\r\ncontent-length: 0\r\n\r\n";

fn tracer(port: u16, ratio: f64) -> Tracer {
    tracer_of(port, ratio, Duration::from_secs(60))
}

fn tracer_of(port: u16, ratio: f64, batch_max: Duration) -> Tracer {
    Tracer::start(TracerOptions { batch_max, ..options(port, ratio) })
}

fn options(port: u16, ratio: f64) -> TracerOptions {
    let endpoint = format!("http://127.0.0.1:{port}/base/").parse().unwrap();
    TracerOptions {
        endpoint,
        headers: vec![(http::HeaderName::from_static("x-key"), http::HeaderValue::from_static("k"))],
        tls: bulkhead_net::dial::tls_config(&[]).unwrap(),
        ratio,
        followed_max: FollowedMax { per_tenant: 1_000_000, total: 1_000_000 },
        names_requestor: false,
        service_name: "tested".to_owned(),
        service_version: "1",
        resource: vec![("service.name".to_owned(), "said less".to_owned()), ("a".to_owned(), "b".to_owned())],
        io: Handle::current(),
        batch_max: Duration::from_secs(60),
    }
}

/// A collector that answers with these bytes, the last of them again and again; gives heads and bodies.
async fn collector(
    answers: &'static [&'static [u8]],
) -> (u16, mpsc::UnboundedReceiver<(String, ExportTraceServiceRequest)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut left = answers.iter();
        let mut answer: &[u8] = b"";
        while let Ok((mut stream, _)) = listener.accept().await {
            if let Some(next) = left.next() {
                answer = next;
            }
            let mut read = Vec::new();
            let (head, body) = loop {
                stream.read_buf(&mut read).await.unwrap();
                let Some(end) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { continue };
                let head = String::from_utf8_lossy(&read[..end]).to_lowercase();
                let length = head.split("content-length: ").nth(1).unwrap();
                let length: usize = length.lines().next().unwrap().parse().unwrap();
                if read.len() >= end + 4 + length {
                    break (head, read[end + 4..].to_vec());
                }
            };
            // Who has the answer finds the request here.
            let _ = sender.send((head, ExportTraceServiceRequest::decode(body.as_slice()).unwrap()));
            stream.write_all(answer).await.unwrap();
        }
    });
    (port, receiver)
}

async fn close(tracer: &Tracer, within: Duration) {
    let tracer = tracer.clone();
    tokio::task::spawn_blocking(move || tracer.close(within)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_reach_the_collector_with_parents_links_and_resource() {
    let (port, mut received) = collector(&[OK]).await;
    let tracer = tracer(port, 0.0);
    let server = tracer.request("tools/call", Some(&PARENT), TENANT).unwrap();
    server.set_name("tools/call", Some("echo"));
    server.set_name("tools/call", Some("again"));
    server.link(&TraceContext { trace_id: [3; 16], ..PARENT });
    let guest = server.child("guest", Kind::Internal).unwrap();
    guest.event("sleep");
    guest.fail("trap");
    drop(guest);
    server.set_trace_state("a=1");
    let told = server.context().to_string();
    server.end();
    server.set("late", 1);
    close(&tracer, Duration::from_secs(5)).await;
    let (head, request) = received.recv().await.unwrap();
    assert!(head.starts_with("post /base/v1/traces http/1.1") && head.contains("x-key: k"), "{head}");
    assert!(head.contains("content-type: application/x-protobuf"), "{head}");
    let all = &request.resource_spans[0];
    let resource = format!("{:?}", all.resource);
    assert!(resource.contains("tested") && !resource.contains("said less") && resource.contains("\"a\""), "{resource}");
    let [guest, server] = &all.scope_spans[0].spans[..] else { panic!("{request:?}") };
    assert_eq!((&server.trace_id[..], &server.parent_span_id[..]), (&[7; 16][..], &[9; 8][..]));
    assert_eq!((&guest.trace_id, &guest.parent_span_id), (&server.trace_id, &server.span_id));
    assert_eq!((server.name.as_str(), server.kind, guest.kind), ("tools/call echo", 2, 1));
    assert_eq!((server.links[0].trace_id.as_slice(), guest.events[0].name.as_str()), (&[3; 16][..], "sleep"));
    assert_eq!((server.trace_state.as_str(), server.flags, guest.flags), ("a=1", 0x301, 0x101));
    assert!(server.start_time_unix_nano > 1_600_000_000_000_000_000 && guest.name == "guest");
    assert!(guest.end_time_unix_nano >= guest.start_time_unix_nano);
    assert!(guest.attributes[0].key == "error.type" && guest.status.as_ref().unwrap().code == 2);
    assert!(server.attributes.is_empty(), "what comes after the end is lost");
    assert!(told.starts_with("00-07070707") && told.ends_with("-01"), "{told}");
    assert_eq!((tracer.spans_exported(), tracer.spans_dropped()), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_sampled_becomes_a_span() {
    let off = Tracer::default();
    assert!(off.request("ping", Some(&PARENT), TENANT).is_none() && !off.is_on());
    let none = tracer(9, 0.0);
    let unsampled = TraceContext { is_sampled: false, ..PARENT };
    assert!(none.request("ping", None, TENANT).is_none() && none.request("ping", Some(&unsampled), TENANT).is_none());
    assert!(none.go_on("task", &unsampled, TENANT).is_none());
    let all = tracer(9, 1.0);
    assert!(all.request("ping", None, TENANT).is_some());
    assert!(all.request("ping", Some(&unsampled), TENANT).is_none(), "its caller decides");
}

#[tokio::test(flavor = "multi_thread")]
async fn collector_that_is_away_holds_up_nothing_and_drops_are_counted() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tracer = tracer(silent.local_addr().unwrap().port(), 1.0);
    let begun = Instant::now();
    for _ in 0..10_000 {
        drop(tracer.request("ping", None, TENANT).unwrap());
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let dropped = tracer.spans_dropped();
    assert!((10_000 - 2_048 - 1_024..=10_000 - 2_048).contains(&dropped), "{dropped}: one batch at most is on its way");
    close(&tracer, Duration::from_millis(50)).await;
    assert!(begun.elapsed() < Duration::from_secs(4), "the end is bounded");
    drop(tracer.request("ping", None, TENANT));
    assert!(tracer.spans_dropped() > dropped && tracer.spans_exported() == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_the_collector_are_counted() {
    let refusing = collector(&[BUSY]).await;
    // `partial_success` (1) with `rejected_spans` (1) = 1.
    let partly = collector(&[b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\x0a\x02\x08\x01"]).await;
    for ((port, _received), counted) in [(refusing, (0, 2)), (partly, (1, 1))] {
        let tracer = tracer(port, 1.0);
        drop([tracer.request("ping", None, TENANT), tracer.request("ping", None, TENANT)]);
        close(&tracer, Duration::from_secs(5)).await;
        assert_eq!((tracer.spans_exported(), tracer.spans_dropped()), counted);
    }
}

/// Waits until so many spans are exported and dropped.
async fn until_counted(tracer: &Tracer, counted: (u64, u64)) {
    let now = || (tracer.spans_exported(), tracer.spans_dropped());
    let reached = async {
        while now() != counted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reached)
        .await
        .unwrap_or_else(|_| panic!("{:?}, not {counted:?}", now()));
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_is_sent_again_until_it_was_refused_too_often_or_for_good() {
    let soon = Duration::from_millis(10);
    let (port, mut received) = collector(&[BUSY, OK, BUSY, BUSY, BUSY, OK]).await;
    let tracer = tracer_of(port, 1.0, soon);
    drop(tracer.request("first", None, TENANT));
    until_counted(&tracer, (1, 0)).await;
    drop(tracer.request("second", None, TENANT));
    until_counted(&tracer, (1, 1)).await;
    drop(tracer.request("third", None, TENANT));
    until_counted(&tracer, (2, 1)).await;
    let mut names = Vec::new();
    while let Ok((_, request)) = received.try_recv() {
        names.push(request.resource_spans[0].scope_spans[0].spans[0].name.clone());
    }
    assert_eq!(names, ["first", "first", "second", "second", "second", "third"]);

    let (port, mut received) = collector(&[WRONG, OK]).await;
    let tracer = tracer_of(port, 1.0, soon);
    drop(tracer.request("wrong", None, TENANT));
    until_counted(&tracer, (0, 1)).await;
    drop(tracer.request("right", None, TENANT));
    until_counted(&tracer, (1, 1)).await;
    assert!(received.recv().await.is_some() && received.recv().await.is_some() && received.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn full_batches_leave_at_once_and_others_after_their_time() {
    let (port, mut received) = collector(&[OK]).await;
    let tracer = tracer_of(port, 1.0, Duration::from_secs(1));
    let begun = Instant::now();
    for _ in 0..600 {
        drop(tracer.request("ping", None, TENANT));
    }
    let sizes = [received.recv().await.unwrap(), received.recv().await.unwrap()]
        .map(|(_, request)| request.resource_spans[0].scope_spans[0].spans.len());
    assert_eq!(sizes, [512, 88]);
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    until_counted(&tracer, (600, 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_of_followed_requests_are_charged_and_those_of_their_tasks() {
    let mut tracer =
        Tracer::start(TracerOptions { followed_max: FollowedMax { per_tenant: 4, total: 100 }, ..options(9, 0.0) });
    let server = tracer.request("tools/call", Some(&PARENT), TENANT).unwrap();
    let children: Vec<_> = (0..2).filter_map(|_| server.child("guest", Kind::Internal)).collect();
    tracer.go_on("task", &server.context(), TENANT).unwrap();
    assert_eq!(children.len(), 2);
    // A second may have passed, and paid for them.
    let follows = |tracer: &Tracer| (0..20).filter(|_| tracer.request("ping", Some(&PARENT), TENANT).is_some()).count();
    assert!([0, 4].contains(&follows(&tracer)));
    tracer =
        Tracer::start(TracerOptions { followed_max: FollowedMax { per_tenant: 4, total: 100 }, ..options(9, 1.0) });
    for _ in 0..10 {
        let begun_here = tracer.request("tools/call", None, TENANT).unwrap();
        tracer.go_on("task", &begun_here.context(), TENANT).unwrap();
    }
    assert!([4, 8].contains(&follows(&tracer)), "what the ratio begins is not charged");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_has_a_bounded_number_of_spans_and_events() {
    let tracer = tracer(9, 1.0);
    let server = tracer.request("tools/call", None, TENANT).unwrap();
    let children: Vec<_> = (0..1_000).map_while(|_| server.child("GET", Kind::Client)).collect();
    assert_eq!(children.len(), 127);
    assert!(children[0].child("GET", Kind::Client).is_none(), "children of children count, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn current_span_is_the_one_entered_last() {
    let tracer = tracer(9, 1.0);
    let first = tracer.request("a", None, TENANT).unwrap();
    let second = tracer.request("b", None, TENANT).unwrap();
    let now = || current().map(|span| span.context());
    assert_eq!(now(), None);
    let outer = first.enter();
    let inner = Box::pin(async { now() }).in_span(Some(second.clone())).await;
    assert_eq!((inner, now()), (Some(second.context()), Some(first.context())));
    assert_eq!(Box::pin(async { now() }).in_span(None).await, Some(first.context()));
    drop(outer);
    assert_eq!(now(), None);
}
