//! `cargo xtask tidy`: checks of the repository's own text, each with the sentence that says what to do.
//!
//! Owns what can be read off the source and the documents without running anything: the direction of imports, the
//! bounds of what grows, refused words, and the tests that documents name. Must not compile or run the host. Invariant:
//! every check has a unit test with a text that it refuses, so a check that cannot fail does not pass.

mod bindings;
mod bounds;
mod code;
mod comments;
mod errors;
mod layers;
mod loops;
mod nightly;
mod portable;
mod repository;
mod requirements;
mod security;
mod tests_named;
mod words;

use std::process::ExitCode;

use repository::Repository;

/// One thing that is wrong, as one line: where, what, and what to do.
type Finding = String;

type Check = fn(&Repository) -> anyhow::Result<Vec<Finding>>;

/// Every check, with the subject that it is listed under.
const CHECKS: [(&str, Check); 11] = [
    ("layers", layers::check),
    ("loops", loops::check),
    ("portable", portable::check),
    ("bounds", bounds::check),
    ("words", words::check),
    ("bindings", bindings::check),
    ("comments", comments::check),
    ("requirements", requirements::check),
    ("security", security::check),
    ("errors", errors::check),
    ("nightly", nightly::check),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => check(),
        ["--bounds"] => Repository::read().map(|repository| {
            print!("{}", bounds::page(&repository));
            0
        }),
        _ => {
            eprintln!("usage: tidy [--bounds], to check the repository or to print the page of fixed bounds");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tidy: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs every check and prints what each finds; returns how much that was.
fn check() -> anyhow::Result<usize> {
    let repository = Repository::read()?;
    let mut count = 0;
    for (subject, check) in CHECKS {
        let findings = check(&repository)?;
        for finding in &findings {
            eprintln!("{subject}: {finding}");
        }
        count += findings.len();
    }
    Ok(count)
}
