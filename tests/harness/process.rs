//! What a host holds: counted from outside, before and after.

use std::fmt;
use std::path::Path;

use crate::host::Host;

/// What a running host has open or has left lying around.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holdings {
    pub threads: usize,
    pub descriptors: usize,
    /// Mappings of memory: an instance that is not given back has some.
    pub mappings: usize,
    /// Processes that it started.
    pub children: usize,
    /// Files below its data directory but for those of the database and the audit log, by name.
    pub files: Vec<String>,
}

impl Holdings {
    /// Counts now.
    pub fn of(host: &Host) -> Self {
        let process = format!("/proc/{}", host.pid());
        let entries = |folder: &str| std::fs::read_dir(format!("{process}/{folder}")).map_or(0, Iterator::count);
        let lines = |file: String| std::fs::read_to_string(file).unwrap_or_default();
        let children = std::fs::read_dir(format!("{process}/task"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|task| lines(format!("{}/children", task.path().display())).split_whitespace().count());
        let mut files = Vec::new();
        collect(&host.setup.data(), "", &mut files);
        files.sort();
        Self {
            threads: entries("task"),
            descriptors: entries("fd"),
            mappings: lines(format!("{process}/maps")).lines().count(),
            children: children.sum(),
            files,
        }
    }
}

/// In one line.
impl fmt::Display for Holdings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { threads, descriptors, mappings, children, files } = self;
        let files = files.len();
        write!(
            f,
            "{threads} threads, {descriptors} descriptors, {mappings} mappings, {children} children, {files} files"
        )
    }
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        // The engine's own files come and go as it likes, and what is linked lies elsewhere.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if !["store", "audit"].contains(&name.as_str()) {
                collect(&entry.path(), &format!("{name}/"), files);
            }
        } else {
            files.push(name);
        }
    }
}

/// Bytes of memory that a process has in RAM now, and at most so far.
pub fn memory_bytes(pid: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}"));
        line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") * 1024
    };
    (of("VmRSS:"), of("VmHWM:"))
}
