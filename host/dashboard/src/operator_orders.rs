//! What an operator orders beside single tasks: several tasks at once, tokens, the drain.
//!
//! Must not write the secret of a token anywhere but on the page that answers the order. Invariants: one request orders
//! a bounded number of things; what was refused of one of them does not keep the order from the others, and is said.

use bulkhead_control::ControlError;
use bulkhead_control::commands::{DrainBegin, DrainEnd, TokenCreate, TokenRevoke};
use http::StatusCode;

use crate::operators::{OperatorPages, TaskOrder, settled};
use crate::orders::carried_out;
use crate::pages::{self, BulkResult};
use crate::request::Form;
use crate::respond::{self, Answer};
use crate::text;

/// Tasks that one form of the dashboard gives an order for.
const BULK_MAX: usize = 200;
/// Days until a token expires that is made at the dashboard.
const TOKEN_DAYS_MAX: u64 = 3_650;
const DAY_MS: u64 = 86_400_000;

impl OperatorPages<'_> {
    pub(crate) async fn revoke_token(&self, id: &str) -> Result<Answer, ControlError> {
        self.order(TokenRevoke { id: id.to_owned() }).await.map(|_| respond::see_other("/tokens"))
    }

    pub(crate) async fn drain(&self, form: &Form) -> Result<Answer, ControlError> {
        match form.get("do") {
            Some("begin") => self.order(DrainBegin {}).await.map(drop)?,
            Some("end") => self.order(DrainEnd {}).await.map(drop)?,
            _ => return Err(ControlError::NotFound("there is no such thing to do".to_owned())),
        }
        Ok(respond::see_other("/hosts"))
    }

    pub(crate) async fn bulk(&self, form: &Form) -> Result<Answer, ControlError> {
        let mut ids: Vec<&str> = Vec::new();
        for id in form.all("id") {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        if ids.is_empty() || ids.len() > BULK_MAX {
            let message = format!("Choose at least one task and at most {BULK_MAX}; {} were chosen.", ids.len());
            return Ok(self.refused(&message));
        }
        let (order, done) = match form.get("do") {
            Some("cancel") => (TaskOrder::Cancel, "cancelled"),
            Some("pause") => (TaskOrder::Pause, "paused"),
            Some("resume") => (TaskOrder::Resume, "goes on"),
            Some("release") => (TaskOrder::Release, "released"),
            Some("purge") => (TaskOrder::Purge, "purged"),
            _ => return Ok(self.refused("There is no such thing to do with tasks.")),
        };
        if order == TaskOrder::Purge && form.get("confirmed") != Some("yes") {
            return Ok(respond::page(StatusCode::OK, pages::confirm_bulk(&self.frame, self.session, &ids)));
        }
        let client = self.client();
        let tasks = ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        // One order: it comes to its end for all of them.
        let results = carried_out(async move {
            let mut results = Vec::with_capacity(tasks.len());
            for task in tasks {
                results.push(client.change_task(task, order).await);
            }
            Ok(results)
        });
        let results: Vec<_> = settled(results.await)?;
        let problem = |error| match error {
            ControlError::NotFound(_) => "there is no such task, or no longer".to_owned(),
            other => ControlError::to_string(&other),
        };
        let result = |(id, result): (_, Result<(), _>)| BulkResult { id, done: result.map(|()| done).map_err(problem) };
        let results: Vec<_> = ids.into_iter().zip(results).map(result).collect();
        Ok(respond::page(StatusCode::OK, pages::bulk_results(&self.frame, &results)))
    }

    fn refused(&self, message: &str) -> Answer {
        respond::page(StatusCode::UNPROCESSABLE_ENTITY, pages::message(&self.frame, "That was not done", message))
    }

    pub(crate) async fn create_token(&self, form: &Form) -> Result<Answer, ControlError> {
        let made = match new_token(form, self.frame.now) {
            Ok(request) => self.order(request).await,
            Err(why) => Err(ControlError::Invalid(why)),
        };
        match made {
            Ok(made) => Ok(respond::page(StatusCode::OK, pages::token_created(&self.frame, &made))),
            Err(ControlError::Invalid(why)) => self.tokens(&Form::default(), Some((form, &text::line(&why)))).await,
            Err(error) => Err(error),
        }
    }
}

/// What a form asks for.
fn new_token(form: &Form, now: u64) -> Result<TokenCreate, String> {
    let filled = |name: &str| form.filled(name).map(str::to_owned);
    let days = match form.filled("days").map(str::parse::<u64>) {
        None => None,
        Some(Ok(days @ 1..=TOKEN_DAYS_MAX)) => Some(days),
        Some(_) => return Err(format!("a token expires after 1 to {TOKEN_DAYS_MAX} days, or never")),
    };
    let scopes = form.filled("scopes").map(|text| {
        let names = text.split([' ', ',']).filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    });
    Ok(TokenCreate {
        requestor: filled("requestor").ok_or("name the requestor")?,
        tenant: filled("tenant").ok_or("name the tenant")?,
        expires_at: days.map(|days| now.saturating_add(days * DAY_MS)),
        name: filled("name"),
        scopes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_of_a_token_says_whose_it_is_and_until_when() {
        let read = |text: &str| new_token(&Form::parse(text.as_bytes()), 1_000);
        let made = read("requestor=anna&tenant=acme&days=2&scopes=look,+call&name=").unwrap();
        assert_eq!((made.requestor.as_str(), made.tenant.as_str(), made.name), ("anna", "acme", None));
        assert_eq!(
            (made.expires_at, made.scopes),
            (Some(172_801_000), Some(vec!["look".to_owned(), "call".to_owned()]))
        );
        let made = read("requestor=anna&tenant=acme&days=&scopes=").unwrap();
        assert_eq!((made.expires_at, made.scopes), (None, None));
        for wrong in ["tenant=acme", "requestor=anna", "requestor=a&tenant=b&days=0", "requestor=a&tenant=b&days=x"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
