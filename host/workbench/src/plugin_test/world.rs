//! The world of one case: recorded answers instead of a network, a clock that stands, and what is kept for the plugin.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use async_trait::async_trait;
use bulkhead_calls::guest_services::{KeyPage, KeyValueError};
use bulkhead_calls::secrets::{InjectionPoints, Secret, VALUE_BYTES};
use bulkhead_calls::{GuestServices, OutsideWorld, Tail};
use bulkhead_domain::UnixMs;
use bulkhead_domain::clock::Clock;
use bulkhead_domain::limits::KeyValueLimits;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use url::Url;

use super::format::{Recorded, TestSecret};

/// Answers for the world outside.
#[derive(Debug)]
pub(super) struct RecordedWorld {
    unix_ms: Option<UnixMs>,
    answers: Mutex<Vec<Answer>>,
    /// What went wrong with requests.
    problems: Mutex<Vec<String>>,
}

#[derive(Debug)]
struct Answer {
    recorded: Recorded,
    url: Url,
    /// Whether the case fails if nobody asks for it.
    is_expected: bool,
    times_used: usize,
}

impl RecordedWorld {
    /// `expected` must all be requested, `others` may.
    pub(super) fn new(unix_ms: Option<UnixMs>, expected: &[Recorded], others: &[Recorded]) -> anyhow::Result<Self> {
        let answer = |recorded: &Recorded, is_expected: bool| -> anyhow::Result<Answer> {
            let url =
                recorded.url.parse().with_context(|| format!("http: {:?} is not an absolute URL", recorded.url))?;
            Ok(Answer { recorded: recorded.clone(), url, is_expected, times_used: 0 })
        };
        let expected = expected.iter().map(|recorded| answer(recorded, true));
        let answers = expected.chain(others.iter().map(|recorded| answer(recorded, false)));
        Ok(Self { unix_ms, answers: Mutex::new(answers.collect::<Result<_, _>>()?), problems: Mutex::default() })
    }

    /// Requests that nobody expected, that differed, or that were not made.
    pub(super) fn problems(&self) -> Vec<String> {
        let unused = |answer: &&Answer| answer.is_expected && answer.times_used == 0;
        let answers = self.answers.lock();
        let missing = answers
            .iter()
            .filter(unused)
            .map(|answer| format!("the request was not made: {} {}", answer.recorded.method, answer.url));
        self.problems.lock().iter().cloned().chain(missing).collect()
    }
}

impl OutsideWorld for RecordedWorld {
    fn unix_ms(&self) -> Option<u64> {
        self.unix_ms
    }

    fn answer(&self, request: http::Request<Bytes>) -> Option<http::Response<Bytes>> {
        let method = request.method().as_str().to_owned();
        let Ok(url) = request.uri().to_string().parse::<Url>() else { return None };
        let mut answers = self.answers.lock();
        let mut fitting: Vec<_> =
            answers.iter_mut().filter(|answer| answer.url == url && answer.recorded.method == method).collect();
        // In turn; the last one stays.
        let last = fitting.len().checked_sub(1);
        let at = fitting.iter().position(|answer| answer.times_used == 0).or(last);
        let Some(answer) = at.and_then(|at| fitting.get_mut(at)) else {
            self.problems.lock().push(format!("an unexpected request: {method} {url} has no [[http]] answer"));
            return None;
        };
        answer.times_used += 1;
        self.problems.lock().extend(wrong_request(&answer.recorded, &request));
        response(&answer.recorded).inspect_err(|wrong| self.problems.lock().push(wrong.clone())).ok()
    }
}

/// In what a request differs from what its recording says.
fn wrong_request(recorded: &Recorded, request: &http::Request<Bytes>) -> Vec<String> {
    let at = format!("{} {}", recorded.method, recorded.url);
    let mut wrong = Vec::new();
    for (name, expected) in &recorded.request_headers {
        let found = request.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        if found.as_ref() != Some(expected) {
            let found = found.unwrap_or_else(|| "no such header".to_owned());
            wrong.push(format!("{at}: the header {name} differs:\n  - {expected}\n  + {found}"));
        }
    }
    if let Some(expected) = &recorded.request_body {
        let is_same = match expected {
            Value::String(text) => text.as_bytes() == request.body(),
            json => serde_json::from_slice::<Value>(request.body()).is_ok_and(|found| found == *json),
        };
        if !is_same {
            let found = String::from_utf8_lossy(request.body()).into_owned();
            wrong.push(format!("{at}: the body of the request differs:\n  - {expected}\n  + {found}"));
        }
    }
    wrong
}

fn response(recorded: &Recorded) -> Result<http::Response<Bytes>, String> {
    let mut builder = http::Response::builder().status(recorded.status);
    let body = match &recorded.json {
        Some(json) => {
            if !recorded.headers.keys().any(|name| name.eq_ignore_ascii_case("content-type")) {
                builder = builder.header("content-type", "application/json");
            }
            json.to_string()
        }
        None => recorded.body.clone(),
    };
    for (name, value) in &recorded.headers {
        builder = builder.header(name, value);
    }
    builder.body(Bytes::from(body)).map_err(|error| format!("the answer of {} is none: {error}", recorded.url))
}

/// A clock that stands.
#[derive(Debug)]
pub(super) struct StandingClock(pub(super) UnixMs);

impl Clock for StandingClock {
    fn now(&self) -> UnixMs {
        self.0
    }

    fn steady(&self) -> UnixMs {
        self.0
    }

    fn system(&self) -> UnixMs {
        self.0
    }
}

/// A key-value store with secrets beside it.
#[derive(Debug)]
pub(crate) struct WithSecrets {
    pub(crate) inner: Arc<dyn GuestServices>,
    pub(crate) secrets: Vec<Secret>,
}

#[async_trait]
impl GuestServices for WithSecrets {
    async fn get(&self, plugin: &str, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
        self.inner.get(plugin, key).await
    }

    async fn set(
        &self,
        plugin: &str,
        limits: &KeyValueLimits,
        key: String,
        value: Vec<u8>,
        ttl_ms: Option<u64>,
        beside: Option<Tail>,
    ) -> Result<(), KeyValueError> {
        self.inner.set(plugin, limits, key, value, ttl_ms, beside).await
    }

    async fn set_if(
        &self,
        plugin: &str,
        limits: &KeyValueLimits,
        key: String,
        value: Vec<u8>,
        seen: Option<[u8; 32]>,
        beside: Option<Tail>,
    ) -> Result<bool, KeyValueError> {
        self.inner.set_if(plugin, limits, key, value, seen, beside).await
    }

    async fn delete(&self, plugin: &str, key: String, beside: Option<Tail>) -> Result<(), KeyValueError> {
        self.inner.delete(plugin, key, beside).await
    }

    async fn keys(&self, plugin: &str, prefix: &str, after: Option<&str>) -> Result<KeyPage, KeyValueError> {
        self.inner.keys(plugin, prefix, after).await
    }

    async fn secrets(&self, plugin: &str) -> Result<Vec<Secret>, ()> {
        let mut secrets = self.inner.secrets(plugin).await?;
        secrets.retain(|kept| !self.secrets.iter().any(|given| given.name == kept.name));
        secrets.extend(self.secrets.iter().cloned());
        Ok(secrets)
    }
}

/// Secrets as a test file has them.
pub(super) fn secrets(written: &BTreeMap<String, TestSecret>) -> anyhow::Result<Vec<Secret>> {
    let read = |(name, written): (&String, &TestSecret)| {
        secret(name, written.value.clone(), &written.to, &written.places).with_context(|| format!("secrets.{name}"))
    };
    written.iter().map(read).collect()
}

/// A secret as the host would keep it.
pub(crate) fn secret(name: &str, value: String, destinations: &[String], places: &[String]) -> anyhow::Result<Secret> {
    anyhow::ensure!(
        VALUE_BYTES.contains(&value.len()),
        "a value has {} to {} bytes; this one has {}",
        VALUE_BYTES.start(),
        VALUE_BYTES.end(),
        value.len()
    );
    anyhow::ensure!(!destinations.is_empty(), "it needs a destination, https://HOST[:PORT][/PATH]");
    let destinations = destinations.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let places = InjectionPoints::named(places).context("a secret goes into header, query or body")?;
    Ok(Secret { name: name.to_owned(), value, destinations, places })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(text: &str) -> Recorded {
        toml::from_str(text).unwrap()
    }

    fn request(method: &str, url: &str) -> http::Request<Bytes> {
        http::Request::builder().method(method).uri(url).header("accept", "x").body(Bytes::from_static(b"{}")).unwrap()
    }

    #[test]
    fn recorded_answers_are_given_in_turn_and_the_last_one_stays() {
        let one = recorded("url = 'https://a.example/x'\nstatus = 503");
        let two = recorded("url = 'https://a.example/x'\njson = { n = 1 }");
        let world = RecordedWorld::new(None, &[one, two], &[]).unwrap();
        let mut statuses = Vec::new();
        for _ in 0..3 {
            let answer = world.answer(request("GET", "https://a.example:443/x")).unwrap();
            statuses.push((answer.status().as_u16(), answer.headers().contains_key("content-type")));
        }
        assert_eq!(statuses, [(503, false), (200, true), (200, true)]);
        assert_eq!(world.problems(), Vec::<String>::new());
    }

    #[test]
    fn unexpected_missing_and_differing_requests_are_problems() {
        let expected =
            recorded("url = 'https://a.example/x'\nrequest_headers = { accept = 'y' }\nrequest_body = { a = 1 }");
        let unused = recorded("method = 'POST'\nurl = 'https://a.example/y'");
        let world = RecordedWorld::new(None, &[expected, unused], &[]).unwrap();
        assert!(world.answer(request("GET", "https://b.example/")).is_none());
        assert!(world.answer(request("DELETE", "https://a.example/x")).is_none());
        assert!(world.answer(request("GET", "https://a.example/x")).is_some());
        let problems = world.problems().join("\n");
        for part in [
            "an unexpected request: GET https://b.example/",
            "an unexpected request: DELETE https://a.example/x",
            "the header accept differs:\n  - y\n  + x",
            "the body of the request differs:\n  - {\"a\":1}\n  + {}",
            "the request was not made: POST https://a.example/y",
        ] {
            assert!(problems.contains(part), "{part}: {problems}");
        }
    }
}
