//! What one line says.

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use bulkhead_domain::hex;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_domain::task::{PluginVersion, Task, TaskId};

/// A foreign text (the name of a requested tool, a reason) is cut here.
const TEXT_CHARS_MAX: usize = 256;

/// Something that happened. Texts are data: they are escaped as JSON, and cut.
#[derive(Debug, Default, Serialize)]
pub struct Entry {
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requestor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Who vouches for the requestor, and under which name.
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin: Option<String>,
    /// SHA-256 of the component.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments_sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    /// Who ordered it.
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<String>,
    /// SHA-256 of the file of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration_sha256: Option<String>,
    /// The same of the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration_sha256_before: Option<String>,
}

impl Entry {
    /// `event` is `WHAT.HAPPENED`, like `task.created`.
    pub fn new(event: &'static str) -> Self {
        Self { event, ..Self::default() }
    }

    /// The same facts about another event.
    #[must_use]
    pub fn event(self, event: &'static str) -> Self {
        Self { event, ..self }
    }

    #[must_use]
    pub fn by(self, requestor: &Requestor) -> Self {
        Self { tenant: Some(requestor.tenant.to_string()), requestor: Some(requestor.id.to_string()), ..self }
    }

    /// Who gave an order: a user of this machine, an administrator at an address.
    #[must_use]
    pub fn operator(self, who: &str) -> Self {
        Self { operator: Some(cut(who)), ..self }
    }

    /// A configuration, and the one that it takes the place of.
    #[must_use]
    pub fn configuration(self, digest: &[u8; 32], before: Option<&[u8; 32]>) -> Self {
        Self {
            configuration_sha256: Some(hex(digest)),
            configuration_sha256_before: before.map(|digest| hex(digest)),
            ..self
        }
    }

    #[must_use]
    pub fn of_tenant(self, tenant: TenantId) -> Self {
        Self { tenant: Some(tenant.to_string()), ..self }
    }

    /// The external name of a principal, a token or a file.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(cut(name)), ..self }
    }

    /// Who a requestor is outside, in whole: tokens with names that are too long are refused before. The client is
    /// empty unless it tells requestors apart.
    #[must_use]
    pub fn identity(self, issuer: &str, subject: &str, client: &str) -> Self {
        let client = (!client.is_empty()).then(|| client.to_owned());
        Self { issuer: Some(issuer.to_owned()), subject: Some(subject.to_owned()), client, ..self }
    }

    #[must_use]
    pub fn task(self, id: TaskId) -> Self {
        Self { task: Some(id.to_string()), ..self }
    }

    #[must_use]
    pub fn tool(self, tool: &str) -> Self {
        Self { tool: Some(cut(tool)), ..self }
    }

    #[must_use]
    pub fn plugin(self, version: &PluginVersion) -> Self {
        Self { plugin: Some(version.name.clone()), version: Some(hex(&version.digest)), ..self }
    }

    /// A task with its owner, its tool (or what else it is) and the version that it runs on.
    #[must_use]
    pub fn of(self, task: &Task) -> Self {
        self.by(&task.requestor).task(task.id).tool(task.work.label()).plugin(&task.plugin)
    }

    #[must_use]
    pub fn outcome(self, outcome: &'static str) -> Self {
        Self { outcome: Some(outcome), ..self }
    }

    #[must_use]
    pub fn because(self, reason: &str) -> Self {
        Self { reason: Some(cut(reason)), ..self }
    }

    /// Size and digest: the holder of the arguments can show that these were they.
    #[must_use]
    pub fn arguments(self, arguments: &str) -> Self {
        let digest: [u8; 32] = Sha256::digest(arguments).into();
        Self { arguments_bytes: Some(arguments.len() as u64), arguments_sha256: Some(hex(&digest)), ..self }
    }

    #[must_use]
    pub fn result_bytes(self, bytes: u64) -> Self {
        Self { result_bytes: Some(bytes), ..self }
    }

    #[must_use]
    pub fn count(self, count: u64) -> Self {
        Self { count: Some(count), ..self }
    }
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}
