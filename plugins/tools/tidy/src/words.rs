//! Words that were given up, with the word to use instead: names in the code, and phrases in its documentation.
//!
//! A name is refused where it is declared: modules, types, variants, functions, constants, fields, parameters and
//! locals of the host.

use syn::visit::Visit;

use crate::Finding;
use crate::code::{self, Source};
use crate::repository::Repository;

/// Words that no declared name has among its parts (`tend` is one of `run_tend` and of `TendLoop`), with what to use.
const WORDS: &[(&str, &str)] = &[
    ("aside", "offload, or secondary"),
    ("attendance", "running host"),
    ("banish", "block tenant"),
    ("banished", "blocked"),
    ("belongings", "guest services"),
    ("carriers", "stream router"),
    ("farewell", "erase hooks"),
    ("lane", "worker, or introspection permit"),
    ("lanes", "workers"),
    ("lasting", "revalidation"),
    ("misfit", "argument error"),
    ("morning", "sleep"),
    ("newcomer", "provision"),
    ("newcomers", "provisioning"),
    ("notices", "notifications"),
    ("patience", "header timeout"),
    ("questions", "input requests"),
    ("shelf", "bounded cache, or plugin admin"),
    ("steward", "task control"),
    ("suspicion", "abuse"),
    ("tend", "maintenance"),
    ("ticket", "single-use token, state id or queue number"),
    ("tickets", "replay guard"),
    ("twin", "representation"),
    ("unattended", "offline tasks"),
    ("unended", "call audit"),
    ("unheard", "receiver gone"),
    ("untold", "missed notifications"),
    ("upkeep", "store maintenance"),
    ("workshop", "compile cache"),
];

/// Whole names of types and functions that are refused, with what to use.
const NAMES: &[(&str, &str)] = &[
    ("Absence", "Fallback"),
    ("Asked", "RefusalAudit, or the request's own name"),
    ("Audience", "ClientView"),
    ("Census", "Totals"),
    ("Desk", "AdminListener"),
    ("Ground", "HostContext"),
    ("Line", "the thing that waits or is written: RunQueue, AuditEntry, EncodedMessage"),
    ("Lines", "RequestQuota"),
    ("Manner", "CallMode"),
    ("Marks", "HeaderParams"),
    ("Move", "Change"),
    ("Occupied", "InFlight"),
    ("Outlet", "FrameSender"),
    ("Place", "PayloadLocation, Position or the permit's own name"),
    ("Presence", "CallCount"),
    ("Room", "MemoryBudget, or DiskSpace"),
    ("Standing", "Backoff"),
    ("Stock", "StoreCounts"),
    ("Supply", "ComponentSource"),
    ("Tap", "ChangeCapture"),
    ("Turn", "the permit's or the outcome's own name"),
    ("Wants", "Manifest"),
    ("Wish", "TaskMetadata"),
    ("heard_by", "set_client"),
    ("obey", "apply"),
    ("open_row", "verify_checksum"),
    ("seal_database", "finalize_copy"),
    ("seal_row", "with_checksum"),
    ("talk", "streaming"),
];

/// Names of fields, parameters and locals that are refused, with what to use. A name that is refused of a type is no
/// better for a value of that type; `line`, `room` for text and `audience` of a token are words of their fields.
const VALUES: &[(&str, &str)] = &[
    ("absence", "fallback"),
    ("asked", "the request's own name"),
    ("census", "totals"),
    ("desk", "listener"),
    ("goes_on", "what it is that continues"),
    ("ground", "host_context"),
    ("manner", "mode, or options"),
    ("marks", "header_params"),
    ("occupied", "in_flight"),
    ("outlet", "frame_sender"),
    ("place", "permit, slot, location, position or source"),
    ("presence", "call_count"),
    ("room", "budget, or how many bytes are free"),
    ("said", "message, or what was sent"),
    ("standing", "backoff, or reputation"),
    ("stock", "counts"),
    ("supply", "component_source"),
    ("tap", "change_capture"),
    ("told", "what was reported, or who was notified"),
    ("wish", "spec, or the request's own name"),
];

/// Names of modules that are refused, with what to use.
const MODULES: &[(&str, &str)] = &[
    ("apart", "overlap"),
    ("at_once", "immediate"),
    ("book", "registry"),
    ("durations", "poll_interval"),
    ("first", "deferred_fetch"),
    ("gate", "call_state"),
    ("intake", "acquire"),
    ("kept", "component_store"),
    ("keyed", "idempotent_call"),
    ("leaving", "tenant_removal"),
    ("lines", "request_quota"),
    ("members", "params"),
    ("mirrored", "header_params"),
    ("noted", "audit_events"),
    ("offers", "server_features"),
    ("rounds", "multi_round_trip"),
    ("settle", "reconcile"),
    ("shown", "inspect_json"),
    ("stall", "write_timeout"),
    ("terms", "policy_reload"),
    ("turns", "fair_order"),
    ("wants", "manifest"),
];

/// Phrases of documentation that hide who does what, with what to write instead.
const PHRASES: [(&str, &str); 4] = [
    ("whoever", "name the subject: the client, the caller, the plugin"),
    ("somebody", "name the subject: a client, an operator, another requestor"),
    ("gives back", "returns, or releases"),
    ("given back", "returned, or released"),
];

pub(crate) fn check(repository: &Repository) -> anyhow::Result<Vec<Finding>> {
    let in_source = |source| [refused_names(source), refused_phrases(source)].into_iter().flatten();
    Ok(repository.host().flat_map(in_source).collect())
}

/// What is declared in a file under a refused name.
fn refused_names(source: &Source) -> Vec<Finding> {
    let mut findings = refused(source, Names::of(source).items, NAMES);
    findings.extend(refused_values(source));
    // A module's name is its file's, wherever it is declared.
    let path = source.name.trim_end_matches(".rs").trim_end_matches("/mod");
    let module = (path.rsplit('/').next().unwrap_or(path).to_owned(), 1);
    findings.extend(refused(source, vec![module], MODULES));
    findings
}

fn refused_values(source: &Source) -> Vec<Finding> {
    refused(source, Names::of(source).values, VALUES)
}

/// Those of the names that have a refused word in them, or are refused as a whole.
fn refused(source: &Source, names: Vec<(String, usize)>, whole: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, line) in names {
        let parts = parts(&name);
        let word = WORDS.iter().find(|(word, _)| parts.iter().any(|part| part == word));
        let whole = whole.iter().find(|(refused, _)| *refused == name);
        if let Some((refused, instead)) = word.or(whole) {
            findings.push(format!("{}:{line}: `{name}`: not {refused} but {instead}", source.name));
        }
    }
    findings
}

/// The words of a name in any spelling, in lower case.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for letter in name.chars() {
        let starts = letter.is_uppercase() && parts.last().is_some_and(|part| part.ends_with(char::is_lowercase));
        if (starts || letter == '_') && parts.last().is_some_and(|part| !part.is_empty()) {
            parts.push(String::new());
        }
        if letter != '_'
            && let Some(part) = parts.last_mut()
        {
            part.push(letter);
        }
    }
    parts.into_iter().map(|part| part.to_lowercase()).collect()
}

/// Declared names, each with its line.
#[derive(Default)]
struct Names {
    /// Of types, variants, functions and constants.
    items: Vec<(String, usize)>,
    /// Of fields, parameters and locals.
    values: Vec<(String, usize)>,
}

impl Names {
    fn of(source: &Source) -> Self {
        let mut names = Self::default();
        names.visit_file(&source.file);
        names
    }

    fn add(&mut self, name: &syn::Ident) {
        self.items.push(named(name));
    }
}

/// A name with its line.
fn named(name: &syn::Ident) -> (String, usize) {
    (name.to_string(), name.span().start().line)
}

impl<'a> Visit<'a> for Names {
    fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
        self.add(&item.ident);
        syn::visit::visit_item_struct(self, item);
    }
    fn visit_item_enum(&mut self, item: &'a syn::ItemEnum) {
        self.add(&item.ident);
        syn::visit::visit_item_enum(self, item);
    }
    fn visit_variant(&mut self, variant: &'a syn::Variant) {
        self.add(&variant.ident);
        syn::visit::visit_variant(self, variant);
    }
    fn visit_field(&mut self, field: &'a syn::Field) {
        self.values.extend(field.ident.as_ref().map(named));
    }
    fn visit_item_trait(&mut self, item: &'a syn::ItemTrait) {
        self.add(&item.ident);
        syn::visit::visit_item_trait(self, item);
    }
    fn visit_item_type(&mut self, item: &'a syn::ItemType) {
        self.add(&item.ident);
    }
    fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
        self.add(&item.ident);
    }
    fn visit_signature(&mut self, signature: &'a syn::Signature) {
        self.add(&signature.ident);
        syn::visit::visit_signature(self, signature);
    }
    /// What a parameter or a local is bound to; a constant in a pattern is declared elsewhere.
    fn visit_pat_ident(&mut self, pattern: &'a syn::PatIdent) {
        self.values.push(named(&pattern.ident));
        syn::visit::visit_pat_ident(self, pattern);
    }
}

/// Phrases that the documentation of a file must not have.
fn refused_phrases(source: &Source) -> Vec<Finding> {
    struct Documentation(Vec<(String, usize)>);
    impl<'a> Visit<'a> for Documentation {
        fn visit_attribute(&mut self, attribute: &'a syn::Attribute) {
            let text = code::documentation(std::slice::from_ref(attribute)).to_lowercase();
            self.0.push((text, attribute.pound_token.span.start().line));
        }
    }
    let mut documentation = Documentation(Vec::new());
    documentation.visit_file(&source.file);
    let mut findings = Vec::new();
    for (text, line) in documentation.0 {
        let found = PHRASES.iter().filter(|(phrase, _)| text.contains(phrase));
        findings.extend(found.map(|(phrase, instead)| format!("{}:{line}: not `{phrase}`: {instead}", source.name)));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::source;

    #[test]
    fn refused_names_are_found_where_they_are_declared() {
        let text = "struct BelongingsOfTenant; fn run_tend() { let returned = tend(); } impl Turn { fn returned() {} }
            enum Turn {} const ATTENDANCE: u8 = 1; trait T { fn obey(&self); }";
        let lines = refused_names(&source("tasks/lanes.rs", text));
        let names: Vec<_> = lines.iter().filter_map(|line| line.split('`').nth(1)).collect();
        assert_eq!(names, ["BelongingsOfTenant", "run_tend", "Turn", "ATTENDANCE", "obey", "lanes"]);
        assert!(refused_names(&source("tasks/a.rs", "fn attendances() {} struct Returns;")).is_empty());
    }

    #[test]
    fn refused_fields_parameters_and_locals_are_found() {
        let text = "struct A { ground: u8, line: u8 } enum B { C { wish: u8 } }
            fn f(said: u8, (told, x): (u8, u8)) { let mut manner = 1; match y { Some(place) => place, _ => 2 }; }
            fn g() { z.map(|asked| asked.ground); B::C { wish: 1 }; fn inner(my_upkeep: u8) {} self.said = said(); }";
        let lines = refused_names(&source("tasks/a.rs", text));
        let names: Vec<_> = lines.iter().filter_map(|line| line.split('`').nth(1)).collect();
        assert_eq!(names, ["ground", "wish", "said", "told", "manner", "place", "asked", "my_upkeep"]);
    }

    #[test]
    fn names_are_split_into_words() {
        assert_eq!(parts("HTTPServer_run2"), ["httpserver", "run2"]);
        assert_eq!(parts("BelongingsOf"), ["belongings", "of"]);
    }

    #[test]
    fn refused_phrases_of_documentation_are_found() {
        let text =
            "/// Whoever asks.\nfn f() { /* whoever */ }\n/// A permit, given back\n/// when dropped.\nstruct A;";
        let lines: Vec<_> =
            refused_phrases(&source("tasks/a.rs", text)).into_iter().map(|line| line[..12].to_owned()).collect();
        assert_eq!(lines, ["tasks/a.rs:1", "tasks/a.rs:3"]);
    }
}
