//! The three sides that have to agree on a grant, and which of them does not.
//!
//! Must not grant anything: what is effective is the business of [`Grants::within`]. Invariant: for what all three
//! sides agree on, no side is named.

use bulkhead_domain::imports::Grant;

use super::{Bound, DirBound, DirGrant, Grants, HttpGrant};

/// What each side says of one plugin's calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantSides {
    /// What the plugin's manifest asks for.
    pub manifest: Bound,
    /// What the operator grants the plugin.
    pub operator: Grants,
    /// What the caller's tenant is left.
    pub tenant: Bound,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantSide {
    Manifest,
    Operator,
    Tenant,
}

impl GrantSides {
    /// The first side that keeps a request to this destination from a call. The path may be one that no side minds.
    pub fn withholding_http(&self, request: &HttpGrant) -> Option<GrantSide> {
        let has = |list: &[HttpGrant]| list.iter().any(|grant| grant.meet(request).is_some());
        first_without([
            self.manifest.http.as_deref().is_none_or(has),
            has(&self.operator.http),
            self.tenant.http.as_deref().is_none_or(has),
        ])
    }

    /// The first that keeps a directory from it, with everything below.
    pub fn withholding_directory(&self, guest: &str, write: bool) -> Option<GrantSide> {
        let bound = DirBound { guest: guest.to_owned(), write, optional: false };
        let is_left = |bound: &Bound, guest: &str| match &bound.directories {
            None => true,
            Some(bounds) => bounds.iter().any(|bound| bound.covers(guest) && (bound.write || !write)),
        };
        let is_meant = |grant: &&DirGrant| bound.covers(&grant.guest) && (grant.write || !write);
        let mut granted = self.operator.directories.iter().filter(is_meant).peekable();
        first_without([
            is_left(&self.manifest, guest),
            granted.peek().is_some(),
            granted.any(|grant| is_left(&self.tenant, &grant.guest)),
        ])
    }

    /// The first that keeps a variable from it.
    pub fn withholding_variable(&self, key: &str) -> Option<GrantSide> {
        let has = |keys: &[String]| keys.iter().any(|other| other == key);
        first_without([
            self.manifest.env.as_deref().is_none_or(has),
            has(&self.operator.env),
            self.tenant.env.as_deref().is_none_or(has),
        ])
    }

    /// The first that keeps the key-value store from it.
    pub fn withholding_keyvalue(&self) -> Option<GrantSide> {
        first_without([
            self.manifest.keyvalue != Some(false),
            self.operator.keyvalue.is_some(),
            self.tenant.keyvalue != Some(false),
        ])
    }
}

fn first_without([manifest, operator, tenant]: [bool; 3]) -> Option<GrantSide> {
    let sides = [(GrantSide::Manifest, manifest), (GrantSide::Operator, operator), (GrantSide::Tenant, tenant)];
    sides.into_iter().find_map(|(side, agrees)| (!agrees).then_some(side))
}

impl GrantSide {
    /// What keeps the grant from a call, and the key or flag that cures it.
    pub fn explain(self, grant: Grant) -> String {
        let key = grant.key();
        match (self, grant) {
            (Self::Manifest, _) => format!("its manifest does not ask for it: [grants] {key}"),
            (Self::Operator, Grant::Kv) => "the operator does not grant it: [plugin.kv], or the flag --kv".to_owned(),
            (Self::Operator, Grant::Config) => {
                "the operator does not set it: `config` of the [[plugin]], or the flag --setting".to_owned()
            }
            (Self::Operator, Grant::Directories) => {
                "the operator does not grant it: [plugin.grants] directories, or the flag --dir".to_owned()
            }
            (Self::Operator, Grant::Http | Grant::Env) => {
                format!("the operator does not grant it: [plugin.grants] {key}, or the flag --{key}")
            }
            (Self::Tenant, _) => format!("the caller's tenant is not left it: [tenant.NAME.grants] {key}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_domain::limits::KeyValueLimits;

    fn everything() -> Bound {
        Bound {
            directories: Some(vec![DirBound { guest: "/data".to_owned(), write: true, optional: false }]),
            http: Some(vec!["https://a.example".parse().unwrap()]),
            env: Some(vec!["KEY".to_owned()]),
            keyvalue: Some(true),
        }
    }

    fn nothing() -> Bound {
        Bound { directories: Some(Vec::new()), http: Some(Vec::new()), env: Some(Vec::new()), keyvalue: Some(false) }
    }

    fn granted() -> Grants {
        Grants {
            directories: vec![DirGrant {
                host: "/srv".into(),
                guest: "/data".to_owned(),
                write: true,
                bytes_max: None,
            }],
            http: vec!["https://a.example".parse().unwrap()],
            env: vec!["KEY".to_owned()],
            keyvalue: Some(KeyValueLimits { keys_max: 1, bytes_max: 2, value_bytes_max: 3 }),
        }
    }

    /// Of each kind.
    fn withholding(sides: &GrantSides) -> [Option<GrantSide>; 4] {
        [
            sides.withholding_http(&"GET https://a.example".parse().unwrap()),
            sides.withholding_directory("/data", true),
            sides.withholding_variable("KEY"),
            sides.withholding_keyvalue(),
        ]
    }

    #[test]
    fn first_side_that_withholds_a_grant_is_found() {
        let all = GrantSides { manifest: everything(), operator: granted(), tenant: everything() };
        for (sides, expected) in [
            (all.clone(), None),
            (GrantSides { manifest: Bound::default(), tenant: Bound::default(), ..all.clone() }, None),
            (GrantSides { manifest: nothing(), ..all.clone() }, Some(GrantSide::Manifest)),
            (GrantSides { operator: Grants::default(), ..all.clone() }, Some(GrantSide::Operator)),
            (GrantSides { tenant: nothing(), ..all.clone() }, Some(GrantSide::Tenant)),
            (
                GrantSides { manifest: nothing(), operator: Grants::default(), tenant: nothing() },
                Some(GrantSide::Manifest),
            ),
        ] {
            assert_eq!(withholding(&sides), [expected; 4], "{sides:?}");
        }
    }

    #[test]
    fn method_and_write_are_part_of_a_grant() {
        let mut sides = GrantSides { operator: granted(), ..GrantSides::default() };
        sides.operator.http = vec!["POST https://a.example".parse().unwrap()];
        sides.operator.directories[0].write = false;
        let request = |text: &str| sides.withholding_http(&text.parse().unwrap());
        assert_eq!(request("GET https://a.example"), Some(GrantSide::Operator));
        assert_eq!(request("https://a.example"), None);
        assert_eq!(sides.withholding_directory("/data", true), Some(GrantSide::Operator));
        assert_eq!(sides.withholding_directory("/data", false), None);
    }
}
