//! The dashboard: pages for people in a browser, on a listener of its own.
//!
//! Owns that listener, who is logged in, and what a page shows to whom. Must not hold a store or run a command that the
//! operator API does not have, and must not show an operator what belongs to a requestor alone. Invariants: nothing
//! changes by a GET, save that the return from an issuer begins a session; a change needs a session, a page of the
//! dashboard itself and that page's token; a credential is judged anew while its session lasts; what belongs to another
//! requestor gets the page of what never was; text of plugins is text, and a view of theirs is in a frame of another
//! origin.
//!
//! Codes are in memory. Sessions are rows, too, behind a port that knows nothing else (`session_store`): a credential
//! never goes to the disk, only what it can be judged by. A restart ends those sessions of whose credential there is
//! nothing of that kind.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

mod app_preview;
mod arguments;
mod assets;
mod chart;
mod codes;
mod columns;
mod digests;
mod fields;
mod host_name;
mod lead;
mod lead_reads;
mod live;
mod login;
mod oidc;
mod operator_orders;
mod operator_plugins;
mod operator_reports;
mod operators;
mod orders;
mod own_results;
mod own_tasks;
mod own_tools;
mod own_tries;
mod own_views;
mod pages;
mod request;
mod respond;
mod route_table;
mod routes;
mod server;
mod session_store;
mod sessions;
mod shared_reads;
mod text;
mod tried;

pub use codes::LoginCodes;
pub use route_table::{AllowedViewers, Route, routes};
pub use server::{AdmitRequest, Dashboard, DashboardParts, HoldAnswer};
pub use session_store::{SessionStore, SessionStoreError};
