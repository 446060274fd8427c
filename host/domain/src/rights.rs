//! What a requestor may do beyond being let in.
//!
//! Owns how scopes become rights. Invariant: rights only ever add up from what rules grant to this requestor; where no
//! rule is configured, every authenticated requestor may do everything with what is its own, save with a credential
//! that was made for some scopes only; what belongs to others takes a rule.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::requestor::{LOCAL_REQUESTOR, LOCAL_TENANT};

/// What one scope is good for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeRule {
    pub name: String,
    /// Names of tools that may be called; `*` stands for anything.
    pub tools: Vec<String>,
    /// Names of plugins whose resources and prompts may be used, beside those of the tools; `*` stands for anything.
    pub plugins: Vec<String>,
    /// Whether calls may become tasks.
    pub tasks: bool,
    /// Whether tasks may be steered, paused and resumed.
    pub steer: bool,
    /// Whether the tasks and the use of all requestors of the tenant may be looked at, without arguments, answers and
    /// results.
    pub tenant: bool,
    /// Whether those tasks may be cancelled, paused and resumed.
    pub tenant_control: bool,
    /// Whether every client needs it, so that it is asked for from the start.
    pub basic: bool,
    /// Scopes that it contains.
    pub includes: Vec<String>,
    /// By name, the only tenants that it is worth something for; empty: all.
    pub tenants: Vec<String>,
    /// By name, the only requestors that it is worth something for; empty: all.
    pub requestors: Vec<String>,
}

impl ScopeRule {
    fn grants(&self, need: Need<'_>) -> bool {
        match need {
            Need::Tool(name) => self.tools.iter().any(|pattern| matches(pattern, name)),
            Need::Plugin(name) => self.plugins.iter().any(|pattern| matches(pattern, name)),
            Need::Tasks => self.tasks,
            Need::Steer => self.steer,
            Need::Tenant => self.tenant,
            Need::TenantControl => self.tenant && self.tenant_control,
        }
    }

    fn is_for(&self, tenant: &str, requestor: &str) -> bool {
        let named = |list: &[String], name: &str| list.is_empty() || list.iter().any(|known| known == name);
        named(&self.tenants, tenant) && named(&self.requestors, requestor)
    }
}

/// An action that needs a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need<'a> {
    /// Call the tool of this name, prefix included.
    Tool(&'a str),
    /// Use the resources and prompts of the plugin of this name, whatever tools it has.
    Plugin(&'a str),
    /// Have a task.
    Tasks,
    /// Steer, pause or resume one.
    Steer,
    /// Look at the tasks and the use of the whole tenant.
    Tenant,
    /// Cancel, pause and resume the tasks of the whole tenant.
    TenantControl,
}

impl Need<'_> {
    /// Whether it is about what belongs to others, which nobody may whom no rule allows it.
    fn is_about_others(self) -> bool {
        matches!(self, Self::Tenant | Self::TenantControl)
    }
}

/// What the operator says about scopes.
#[derive(Clone, Debug, Default)]
pub struct ScopeBook {
    rules: Arc<[ScopeRule]>,
}

impl ScopeBook {
    pub fn new(rules: Vec<ScopeRule>) -> Self {
        Self { rules: rules.into() }
    }

    /// What these scopes are worth for this requestor. `more`: whether it could get further ones.
    pub fn rights(&self, scopes: &[String], tenant: &str, requestor: &str, more: bool) -> Rights {
        // Fixed scopes are a restriction that the operator asked for: where no rule says what they are good for, it is
        // nothing.
        if self.rules.is_empty() && more {
            return Rights::default();
        }
        let names = self.with_included(scopes);
        let (held, lacking) = self
            .rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| rule.is_for(tenant, requestor))
            .map(|(at, rule)| (at, names.contains(rule.name.as_str())))
            .partition::<Vec<_>, _>(|(_, held)| *held);
        let places = |found: Vec<(usize, bool)>| found.into_iter().map(|(at, _)| at).collect();
        let lacking = if more { places(lacking) } else { Vec::new() };
        let limited = Some(Limited { rules: Arc::clone(&self.rules), held: places(held), lacking });
        Rights { limited, names: None }
    }

    /// Scopes contain others, and those others again.
    fn with_included<'a>(&'a self, scopes: &'a [String]) -> BTreeSet<&'a str> {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        let mut waiting: Vec<&str> = scopes.iter().map(String::as_str).collect();
        while let Some(name) = waiting.pop() {
            if names.insert(name) {
                let rules = self.rules.iter().filter(|rule| rule.name == name);
                waiting.extend(rules.flat_map(|rule| rule.includes.iter().map(String::as_str)));
            }
        }
        names
    }
}

/// What one requestor may do with one credential; cheap to clone. By default, everything that the local requestor may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    limited: Option<Limited>,
    /// What operators call the requestor's tenant and the requestor; `None`: the local one.
    names: Option<Arc<(String, String)>>,
}

#[derive(Clone, Debug)]
struct Limited {
    rules: Arc<[ScopeRule]>,
    /// Places of the rules that grant something.
    held: Vec<usize>,
    /// Places of those that would if the credential had their scope.
    lacking: Vec<usize>,
}

/// What is granted counts, not what else there are rules about.
impl PartialEq for Limited {
    fn eq(&self, other: &Self) -> bool {
        let granted = |limited: &Self| {
            let rules = limited.held.iter().filter_map(|at| limited.rules.get(*at));
            rules.cloned().collect::<Vec<_>>()
        };
        granted(self) == granted(other)
    }
}

impl Eq for Limited {}

impl Limited {
    fn granting<'a>(&'a self, places: &'a [usize], need: Need<'a>) -> Option<&'a ScopeRule> {
        places.iter().filter_map(|at| self.rules.get(*at)).find(|rule| rule.grants(need))
    }
}

impl Rights {
    /// Says whose they are, for rules that name requestors.
    #[must_use]
    pub fn named(self, tenant: String, requestor: String) -> Self {
        Self { names: Some(Arc::new((tenant, requestor))), ..self }
    }

    /// What operators call the requestor's tenant and the requestor.
    pub fn names(&self) -> (&str, &str) {
        self.names.as_deref().map_or((LOCAL_TENANT, LOCAL_REQUESTOR), |(tenant, requestor)| (tenant, requestor))
    }

    /// Whether there is anything that this requestor may not do.
    pub fn are_limited(&self) -> bool {
        self.limited.is_some()
    }

    pub fn has(&self, need: Need<'_>) -> bool {
        match &self.limited {
            None => !need.is_about_others(),
            Some(limited) => limited.granting(&limited.held, need).is_some(),
        }
    }

    /// The scopes that would give what is missing of these needs, all of them at once. Empty when nothing is missing,
    /// and when something is that no scope would give.
    pub fn opening(&self, needs: &[Need<'_>]) -> Vec<String> {
        let Some(limited) = &self.limited else { return Vec::new() };
        let missing = needs.iter().filter(|need| !self.has(**need));
        let opening = missing.map(|need| limited.granting(&limited.lacking, *need).map(|rule| rule.name.clone()));
        let names: Option<BTreeSet<String>> = opening.collect();
        names.unwrap_or_default().into_iter().collect()
    }
}

/// Whether a name fits a pattern in which `*` stands for any text.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(begin) else { return false };
    let mut rest = rest;
    while let Some((middle, further)) = rest.split_once('*') {
        let Some(at) = name.find(middle) else { return false };
        name = name.get(at + middle.len()..).unwrap_or_default();
        rest = further;
    }
    name.len() >= rest.len() && name.ends_with(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, tools: &[&str]) -> ScopeRule {
        let tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
        ScopeRule { name: name.to_owned(), tools, ..ScopeRule::default() }
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn scope_tool_patterns_match_any_text() {
        for (pattern, name) in [("*", ""), ("*", "a"), ("csv_*", "csv_"), ("csv_*", "csv_profile"), ("a*c*e", "abcde")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("", "a"), ("csv_*", "csv"), ("a*c", "acb"), ("ab*ba", "aba"), ("a*b*b", "ab")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn rights_without_scope_rules_allow_everything() {
        let rights = ScopeBook::default().rights(&[], "t", "r", true);
        assert!(rights.has(Need::Tool("x")) && rights.has(Need::Tasks) && rights.has(Need::Steer));
        assert!(!rights.are_limited());
    }

    #[test]
    fn tenant_is_led_by_a_rule_only() {
        let nobody = [ScopeBook::default().rights(&names(&["lead"]), "t", "r", true), Rights::default()];
        for rights in nobody {
            assert!(!rights.has(Need::Tenant) && !rights.has(Need::TenantControl));
        }
        let lead = ScopeRule { tenant: true, ..rule("lead", &[]) };
        let control = ScopeRule { tenant_control: true, ..rule("control", &["*"]) };
        let both = ScopeRule { tenant_control: true, tenant: true, tenants: names(&["acme"]), ..rule("both", &[]) };
        let book = ScopeBook::new(vec![lead, control, both]);
        let may = |scope: &str, tenant: &str| {
            let rights = book.rights(&names(&[scope]), tenant, "r", true);
            (rights.has(Need::Tenant), rights.has(Need::TenantControl), rights.has(Need::Tasks))
        };
        assert_eq!(may("lead", "acme"), (true, false, false));
        assert_eq!(may("control", "acme"), (false, false, false), "nobody controls what they may not see");
        assert_eq!((may("both", "acme"), may("both", "globex")), ((true, true, false), (false, false, false)));
    }

    #[test]
    fn fixed_scopes_grant_nothing_without_rules() {
        let rights = ScopeBook::default().rights(&names(&["read"]), "t", "r", false);
        assert!(rights.are_limited());
        assert!(!rights.has(Need::Tool("x")) && !rights.has(Need::Tasks) && !rights.has(Need::Steer));
        assert_eq!(rights.opening(&[Need::Tool("x")]), [""; 0]);
    }

    #[test]
    fn scopes_are_combined_and_include_others() {
        let book = ScopeBook::new(vec![
            rule("read", &["get_*"]),
            ScopeRule { includes: names(&["read"]), tasks: true, ..rule("write", &["put"]) },
            ScopeRule { includes: names(&["write", "all"]), ..rule("all", &[]) },
        ]);
        let read = book.rights(&names(&["read", "unknown"]), "t", "r", true);
        assert!(read.has(Need::Tool("get_a")) && !read.has(Need::Tool("put")) && !read.has(Need::Tasks));
        let all = book.rights(&names(&["all"]), "t", "r", true);
        assert!(all.has(Need::Tool("get_a")) && all.has(Need::Tool("put")) && all.has(Need::Tasks));
        assert!(!all.has(Need::Steer));
    }

    #[test]
    fn missing_scopes_are_named_together_or_not_at_all() {
        let book = ScopeBook::new(vec![
            rule("read", &["get"]),
            rule("write", &["put"]),
            ScopeRule { tasks: true, ..rule("tasks", &[]) },
            ScopeRule { tenants: names(&["other"]), ..rule("secret", &["hidden"]) },
        ]);
        let rights = book.rights(&names(&["read"]), "t", "r", true);
        assert_eq!(rights.opening(&[Need::Tool("put"), Need::Tasks, Need::Tool("get")]), ["tasks", "write"]);
        assert_eq!(rights.opening(&[Need::Tool("put"), Need::Tool("hidden")]), [""; 0]);
        assert_eq!(rights.opening(&[Need::Tool("get")]), [""; 0]);
        let fixed = book.rights(&names(&["read"]), "t", "r", false);
        assert_eq!(fixed.opening(&[Need::Tool("put")]), [""; 0]);
    }

    #[test]
    fn scope_rule_applies_to_named_tenants_and_requestors() {
        let book = ScopeBook::new(vec![
            ScopeRule { tenants: names(&["acme"]), ..rule("a", &["x"]) },
            ScopeRule { requestors: names(&["anna"]), ..rule("a", &["y"]) },
        ]);
        let may = |tenant: &str, requestor: &str| {
            let rights = book.rights(&names(&["a"]), tenant, requestor, true);
            (rights.has(Need::Tool("x")), rights.has(Need::Tool("y")))
        };
        assert_eq!(may("acme", "anna"), (true, true));
        assert_eq!(may("acme", "ben"), (true, false));
        assert_eq!(may("other", "ben"), (false, false));
    }
}
