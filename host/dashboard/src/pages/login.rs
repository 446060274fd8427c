//! Who comes in, and how.

use maud::{DOCTYPE, Markup, html};

use super::{Frame, TOKEN_FIELD};
use crate::text;

/// What the page for logging in shows.
pub(crate) struct Login<'a> {
    pub(crate) token: &'a str,
    pub(crate) refused: Option<&'a str>,
    /// Whether administrators have a token.
    pub(crate) has_admin_token: bool,
    /// Where people log in, if there is such a place.
    pub(crate) issuer: Option<&'a str>,
}

pub(crate) fn login(frame: &Frame<'_>, page: &Login<'_>) -> Markup {
    frame.show("Log in", html! {
        p {
            "Bulkhead runs tools for MCP clients, each call in a sandbox of its own. These are its pages: you see the tasks that your clients began, "
            "answer what they ask and call tools; operators see what the host does."
        }
        @if let Some(refused) = page.refused { p.notice.bad role="alert" { (refused) } }
        @if let Some(issuer) = page.issuer { p { a href="/login/oidc" { "Log in at " (text::line(issuer)) } } }
        form method="post" action="/login" {
            input type="hidden" name=(TOKEN_FIELD) value=(page.token);
            label { "Token"
                input type="password" name="token" required maxlength="8192" autocomplete="off" spellcheck="false";
            }
            button type="submit" { "Log in" }
        }
        p {
            "The token is the one that you give to your MCP client"
            @if page.has_admin_token { ", or that of the administrators" }
            "."
        }
        p { "Operators on the machine of the host: " code { "bulkhead dashboard login" } " prints a link that logs in." }
    })
}

/// What the page of a link shows.
pub(crate) struct ConfirmCode<'a> {
    pub(crate) token: &'a str,
    pub(crate) code: &'a str,
}

/// A link only leads here: what looks at links beforehand must not use the code up.
pub(crate) fn confirm_code(frame: &Frame<'_>, page: &ConfirmCode<'_>) -> Markup {
    frame.show(
        "Log in as an operator",
        html! {
            p { "This link works once, and for ten minutes." }
            form method="post" action="/login" {
                input type="hidden" name=(TOKEN_FIELD) value=(page.token);
                input type="hidden" name="code" value=(page.code);
                button type="submit" { "Log in" }
            }
        },
    )
}

/// Where a login elsewhere ends. A browser does not send the cookie of the session with a request that began elsewhere,
/// so no redirect leads on: this page does.
pub(crate) fn logged_in() -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content="0; url=/";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Logged in · Bulkhead" }
            }
            body { main { h1 { "Logged in" } p { a href="/" { "Go on" } } } }
        }
    }
}
