//! What authors of plugins do with this program beside what needs no host (`bulkhead-author-cli`): look into a
//! component, call it, test and replay it, compose it, take it from a registry, and serve it while they write.
//!
//! Owns the words of these commands and what comes of them. Must not touch a host's data directory: what switches a
//! host is handed to it. Invariant: a component is judged as a host would, and nothing is granted that the author did
//! not grant.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "clap prints these texts as help; brackets in them name sections of the configuration"
)]

mod app_views;
pub mod author;
pub mod call;
mod check;
mod compose;
mod dev;
mod dev_host;
mod durability;
mod grant_arguments;
pub mod grants;
mod input_answers;
pub mod inspect;
mod journal_file;
mod plugin_test;
mod registry;
pub mod replay;
mod source_files;
