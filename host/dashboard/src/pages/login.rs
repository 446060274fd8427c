//! Who comes in, and how.

use maud::{Markup, html};

use super::{Frame, TOKEN_FIELD};

/// What the page for logging in shows.
pub(crate) struct Login<'a> {
    pub(crate) token: &'a str,
    pub(crate) refused: Option<&'a str>,
    /// Whether administrators have a token.
    pub(crate) has_admin_token: bool,
}

pub(crate) fn login(frame: &Frame<'_>, page: &Login<'_>) -> Markup {
    frame.show("Log in", html! {
        @if let Some(refused) = page.refused { p.notice.bad role="alert" { (refused) } }
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
