//! The data directory and its disk.

use std::fs::{File, Metadata};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::Finding;

/// Less is too little to open a database, and less than this is soon used up.
const FREE_BYTES_MIN: u64 = 64 << 20;
const FREE_BYTES_GOOD: u64 = 1 << 30;
/// A commit waits for the disk this often; more is a disk that tasks wait for.
const SYNC_GOOD: Duration = Duration::from_millis(100);
/// Kinds of file systems, as `statfs` numbers them, that do not keep what is written, or not as a disk does.
const FLEETING: [(i64, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];
const LAYERED: [(i64, &str); 1] = [(0x794c_7630, "overlay")];
const REMOTE: [(i64, &str); 4] = [(0x6969, "NFS"), (0xff53_4d42, "CIFS"), (0xfe53_4d42, "SMB"), (0x6573_5546, "FUSE")];

/// Looks at the directory, or at where it will be made.
pub(super) fn look(data: &Path) -> Vec<Finding> {
    let shown = data.display();
    let folder = data.ancestors().map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    let Some(folder) = folder.into_iter().find(|folder| folder.exists()) else {
        return vec![Finding::fail(
            "data directory",
            format!("{shown} leads nowhere"),
            "Name a directory with server.data or --data.",
        )];
    };
    let mut findings = vec![match folder.metadata() {
        Ok(facts) if folder == data => owner_and_mode(data, &facts, rustix::process::geteuid().as_raw()),
        Ok(_) => {
            Finding::ok("data directory", format!("{shown} is not there yet; the host makes it, for its user alone"))
        }
        Err(error) => Finding::fail("data directory", format!("{shown}: {error}"), "Let the host's user reach it."),
    }];
    findings.push(match rustix::fs::statfs(folder) {
        // The type's width differs between machines.
        #[allow(
            clippy::useless_conversion,
            clippy::unnecessary_cast,
            reason = "the width of `f_type` is the machine's"
        )]
        Ok(facts) => file_system(facts.f_type as i64),
        Err(error) => {
            Finding::warn("disk: file system", error.to_string(), "Use a local file system such as ext4 or XFS.")
        }
    });
    findings.push(match rustix::fs::statvfs(folder) {
        Ok(facts) => free(facts.f_bavail.saturating_mul(facts.f_frsize)),
        Err(error) => Finding::warn("disk: free space", error.to_string(), "Look at it with `df`."),
    });
    findings.push(sync(folder));
    findings
}

fn owner_and_mode(data: &Path, facts: &Metadata, user: u32) -> Finding {
    const SUBJECT: &str = "data directory";
    let shown = data.display();
    let mode = facts.mode() & 0o777;
    if !facts.is_dir() {
        return Finding::fail(
            SUBJECT,
            format!("{shown} is no directory"),
            "Name another one with server.data or --data.",
        );
    }
    if facts.uid() != user {
        return Finding::fail(
            SUBJECT,
            format!("{shown} belongs to user {}, and this is user {user}", facts.uid()),
            format!("Run the host as that user, or `chown -R {user} {shown}`."),
        );
    }
    if mode & 0o077 != 0 {
        return Finding::warn(
            SUBJECT,
            format!("{shown} has mode {mode:03o}: other users can reach what tasks and plugins keep"),
            format!("`chmod -R go= {shown}`"),
        );
    }
    Finding::ok(SUBJECT, format!("{shown} is this user's alone"))
}

fn file_system(kind: i64) -> Finding {
    const SUBJECT: &str = "disk: file system";
    let named = |kinds: &[(i64, &'static str)]| kinds.iter().find(|(known, _)| *known == kind).map(|(_, name)| *name);
    if let Some(name) = named(&FLEETING) {
        let remedy = "Put server.data on a disk: what is acknowledged here is gone with the next start of the machine.";
        return Finding::warn(SUBJECT, format!("{name} is memory"), remedy);
    }
    if let Some(name) = named(&LAYERED) {
        let remedy = "Mount a volume there: what a container writes into its own layers is gone with the container.";
        return Finding::warn(SUBJECT, format!("{name}: a container's own layers"), remedy);
    }
    if let Some(name) = named(&REMOTE) {
        let remedy = "Use a local disk: locks and syncs of the store are as good as the server's.";
        return Finding::warn(SUBJECT, format!("{name} is not local"), remedy);
    }
    Finding::ok(SUBJECT, "local")
}

fn free(bytes: u64) -> Finding {
    const SUBJECT: &str = "disk: free space";
    let found = format!("{} MiB", bytes >> 20);
    if bytes < FREE_BYTES_MIN {
        Finding::fail(SUBJECT, found, "Make room: a host with a full disk serves reads alone.")
    } else if bytes < FREE_BYTES_GOOD {
        Finding::warn(SUBJECT, found, "Make room, or watch it: a host with a full disk serves reads alone.")
    } else {
        Finding::ok(SUBJECT, found)
    }
}

/// Writes and syncs a file that is gone afterwards, as the store does with each commit.
fn sync(folder: &Path) -> Finding {
    let begin = Instant::now();
    let synced = || -> std::io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(".bulkhead-doctor-").tempfile_in(folder)?;
        file.write_all(&[0; 4096])?;
        file.as_file().sync_data()?;
        File::open(folder)?.sync_all()
    };
    of_sync(synced().map(|()| begin.elapsed()).map_err(|error| format!("{}: {error}", folder.display())))
}

fn of_sync(took: Result<Duration, String>) -> Finding {
    const SUBJECT: &str = "disk: sync";
    match took {
        Err(error) => Finding::fail(
            SUBJECT,
            error,
            "The host's user must be able to write there, and the disk to sync (fdatasync).",
        ),
        Ok(took) if took > SYNC_GOOD => Finding::warn(
            SUBJECT,
            format!("{} ms; every task waits for as long", took.as_millis()),
            "Use a faster disk, or one that nothing else keeps busy.",
        ),
        Ok(took) => Finding::ok(SUBJECT, format!("{} ms", took.as_millis())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::Verdict;
    use super::*;

    #[test]
    fn data_directory_must_be_its_users_alone() {
        let folder = tempfile::tempdir().unwrap();
        let judged = |mode: u32, user: u32| {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            owner_and_mode(folder.path(), &folder.path().metadata().unwrap(), user)
        };
        let own = folder.path().metadata().unwrap().uid();
        assert_eq!(judged(0o700, own).verdict, Verdict::Ok);
        let open = judged(0o755, own);
        assert!(open.verdict == Verdict::Warn && open.found.contains("mode 755"), "{open:?}");
        let foreign = judged(0o700, own + 1);
        assert!(foreign.verdict == Verdict::Fail && foreign.remedy.unwrap().contains("chown"));
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(owner_and_mode(&file, &file.metadata().unwrap(), own).verdict, Verdict::Fail);
    }

    #[test]
    fn disk_that_forgets_or_fills_or_does_not_sync_is_found() {
        for (kind, name) in FLEETING.into_iter().chain(LAYERED).chain(REMOTE) {
            let finding = file_system(kind);
            assert!(finding.verdict == Verdict::Warn && finding.found.contains(name), "{finding:?}");
        }
        assert_eq!(file_system(0xef53).verdict, Verdict::Ok, "ext4");
        let verdicts = [1 << 20, 100 << 20, 10 << 30].map(|bytes| free(bytes).verdict);
        assert_eq!(verdicts, [Verdict::Fail, Verdict::Warn, Verdict::Ok]);
        assert_eq!(of_sync(Err("EIO".to_owned())).verdict, Verdict::Fail);
        assert_eq!(of_sync(Ok(Duration::from_secs(1))).verdict, Verdict::Warn);
        assert_eq!(sync(Path::new("/nowhere/at/all")).verdict, Verdict::Fail);
    }

    #[test]
    fn looking_leaves_nothing_behind_and_makes_no_directory() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        assert_eq!(look(&data).len(), 4);
        assert!(!data.exists());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
