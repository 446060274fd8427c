use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};

fn options(folder: &Path) -> Options {
    Options { folder: folder.to_owned(), file_bytes_max: 1 << 20, files_max: 0 }
}

fn open(options: Options) -> Audit {
    let time = AtomicU64::new(1_000);
    Audit::open(options, move || time.fetch_add(1, Ordering::Relaxed)).unwrap()
}

fn somebody() -> Requestor {
    Requestor { tenant: TenantId([1; 16]), id: RequestorId([2; 16]) }
}

fn write(options: Options, count: u64) {
    let audit = open(options);
    for at in 0..count {
        audit.note(|| Entry::new("task.read").by(&somebody()).count(at));
    }
    audit.close();
}

fn only_file(folder: &Path) -> std::path::PathBuf {
    read::files(folder).unwrap().pop().unwrap()
}

#[test]
fn audit_lines_stay_chained_across_restarts() {
    let folder = tempfile::tempdir().unwrap();
    write(options(folder.path()), 10);
    let first = verify(folder.path(), None).unwrap();
    // Opened, ten, closed.
    assert_eq!((first.first, first.last, first.unfinished), (1, 12, false));
    write(options(folder.path()), 1);
    let second = verify(folder.path(), Some((first.last, first.hash))).unwrap();
    assert_eq!((second.first, second.last), (1, 15));
}

#[test]
fn audit_records_arguments_as_size_and_digest() {
    let folder = tempfile::tempdir().unwrap();
    let audit = open(options(folder.path()));
    audit.note(|| Entry::new("call.ended").by(&somebody()).tool("echo\n\u{1b}[31m").arguments("{\"text\":\"secret\"}"));
    audit.close();
    let text = fs::read_to_string(only_file(folder.path())).unwrap();
    assert!(!text.contains("secret") && !text.contains('\u{1b}'), "{text}");
    let line = LogLine::parse(text.lines().nth(1).unwrap().as_bytes()).unwrap();
    assert_eq!(line.facts["arguments_bytes"], 17);
    assert_eq!(line.facts["tool"], "echo\n\u{1b}[31m");
    assert_eq!(line.facts["requestor"], "02020202020202020202020202020202");
}

#[test]
fn changed_removed_or_forged_audit_line_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    write(options(folder.path()), 5);
    let file = only_file(folder.path());
    let text = fs::read_to_string(&file).unwrap();
    let changed = text.replacen("\"count\":2", "\"count\":3", 1);
    let removed: String =
        text.lines().filter(|line| !line.contains("\"count\":2")).map(|line| format!("{line}\n")).collect();
    let twice = text.replacen("{\"seq\":3,", "{\"seq\":3,\"at_ms\":1,\"event\":\"x\",\"prev\":\"00\"}\n{\"seq\":3,", 1);
    for (wrong, place) in [(changed, ":5:"), (removed, ":4:"), (twice, ":3:")] {
        fs::write(&file, wrong).unwrap();
        let problem = verify(folder.path(), None).unwrap_err().to_string();
        assert!(problem.contains(place), "{problem}");
    }
}

#[test]
fn truncated_or_recreated_audit_log_fails_its_anchor() {
    let folder = tempfile::tempdir().unwrap();
    write(options(folder.path()), 5);
    let anchor = verify(folder.path(), None).unwrap();
    let file = only_file(folder.path());
    let text = fs::read_to_string(&file).unwrap();
    let cut: String = text.lines().take(4).map(|line| format!("{line}\n")).collect();
    fs::write(&file, cut).unwrap();
    assert!(verify(folder.path(), None).is_ok(), "by itself, a shorter log is a log");
    let problem = verify(folder.path(), Some((anchor.last, anchor.hash))).unwrap_err();
    assert!(matches!(problem, Broken::AnchorMissing { sequence: 7 }), "{problem}");
    fs::remove_file(&file).unwrap();
    write(options(folder.path()), 9);
    let problem = verify(folder.path(), Some((anchor.last, anchor.hash))).unwrap_err();
    assert!(matches!(problem, Broken::Anchor { .. }), "{problem}");
}

#[test]
fn unfinished_audit_line_is_truncated_at_start() {
    let folder = tempfile::tempdir().unwrap();
    write(options(folder.path()), 2);
    let file = only_file(folder.path());
    let mut text = fs::read(&file).unwrap();
    text.extend_from_slice(b"{\"seq\":5,\"at_");
    fs::write(&file, text).unwrap();
    assert!(verify(folder.path(), None).unwrap().unfinished);
    write(options(folder.path()), 1);
    let verified = verify(folder.path(), None).unwrap();
    assert_eq!((verified.last, verified.unfinished), (7, false));
    assert!(fs::read_to_string(&file).unwrap().contains("was cut off"));
}

#[test]
fn audit_files_rotate_and_oldest_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let few = Options { file_bytes_max: 2_000, files_max: 3, ..options(folder.path()) };
    for _ in 0..8 {
        write(few.clone(), 12);
    }
    let verified = verify(folder.path(), None).unwrap();
    assert_eq!(verified.files, 3);
    assert!(verified.first > 1, "{verified:?}");
    let newest = fs::read_to_string(only_file(folder.path())).unwrap();
    assert!(newest.contains("audit.removed"), "{newest}");
}

#[test]
fn lost_audit_entries_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let audit = open(Options { file_bytes_max: u64::MAX, ..options(folder.path()) });
    let noted = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..2_000).for_each(|_| audit.note(|| Entry::new("task.read").by(&somebody())))))
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        8_000_u64
    });
    audit.note(|| Entry::new("last"));
    audit.close();
    verify(folder.path(), None).unwrap();
    let text = fs::read_to_string(only_file(folder.path())).unwrap();
    let lines = text.lines().map(|line| LogLine::parse(line.as_bytes()).unwrap());
    let mut read = 0;
    let mut lost = 0;
    for line in lines {
        match line.event.as_str() {
            "task.read" | "last" => read += 1,
            "audit.lost" => lost += line.facts["count"].as_u64().unwrap(),
            _ => {}
        }
    }
    assert_eq!(read + lost, noted + 1, "{read} written, {lost} counted as lost");
}

#[test]
fn audit_tail_continues_into_rotated_file() {
    let folder = tempfile::tempdir().unwrap();
    let few = Options { file_bytes_max: 1_000, ..options(folder.path()) };
    write(few.clone(), 4);
    let mut tail = Tail::new(folder.path(), 2).unwrap();
    let events = |lines: Vec<Vec<u8>>| lines.iter().map(|line| LogLine::parse(line).unwrap().event).collect::<Vec<_>>();
    assert_eq!(events(tail.lines().unwrap()), ["task.read", "audit.closed"]);
    write(few, 20);
    let new = tail.lines().unwrap();
    assert_eq!(new.len(), 22, "{:?}", events(new));
    assert!(tail.lines().unwrap().is_empty());
}

#[test]
fn repeated_refusals_are_merged_in_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let audit = open(options(folder.path()));
    (0..5_000).for_each(|_| audit.note_seldom("access.refused", "no credential"));
    audit.close();
    let text = fs::read_to_string(only_file(folder.path())).unwrap();
    let refused: Vec<_> = text.lines().map(|line| LogLine::parse(line.as_bytes()).unwrap()).collect();
    let refused: Vec<_> = refused.iter().filter(|line| line.event == "access.refused").collect();
    // The clock of these tests moves by a millisecond each time that it is asked.
    assert!((2..=8).contains(&refused.len()), "{text}");
    assert_eq!(refused.iter().map(|line| line.facts["count"].as_u64().unwrap()).sum::<u64>(), 5_000);
}

#[test]
fn audit_log_closes_on_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let full = Options { file_bytes_max: 1, ..options(folder.path()) };
    let audit = open(full);
    // Every further line wants another file, for which there is no folder soon.
    while read::files(folder.path()).unwrap().len() < 2 {
        audit.note(|| Entry::new("task.read"));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // Another file may come while the others go.
    while let Err(error) = fs::remove_dir_all(folder.path()) {
        assert_eq!(error.kind(), std::io::ErrorKind::DirectoryNotEmpty, "{error}");
    }
    audit.note(|| Entry::new("task.read"));
    while !audit.is_refused() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    audit.close();
}

#[test]
fn audit_log_has_one_writing_process() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(options(folder.path()));
    let closing = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        first.close();
    });
    let second = open(options(folder.path()));
    closing.join().unwrap();
    second.close();
    assert_eq!(verify(folder.path(), None).unwrap().last, 4);
}

#[test]
fn oversized_audit_line_is_reported_as_damage() {
    let folder = tempfile::tempdir().unwrap();
    write(options(folder.path()), 2);
    let file = only_file(folder.path());
    let text = fs::read_to_string(&file).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    fs::write(&file, format!("{first}\n{}{rest}", " ".repeat(1 << 20))).unwrap();
    let problem = verify(folder.path(), None).unwrap_err().to_string();
    assert!(problem.contains(":2:") && problem.contains("longer"), "{problem}");
}
