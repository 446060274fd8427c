//! The database of the configuration, if it names one.

use std::time::{SystemTime, UNIX_EPOCH};

use bulkhead_assembly::store_engine;
use bulkhead_config::Config;
use bulkhead_store::postgres::ServerFacts;

use super::Finding;

/// How far the clocks of both machines may be from each other.
const CLOCK_MS_MAX: u64 = 1_000;

/// Asks the server; nothing is made or changed there.
pub(super) async fn look(config: &Config) -> Vec<Finding> {
    const SUBJECT: &str = "database";
    match store_engine::examine(config).await {
        Ok(None) => Vec::new(),
        Ok(Some(facts)) => vec![settings(&facts), clock(facts.clock_ms.cast_unsigned(), now_ms())],
        Err(error) => {
            let remedy = "Make it reachable with the address of [store], for this user and from this machine.";
            vec![Finding::fail(SUBJECT, format!("{error:#}"), remedy)]
        }
    }
}

fn settings(facts: &ServerFacts) -> Finding {
    const SUBJECT: &str = "database: server";
    let found = format!("PostgreSQL {}", facts.version);
    match facts.check() {
        Err(error) => Finding::fail(SUBJECT, format!("{found}: {error}"), "Change that; a host does not start on it."),
        Ok(()) if facts.asynchronous_standbys > 0 => Finding::warn(
            SUBJECT,
            format!("{found}, {} standbys that are not synchronous", facts.asynchronous_standbys),
            "Name them in synchronous_standby_names: one that takes over otherwise lacks acknowledged writes.",
        ),
        Ok(()) => Finding::ok(SUBJECT, format!("{found}, keeps what it acknowledges")),
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn clock(there_ms: u64, here_ms: u64) -> Finding {
    const SUBJECT: &str = "database: clock";
    let offset_ms = there_ms.abs_diff(here_ms);
    if offset_ms > CLOCK_MS_MAX {
        return Finding::warn(
            SUBJECT,
            format!("{offset_ms} ms from the clock of this machine"),
            "Let both machines keep the time (NTP): times in logs and of the database do not fit otherwise.",
        );
    }
    Finding::ok(SUBJECT, format!("{offset_ms} ms from the clock of this machine"))
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn facts() -> ServerFacts {
        let on = || "on".to_owned();
        ServerFacts {
            version: "15.18".to_owned(),
            version_number: 150_018,
            fsync: on(),
            full_page_writes: on(),
            synchronous_commit: on(),
            in_recovery: false,
            asynchronous_standbys: 0,
            clock_ms: 0,
        }
    }

    #[test]
    fn database_that_loses_writes_fails_and_one_that_may_lose_them_is_a_warning() {
        assert_eq!(settings(&facts()).verdict, Verdict::Ok);
        assert_eq!(settings(&ServerFacts { asynchronous_standbys: 1, ..facts() }).verdict, Verdict::Warn);
        let failing = settings(&ServerFacts { fsync: "off".to_owned(), ..facts() });
        assert!(failing.verdict == Verdict::Fail && failing.found.contains("set fsync = on"), "{failing:?}");
        assert_eq!([clock(5_000, 5_900).verdict, clock(5_000, 9_000).verdict], [Verdict::Ok, Verdict::Warn]);
    }

    #[tokio::test]
    async fn database_that_is_away_fails_without_its_password() {
        let text = "[store]\nengine = 'postgres'\nurl_env = 'DOCTOR_TEST_DATABASE'";
        let file = bulkhead_config::File { path: std::path::Path::new("b.toml"), text };
        let config = Config::load(Some(file), [], &bulkhead_config::Flags::default()).unwrap();
        let findings = look(&config).await;
        assert_eq!((findings.len(), findings[0].verdict), (1, Verdict::Fail));
        assert!(findings[0].found.contains("DOCTOR_TEST_DATABASE is not set"), "{findings:?}");
        assert_eq!(look(&Config::load(None, [], &bulkhead_config::Flags::default()).unwrap()).await, []);
    }
}
