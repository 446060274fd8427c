//! Commands about secrets of plugins.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::commands::{SecretCommand, SecretList, SecretRemove, SecretRotate, SecretSet};
use super::views::{SecretListView, SecretRemoveView, SecretRotateView};
use super::{Answer, ControlError, Request as _};
use bulkhead_calls::secrets::InjectionPoints;
use bulkhead_domain::UnixMs;
use bulkhead_identity::principal::Principals;
use bulkhead_tasks::secrets::{Error, NewSecret, SecretRef, Secrets};

/// A value on its way to the store.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretText(pub String);

/// Never the value.
impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText")
    }
}

/// Does one of these commands.
pub(super) async fn execute(
    secrets: &Secrets,
    principals: &Principals,
    command: SecretCommand,
    now: UnixMs,
) -> Result<Answer, ControlError> {
    match command {
        SecretCommand::Set(SecretSet { name, plugin, tenant, destinations, places, value }) => {
            let which = which(principals, name, plugin, tenant).await?;
            let read = |text: &String| text.parse().map_err(|error| ControlError::Invalid(format!("{error}")));
            let secret = NewSecret {
                which,
                destinations: destinations.iter().map(read).collect::<Result<_, _>>()?,
                places: InjectionPoints::named(&places)
                    .ok_or_else(|| ControlError::Invalid("places are header, query and body".to_owned()))?,
                value: value.0,
            };
            let shown = secrets.set(secret, now).await?;
            tracing::info!(secret = shown.name, plugin.name = shown.plugin, "a secret was set");
            SecretSet::answer(&shown)
        }
        SecretCommand::List(_) => SecretList::answer(&SecretListView { secrets: secrets.list().await? }),
        SecretCommand::Remove(SecretRemove { name, plugin, tenant }) => {
            let which = which(principals, name, plugin, tenant).await?;
            secrets.remove(&which).await?;
            tracing::info!(secret = which.name, plugin.name = which.plugin, "a secret was removed");
            SecretRemove::answer(&SecretRemoveView { removed: which.name, plugin: which.plugin })
        }
        SecretCommand::Rotate(_) => {
            let rotated = secrets.rotate().await?;
            tracing::info!(rotated, "secrets were sealed with the first key");
            SecretRotate::answer(&SecretRotateView { rotated })
        }
    }
}

async fn which(
    principals: &Principals,
    name: String,
    plugin: String,
    tenant: Option<String>,
) -> Result<SecretRef, ControlError> {
    let tenant = match tenant {
        // Only looked for: a name that was mistyped would be a new tenant.
        Some(name) => match principals.find_tenant(&name).await? {
            Some(id) => Some((id, name)),
            None => {
                let advice = "`bulkhead tenant list` shows the names";
                return Err(ControlError::NotFound(format!("no tenant {name}: {advice}")));
            }
        },
        None => None,
    };
    Ok(SecretRef { name, plugin, tenant })
}

impl From<Error> for ControlError {
    fn from(error: Error) -> Self {
        match error {
            Error::Invalid(_) | Error::NoKey => Self::Invalid(error.to_string()),
            Error::Unknown(_) => Self::NotFound(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}
