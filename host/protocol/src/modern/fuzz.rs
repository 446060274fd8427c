//! `requestState` made of anything.

use super::state::{Binding, Position, Sealer};
use bulkhead_domain::requestor::Requestor;

/// Opens forged states, then seals the position that `data` describes and returns it opened again.
pub(crate) fn state(
    secret: &[u8; 32],
    requestor: &Requestor,
    tool: &str,
    arguments: [u8; 32],
    data: &[u8],
) -> Option<String> {
    let sealer = Sealer::new(secret);
    let binding = Binding { requestor, tool, arguments };
    let text = std::str::from_utf8(data).ok()?;
    assert!(sealer.open(&binding, text).is_none(), "a state that nobody sealed");
    let position: Position = serde_json::from_str(text).ok()?;
    let sealed = sealer.seal(&binding, &position).ok()?;
    // What is of another version is sealed by nobody.
    let opened = sealer.open(&binding, &sealed)?;
    assert_eq!(opened.until, position.until);
    Some(sealed)
}
