//! Which function carries out which method.

use serde::Deserialize;

use super::request::Request;
use super::{results, server_features, skills, tasks, tools};
use crate::Exchange;
use crate::elsewhere;
use crate::error::RpcError;
use crate::exchange::immediate;
use crate::jsonrpc;
use crate::methods::Method;
use crate::server_features::Empty;
use crate::wire::level;

pub(super) fn dispatch(method: Method, request: Request<'_>) -> Result<Exchange, RpcError> {
    match method {
        Method::Initialize | Method::Ping => Ok(immediate(jsonrpc::response(&request.id, &Empty {}))),
        Method::SetLevel => set_level(&request),
        Method::ToolsList => tools::list(&request),
        Method::ToolsCall => tools::call(request),
        Method::TasksGet => tasks::get(request),
        Method::TasksResult => results::result(request),
        Method::TasksList => tasks::list(request),
        Method::TasksCancel => tasks::cancel(request),
        Method::TasksDelete => tasks::delete(request),
        Method::TasksSteer => tasks::steer(request),
        Method::TasksPause => tasks::pause(request),
        Method::TasksResume => tasks::resume(request),
        Method::ResourcesList => server_features::resources(request),
        Method::ResourcesTemplatesList => server_features::templates(&request),
        Method::ResourcesRead => server_features::read(request),
        Method::ResourcesSubscribe => server_features::subscribe(request),
        Method::ResourcesUnsubscribe => server_features::unsubscribe(&request),
        Method::PromptsList => server_features::prompts(&request),
        Method::PromptsGet => server_features::get_prompt(request),
        Method::Complete => server_features::complete(request),
        Method::SkillsList => skills::list(&request),
        Method::SkillsGet => skills::get(&request),
        Method::Discover | Method::Listen | Method::TasksUpdate => Err(RpcError::method_not_found("Method not found")),
    }
}

fn set_level(request: &Request<'_>) -> Result<Exchange, RpcError> {
    #[derive(Deserialize)]
    struct SetLevel {
        level: String,
    }
    let wanted: SetLevel = jsonrpc::params(request.params)?;
    let level = level(&wanted.level).ok_or_else(|| RpcError::unknown_level("params.level"))?;
    request.session.set_log_level(level);
    let response = jsonrpc::response(&request.id, &Empty {});
    Ok(elsewhere::settled(&request.context.shared, request.session, response))
}
