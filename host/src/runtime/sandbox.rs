//! One call in one fresh instance.

/// What a running call and its levers share.
#[derive(Debug)]
pub struct Shared {}
