//! What a plugin may reach: directories, destinations, environment, settings.
//!
//! Owns the grants and how they narrow: what the operator grants, within what the plugin wants, within what its
//! caller's tenant is left. Invariant: what is not granted does not exist for a guest, a bound never adds anything, and
//! a name never leads to an address inside the operator's network unless the operator wrote that address down.

mod denial;
mod destination;
mod sides;

use std::collections::HashMap;
use std::path::PathBuf;

pub use denial::{Denial, DeniedDirectory, DeniedRequest, DeniedSecret, SecretPlace};
pub use destination::{GrantError, HostPattern, HttpGrant};
pub use sides::{GrantSide, GrantSides};

use bulkhead_domain::limits::KeyValueLimits;
use bulkhead_domain::requestor::TenantId;

/// What stands in the path of a directory for the name of the caller's tenant.
pub const TENANT_MARK: &str = "{tenant}";

/// `[plugin.grants]`, as the operator wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    pub directories: Vec<DirGrant>,
    pub http: Vec<HttpGrant>,
    /// Keys of the host's environment.
    pub env: Vec<String>,
    /// `[plugin.kv]`.
    pub keyvalue: Option<KeyValueLimits>,
}

/// A directory of the host under a name of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirGrant {
    /// [`TENANT_MARK`] in it stands for the tenant: each one has its own.
    pub host: PathBuf,
    pub guest: String,
    pub write: bool,
    /// How much guests may make of it; each tenant's own directory by itself.
    pub bytes_max: Option<u64>,
}

impl DirGrant {
    /// Whether each tenant has its own.
    pub fn is_per_tenant(&self) -> bool {
        self.host.as_os_str().to_string_lossy().contains(TENANT_MARK)
    }
}

/// What a plugin wants, or what a tenant is left: no more than this of what the operator grants. `None` is no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    pub directories: Option<Vec<DirBound>>,
    pub http: Option<Vec<HttpGrant>>,
    pub env: Option<Vec<String>>,
    /// Whether there is a key-value store at all.
    pub keyvalue: Option<bool>,
}

/// What tenants are left, those that have a bound.
pub type TenantBounds = HashMap<TenantId, Bound>;

/// A directory by its name for the guest, with everything below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirBound {
    pub guest: String,
    pub write: bool,
    /// A wish that the plugin can do without.
    pub optional: bool,
}

impl DirBound {
    /// Whether it is meant, or above what is meant.
    pub fn covers(&self, guest: &str) -> bool {
        let own = self.guest.trim_end_matches('/');
        guest.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl Grants {
    /// What is left of them within a bound.
    #[must_use]
    pub fn within(&self, bound: &Bound) -> Self {
        let directories = self.directories.iter().filter_map(|grant| match &bound.directories {
            None => Some(grant.clone()),
            Some(bounds) => {
                let mut covering = bounds.iter().filter(|bound| bound.covers(&grant.guest)).peekable();
                covering.peek()?;
                Some(DirGrant { write: grant.write && covering.any(|bound| bound.write), ..grant.clone() })
            }
        });
        let mut http = Vec::new();
        for grant in &self.http {
            match &bound.http {
                None => http.push(grant.clone()),
                Some(bounds) => {
                    for both in bounds.iter().filter_map(|bound| grant.meet(bound)) {
                        if !http.contains(&both) {
                            http.push(both);
                        }
                    }
                }
            }
        }
        let env = self.env.iter().filter(|key| bound.env.as_ref().is_none_or(|keys| keys.contains(*key)));
        let keyvalue = self.keyvalue.clone().filter(|_| bound.keyvalue != Some(false));
        Self { directories: directories.collect(), http, env: env.cloned().collect(), keyvalue }
    }

    /// What of them a plugin does not want, as an operator would know it again.
    pub fn unwanted(&self, wanted: &Bound) -> Vec<String> {
        let left = self.within(wanted);
        let directories = self.directories.iter().filter(|grant| !left.directories.contains(grant));
        let directories = directories.map(|grant| {
            let is_read = left.directories.iter().any(|other| other.guest == grant.guest);
            format!("directory {}{}", grant.guest, if is_read { " (write)" } else { "" })
        });
        let is_wanted = |grant: &HttpGrant| {
            wanted.http.as_ref().is_none_or(|hosts| hosts.iter().any(|host| grant.meet(host).is_some()))
        };
        let http = self.http.iter().filter(|grant| !is_wanted(grant)).map(|grant| format!("http {grant}"));
        let env = self.env.iter().filter(|key| !left.env.contains(key)).map(|key| format!("env {key}"));
        directories.chain(http).chain(env).collect()
    }

    /// The directories that are wanted and not granted. Of a guest the host sees only that it looks for directories,
    /// not for which one.
    pub fn missing_directories(&self, wanted: &Bound) -> Vec<DeniedDirectory> {
        let mut missing = Vec::new();
        let directories = wanted.directories.iter().flatten().filter(|directory| !directory.optional);
        for directory in directories.filter(|directory| !directory.guest.trim_end_matches('/').is_empty()) {
            let mut below = self.directories.iter().filter(|grant| directory.covers(&grant.guest)).peekable();
            let is_there = below.peek().is_some();
            if !is_there || directory.write && !below.any(|grant| grant.write) {
                missing.push(DeniedDirectory { guest: directory.guest.clone(), write: directory.write });
            }
        }
        missing
    }

    /// The variables, likewise, by their names.
    pub fn missing_variables(&self, wanted: &Bound) -> Vec<String> {
        wanted.env.iter().flatten().filter(|key| !self.env.contains(key)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants() -> Grants {
        let directory =
            |guest: &str, write| DirGrant { host: guest.into(), guest: guest.to_owned(), write, bytes_max: None };
        Grants {
            directories: vec![directory("/data", true), directory("/data/in", false), directory("/database", true)],
            http: vec!["https://*.a.org".parse().unwrap(), "http://10.0.0.1:80".parse().unwrap()],
            env: vec!["A".to_owned(), "B".to_owned()],
            keyvalue: Some(KeyValueLimits { keys_max: 1, bytes_max: 2, value_bytes_max: 3 }),
        }
    }

    fn wish(guest: &str, write: bool) -> DirBound {
        DirBound { guest: guest.to_owned(), write, optional: false }
    }

    #[test]
    fn grant_bound_only_narrows() {
        let all = grants();
        assert_eq!(all.within(&Bound::default()), all);
        let nothing = Bound {
            directories: Some(Vec::new()),
            http: Some(Vec::new()),
            env: Some(Vec::new()),
            keyvalue: Some(false),
        };
        assert_eq!(all.within(&nothing), Grants::default());
        assert_eq!(Grants::default().within(&Bound { env: Some(vec!["A".to_owned()]), ..nothing }), Grants::default());
    }

    #[test]
    fn directory_grants_are_narrowed_by_whole_names() {
        let bound = Bound { directories: Some(vec![wish("/data/", false)]), ..Bound::default() };
        let left: Vec<_> = grants().within(&bound).directories;
        assert_eq!(
            left.iter().map(|dir| (dir.guest.as_str(), dir.write)).collect::<Vec<_>>(),
            [("/data", false), ("/data/in", false)]
        );
        let all = Bound { directories: Some(vec![wish("/", true)]), ..Bound::default() };
        assert_eq!(grants().within(&all), grants());
    }

    #[test]
    fn http_and_env_grants_are_intersected() {
        let bound = Bound {
            http: Some(["https://x.a.org/v1", "https://b.org"].map(|text| text.parse().unwrap()).into()),
            env: Some(vec!["B".to_owned(), "C".to_owned()]),
            ..Bound::default()
        };
        let left = grants().within(&bound);
        assert_eq!(left.http.iter().map(ToString::to_string).collect::<Vec<_>>(), ["https://x.a.org:443/v1"]);
        assert_eq!(left.env, ["B"]);
    }

    #[test]
    fn unwanted_grants_are_named() {
        let wanted = Bound {
            directories: Some(vec![wish("/data", false)]),
            http: Some(vec!["https://x.a.org".parse().unwrap()]),
            env: Some(vec!["B".to_owned()]),
            keyvalue: Some(true),
        };
        let unwanted = ["directory /data (write)", "directory /database", "http http://10.0.0.1:80", "env A"];
        assert_eq!(grants().unwanted(&wanted), unwanted);
        assert_eq!(grants().unwanted(&Bound::default()), [""; 0]);
    }

    #[test]
    fn wanted_but_missing_grants_are_named() {
        let wanted = Bound {
            directories: Some(vec![wish("/data", true), wish("/data/in", true), wish("/out", false), wish("/", true)]),
            http: None,
            env: Some(vec!["A".to_owned(), "C".to_owned()]),
            keyvalue: None,
        };
        let missing = |guest: &str, write| DeniedDirectory { guest: guest.to_owned(), write };
        assert_eq!(grants().missing_directories(&wanted), [missing("/data/in", true), missing("/out", false)]);
        assert_eq!(grants().missing_variables(&wanted), ["C"]);
        assert_eq!(grants().missing_directories(&Bound::default()), []);
        assert_eq!(grants().missing_variables(&Bound::default()), [""; 0]);
    }
}
