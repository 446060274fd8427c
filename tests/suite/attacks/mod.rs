//! Attacks on the protocol against a running host, byte by byte. After each of them the host serves on.
//!
//! Elsewhere: forged tokens (`oauth::attacks`), rotating keys (`oauth::keys`), rebound names of this host (`streams`,
//! `refusals`) and of others (`egress` and `runtime::tests::egress` in the host), hostile components (`hostile`,
//! `compile`, `registry_hostile`).

mod bodies;
mod connections;
mod framing;
mod messages;
mod unread;

use tests::Host;
use tests::client::HELLO;
use tests::raw;

/// A good request, whole.
fn hello() -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{HELLO}",
        HELLO.len()
    )
}

/// The host is there and answers on a connection of its own, the last time that it is used: nobody has to wait until it
/// is quiet.
async fn serves_on(host: &mut Host, after: &str) {
    assert!(host.is_alive(), "{after} took the host down:\n{}", host.log());
    let heard = raw::exchange(host, hello().replacen("\r\n", "\r\nConnection: close\r\n", 1).as_bytes()).await;
    assert_eq!(heard.statuses(), [200], "after {after}: {heard:?}");
    assert!(heard.answers[0].body.starts_with(r#"{"jsonrpc":"2.0","id":1,"result":{"#), "after {after}: {heard:?}");
    assert!(!host.log().contains("panicked"), "{after}:\n{}", host.log());
}
