//! Enumerations that the plugin interface and the domain both have.

use super::bindings::bulkhead::plugin::{task, types};
use super::bindings::exports::bulkhead::plugin::tools;
use bulkhead_calls::ListKind;
use bulkhead_domain::call::{ClientFeature, ElicitationAction, LogLevel};
use bulkhead_domain::tool::{Role, TaskSupport};

/// Turns each case into the one of the same name, both ways. Does not compile where one side has another case.
macro_rules! same_cases {
    ($($wit:ty, $own:ty: $($case:ident),*;)*) => {$(
        impl From<$wit> for $own {
            fn from(value: $wit) -> Self {
                match value { $(<$wit>::$case => Self::$case),* }
            }
        }

        impl From<$own> for $wit {
            fn from(value: $own) -> Self {
                match value { $(<$own>::$case => Self::$case),* }
            }
        }
    )*};
}

same_cases! {
    task::ElicitationAction, ElicitationAction: Accept, Decline, Cancel;
    task::ListKind, ListKind: Tools, Resources, Prompts;
    task::LogLevel, LogLevel: Debug, Info, Notice, Warning, Error, Critical, Alert, Emergency;
    tools::TaskSupport, TaskSupport: Forbidden, Optional, Required;
    types::ClientFeature, ClientFeature:
        ElicitationForm, ElicitationUrl, Sampling, SamplingTools, SamplingContext, Roots, Tasks;
    types::Role, Role: User, Assistant;
}
