//! What a requestor does with tools: it looks at those that it may call, and calls one as a task.
//!
//! Must not know a tool by itself: what is offered and what is taken is the protocol's to say. Invariant: a tool that
//! the requestor may not call gets the page of what is not there.

use bulkhead_protocol::{OfferedTool, TaskCallError, TaskCalls};
use http::StatusCode;
use maud::Markup;

use crate::own_tasks::{Own, absent, refused};
use crate::pages::{self, CallerWays, ToolPage, ToolsPage, address};
use crate::request::Form;
use crate::respond::{self, Answer};
use crate::{arguments, text};

/// Tools on one page of the dashboard.
const PAGE_TOOLS: usize = 50;

impl Own<'_> {
    /// A page of tools, in the order of their names.
    pub(crate) fn tools(&self, calls: &TaskCalls, query: &Form) -> Answer {
        let name = query.filled("name");
        let after = query.filled("after");
        let mut tools = calls.tools(self.requestor, self.rights);
        tools.retain(|offered| {
            let tool = offered.tool();
            name.is_none_or(|part| tool.name.contains(part)) && after.is_none_or(|after| tool.name.as_str() > after)
        });
        let has_more = tools.len() > PAGE_TOOLS;
        tools.truncate(PAGE_TOOLS);
        let last = tools.last().filter(|_| has_more).map(|offered| offered.tool().name.as_str());
        let next = last.map(|last| address("/tools", &[("name", name), ("after", Some(last))]));
        respond::page(StatusCode::OK, pages::tools(&self.frame, &ToolsPage { tools: &tools, name, next }))
    }

    /// One tool.
    pub(crate) fn tool(&self, calls: &TaskCalls, name: &str) -> Answer {
        self.tool_page(calls, name, StatusCode::OK, None)
    }

    /// The page of a tool, with what was filled in and why it was refused.
    pub(crate) fn tool_page(
        &self,
        calls: &TaskCalls,
        name: &str,
        status: StatusCode,
        refused: Option<(&Form, &str)>,
    ) -> Answer {
        let Some(offered) = calls.tool(self.requestor, self.rights, name) else { return absent(&self.frame) };
        let form = self.call_form(&offered, refused.map(|(form, _)| form));
        let page = ToolPage { offered: &offered, form, refused: refused.map(|(_, why)| why) };
        respond::page(status, pages::tool(&self.frame, &page))
    }

    /// The form to call a tool.
    pub(crate) fn call_form(&self, offered: &OfferedTool, filled: Option<&Form>) -> Markup {
        let has_view = self.previews.is_some() && offered.view().is_some();
        pages::call_form(self.session, offered.tool(), &CallerWays { rights: self.rights, has_view }, filled)
    }

    /// Calls a tool as a task. What does not fit comes back with what was filled in.
    pub(crate) async fn call(&self, calls: &TaskCalls, name: &str, form: &Form) -> Answer {
        let again = |why: &str| self.tool_page(calls, name, StatusCode::UNPROCESSABLE_ENTITY, Some((form, why)));
        let Some(offered) = calls.tool(self.requestor, self.rights, name) else { return absent(&self.frame) };
        let arguments = match arguments::read(offered.tool().input_schema.as_str(), form) {
            Ok(arguments) => arguments,
            Err(why) => return again(&why),
        };
        match calls.call(self.requestor, self.rights, name, arguments.trim()).await {
            Ok(task) => respond::see_other(&format!("/tasks/{}", task.id)),
            Err(TaskCallError::Absent) => absent(&self.frame),
            Err(TaskCallError::NoTasks(why)) => {
                let message = text::line(why);
                respond::page(StatusCode::CONFLICT, pages::message(&self.frame, "That was not done", &message))
            }
            Err(TaskCallError::Malformed(why) | TaskCallError::Arguments(why)) => again(&why),
            Err(TaskCallError::Refused(error)) => refused(&self.frame, &error),
        }
    }
}
