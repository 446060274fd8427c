//! `bulkhead token`: bearer tokens.
//!
//! Must not make the first token at a terminal before a person has said that they want what comes with it.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use bulkhead_author_cli::EXIT_FAILED;
use bulkhead_console::print_error;
use bulkhead_console::table::{Layout, cell, now};
use bulkhead_control::commands::{TokenCreate, TokenList, TokenRevoke};
use bulkhead_control::views::TokenListView;
use bulkhead_identity::principal::{TENANT_DEFAULT, TokenInfo};
use clap::Subcommand;

use super::operate::{Absent, OperateArguments, any_token, execute, show, show_fields};
use super::values::duration_ms;

/// Works with a running host (over DATA/control.sock) and without; `list` and `revoke` also from afar, with --url.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a bearer token and print it, this once; only its hash is kept
    ///
    /// The first token turns authentication on, for good: from then on the host answers 401 to every request without a
    /// token, also to clients that are connected, and also after the token is revoked. At a terminal, the command asks
    /// before. Where the configuration says auth.anonymous_loopback = true, clients on the host's own machine are let
    /// in without a token all the same.
    #[command(
        after_long_help = "Example:\n  TOKEN=$(bulkhead token create --requestor alice --tenant acme --expires 90d)"
    )]
    Create {
        /// Whose token it is: 1 to 64 characters of A-Z a-z 0-9 _ - .
        #[arg(long, value_name = "NAME")]
        requestor: String,
        /// The group that limits are set for
        #[arg(long, value_name = "NAME", default_value = TENANT_DEFAULT)]
        tenant: String,
        /// How long it is good for: a number and s, m, h or d [default: for ever]
        #[arg(long, value_name = "TIME", value_parser = duration_ms)]
        expires: Option<u64>,
        /// What to call the token itself, for finding it in the list
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// A scope that it is good for, as [[auth.scope]] describes it; may be given more than once [default:
        /// everything]
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
        /// Without asking
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// List tokens, without the tokens themselves
    List {
        /// Only active ones that expire within this time, the first first
        #[arg(long, value_name = "TIME", value_parser = duration_ms, num_args = 0..=1, default_missing_value = "30d")]
        expiring: Option<u64>,
        /// Only active ones that were not used for this time, and are older
        #[arg(long, value_name = "TIME", value_parser = duration_ms, num_args = 0..=1, default_missing_value = "30d")]
        unused: Option<u64>,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// End a token at once; its streams end within seconds
    Revoke {
        /// Its id, as `token list` shows it
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        operate: OperateArguments,
    },
}

pub(crate) async fn run(command: TokenCommand) -> anyhow::Result<ExitCode> {
    match command {
        TokenCommand::Create { requestor, tenant, expires, name, scopes, yes, operate } => {
            // Who may make tokens but not list them is told in any case.
            let is_first = !any_token(&operate).await.unwrap_or(false);
            let is_person = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
            if is_first && !yes && is_person && !is_wanted()? {
                print_error("no token was made");
                return Ok(ExitCode::from(EXIT_FAILED));
            }
            let expires_at = expires.map(|ms| now().saturating_add(ms));
            let scopes = (!scopes.is_empty()).then_some(scopes);
            let request = TokenCreate { requestor, tenant, expires_at, name, scopes };
            let view = execute(&operate, request, Absent::Create).await?;
            let code = show(&operate, &view, |_| cell(view.token.as_str()))?;
            print_error("this token is not stored and will not be shown again");
            if is_first {
                print_error(
                    "authentication is on: the host answers 401 to every request without a token from now on, also to clients that \
                 are connected, and also after this token is revoked (with auth.anonymous_loopback = true in its configuration, \
                 it lets clients on its own machine in)",
                );
            }
            Ok(code)
        }
        TokenCommand::List { expiring, unused, operate } => {
            let mut view = execute(&operate, TokenList {}, Absent::Refuse).await?;
            TokenFilter { expiring_ms: expiring, unused_ms: unused }.apply(&mut view.tokens, now());
            show(&operate, &view, |layout| token_table(&view, layout))
        }
        TokenCommand::Revoke { id, operate } => show_fields(&operate, TokenRevoke { id }).await,
    }
}

/// Which tokens are listed: all of this must apply.
#[derive(Clone, Copy, Debug, Default)]
struct TokenFilter {
    expiring_ms: Option<u64>,
    unused_ms: Option<u64>,
}

impl TokenFilter {
    fn apply(self, tokens: &mut Vec<TokenInfo>, now: u64) {
        let Self { expiring_ms, unused_ms } = self;
        if expiring_ms.is_none() && unused_ms.is_none() {
            return;
        }
        let expires = |token: &TokenInfo| {
            expiring_ms.is_none_or(|ms| token.expires_at.is_some_and(|at| at <= now.saturating_add(ms)))
        };
        let is_unused = |token: &TokenInfo| {
            let used_at = token.last_used_at.unwrap_or(token.created_at);
            unused_ms.is_none_or(|ms| used_at <= now.saturating_sub(ms))
        };
        tokens.retain(|token| token.is_active(now) && expires(token) && is_unused(token));
        if expiring_ms.is_some() {
            tokens.sort_by_key(|token| token.expires_at);
        }
    }
}

/// Asks before authentication is turned on for everybody.
fn is_wanted() -> anyhow::Result<bool> {
    print_error(
        "this is the first token: it turns authentication on for everybody, for good. Every request without a token gets 401 from \
         then on, also those of clients that are connected. To let clients on this machine in all the same, set \
         auth.anonymous_loopback = true in the host's configuration.",
    );
    print_error("go on? [y/N]");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(["y", "yes"].contains(&line.trim().to_lowercase().as_str()))
}

pub(super) fn token_table(view: &TokenListView, layout: &Layout) -> String {
    let row = |token: &TokenInfo| {
        let state = match token {
            TokenInfo { revoked_at: Some(_), .. } => "revoked",
            token if token.is_active(layout.now) => "active",
            _ => "expired",
        };
        vec![
            cell(&*token.id),
            cell(token.name.as_deref()),
            cell(&*token.requestor),
            cell(&*token.tenant),
            state.to_owned(),
            layout.when(token.created_at),
            token.expires_at.map_or_else(|| "never".to_owned(), |at| layout.when(at)),
            layout.when(token.last_used_at),
        ]
    };
    let rows: Vec<_> = view.tokens.iter().map(row).collect();
    layout.table(&["ID", "NAME", "REQUESTOR", "TENANT", "STATE", "CREATED", "EXPIRES", "LAST USED"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000;

    fn token(id: &str, created_at: u64, expires_at: Option<u64>, last_used_at: Option<u64>) -> TokenInfo {
        let json = serde_json::json!({"id": id, "name": null, "requestor": "alice", "tenant": "acme", "created_at": created_at,
            "expires_at": expires_at, "revoked_at": null, "last_used_at": last_used_at});
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn tokens_that_expire_soon_and_those_that_nobody_uses_are_found() {
        let now = 100 * DAY;
        let all = [
            token("later", 0, Some(now + 20 * DAY), Some(now)),
            token("soon", 0, Some(now + 2 * DAY), Some(now - 40 * DAY)),
            token("over", 0, Some(now - 1), None),
            token("for-ever", 0, None, None),
            token("new", now - DAY, None, None),
        ];
        let listed = |filter: TokenFilter| {
            let mut tokens = all.to_vec();
            filter.apply(&mut tokens, now);
            tokens.into_iter().map(|token| token.id).collect::<Vec<_>>()
        };
        let expiring_ms = Some(30 * DAY);
        assert_eq!(listed(TokenFilter { expiring_ms, unused_ms: None }), ["soon", "later"]);
        assert_eq!(listed(TokenFilter { expiring_ms: None, unused_ms: expiring_ms }), ["soon", "for-ever"]);
        assert_eq!(listed(TokenFilter { expiring_ms, unused_ms: expiring_ms }), ["soon"]);
        assert_eq!(listed(TokenFilter::default()).len(), 5);
    }
}
