//! What the machine did not give the engine, told from what the engine said.
//!
//! sled panics where the system refuses it a thread, memory or a file, as it does at damaged bytes. Must not take
//! damage for a shortage. Invariant: what is known here is nothing that bytes of a database can bring about.

use std::any::Any;

use super::super::Error;

/// A larger request for memory is more likely made of damaged bytes than of a sound database.
const ALLOCATION_BYTES_MAX: u64 = 1 << 30;

/// By the number of the system's error: what is lacking, and what gives more of it.
const SHORTAGES: [(&[u32], &str, &str); 6] = [
    (
        &[11],
        "the system gives it no more threads",
        "raise TasksMax= (systemd), --pids-limit (containers) or `ulimit -u`",
    ),
    (&[12], NO_MEMORY, MORE_MEMORY),
    (&[23, 24], "it may open no more files", "raise LimitNOFILE= (systemd) or `ulimit -n`"),
    (&[28, 122], "there is no room on the disk", "make room"),
    (&[1, 13], "its user may not read or write there", "give the data directory to the user of the host"),
    (&[30], "the disk may only be read", "mount it for writing"),
];
const NO_MEMORY: &str = "the system gives it no more memory";
const MORE_MEMORY: &str = "raise MemoryMax= (systemd), --memory (containers) or `ulimit -v`";

/// What is lacking, if that is why the engine stopped: nothing is known to be damaged then.
pub(super) fn shortage(message: &str) -> Option<Error> {
    let number = number_after(message, "Os { code: ").or_else(|| number_after(message, "(os error "));
    let known = number.and_then(|number| {
        SHORTAGES.iter().find(|(numbers, ..)| numbers.iter().any(|known| u64::from(*known) == number))
    });
    let allocation = number_after(message, "memory allocation of ").filter(|bytes| *bytes <= ALLOCATION_BYTES_MAX);
    let (lacking, cure) = match (known, allocation) {
        (Some((_, lacking, cure)), _) => (*lacking, *cure),
        (None, Some(_)) => (NO_MEMORY, MORE_MEMORY),
        (None, None) => return None,
    };
    Some(Error::Engine(format!(
        "the storage engine cannot start: {lacking}. Nothing was changed, and nothing is known to be damaged: {cure}, and start again"
    )))
}

/// The number that follows these words.
fn number_after(message: &str, words: &str) -> Option<u64> {
    let (_, rest) = message.split_once(words)?;
    let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    rest.get(..digits)?.parse().ok()
}

/// What a panic said.
pub(super) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortage_is_told_from_damage() {
        const PANIC: &str = "called `Result::unwrap()` on an `Err` value: Os ";
        let cases = [
            (format!("{PANIC}{{ code: 11, kind: WouldBlock, message: \"x\" }}"), Some("TasksMax=")),
            (format!("{PANIC}{{ code: 12, kind: OutOfMemory, message: \"x\" }}"), Some("MemoryMax=")),
            ("Io error: Too many open files (os error 24)".to_owned(), Some("LimitNOFILE=")),
            ("Io error: Too many open files in system (os error 23)".to_owned(), Some("LimitNOFILE=")),
            ("Io error: No space left on device (os error 28)".to_owned(), Some("make room")),
            ("Io error: Disk quota exceeded (os error 122)".to_owned(), Some("make room")),
            ("Io error: Permission denied (os error 13)".to_owned(), Some("user of the host")),
            ("Io error: Operation not permitted (os error 1)".to_owned(), Some("user of the host")),
            ("Io error: Read-only file system (os error 30)".to_owned(), Some("for writing")),
            ("memory allocation of 33554432 bytes failed".to_owned(), Some("MemoryMax=")),
            ("memory allocation of 9223372036854775807 bytes failed".to_owned(), None),
            ("Io error: Input/output error (os error 5)".to_owned(), None),
            ("range end index 900 out of range for slice of length 110".to_owned(), None),
            (String::new(), None),
        ];
        for (message, cure) in cases {
            let found = shortage(&message).map(|error| error.to_string());
            assert_eq!(found.is_some(), cure.is_some(), "{message}: {found:?}");
            if let (Some(found), Some(cure)) = (found, cure) {
                assert!(found.contains(cure) && !found.contains("rebuild") && !found.contains("corrupt"), "{found}");
            }
        }
    }

    #[test]
    fn panic_says_its_text() {
        let message = |act: fn()| panic_text(&*std::panic::catch_unwind(act).unwrap_err()).to_owned();
        assert_eq!(message(|| panic!("plain")), "plain");
        assert_eq!(message(|| panic!("number {}", 7)), "number 7");
        assert_eq!(message(|| std::panic::panic_any(7)), "");
    }
}
