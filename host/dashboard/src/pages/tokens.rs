//! Bearer tokens of requestors. The secret of one is on a single page, and only on that.

use bulkhead_control::views::{TokenCreateView, TokenListView};
use bulkhead_domain::UnixMs;
use maud::{Markup, html};

use super::operators::path_segment;
use super::{Frame, address, button, filter_text, more, notice, table, token};
use crate::columns::TOKENS;
use crate::request::Form;
use crate::sessions::Session;
use crate::text;

/// Where a new one is ordered.
const ACTION: &str = "/tokens";
/// Tokens on one page of the dashboard: each has a form of its own.
const TOKENS_SHOWN_MAX: usize = 50;

/// What the list shows.
pub(crate) struct Tokens<'a> {
    /// The newest first.
    pub(crate) tokens: TokenListView,
    /// Only those of this tenant.
    pub(crate) tenant: Option<&'a str>,
    /// The last one of the page before.
    pub(crate) after: Option<&'a str>,
    /// What was filled in, and why no token was made of it.
    pub(crate) refused: Option<(&'a Form, &'a str)>,
}

pub(crate) fn tokens(frame: &Frame<'_>, session: &Session, page: &Tokens<'_>) -> Markup {
    let all = &page.tokens.tokens;
    let begin = page.after.and_then(|after| all.iter().position(|token| token.id == after)).map_or(0, |at| at + 1);
    let rest = all.get(begin..).unwrap_or_default();
    let shown = rest.get(..rest.len().min(TOKENS_SHOWN_MAX)).unwrap_or_default();
    let last = shown.last().filter(|_| rest.len() > shown.len());
    let next = last.map(|last| address(ACTION, &[("tenant", page.tenant), ("after", Some(&last.id))]));
    frame.show("Tokens", html! {
        form.filter method="get" action=(ACTION) {
            (filter_text("tenant", "Tenant", page.tenant))
            button type="submit" { "Filter" }
            a href=(ACTION) { "Reload all" }
        }
        @if all.is_empty() { p { "There is no token." } } @else {
            (table("Tokens", TOKENS, html! {
                @for info in shown {
                    tr {
                        td { (info.name.as_deref().map_or_else(|| "–".to_owned(), text::line)) " " code { (info.id.chars().take(8).collect::<String>()) } }
                        td { (text::line(&info.requestor)) }
                        td { (text::line(&info.tenant)) }
                        td { (state(info.revoked_at, info.expires_at, frame.now)) }
                        td { (info.scopes.as_ref().map_or_else(|| "everything".to_owned(), |scopes| text::line(&scopes.join(", ")))) }
                        td { (frame.when(info.created_at)) }
                        td { @if let Some(at) = info.expires_at { (frame.when(at)) } @else { "never" } }
                        td { @if let Some(at) = info.last_used_at { (frame.when(at)) } @else { "–" } }
                        td { @if info.is_active(frame.now) {
                            (button(session, &format!("{ACTION}/{}/revoke", path_segment(&info.id)), "Revoke", "plain"))
                        } }
                    }
                }
            }))
        }
        (more(next.as_deref()))
        h2 { "A new token" }
        (form(session, page))
    })
}

fn state(revoked_at: Option<UnixMs>, expires_at: Option<UnixMs>, now: UnixMs) -> &'static str {
    match (revoked_at, expires_at) {
        (Some(_), _) => "revoked",
        (None, Some(at)) if at <= now => "expired",
        (None, _) => "active",
    }
}

fn form(session: &Session, page: &Tokens<'_>) -> Markup {
    let filled = |name: &str| page.refused.and_then(|(form, _)| form.get(name)).unwrap_or_default();
    html! {
        @if let Some((_, why)) = page.refused { (notice("bad", why)) }
        form method="post" action=(ACTION) {
            (token(session, ACTION))
            label { "Requestor" input type="text" name="requestor" required maxlength="200" value=(filled("requestor")) autocomplete="off"; }
            label { "Tenant" input type="text" name="tenant" required maxlength="200" value=(filled("tenant")) autocomplete="off"; }
            label { "What you call it" input type="text" name="name" maxlength="200" value=(filled("name")) autocomplete="off"; }
            label { "Scopes" small { "Separated by spaces; without any it is good for everything." }
                input type="text" name="scopes" maxlength="1000" value=(filled("scopes")) autocomplete="off"; }
            label { "Days until it expires" small { "Without a number it never does." }
                input type="number" name="days" min="1" max="3650" step="1" value=(filled("days")); }
            button type="submit" { "Make the token" }
        }
    }
}

/// The only page with the secret of a token.
pub(crate) fn token_created(frame: &Frame<'_>, made: &TokenCreateView) -> Markup {
    frame.show("A new token", html! {
        (notice("ask", "Take it now: it is shown this once, and nowhere is it kept as it is."))
        pre tabindex="0" { (made.token) }
        dl {
            dt { "Requestor" } dd { (text::line(&made.info.requestor)) " of tenant " (text::line(&made.info.tenant)) }
            @if let Some(at) = made.info.expires_at { dt { "Expires" } dd { (frame.when(at)) } }
            dt { "Id" } dd { code { (made.info.id) } }
        }
        p { a href=(ACTION) { "To the tokens" } }
    })
}
