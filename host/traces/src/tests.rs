//! The crate against a collector in memory.

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

fn tracer(port: u16, ratio: f64) -> Tracer {
    let endpoint = format!("http://127.0.0.1:{port}/base/").parse().unwrap();
    Tracer::start(TracerOptions {
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
    })
}

/// A collector that answers with these bytes; gives heads and bodies.
async fn collector(answer: &'static [u8]) -> (u16, mpsc::UnboundedReceiver<(String, ExportTraceServiceRequest)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
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
            stream.write_all(answer).await.unwrap();
            let _ = sender.send((head, ExportTraceServiceRequest::decode(body.as_slice()).unwrap()));
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
    let (port, mut received) = collector(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let tracer = tracer(port, 0.0);
    let server = tracer.request("tools/call", Some(&PARENT), TENANT).unwrap();
    server.rename("tools/call echo".to_owned());
    server.link(&TraceContext { trace_id: [3; 16], ..PARENT });
    let guest = server.child("guest", Kind::Internal).unwrap();
    guest.event("sleep");
    guest.fail("trap");
    drop(guest);
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
    assert!(none.go_on("task".to_owned(), &unsampled).is_none());
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
    let refusing = collector(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n").await;
    // `partial_success` (1) with `rejected_spans` (1) = 1.
    let partly = collector(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\x0a\x02\x08\x01").await;
    for ((port, _received), counted) in [(refusing, (0, 2)), (partly, (1, 1))] {
        let tracer = tracer(port, 1.0);
        drop([tracer.request("ping", None, TENANT), tracer.request("ping", None, TENANT)]);
        close(&tracer, Duration::from_secs(5)).await;
        assert_eq!((tracer.spans_exported(), tracer.spans_dropped()), counted);
    }
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
    let (first, second) = (tracer.request("a", None, TENANT).unwrap(), tracer.request("b", None, TENANT).unwrap());
    let now = || current().map(|span| span.context());
    assert_eq!(now(), None);
    let outer = first.enter();
    let inner = async { now() }.in_span(Some(second.clone())).await;
    assert_eq!((inner, now()), (Some(second.context()), Some(first.context())));
    assert_eq!(async { now() }.in_span(None).await, Some(first.context()));
    drop(outer);
    assert_eq!(now(), None);
}
