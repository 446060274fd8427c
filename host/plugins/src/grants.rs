//! What a plugin asks for, what the configuration grants, and what comes of both: one row for each thing that can be
//! granted.
//!
//! Pure. A directory is named as its guest sees it: where it is on the machine stays in the configuration.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Digest, Error, Plugins, Target};
use bulkhead_calls::policy::{Bound, DirBound, Grants};
use bulkhead_domain::hex;
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::text::escaped;
use bulkhead_runtime::inspect::RequestedLimits;
use bulkhead_runtime::{LoadedPlugin, SkillSummary, ViewReach};

const NOTHING: &str = "-";
const ANYTHING: &str = "any";
/// Digits of a skill's digest in its row.
const DIGEST_CHARS_SHOWN: usize = 12;

/// Something that can be granted, and how far each side goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantRow {
    pub grant: String,
    pub wanted: String,
    pub granted: String,
    pub effective: String,
    /// What the tenant is left, in the rows of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
}

/// What a version needs and may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionGrants {
    pub version: Digest,
    /// Interfaces that its component imports.
    pub imports: Vec<String>,
    pub everybody: Vec<GrantRow>,
    /// In calls of the tenants that have a bound of their own.
    pub tenants: Vec<(TenantId, Vec<GrantRow>)>,
}

impl Plugins {
    /// What a version of a plugin asks for, is granted, and may reach. `version`: as in [`Target`]; none: the active
    /// one.
    ///
    /// # Errors
    ///
    /// There is no such version, or it cannot be loaded.
    pub async fn grants(&self, name: &str, version: Option<String>) -> Result<VersionGrants, Error> {
        let loaded = match version {
            None => self.active(name).await?,
            Some(_) => {
                let target = Target { name: name.to_owned(), version };
                self.ready(&self.target(&target).await?).await?
            }
        };
        let mut tenants: Vec<_> = loaded.terms().tenants.iter().map(|(id, left)| (*id, left)).collect();
        tenants.sort_by_key(|(id, _)| id.0);
        let wanted = &loaded.requested().grants;
        let granted = &loaded.terms().grants;
        let of_tenant = |(id, left): (TenantId, &Bound)| (id, grant_rows(wanted, granted, Some(left)));
        Ok(VersionGrants {
            version: Digest(loaded.version.digest),
            imports: loaded.imports(),
            everybody: rows(&loaded),
            tenants: tenants.into_iter().map(of_tenant).collect(),
        })
    }

    /// What new calls of a plugin go to, unless their requestor has the canary.
    async fn active(&self, name: &str) -> Result<LoadedPlugin, Error> {
        let state = self.inner.state.lock().await;
        match state.table.iter().find(|plugin| plugin.version.name == name) {
            Some(active) => Ok(active.clone()),
            None => {
                state.entry(name)?;
                Err(Error::Invalid(format!("{name} is not active: name a version")))
            }
        }
    }
}

/// Everything that a version may be granted, for everybody.
pub(super) fn rows(loaded: &LoadedPlugin) -> Vec<GrantRow> {
    let wanted = loaded.requested();
    let terms = loaded.terms();
    let mut rows = grant_rows(&wanted.grants, &terms.grants, None);
    rows.extend(limit_rows(&wanted.limits, &terms.limits));
    rows.extend(view_rows(loaded.views()));
    rows.extend(skill_rows(loaded.skills()));
    rows
}

/// What each view of an MCP App may reach: the client lets it, once the operator has accepted the version.
pub fn view_rows(views: &BTreeMap<String, ViewReach>) -> Vec<GrantRow> {
    let row = |uri: &str, part: &str| accepted_row(&format!("view {uri} {part}"));
    let rows_of =
        |(uri, reach): (&String, &ViewReach)| reach.parts().iter().map(|part| row(uri, part)).collect::<Vec<_>>();
    views.iter().flat_map(rows_of).collect()
}

/// What each skill is: one that holds something else has another row.
pub fn skill_rows(skills: &BTreeMap<String, SkillSummary>) -> Vec<GrantRow> {
    let row = |(name, summary): (&String, &SkillSummary)| {
        let SkillSummary { digest, files, bytes } = summary;
        let digest: String = hex(digest).chars().take(DIGEST_CHARS_SHOWN).collect();
        accepted_row(&format!("skill {name} sha256:{digest} files {files} bytes {bytes}"))
    };
    skills.iter().map(row).collect()
}

/// What is there once the operator has accepted the version.
fn accepted_row(what: &str) -> GrantRow {
    let yes = || "yes".to_owned();
    GrantRow { grant: escaped(what), wanted: yes(), granted: yes(), effective: yes(), left: None }
}

/// Directories, destinations, variables and the key-value store. `left`: what a tenant is left of them.
pub fn grant_rows(wanted: &Bound, granted: &Grants, left: Option<&Bound>) -> Vec<GrantRow> {
    let mut effective = granted.within(wanted);
    if let Some(left) = left {
        effective = effective.within(left);
    }
    let mut rows = directories(wanted, granted, left, &effective);
    let texts = |grants: &Grants| grants.http.iter().map(ToString::to_string).collect::<Vec<_>>();
    let wishes = |bound: &Bound| bound.http.as_ref().map(|list| list.iter().map(ToString::to_string).collect());
    let http =
        Sides { wanted: wishes(wanted), granted: texts(granted), left: left.map(wishes), effective: texts(&effective) };
    rows.extend(listed("http", &http));
    let env = Sides {
        wanted: wanted.env.clone(),
        granted: granted.env.clone(),
        left: left.map(|left| left.env.clone()),
        effective: effective.env.clone(),
    };
    rows.extend(listed("env", &env));
    rows.extend(keyvalue(wanted, granted, left, &effective));
    rows
}

/// What may be kept in one tenant: keys, bytes, and bytes of one value.
fn keyvalue(wanted: &Bound, granted: &Grants, left: Option<&Bound>, effective: &Grants) -> Option<GrantRow> {
    if granted.keyvalue.is_none() && wanted.keyvalue != Some(true) {
        return None;
    }
    let bound = |bound: &Bound| match bound.keyvalue {
        None => ANYTHING,
        Some(true) => "yes",
        Some(false) => NOTHING,
    };
    let cell = |grants: &Grants| {
        let limits = grants.keyvalue.as_ref();
        limits.map_or(NOTHING.to_owned(), |own| format!("{}/{}/{}", own.keys_max, own.bytes_max, own.value_bytes_max))
    };
    Some(GrantRow {
        grant: "kv (keys/bytes/value)".to_owned(),
        wanted: bound(wanted).to_owned(),
        granted: cell(granted),
        left: left.map(|left| bound(left).to_owned()),
        effective: cell(effective),
    })
}

fn directories(wanted: &Bound, granted: &Grants, left: Option<&Bound>, effective: &Grants) -> Vec<GrantRow> {
    let side = |grants: &Grants| -> Vec<DirBound> {
        grants
            .directories
            .iter()
            .map(|grant| DirBound { guest: grant.guest.clone(), write: grant.write, optional: false })
            .collect()
    };
    let granted = side(granted);
    let effective = side(effective);
    let mut names: Vec<_> = wanted.directories.iter().flatten().chain(&granted).map(|dir| dir.guest.clone()).collect();
    names.sort();
    names.dedup();
    let cell = |list: &[DirBound], guest: &str| match list.iter().find(|dir| dir.guest == guest) {
        None => NOTHING.to_owned(),
        Some(dir) => if dir.write { "write" } else { "read" }.to_owned(),
    };
    let bound = |bound: &Bound, guest: &str| match &bound.directories {
        None => ANYTHING.to_owned(),
        Some(list) => {
            let covering: Vec<_> = list.iter().filter(|dir| dir.covers(guest)).collect();
            match covering.iter().any(|dir| dir.write) {
                true => "write".to_owned(),
                false if covering.is_empty() => NOTHING.to_owned(),
                false => "read".to_owned(),
            }
        }
    };
    names
        .iter()
        .map(|guest| GrantRow {
            grant: format!("directory {guest}"),
            wanted: bound(wanted, guest),
            granted: cell(&granted, guest),
            left: left.map(|left| bound(left, guest)),
            effective: cell(&effective, guest),
        })
        .collect()
}

/// What each side says of one kind of grant.
struct Sides {
    wanted: Option<Vec<String>>,
    granted: Vec<String>,
    /// What a tenant is left.
    left: Option<Option<Vec<String>>>,
    effective: Vec<String>,
}

/// Things that are there or not. A destination that is narrower than another one is a line of its own.
fn listed(kind: &str, sides: &Sides) -> Vec<GrantRow> {
    let Sides { wanted, granted, left, effective } = sides;
    let every = wanted.iter().flatten().chain(granted).chain(left.iter().flatten().flatten()).chain(effective);
    let mut names: Vec<_> = every.collect();
    names.sort();
    names.dedup();
    let cell = |list: &[String], name: &String| if list.contains(name) { "yes" } else { NOTHING }.to_owned();
    let bound = |list: &Option<Vec<String>>, name: &String| match list {
        None => ANYTHING.to_owned(),
        Some(list) => cell(list, name),
    };
    names
        .into_iter()
        .map(|name| GrantRow {
            grant: format!("{kind} {name}"),
            wanted: bound(wanted, name),
            granted: cell(granted, name),
            left: left.as_ref().map(|left| bound(left, name)),
            effective: cell(effective, name),
        })
        .collect()
}

/// The limits of a call.
pub fn limit_rows(wanted: &RequestedLimits, granted: &CallLimits) -> Vec<GrantRow> {
    let effective = wanted.within(granted);
    let row = |what: &str, wanted: Option<u64>, granted: u64, effective: u64| GrantRow {
        grant: format!("call.{what}"),
        wanted: wanted.map_or(ANYTHING.to_owned(), |wanted| wanted.to_string()),
        granted: granted.to_string(),
        left: None,
        effective: effective.to_string(),
    };
    vec![
        row("cpu_ms", wanted.cpu_ms, granted.cpu_ms, effective.cpu_ms),
        row("wall_ms", wanted.wall_ms, granted.wall_ms, effective.wall_ms),
        row("memory_bytes", wanted.memory_bytes, granted.memory_bytes, effective.memory_bytes),
        row("arguments_bytes", wanted.arguments_bytes, granted.arguments_bytes, effective.arguments_bytes),
        row("result_bytes", wanted.result_bytes, granted.result_bytes, effective.result_bytes),
        row("log_bytes", wanted.log_bytes, granted.log_bytes, effective.log_bytes),
        row(
            "events_per_second",
            wanted.events_per_second.map(u64::from),
            granted.events_per_second.into(),
            effective.events_per_second.into(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_what_a_view_may_reach_has_a_row() {
        let ui = serde_json::json!({
            "csp": {"connectDomains": ["https://a.org"], "resourceDomains": ["https://b.org"]},
            "permissions": {"camera": {}},
        });
        let views = [("ui://a", ViewReach::of_ui(&ui)), ("ui://b", ViewReach::default())];
        let rows = view_rows(&views.map(|(uri, reach)| (uri.to_owned(), reach)).into());
        let grants: Vec<_> = rows.iter().map(|row| (row.grant.as_str(), row.effective.as_str())).collect();
        let expected = [
            ("view ui://a connectDomains https://a.org", "yes"),
            ("view ui://a resourceDomains https://b.org", "yes"),
            ("view ui://a permission camera", "yes"),
        ];
        assert_eq!(grants, expected);
    }

    #[test]
    fn skill_with_other_contents_is_another_row() {
        let rows = |digest| {
            let summary = SkillSummary { digest: [digest; 32], files: 2, bytes: 90 };
            skill_rows(&[("review".to_owned(), summary)].into())
        };
        assert_eq!(rows(1)[0].grant, "skill review sha256:010101010101 files 2 bytes 90");
        assert_ne!(rows(1)[0].grant, rows(2)[0].grant);
    }

    #[test]
    fn effective_grant_is_what_all_sides_leave() {
        let dir = |guest: &str, write| DirBound { guest: guest.to_owned(), write, optional: false };
        let wanted = Bound {
            directories: Some(vec![dir("/data", false)]),
            http: Some(vec!["https://a.org".parse().unwrap()]),
            env: Some(vec!["A".to_owned()]),
            keyvalue: None,
        };
        let granted = Grants {
            http: vec!["https://a.org".parse().unwrap(), "https://b.org".parse().unwrap()],
            env: vec!["A".to_owned()],
            ..Grants::default()
        };
        let left = Bound { env: Some(Vec::new()), ..Bound::default() };
        let row = |rows: &[GrantRow], grant: &str| {
            let row =
                rows.iter().find(|row| row.grant == grant).unwrap_or_else(|| panic!("{grant} is not in {rows:?}"));
            [row.wanted.clone(), row.granted.clone(), row.effective.clone()].join(" ")
        };
        let everybody = grant_rows(&wanted, &granted, None);
        assert_eq!(row(&everybody, "directory /data"), "read - -");
        assert_eq!(row(&everybody, "http https://a.org:443"), "yes yes yes");
        assert_eq!(row(&everybody, "http https://b.org:443"), "- yes -");
        assert_eq!(row(&everybody, "env A"), "yes yes yes");
        let tenant = grant_rows(&wanted, &granted, Some(&left));
        assert_eq!(row(&tenant, "env A"), "yes yes -");
        assert!(everybody.iter().all(|row| row.left.is_none()) && tenant.iter().all(|row| row.left.is_some()));
    }
}
