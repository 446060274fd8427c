//! The directories of the host that a guest sees.
//!
//! Owns the way from a grant to an open directory, those that each tenant has its own of, and how much they may hold.
//! Invariant: a tenant's name is one plain part of a path, and from there on nothing is a link.

mod counted;
mod descriptors;
mod guarded;
mod opening;
mod overlap;
mod quota;
mod walk;

use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

use super::blocking::Blocking;
use super::trap_causes::HostFailure;
use bulkhead_calls::policy::{DirGrant, TENANT_MARK};
use bulkhead_domain::names::check_name;

pub(super) use descriptors::DirectoryQuotas;
pub(super) use guarded::guard;
pub use overlap::{NamedDirectory, Overlap, exposing, overlaps};
pub(super) use quota::Quotas;

/// What keeps a grant from being one.
pub(super) fn problem(grant: &DirGrant) -> Option<String> {
    let (above, _) = split(&grant.host);
    if !above.is_dir() {
        return Some(format!("granted directory {} is not there", above.display()));
    }
    if !grant.guest.starts_with('/') {
        return Some(format!("granted directory {:?} of the guest does not begin with /", grant.guest));
    }
    None
}

/// Opens the granted directories. A call without a tenant gets none of those that exist once for each tenant.
pub(super) fn open(
    world: &mut WasiCtxBuilder,
    grants: &[DirGrant],
    tenant: Option<&str>,
    quotas: &Quotas,
    blocking: &Blocking,
) -> Result<DirectoryQuotas, HostFailure> {
    let mut directory_quotas = DirectoryQuotas::default();
    for grant in grants {
        let path = match (grant.is_per_tenant(), tenant) {
            (false, _) => Ok(grant.host.clone()),
            (true, Some(tenant)) => own(&grant.host, tenant),
            (true, None) => continue,
        };
        let permissions = if grant.write { FsPerms::ReadWrite } else { FsPerms::ReadOnly };
        let opened = path.map_err(wasmtime::Error::from).and_then(|path| {
            world.preopened_dir(&path, &grant.guest, permissions)?;
            if let (Some(bytes_max), true) = (grant.bytes_max, grant.write) {
                directory_quotas.add(grant.guest.clone(), quotas.of_directory(&path, bytes_max, blocking)?);
            }
            Ok(())
        });
        opened.map_err(|error| {
            HostFailure(format!("granted directory {} cannot be opened: {error:#}", grant.host.display()))
        })?;
    }
    Ok(directory_quotas)
}

/// The directories that stand for a tenant on the ways to what is granted, as far as they are there. What is below them
/// is that tenant's alone, and the next one's that gets its name.
pub fn directories_of(granted: &[DirGrant], tenant: &str) -> BTreeSet<PathBuf> {
    let Ok(name) = plain(tenant) else { return BTreeSet::new() };
    let first = |grant: &DirGrant| {
        let (above, parts) = split(&grant.host);
        let path = std::path::absolute(above.join(parts.first()?.replace(TENANT_MARK, &name))).ok()?;
        std::fs::symlink_metadata(&path).ok()?.is_dir().then_some(path)
    };
    granted.iter().filter_map(first).collect()
}

/// The part of a path above the first one that names the tenant, and the parts from there on.
fn split(path: &Path) -> (PathBuf, Vec<String>) {
    let parts: Vec<_> = path.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    let Some(at) = parts.iter().position(|part| part.contains(TENANT_MARK)) else {
        return (path.to_owned(), Vec::new());
    };
    let above: PathBuf = path.components().take(at).collect();
    let above = if above.as_os_str().is_empty() { PathBuf::from(".") } else { above };
    (above, parts.into_iter().skip(at).collect())
}

/// A tenant's own directory, made where it is not there yet, for the host's eyes only.
fn own(granted: &Path, tenant: &str) -> io::Result<PathBuf> {
    let (mut path, parts) = split(granted);
    let name = plain(tenant)?;
    for part in parts {
        path.push(part.replace(TENANT_MARK, &name));
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // A link might lead to another tenant.
        if !std::fs::symlink_metadata(&path)?.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, "what stands for the tenant is no directory"));
        }
    }
    Ok(path)
}

/// A tenant's name as a part of a path. Two names never become one: `%` is in none of them.
fn plain(tenant: &str) -> io::Result<String> {
    if check_name(tenant).is_err() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the tenant's name is no part of a path"));
    }
    Ok(match tenant.strip_prefix('.') {
        Some(rest) => format!("%2E{rest}"),
        None => tenant.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn each_tenant_has_its_own_granted_directory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("of-{tenant}/in");
        let made: Vec<_> = ["acme", "..a", ".a", "..."].iter().map(|name| own(&path, name).unwrap()).collect();
        for (place, name) in made.iter().zip(["of-acme", "of-%2E.a", "of-%2Ea", "of-%2E.."]) {
            assert_eq!(place, &folder.path().join(name).join("in"));
            assert_eq!(std::fs::metadata(place).unwrap().permissions().mode() & 0o777, 0o700);
        }
        assert_eq!(own(&path, "acme").unwrap(), made[0], "it is there already");
    }

    #[test]
    fn tenant_directory_name_cannot_escape() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("all/{tenant}");
        std::fs::create_dir(folder.path().join("all")).unwrap();
        for name in ["", ".", "..", "../x", "a/b", "/etc", "a\0b", "ü", "%2E", &"a".repeat(65)] {
            assert!(own(&path, name).is_err(), "{name}");
        }
        assert_eq!(own(&path, "...").unwrap(), folder.path().join("all/%2E.."));
        std::os::unix::fs::symlink(folder.path(), folder.path().join("all/linked")).unwrap();
        assert!(own(&path, "linked").is_err(), "a link stands where the tenant's directory would be");
        std::fs::write(folder.path().join("all/file"), "").unwrap();
        assert!(own(&path, "file").is_err());
    }

    fn grant(folder: &Path, host: &str) -> DirGrant {
        DirGrant { host: folder.join(host), guest: "/data".to_owned(), write: true, bytes_max: None }
    }

    #[test]
    fn tenant_directories_are_found_without_creating_them() {
        let folder = tempfile::tempdir().unwrap();
        let granted = ["of-{tenant}/in", "of-{tenant}/out", "{tenant}", "linked-{tenant}", "all"];
        let granted = granted.map(|host| grant(folder.path(), host));
        std::os::unix::fs::symlink(folder.path(), folder.path().join("linked-.acme")).unwrap();
        std::fs::create_dir(folder.path().join("all")).unwrap();
        assert!(directories_of(&granted, ".acme").is_empty() && directories_of(&granted, "../all").is_empty());
        let made = own(&granted[0].host, ".acme").unwrap();
        own(&granted[0].host, "globex").unwrap();
        assert_eq!(directories_of(&granted, ".acme"), BTreeSet::from([made.parent().unwrap().to_owned()]));
    }

    #[test]
    fn tenant_directory_grant_needs_existing_parent() {
        let folder = tempfile::tempdir().unwrap();
        let grant = |host: &str| grant(folder.path(), host);
        assert_eq!(problem(&grant("{tenant}/in")), None);
        assert!(problem(&grant("missing/{tenant}")).unwrap().contains("missing is not there"));
        assert!(problem(&grant("missing")).is_some());
    }
}
