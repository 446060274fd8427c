//! The table.

/// Whether a number keeps its budget.
#[derive(Clone, Copy)]
pub(crate) enum Budget {
    AtLeast(f64),
    AtMost(f64),
    /// Shown for comparison only.
    None,
}

struct Row {
    work: String,
    measured: String,
    number: f64,
    unit: &'static str,
    budget: Budget,
}

/// What was measured so far.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    /// One number with what it was made of.
    pub(crate) fn add(&mut self, work: &str, measured: String, number: f64, unit: &'static str, budget: Budget) {
        eprintln!("{work}: {number:.3} {unit} ({measured})");
        self.rows.push(Row { work: work.to_owned(), measured, number, unit, budget });
    }

    /// Everything, with how to read it.
    pub(crate) fn print(&self) {
        println!("{HOW_TO_READ}");
        println!("| work | result | budget | kept | made of |");
        println!("| --- | --- | --- | --- | --- |");
        for Row { work, measured, number, unit, budget } in &self.rows {
            let (budget, kept) = match budget {
                Budget::AtLeast(least) => (format!("at least {least} {unit}"), number >= least),
                Budget::AtMost(most) => (format!("at most {most} {unit}"), number <= most),
                Budget::None => ("-".to_owned(), true),
            };
            println!("| {work} | {number:.2} {unit} | {budget} | {} | {measured} |", if kept { "yes" } else { "NO" });
        }
    }
}

const HOW_TO_READ: &str = "\
How to read this. A number with the unit x is a ratio of two rates from this very run, so it carries over to other machines:
  bare handler   an axum server that parses the same request and answers a constant; what HTTP and JSON cost without a host
  native server  an echo tool on the official Rust SDK (rmcp 3.9), unsandboxed, in its own process
  bare store     the same records (each created, then ended) written by as many callers straight into the store
An echo sends the same bytes to all of them: the same request with the same headers, one after the other on each of 16 kept
connections, and reads one JSON reply to its end. Modern rows compare revision 2026-07-28 with itself. In legacy rows the host
serves sessions and the native server serves none, which is the quicker of its two ways.
A ratio of 1 means as fast as that. Milliseconds and microseconds hold for this machine only; `made of` says which rates or
times went into the result. Other work on the machine moves all of it: run the bench alone, and more than once.
";
