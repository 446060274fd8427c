//! Runs other programs, says which and how long they took.
//!
//! Owns how a program is waited for, and the times of the steps: where `XTASK_TIMES` names a folder, each step adds a
//! line to its file `steps`, with wall and processor seconds. Must not know what the steps are for. Invariant:
//! processor seconds are those of the program and of all the programs that it has waited for.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::layout;
use anyhow::{Context as _, bail};

/// The folder that times are written into.
const TIMES: &str = "XTASK_TIMES";

/// Between two looks at whether a program has ended.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(5);
const LOOK_EVERY_MAX: Duration = Duration::from_millis(250);

/// What a program took.
#[derive(Clone, Copy, Default)]
pub struct Times {
    pub wall: Duration,
    pub processor: Duration,
}

/// Cargo, in the repository's root.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(layout::root());
    command
}

/// Runs a command to its end with its output passed through.
pub fn run(title: &str, command: &mut Command) -> anyhow::Result<()> {
    eprintln!("xtask: {title}");
    let started = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let (status, times) = wait(&mut child, started)?;
    if !status.success() {
        bail!("{title}: failed with {status}");
    }
    eprintln!("xtask: {title}: {:.1} s", times.wall.as_secs_f64());
    note(title, times)
}

/// Waits for a program that was started at this moment.
pub fn wait(child: &mut Child, started: Instant) -> anyhow::Result<(ExitStatus, Times)> {
    // It is looked at before it is reaped: what its own children took is known then, and its entry is still there. The
    // standard library has no wait that leaves it there, and what has one would be compiled while a visitor waits.
    let processor = loop {
        match Stat::read(child.id()) {
            Some(Stat { state: 'Z', processor }) => break processor,
            // A long step is looked at less often: to look two hundred times a second takes a fortieth of a processor.
            Some(_) => std::thread::sleep((started.elapsed() / 100).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX)),
            // A system without these entries.
            None => break Duration::ZERO,
        }
    };
    let status = child.wait()?;
    Ok((status, Times { wall: started.elapsed(), processor }))
}

/// What is known of a process, after proc_pid_stat(5).
struct Stat {
    /// `Z` of one that has ended and that nobody has waited for.
    state: char,
    /// What it and the children that it has waited for have used.
    processor: Duration,
}

impl Stat {
    /// A clock tick of the kernel's interface, whatever its own clock does.
    const TICK: Duration = Duration::from_millis(10);

    fn read(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The fields behind the command's name, which may hold spaces: the state is the first, utime, stime, cutime and
        // cstime are the 12th to 15th.
        let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        let ticks: u32 = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u32>().ok()).sum();
        Some(Self { state: fields[0].chars().next()?, processor: Self::TICK * ticks })
    }
}

/// Adds a step to the times.
pub fn note(title: &str, times: Times) -> anyhow::Result<()> {
    let line = format!("{title}\t{:.1}\t{:.1}\n", times.wall.as_secs_f64(), times.processor.as_secs_f64());
    append("steps", &line)
}

/// Adds lines to a file of the times, where there is a folder of them.
pub fn append(file: &str, lines: &str) -> anyhow::Result<()> {
    let Some(folder) = std::env::var_os(TIMES) else { return Ok(()) };
    let path = PathBuf::from(folder).join(file);
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    file.and_then(|mut file| file.write_all(lines.as_bytes())).with_context(|| format!("{}", path.display()))
}

/// Runs a command and returns what it printed on stdout; stderr becomes part of the error.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if !output.status.success() {
        bail!(
            "{} failed with {}: {}",
            command.get_program().display(),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout).context("the output is not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_a_programs_children_counts() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; exit 3"]);
        let (status, times) = wait(&mut shell.spawn().unwrap(), Instant::now()).unwrap();
        assert_eq!(status.code(), Some(3));
        assert!(times.processor >= Duration::from_millis(20), "{:?}", times.processor);
        assert!(times.wall >= Duration::from_millis(20), "{:?}", times.wall);
    }
}
