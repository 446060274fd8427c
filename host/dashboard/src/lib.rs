//! The dashboard: pages for people in a browser, on a listener of its own.
//!
//! Owns that listener, who is logged in, and what a page shows to whom. Must not hold a store or run a command that the operator API does
//! not have, and must not show an operator what belongs to a requestor alone. Invariants: nothing changes by a GET; a change needs a
//! session, a page of the dashboard itself and that page's token; a credential is judged anew while its session lasts; what belongs to
//! another requestor gets the page of what never was; text of plugins is text.
//!
//! Sessions and codes are in memory: a session keeps its credential as an open stream does, and a credential never goes to the disk. A
//! restart logs everybody out.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

mod assets;
mod chart;
mod codes;
mod fields;
mod login;
mod operator_orders;
mod operator_reports;
mod operators;
mod own_tasks;
mod pages;
mod request;
mod respond;
mod routes;
mod server;
mod sessions;
mod text;

pub use codes::LoginCodes;
pub use server::{AdmitRequest, Dashboard, DashboardParts};
