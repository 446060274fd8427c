//! What the terminal of a command can show.
//!
//! Must not write anything. Invariant: pipes and files get neither colours nor lines that are written over.

use std::ffi::OsString;
use std::io::IsTerminal;

/// Whether colours may be written there: to a terminal that knows them, unless `NO_COLOR` is set.
pub(super) fn has_colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && colours_allowed(|name| std::env::var_os(name))
}

fn colours_allowed(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let refused = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refused && variable("TERM").is_none_or(|name| name != "dumb")
}

/// How many columns stdout has; `None` where it is no terminal. `COLUMNS` wins over what the terminal says.
pub(super) fn columns() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let width = std::env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok()).filter(|columns| *columns > 0);
    width.or_else(|| terminal_size::terminal_size_of(&stdout).map(|(columns, _)| usize::from(columns.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_and_dumb_terminals_turn_colours_off() {
        let with = |set: &'static [(&'static str, &'static str)]| {
            colours_allowed(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
        };
        assert!(with(&[]) && with(&[("NO_COLOR", ""), ("TERM", "xterm")]));
        assert!(!with(&[("NO_COLOR", "1"), ("TERM", "xterm")]));
        assert!(!with(&[("TERM", "dumb")]));
    }
}
