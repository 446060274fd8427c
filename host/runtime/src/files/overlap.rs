//! Which granted directories may lie beside each other, and beside what is the host's own.
//!
//! Owns the comparison of where grants are. A guest that may write to a directory may put a link in the place of
//! anything below it, and a grant is opened by its path: so no way to a grant leads through what a guest may write to.
//! Must not know whose the grants are. Invariant: what cannot be told apart for every tenant counts as the same.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::split;
use bulkhead_calls::policy::{DirGrant, TENANT_MARK};

/// Links on the way to one directory, as many as the kernel follows.
const LINKS_MAX: usize = 40;

/// A directory that is granted, and what an operator calls the grant.
#[derive(Clone, Debug)]
pub struct NamedDirectory<'a> {
    pub key: String,
    pub grant: &'a DirGrant,
}

/// A grant that nobody may have, beside another one (of whichever plugin) or beside what is the host's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The grant to change first, by its place in the list.
    pub at: usize,
    /// Names the keys and says what to do.
    pub problem: String,
}

/// Every pair of grants by which a guest could lead another one, or its own next call, to where nothing was granted.
///
/// # Errors
///
/// The way to a granted directory has no end.
pub fn overlaps(granted: &[NamedDirectory<'_>]) -> io::Result<Vec<Overlap>> {
    let ways: Vec<_> = granted.iter().map(|named| Way::of(&named.grant.host)).collect::<Result<_, _>>()?;
    let mut found = Vec::new();
    for (at, (named, way)) in granted.iter().zip(&ways).enumerate() {
        for (other_at, (other, other_way)) in granted.iter().zip(&ways).enumerate() {
            let problem = if other.grant.write && way.leads_through(&other_way.end) {
                Some(leads_through(named, other))
            } else if other_at < at {
                clash(named, way, other, other_way)
            } else {
                None
            };
            found.extend(problem.map(|problem| Overlap { at, problem }));
        }
    }
    Ok(found)
}

/// Every grant of the host's own directory, of a part of it or of what it lies in, and every one by which a guest could
/// put a link in the way to it.
///
/// # Errors
///
/// The way to a directory has no end.
pub fn exposing(granted: &[NamedDirectory<'_>], own: &Path) -> io::Result<Vec<Overlap>> {
    let own_way = Way::of(own)?;
    let mut found = Vec::new();
    for (at, named) in granted.iter().enumerate() {
        let way = Way::of(&named.grant.host)?;
        let shows_it = is_below(&way.end, &own_way.end) || is_below(&own_way.end, &way.end);
        if shows_it || (named.grant.write && own_way.leads_through(&way.end)) {
            let key = &named.key;
            let directory = named.grant.host.display();
            let own = own.display();
            let problem = format!(
                "{key}: {directory} contains, or lies in, the host's data directory {own}, or may be written to on the way there: a plugin would \
                 get at the store and the host's keys. Grant a directory that lies beside it, or move the data directory (server.data)"
            );
            found.push(Overlap { at, problem });
        }
    }
    Ok(found)
}

fn leads_through(named: &NamedDirectory<'_>, other: &NamedDirectory<'_>) -> String {
    format!(
        "{}: the way to {} leads through {}, which {} makes writable: whoever writes there could put a link in the way. Grant a directory \
         that lies beside it, or take write = true away there",
        named.key,
        named.grant.host.display(),
        other.grant.host.display(),
        other.key
    )
}

/// What is wrong with two grants of what is, or may be, one directory.
fn clash(named: &NamedDirectory<'_>, way: &Way, other: &NamedDirectory<'_>, other_way: &Way) -> Option<String> {
    let one = named.grant;
    let two = other.grant;
    let key = &named.key;
    let other_key = &other.key;
    let directory = one.host.display();
    let other_directory = two.host.display();
    if way.end == other_way.end {
        let is_past_a_quota = one.write && two.write && one.bytes_max.is_some() != two.bytes_max.is_some();
        return is_past_a_quota.then(|| {
            format!(
                "{key}: {directory} is also what {other_key} makes writable, and only one of them has bytes_max, so the other one would get \
                 past it. Give both a bytes_max, or take write = true away from one"
            )
        });
    }
    let may_be_one = way.end.len() == other_way.end.len() && is_below(&way.end, &other_way.end);
    (may_be_one && (one.write || two.write)).then(|| {
        format!(
            "{key}: {directory} is for some tenant the same directory as {other_directory} of {other_key}, and one of them is writable. Give them \
             names that no tenant's name makes equal, such as shared/data beside tenants/{TENANT_MARK}"
        )
    })
}

/// A path by its parts; some of them hold [`TENANT_MARK`].
type Parts = Vec<OsString>;

/// What is passed on the way to a directory.
#[derive(Debug)]
struct Way {
    /// The links, each at its own place.
    links: Vec<Parts>,
    /// The directory itself.
    end: Parts,
}

impl Way {
    fn of(path: &Path) -> io::Result<Self> {
        let (above, marked) = split(&std::path::absolute(path)?);
        let (links, mut end) = follow(&above)?;
        end.extend(marked.into_iter().map(OsString::from));
        Ok(Self { links: links.iter().map(|link| parts(link)).collect(), end })
    }

    /// Whether anything on it lies below that directory.
    fn leads_through(&self, directory: &Parts) -> bool {
        self.links.iter().chain([&self.end]).any(|passed| passed.len() > directory.len() && is_below(passed, directory))
    }
}

/// The links on the way to a path, and where it ends. What is not there yet is taken as it is written.
fn follow(path: &Path) -> io::Result<(Vec<PathBuf>, Parts)> {
    let mut at = PathBuf::from("/");
    let mut links = Vec::new();
    let mut rest = backwards(path);
    while let Some(step) = rest.pop() {
        if step == "/" {
            at = PathBuf::from("/");
        } else if step == ".." {
            at.pop();
        } else {
            let next = at.join(&step);
            match std::fs::read_link(&next) {
                Ok(target) => {
                    rest.extend(backwards(&target));
                    links.push(next);
                }
                Err(_) => at = next,
            }
        }
        if links.len() > LINKS_MAX {
            let why = format!("there are more than {LINKS_MAX} links on the way to {}", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
    }
    Ok((links, parts(&at)))
}

fn backwards(path: &Path) -> Vec<OsString> {
    let steps = path.components().filter(|step| !matches!(step, Component::CurDir));
    steps.rev().map(|step| step.as_os_str().to_owned()).collect()
}

fn parts(path: &Path) -> Parts {
    path.components().map(|part| part.as_os_str().to_owned()).collect()
}

/// Whether a path is, for some tenants, another one or below it.
fn is_below(path: &Parts, above: &Parts) -> bool {
    path.len() >= above.len() && path.iter().zip(above).all(|(one, other)| may_be_one(one, other))
}

/// Whether two parts are the same for some tenants, who need not be one.
fn may_be_one(one: &OsString, other: &OsString) -> bool {
    let one = one.to_string_lossy();
    let other = other.to_string_lossy();
    match (around_the_mark(&one), around_the_mark(&other)) {
        (None, None) => one == other,
        (Some((begin, end)), None) => fits(&other, begin, end),
        (None, Some((begin, end))) => fits(&one, begin, end),
        (Some((begin, end)), Some((other_begin, other_end))) => {
            (begin.starts_with(other_begin) || other_begin.starts_with(begin))
                && (end.ends_with(other_end) || other_end.ends_with(end))
        }
    }
}

/// What stands before and after the tenant's name.
fn around_the_mark(part: &str) -> Option<(&str, &str)> {
    let (begin, _) = part.split_once(TENANT_MARK)?;
    let (_, end) = part.rsplit_once(TENANT_MARK)?;
    Some((begin, end))
}

fn fits(name: &str, begin: &str, end: &str) -> bool {
    name.strip_prefix(begin).is_some_and(|rest| rest.len() > end.len() && rest.ends_with(end))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            for name in ["w/in", "w-and-more", "elsewhere/in", "tenants"] {
                std::fs::create_dir_all(folder.path().join(name)).unwrap();
            }
            Self(folder)
        }

        /// The problems of grants, each a path, whether it is writable, and how much it may hold.
        fn problems(&self, grants: &[(&str, bool, Option<u64>)]) -> Vec<String> {
            let grant = |(host, write, bytes_max): &(&str, bool, Option<u64>)| DirGrant {
                host: self.0.path().join(host),
                guest: "/data".to_owned(),
                write: *write,
                bytes_max: *bytes_max,
            };
            let grants: Vec<_> = grants.iter().map(grant).collect();
            let named = |(at, grant)| NamedDirectory { key: format!("key {at}"), grant };
            let named: Vec<_> = grants.iter().enumerate().map(named).collect();
            overlaps(&named).unwrap().into_iter().map(|overlap| overlap.problem).collect()
        }

        fn are_apart(&self, one: (&str, bool), other: (&str, bool)) -> bool {
            let both = [(one.0, one.1, None), (other.0, other.1, None)];
            let apart = self.problems(&both).is_empty();
            assert_eq!(self.problems(&[both[1], both[0]]).is_empty(), apart, "the order says nothing: {both:?}");
            apart
        }
    }

    #[test]
    fn directory_grants_below_writable_ones_are_refused() {
        let folder = Folder::new();
        for (one, other, apart) in [
            (("w", true), ("w/in", true), false),
            (("w", true), ("w/in", false), false),
            (("w", true), ("w/not/there/yet", false), false),
            (("w", true), ("w/{tenant}", true), false),
            (("w", true), ("w-and-more/../w/in", false), false),
            (("w", false), ("w/in", true), true),
            (("w", false), ("w/in", false), true),
            (("w", true), ("w", true), true),
            (("w", true), ("w", false), true),
            (("w", true), ("w-and-more", true), true),
            (("w/in", true), ("elsewhere/in", true), true),
        ] {
            assert_eq!(folder.are_apart(one, other), apart, "{one:?} {other:?}");
        }
        let [problem] = folder.problems(&[("w/in", false, None), ("w", true, None)]).try_into().unwrap();
        assert!(problem.starts_with("key 0: ") && problem.contains("which key 1 makes writable"), "{problem}");
    }

    #[test]
    fn tenant_directory_grants_must_not_overlap() {
        let folder = Folder::new();
        for (one, other, apart) in [
            (("tenants/{tenant}", true), ("tenants/{tenant}", true), true),
            (("tenants/{tenant}", true), ("tenants/{tenant}/in", false), false),
            (("tenants/{tenant}/a", true), ("tenants/{tenant}/b", true), true),
            (("tenants/{tenant}", true), ("tenants/acme/in", false), false),
            (("tenants/{tenant}", true), ("tenants/acme", false), false),
            (("tenants/{tenant}", false), ("tenants/acme", false), true),
            (("tenants/of-{tenant}", true), ("tenants/acme", true), true),
            (("tenants/of-{tenant}", true), ("tenants/of-", true), true),
            (("tenants/of-{tenant}", true), ("tenants/{tenant}", true), false),
            (("tenants/a-{tenant}", true), ("tenants/b-{tenant}", true), true),
            (("tenants/{tenant}-a", true), ("tenants/{tenant}-b", true), true),
            (("tenants", true), ("tenants/{tenant}", false), false),
            (("tenants", false), ("tenants/{tenant}", true), true),
        ] {
            assert_eq!(folder.are_apart(one, other), apart, "{one:?} {other:?}");
        }
    }

    #[test]
    fn directory_grant_overlap_follows_symlinks() {
        let folder = Folder::new();
        let at = |name: &str| folder.0.path().join(name);
        symlink(at("w/in"), at("short")).unwrap();
        symlink("../elsewhere", at("w/out")).unwrap();
        symlink("w/out", at("two")).unwrap();
        symlink("loop", at("loop")).unwrap();
        assert!(!folder.are_apart(("w", true), ("short", false)), "another name of what is below");
        assert!(!folder.are_apart(("w", true), ("w/out/in", false)), "a link in what is writable leads out of it");
        assert!(!folder.are_apart(("w", true), ("two/in", false)), "so does a link to a link");
        assert!(folder.are_apart(("elsewhere/in", true), ("short", false)));
        let grant = DirGrant { host: at("loop"), guest: "/data".to_owned(), write: false, bytes_max: None };
        assert!(overlaps(&[NamedDirectory { key: "key".to_owned(), grant: &grant }]).is_err());
    }

    #[test]
    fn host_data_directory_cannot_be_granted() {
        let folder = Folder::new();
        let at = |name: &str| folder.0.path().join(name);
        std::fs::create_dir_all(at("own/store")).unwrap();
        symlink(at("own"), at("w/link")).unwrap();
        symlink(at("own/store"), at("short")).unwrap();
        let is_refused = |host: &str, write, own: &str| {
            let grant = DirGrant { host: at(host), guest: "/data".to_owned(), write, bytes_max: None };
            let named = [NamedDirectory { key: "key 0".to_owned(), grant: &grant }];
            let problems = exposing(&named, &at(own)).unwrap();
            let says_it = |overlap: &Overlap| overlap.at == 0 && overlap.problem.starts_with("key 0: ");
            assert!(problems.iter().all(says_it), "{problems:?}");
            !problems.is_empty()
        };
        for write in [false, true] {
            for host in ["own", "own/store", "own/not/there/yet", "", "short", "w/link", "{tenant}", "{tenant}/store"] {
                assert!(is_refused(host, write, "own"), "{host} {write}");
            }
            for host in ["w", "own-too", "elsewhere", "tenants/{tenant}", "elsewhere/../w"] {
                assert!(!is_refused(host, write, "own"), "{host} {write}");
            }
            assert!(is_refused("own", write, "w/link"), "another name of it");
        }
        assert!(is_refused("w", true, "w/link"), "a guest could lead the host elsewhere");
        assert!(!is_refused("w", false, "w/link"), "who only reads cannot");
    }

    #[test]
    fn directory_quota_applies_to_all_writing_grants() {
        let folder = Folder::new();
        let problems = folder.problems(&[("w", true, Some(1)), ("w/../w", true, None)]);
        assert!(
            matches!(&problems[..], [problem] if problem.contains("only one of them has bytes_max")),
            "{problems:?}"
        );
        assert_eq!(folder.problems(&[("w", true, Some(1)), ("w", true, Some(2)), ("w", false, None)]), [""; 0]);
    }
}
