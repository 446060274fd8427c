//! What the engine is made of: state and rules.
//!
//! Must not know the engine. Invariant: no file in here imports one of `engine`.

pub(crate) mod abuse;
pub(crate) mod activity;
pub(crate) mod admission;
pub(crate) mod audit_events;
pub(crate) mod availability;
pub(crate) mod call_health;
pub(crate) mod call_identity;
pub(crate) mod call_slot;
pub(crate) mod catalog_events;
pub(crate) mod deadlines;
pub(crate) mod feed;
pub(crate) mod guest_services;
pub(crate) mod host_messages;
pub(crate) mod job;
pub(crate) mod journal;
pub(crate) mod news;
pub(crate) mod other_hosts;
pub(crate) mod outcome;
pub(crate) mod pending_takeover;
pub(crate) mod poll_intervals;
pub(crate) mod request;
pub(crate) mod residents;
pub(crate) mod resting;
pub(crate) mod run_state;
pub(crate) mod shared_counts;
pub(crate) mod shares;
pub(crate) mod tenant_usage;
pub(crate) mod watchers;
