//! Prints the times of a run: its steps, the modules of its tests, the slowest tests.
//!
//! Owns the form of the tables. Must not measure anything: `steps` and `test_programs` write the files, and so does
//! `.ci/run`. Invariant: what a run that failed has written is printed, too.

use std::path::Path;

use anyhow::Context as _;

/// Tests that are named one by one.
const SLOWEST: usize = 5;

/// Prints what the files of this folder say.
pub(crate) fn print(folder: &Path) -> anyhow::Result<()> {
    let processors = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
    println!("{:<60} {:>8} {:>8} {:>8}", "step", "wall s", "CPU s", "unused s");
    for (title, seconds) in rows(folder, "steps")? {
        let [wall, used @ ..] = &seconds[..] else { anyhow::bail!("steps: {title}: expected seconds") };
        let processor: f64 = used.iter().sum();
        // Processor time that nothing in the step has used. Of steps that ran beside each other it is counted in each.
        println!("{title:<60} {wall:>8.1} {processor:>8.1} {:>8.1}", (wall * processors - processor).max(0.0));
    }
    let slowest_first = |rows: Vec<(String, Vec<f64>)>| {
        let mut times: Vec<_> =
            rows.into_iter().filter_map(|(name, seconds)| Some((name, *seconds.first()?))).collect();
        times.sort_by(|one, other| other.1.total_cmp(&one.1));
        times
    };
    println!("\n{:<60} {:>8}", "module of tests", "sum s");
    for (module, sum) in slowest_first(rows(folder, "modules")?) {
        println!("{module:<60} {sum:>8.1}");
    }
    println!("\n{:<60} {:>8}", "slowest tests", "wall s");
    for (test, wall) in slowest_first(rows(folder, "tests")?).into_iter().take(SLOWEST) {
        println!("{test:<60} {wall:>8.1}");
    }
    Ok(())
}

/// The lines of a file, each a name and numbers between tabs. A file that is not there has none.
fn rows(folder: &Path, file: &str) -> anyhow::Result<Vec<(String, Vec<f64>)>> {
    let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
    let row = |line: &str| -> anyhow::Result<_> {
        let mut fields = line.split('\t');
        let name = fields.next().unwrap_or_default().to_owned();
        let numbers = fields.map(str::parse).collect::<Result<_, _>>().with_context(|| format!("{file}: {line}"))?;
        Ok((name, numbers))
    };
    text.lines().map(row).collect()
}
