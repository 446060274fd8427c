//! The page of error codes and HTTP statuses: one heading each, with the meaning and what to do.
//!
//! `cargo xtask tidy` compares the headings with the codes in `protocol` and `transport` and with the statuses that
//! `transport` sends.

use std::fmt::Write as _;

/// A code or a status: heading, meaning, and what the reader does.
type Entry = (&'static str, &'static str, &'static str);

const CODES: &[Entry] = &[
    (
        "-32700 parse error",
        "The message is not JSON, or not UTF-8. Over HTTP the status is 400.",
        "Repair the sender. The message was not looked at any further.",
    ),
    (
        "-32600 invalid request",
        "The message is not one JSON-RPC request, response or notification: a bad `id`, a member that occurs twice, a batch that \
         is empty, has more than 50 messages or comes in another revision than 2025-03-26. The transport uses the same code for \
         requests that it refuses by their headers, with the statuses below. In sessions it is also the code of a call that needs a \
         client capability which the client did not declare (`requiredCapabilities` in `data`), and of a tenant that is being erased.",
        "Read `message`: it names what is wrong.",
    ),
    (
        "-32601 method not found",
        "The host has no such method for this client: `tasks/steer` exists only for clients that declared it, methods about tasks only \
         for callers that may have tasks. The status is 404 in revision 2026-07-28.",
        "Look into the capabilities that the host returned.",
    ),
    (
        "-32602 invalid params",
        "A member is missing, of the wrong type or out of range. `message` holds its path and the JSON type that is expected: \
         `params.task.ttl must be an integer, not a string`. The same code is sent for an unknown tool, prompt, template or task, for \
         arguments above `call.arguments_bytes`, for an idempotency key that was used with other arguments (`data.type` is \
         `idempotency_key_conflict`), and in revision 2026-07-28 for an unknown resource. A name close to an existing one gets a \
         suggestion: `Unknown tool: ehco (did you mean echo?)`.",
        "Correct the params. Absent, expired and foreign tasks are answered alike, so the code does not say which of them an id is.",
    ),
    (
        "-32603 internal error",
        "The host failed, is shutting down, or stopped while the call ran. `tasks/result` of a cancelled task and a stream that cannot \
         be resumed have this code, too. With an `incident` in `data`, the host's log has the cause under that id.",
        "Try again later, except for a cancelled task. Give the incident id to the operator.",
    ),
    (
        "-32001 no such session",
        "The session is unknown, ended, expired, or another requestor's. The status is 404.",
        "Send `initialize` without a session header. Tasks are kept by requestor and are still there.",
    ),
    (
        "-32002 resource not found",
        "In sessions: no plugin that the caller may use has this URI.",
        "List the resources.",
    ),
    (
        "-32020 header mismatch",
        "Revision 2026-07-28: a header (`MCP-Protocol-Version`, `Mcp-Method`, `Mcp-Name`, `Mcp-Param-…`) is missing or says \
         something else than the message. The status is 400.",
        "Send what the message says.",
    ),
    (
        "-32021 missing required client capability",
        "Revision 2026-07-28: the call needs a capability that the request did not declare. `requiredCapabilities` in `data` names it. \
         The status is 400.",
        "Declare it in `_meta`, if the client has it.",
    ),
    (
        "-32022 unsupported protocol version",
        "The host does not speak this revision. `supported` in `data` lists those that it speaks. The status is 400.",
        "Use one of `supported`.",
    ),
    (
        "1001 trap",
        "The tool's code trapped: a panic, a stack overflow, an access out of bounds.",
        "Report it to the plugin's author. Repeated faults lead to 1005.",
    ),
    (
        "1002 sandbox limit",
        "The tool ran into a limit of its sandbox: CPU time, memory, handles, output.",
        "Ask for less, or let the operator raise the limit in `[call]`, `[plugin.call]` or `[plugin.tool.NAME]`.",
    ),
    (
        "1003 deadline",
        "The tool did not finish within its wall-clock time, `call.wall_ms`. Waiting for answers and pauses do not count.",
        "Ask for less, or let the operator raise the limit.",
    ),
    (
        "1004 invalid output",
        "The tool returned something that is not valid, or that does not match its own output schema.",
        "Report it to the plugin's author.",
    ),
    (
        "1005 quarantined",
        "Calls of this plugin kept breaking for this requestor, or for several tenants. `retryAfterMs` in `data` says when one call may \
         try again: a second at first, five minutes at last.",
        "Wait. Operators find the last faults in `bulkhead plugin list`; `quarantine_after` of a `[[plugin]]` sets the threshold.",
    ),
    (
        "1010 quota",
        "A quota of the requestor, its tenant or the host is used up. `data` has `limit`, `value` and `retryAfterMs`. Without \
         `retryAfterMs` the call was made and its answer was dropped, because unread answers take up the room (`limits.answer_bytes_*`); \
         or, with `batchMessagesMax`, it is a batch of more messages than may be open at once, which never passes. The status is 429 in revision 2026-07-28 and for large bodies, 200 otherwise.",
        "Wait, end or read something. Operators see what is in use with `bulkhead limits`.",
    ),
    (
        "1011 rate",
        "Too many requests, bytes, task creations or invalid credentials in a time. `data` has `limit`, `value` and `retryAfterMs`. A \
         refused request is charged neither to its requestor nor to its tenant. A batch of more messages than two seconds of the rate never \
         passes: `batchMessagesMax` takes the place of `retryAfterMs` then. Statuses are as for 1010.",
        "Wait for `retryAfterMs`, or send at most `batchMessagesMax` messages in one batch.",
    ),
    (
        "1012 insufficient scope",
        "The token is valid, but its scopes do not allow this. `requiredScopes` in `data` lists all that are missing. The status is 403.",
        "Get a token with these scopes. The header `WWW-Authenticate` says the same.",
    ),
    (
        "1013 store unavailable",
        "The store cannot be reached, and nothing was done. `data` has `retryAfterMs`. With `inDoubt: true` the store was asked and did \
         not say what came of it: a task that this would have made is removed again, everything else may have been done. The status is \
         503 in revision 2026-07-28 and for credentials and sessions that cannot be looked up, 200 otherwise.",
        "Wait for `retryAfterMs`. After `inDoubt`, read the task before you send the same again.",
    ),
];

const STATUSES: &[Entry] = &[
    (
        "200 OK",
        "The body or the event stream holds the response, which may be an error. Clients of sessions take other statuses for a broken \
         connection, so quotas and rates are reported with 200 to them.",
        "Look for `error` in the response.",
    ),
    ("202 Accepted", "A notification or a response arrived; the body is empty.", "Nothing."),
    ("204 No Content", "A session was ended with DELETE, or a CORS preflight was answered.", "Nothing."),
    (
        "400 Bad Request",
        "The message is malformed, a required header is missing or is there twice, the revision is not spoken, the session header is \
         missing, or the body ended early.",
        "Read `message` in the body.",
    ),
    (
        "401 Unauthorized",
        "There is no token, or it is not valid. Unknown, expired, revoked, forged and foreign tokens are answered alike. \
         `WWW-Authenticate` names the protected-resource document.",
        "Get a token: `bulkhead token create`, or from an issuer of the document.",
    ),
    (
        "403 Forbidden",
        "The `Host` or `Origin` is not allowed, the request did not come through a configured proxy, or scopes are missing (code 1012).",
        "Operators set `server.allowed_hosts`, `server.allowed_origins` and `server.trusted_proxies`.",
    ),
    (
        "404 Not Found",
        "There is no such path (the endpoint is `/mcp`), no such session (code -32001), or no such method in revision 2026-07-28 (code -32601).",
        "Look at the code.",
    ),
    (
        "405 Method Not Allowed",
        "The path does not take this HTTP method. `Allow` lists the ones that it takes.",
        "Use one of those.",
    ),
    (
        "406 Not Acceptable",
        "The header `Accept` does not admit the answer: a POST needs `application/json`, a GET `text/event-stream`.",
        "Send `Accept: application/json, text/event-stream`.",
    ),
    ("408 Request Timeout", "The body took too long to arrive.", "Send it faster, or in smaller parts."),
    ("409 Conflict", "The session has as many standalone event streams open as it may have.", "Close one first."),
    (
        "413 Payload Too Large",
        "The body is above `server.body_bytes_max`, or above what may be in memory of one requestor; or it is a batch without any request \
         and of more messages than may come at once.",
        "Send less.",
    ),
    ("415 Unsupported Media Type", "The body is not `application/json`, or is compressed.", "Send plain JSON."),
    (
        "429 Too Many Requests",
        "A quota (code 1010), a rate (code 1011), or too many invalid credentials from one address. `Retry-After` says when to come back.",
        "Wait.",
    ),
    (
        "500 Internal Server Error",
        "The host failed, or no issuer could be asked about the token. The body has an incident id.",
        "Try again later. The log has the cause under that id.",
    ),
    (
        "503 Service Unavailable",
        "The host is draining, or its store cannot be reached (code 1013). `/readyz` answers it as well when the store cannot be written, with the reason.",
        "Try again after `Retry-After`.",
    ),
];

const INTRODUCTION: &str = "\
# Errors

For authors of clients and for operators. This page lists every JSON-RPC code and HTTP status that the host sends. `cargo xtask docs`
writes it from the program; do not edit it.

A plugin may send codes of its own outside the reserved range from -32768 to -32000. Arguments that do not match a tool's schema are not
an error of the protocol but a result with `isError`, for the model to read. It names each place and what is wrong there:
`/below: \"x\" is not of type \"integer\"`, `unexpected member \"name\"`, `/color: \"teal\" is not one of \"red\", \"green\"`.

A number without a fraction is an integer however it is spelled (`60000`, `60000.0`, `6e4`); only the `id` of a message is taken as digits
or as a string, because it is repeated. `null` passes for most optional members that are not there. The host skips what it does not read,
whatever its type: unknown members, `_meta` where a method has no use for it, the display fields of `clientInfo`.
";

pub(super) fn markdown() -> String {
    let mut page = String::from(INTRODUCTION);
    for (title, entries) in [("JSON-RPC codes", CODES), ("HTTP statuses", STATUSES)] {
        // Writing to a String cannot fail.
        let _ = write!(page, "\n## {title}\n");
        for (heading, meaning, action) in entries {
            let _ = write!(page, "\n### {heading}\n\n{meaning}\n\n**What to do:** {action}\n");
        }
    }
    page
}
