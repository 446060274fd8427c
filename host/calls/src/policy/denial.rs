//! What a call was refused for want of a grant, and what cures that.
//!
//! Owns the words for both. Must not decide what is granted. Invariant: a denial is of one thing, and its cure is the
//! key or the flag of the one side that withholds it.

use std::fmt;

use super::{GrantSide, GrantSides, HostPattern, HttpGrant};
use bulkhead_domain::imports::Grant;
use bulkhead_domain::text::escaped;

/// What a guest reached for and has not got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    Http(DeniedRequest),
    Directory(DeniedDirectory),
    /// By its name.
    Variable(String),
    Keyvalue,
    /// By its key.
    Setting(String),
    Secret(DeniedSecret),
}

/// A request that no grant permits. Its path stays out of logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedRequest {
    /// Of a host that is granted, but not with this method and path.
    pub method: Option<String>,
    pub tls: bool,
    /// [Normal](bulkhead_net::address::normal_host).
    pub host: String,
    pub port: u16,
}

/// A directory that a manifest asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedDirectory {
    /// Its name for the guest.
    pub guest: String,
    pub write: bool,
}

/// A placeholder in a request that stands for no secret that may go there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedSecret {
    pub name: String,
    pub location: SecretPlace,
}

/// Where in a request a placeholder stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretPlace {
    Header,
    /// No secret goes there.
    Path,
    Query,
    Body,
}

impl Denial {
    /// The same for all denials of a kind, for counts.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Directory(_) => "directory",
            Self::Variable(_) => "env",
            Self::Keyvalue => "kv",
            Self::Setting(_) => "config",
            Self::Secret(_) => "secret",
        }
    }

    /// The key or the flag of the side that withholds it. `None`: no side does, and the denial itself says what is
    /// wrong.
    pub fn cure(&self, sides: &GrantSides) -> Option<String> {
        let cure = |side: Option<GrantSide>, grant| side.map(|side| side.explain(grant));
        match self {
            Self::Http(request) => cure(sides.withholding_http(&request.grant()), Grant::Http),
            Self::Directory(DeniedDirectory { guest, write }) => {
                cure(sides.withholding_directory(guest, *write), Grant::Directories)
            }
            Self::Variable(key) => cure(sides.withholding_variable(key), Grant::Env),
            Self::Keyvalue => cure(sides.withholding_keyvalue(), Grant::Kv),
            Self::Setting(_) => cure(Some(GrantSide::Operator), Grant::Config),
            Self::Secret(_) => {
                Some("none of this name is for this request: `bulkhead secret set`, or the flag --secret".to_owned())
            }
        }
    }

    /// What was denied, with its cure.
    pub fn explain(&self, sides: &GrantSides) -> String {
        match self.cure(sides) {
            Some(cure) => format!("{self} ({cure})"),
            None => self.to_string(),
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        match self {
            Self::Http(request) => write!(f, " {request}"),
            Self::Directory(DeniedDirectory { guest, write }) => {
                write!(f, " {guest} ({})", if *write { "write" } else { "read" })
            }
            Self::Variable(key) | Self::Setting(key) => write!(f, " {key}"),
            Self::Keyvalue => Ok(()),
            Self::Secret(DeniedSecret { name, location }) => write!(f, " {name} in the {}", location.name()),
        }
    }
}

impl DeniedRequest {
    /// What would permit it, but for its path.
    fn grant(&self) -> HttpGrant {
        let host = match self.host.parse() {
            Ok(address) => HostPattern::Address(address),
            Err(_) => HostPattern::Name(self.host.clone()),
        };
        let methods = self.method.iter().cloned().collect();
        HttpGrant { methods, tls: self.tls, host, port: self.port, path: "/".to_owned(), trace: false }
    }
}

impl fmt::Display for DeniedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(method) = &self.method {
            write!(f, "{} ", escaped(method))?;
        }
        let scheme = if self.tls { "https" } else { "http" };
        let host = escaped(&self.host);
        // An address of IPv6.
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        write!(f, "{scheme}://{host}")?;
        if self.port != if self.tls { 443 } else { 80 } {
            write!(f, ":{}", self.port)?;
        }
        if self.method.is_some() { f.write_str(" with this path") } else { Ok(()) }
    }
}

impl SecretPlace {
    fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Path => "path",
            Self::Query => "query",
            Self::Body => "body",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bound, DirGrant, Grants};
    use super::*;

    fn request(method: Option<&str>, host: &str, port: u16) -> Denial {
        let method = method.map(str::to_owned);
        Denial::Http(DeniedRequest { method, tls: true, host: host.to_owned(), port })
    }

    #[test]
    fn denial_says_what_was_denied_and_the_one_side_that_withholds_it_with_its_key() {
        let nothing = Bound {
            directories: Some(Vec::new()),
            http: Some(Vec::new()),
            env: Some(Vec::new()),
            keyvalue: Some(false),
        };
        let granted = |destination: &str| Grants { http: vec![destination.parse().unwrap()], ..Grants::default() };
        let by_operator = GrantSides::default();
        let by_manifest = GrantSides { manifest: nothing.clone(), ..GrantSides::default() };
        let by_tenant =
            GrantSides { operator: granted("https://a.example/v1"), tenant: nothing, ..GrantSides::default() };
        let by_path = GrantSides { operator: granted("https://a.example/v1"), ..GrantSides::default() };
        let by_reading = GrantSides {
            operator: Grants {
                directories: vec![DirGrant {
                    host: "/srv".into(),
                    guest: "/data (old)".to_owned(),
                    write: false,
                    bytes_max: None,
                }],
                ..Grants::default()
            },
            ..GrantSides::default()
        };
        let by_method = GrantSides { operator: granted("GET https://a.example"), ..GrantSides::default() };
        let variable = Denial::Variable("KEY".to_owned());
        let directory = |write| Denial::Directory(DeniedDirectory { guest: "/data (old)".to_owned(), write });
        let secret = Denial::Secret(DeniedSecret { name: "KEY".to_owned(), location: SecretPlace::Header });
        for (denial, sides, said) in [
            (
                request(None, "a.example", 443),
                &by_operator,
                "http https://a.example (operator http, or the flag --http)",
            ),
            (
                request(None, "a.example", 8443),
                &by_operator,
                "http https://a.example:8443 (operator http, or the flag --http)",
            ),
            (request(None, "::1", 443), &by_operator, "http https://[::1] (operator http, or the flag --http)"),
            (variable.clone(), &by_operator, "env KEY (operator env, or the flag --env)"),
            (directory(true), &by_operator, "directory /data (old) (write) (operator directories, or the flag --dir)"),
            (directory(true), &by_reading, "directory /data (old) (write) (operator directories, or the flag --dir)"),
            (Denial::Keyvalue, &by_operator, "kv (the operator does not grant it: [plugin.kv], or the flag --kv)"),
            (
                Denial::Setting("size".to_owned()),
                &by_operator,
                "config size (the operator does not set it: `config` of the [[plugin]], or the flag --setting)",
            ),
            (
                secret,
                &by_operator,
                "secret KEY in the header (none of this name is for this request: `bulkhead secret set`, or the flag --secret)",
            ),
            (request(None, "a.example", 443), &by_manifest, "http https://a.example (manifest http)"),
            (variable, &by_manifest, "env KEY (manifest env)"),
            (directory(false), &by_manifest, "directory /data (old) (read) (manifest directories)"),
            (Denial::Keyvalue, &by_manifest, "kv (manifest kv)"),
            (
                request(Some("GET"), "a.example", 443),
                &by_tenant,
                "http GET https://a.example with this path (the caller's tenant is not left it: [tenant.NAME.grants] http)",
            ),
            (request(Some("GET"), "a.example", 443), &by_path, "http GET https://a.example with this path"),
            // A method is what the guest wrote, also where no grant can be written with it.
            (
                request(Some("get"), "a.example", 443),
                &by_method,
                "http get https://a.example with this path (operator http, or the flag --http)",
            ),
        ] {
            let said = said.replace("(operator ", "(the operator does not grant it: [plugin.grants] ");
            let said = said.replace("(manifest ", "(its manifest does not ask for it: [grants] ");
            assert_eq!(denial.explain(sides), said);
            assert!(said.starts_with(denial.kind()));
        }
    }
}
