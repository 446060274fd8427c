//! The integration suite.
//!
//! One binary, because each further one would link the whole host once more. Every file is one question about a running host:
//! what it says on the wire, who may see what, what a guest may do to others, what survives a `kill -9`.

mod admin;
mod anonymous;
mod attacks;
mod audit;
mod authors;
mod bad_input;
mod canary;
mod commands;
mod compatibility;
mod compile;
mod documented;
mod egress;
mod erased;
mod faces;
mod fairness;
mod first_use;
mod grants;
mod hostile;
mod interaction;
mod isolation;
mod keeping;
mod language_offers;
mod languages;
mod limits;
mod modern;
mod network;
mod oauth;
mod operators;
mod pausing;
mod plugins;
mod recovery;
mod refusals;
mod registry;
mod registry_hostile;
mod revoked;
mod rust_client;
mod rust_client_modern;
mod secrets;
mod sep1686;
mod simulation;
mod sources;
mod spellings;
mod starts;
mod stdio;
mod streams;
mod swap;
mod tasks;
mod trace;
mod typed;
mod verdicts;
mod wire;
