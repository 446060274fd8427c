//! Spellings of earlier versions, which go on working: `bulkhead admin …` was a tree of its own.
//!
//! Owns the translation and nothing else: what an old spelling does is what the new one does. Invariant: arguments that do not begin with
//! `admin` are left as they are.

use std::ffi::OsString;

/// Options of `admin` that could stand before its commands; those with a value take the next argument.
const OPTIONS: [(&str, bool); 6] =
    [("--data", true), ("--config", true), ("--url", true), ("--token-file", true), ("--ca", true), ("--json", false)];

/// The same command as it is spelled now.
pub(super) fn present(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = arguments.into_iter();
    let mut present: Vec<OsString> = arguments.next().into_iter().collect();
    let first = arguments.next();
    if first.as_ref().is_none_or(|word| word != "admin") {
        return present.into_iter().chain(first).chain(arguments).collect();
    }
    let mut options = Vec::new();
    let group = next_word(&mut arguments, &mut options);
    let words: Vec<OsString> = match group.as_ref().and_then(|word| word.to_str()) {
        Some("tasks") => {
            let verb = next_word(&mut arguments, &mut options);
            let (verb, more) = match verb.as_ref().and_then(|word| word.to_str()) {
                // These answered as for several tasks, also about a single one.
                Some("pause" | "resume" | "cancel" | "purge") => (verb, Some("--batch".into())),
                Some("list") => (verb, Some("--page".into())),
                Some("inspect") => (Some("show".into()), None),
                _ => (verb, None),
            };
            group.into_iter().chain(verb).chain(more).collect()
        }
        Some("tokens") => {
            let verb = next_word(&mut arguments, &mut options);
            ["token".into()].into_iter().chain(verb).collect()
        }
        Some("drain" | "reload") => ["host".into()].into_iter().chain(group).collect(),
        _ => group.into_iter().collect(),
    };
    present.extend(words.into_iter().chain(options).chain(arguments));
    present
}

/// The next argument that is none of the options, which are put by.
fn next_word(arguments: &mut impl Iterator<Item = OsString>, options: &mut Vec<OsString>) -> Option<OsString> {
    loop {
        let argument = arguments.next()?;
        let text = argument.to_string_lossy();
        let option = OPTIONS.iter().find(|(name, takes_value)| {
            text == *name || (*takes_value && text.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')))
        });
        let Some((name, takes_value)) = option else { return Some(argument) };
        let value_follows = *takes_value && text == *name;
        options.push(argument);
        if value_follows {
            options.extend(arguments.next());
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::args::Arguments;

    /// Every invocation of earlier pages and tests, and how it is spelled now.
    const SPELLINGS: &[(&str, &str)] = &[
        ("admin tasks list", "tasks list --page"),
        ("admin tasks list --tenant acme --status running", "tasks list --page --tenant acme --status running"),
        ("admin tasks list --max 2 --after a.b.c", "tasks list --page --max 2 --after a.b.c"),
        ("admin --json tasks list --requestor ben --data d", "tasks list --page --json --data d --requestor ben"),
        ("admin tasks --json list --plugin csv", "tasks list --page --json --plugin csv"),
        ("admin tasks inspect I --json", "tasks show I --json"),
        ("tasks inspect I", "tasks show I"),
        ("admin tasks pause I J --message m", "tasks pause --batch I J --message m"),
        ("admin tasks resume I", "tasks resume --batch I"),
        ("admin tasks cancel --plugin csv --status queued", "tasks cancel --batch --plugin csv --status queued"),
        ("admin tasks cancel -- I", "tasks cancel --batch -- I"),
        ("admin tasks purge --all", "tasks purge --batch --all"),
        ("admin limits", "limits"),
        ("admin limits --tenant acme --requestor anna --max 5", "limits --tenant acme --requestor anna --max 5"),
        ("admin --config=b.toml limits", "limits --config b.toml"),
        ("admin --data d --json limits", "limits --data d --json"),
        (
            "admin --url https://h:1 --token-file t --ca r limits --json",
            "limits --url https://h:1 --token-file t --ca r --json",
        ),
        ("admin tokens list", "token list"),
        ("admin tokens --data d revoke T", "token revoke T --data d"),
        ("admin drain", "host drain"),
        ("admin drain --no-wait", "host drain --no-wait"),
        ("admin drain --undo", "host drain --undo"),
        ("admin drain --status --json", "host drain --status --json"),
        ("admin reload --check", "host reload --check"),
        ("admin --json reload", "host reload --json"),
    ];

    fn parsed(line: &str) -> String {
        let words = ["bulkhead"].into_iter().chain(line.split(' ')).map(OsString::from);
        let arguments = Arguments::try_parse_from(present(words));
        format!("{:?}", arguments.unwrap_or_else(|error| panic!("{line}: {error}")))
    }

    #[test]
    fn earlier_spellings_mean_the_same_as_the_present_ones() {
        for (earlier, now) in SPELLINGS {
            assert_eq!(parsed(earlier), parsed(now), "{earlier}");
        }
    }

    #[test]
    fn only_admin_is_translated() {
        for line in ["serve --data admin", "plugin list", "tenant purge admin --yes", "--help"] {
            let words: Vec<OsString> = ["bulkhead"].into_iter().chain(line.split(' ')).map(OsString::from).collect();
            assert_eq!(present(words.clone()), words);
        }
        let help = |line: &str| present(line.split(' ').map(OsString::from)).join(" ".as_ref());
        assert_eq!(help("bulkhead admin"), "bulkhead");
        assert_eq!(help("bulkhead admin --help"), "bulkhead --help");
        assert_eq!(help("bulkhead admin tasks --help"), "bulkhead tasks --help");
    }
}
