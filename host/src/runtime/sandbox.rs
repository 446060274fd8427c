//! One call in one fresh instance.

/// What a running call and its levers share.
#[derive(Debug, Default)]
pub struct Shared {}

impl super::Control {
    pub fn signal_cancel(&self) {}
    pub fn is_cooperative(&self) -> bool {
        false
    }
    pub fn cancel_grace_ms(&self) -> u64 {
        0
    }
    pub fn promoted(&self, _task_id: String) {}
    pub fn pause(&self) {}
    pub fn resume(&self) {}
    pub fn steering_pending(&self, _pending: bool) {}
}
