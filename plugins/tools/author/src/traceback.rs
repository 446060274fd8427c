//! What went wrong in a plugin's Python module, out of what componentize-py prints.
//!
//! Owns the form of that text: a traceback of componentize-py itself around that of the module, whose paths are those inside of the
//! guest, and the exception a second time under "Caused by". Invariant: what is not of this form is not touched.

/// The folders as the guest sees them, in the order in which they are given to componentize-py.
const ENTRY: &str = "/0/";
const PROJECT: &str = "/1/";
const SDK: &str = "/2/";

const OUTER: &str = "AssertionError: ";
const CAUSE: &str = "\n\nCaused by:\n";
const HEADER: &str = "Traceback (most recent call last):";

/// An exception that left the module.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Uncaught {
    /// What the module printed, and the way to the exception through the author's own files. Ends in a line end, or is empty.
    pub(crate) before: String,
    /// Its type and text, often one line.
    pub(crate) exception: String,
}

/// The exception, if the text ends in one.
pub(crate) fn read(text: &str) -> Option<Uncaught> {
    let (_, inner) = text.split_once(OUTER)?;
    let (inner, _) = inner.rsplit_once(CAUSE)?;
    let lines: Vec<&str> = inner.trim_end().lines().collect();
    let last_frame = lines.iter().rposition(|line| line.starts_with("  File \""))?;
    let code = lines.iter().skip(last_frame + 1).take_while(|line| line.starts_with("    ")).count();
    let (before, exception) = lines.split_at_checked(last_frame + 1 + code)?;
    Some(Uncaught { before: own(before), exception: exception.join("\n") })
}

/// The lines without the frames of the SDK and of the build, under the names that the author knows.
fn own(lines: &[&str]) -> String {
    let mut kept: Vec<String> = Vec::new();
    let mut is_foreign = false;
    for line in lines {
        let path = line.strip_prefix("  File \"");
        if let Some(path) = path {
            is_foreign = path.starts_with(ENTRY) || path.starts_with(SDK);
        } else if !line.starts_with("    ") {
            is_foreign = false;
        }
        if !is_foreign {
            let own = path.and_then(|path| path.strip_prefix(PROJECT));
            kept.push(own.map_or_else(|| (*line).to_owned(), |path| format!("  File \"{path}")));
        }
    }
    // A traceback through other files alone.
    if kept.last().is_some_and(|line| line == HEADER) {
        kept.pop();
    }
    kept.iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As componentize-py 0.25.1 says it, with RUST_BACKTRACE set.
    fn said(inner: &str, cause: &str) -> String {
        format!(
            "{HEADER}\n  File \"/venv/bin/componentize-py\", line 8, in <module>\n    sys.exit(script())\n             ^^^^^^^^\n\
             {OUTER}{inner}\n\n{CAUSE}    {cause}\n\nStack backtrace:\n   0: <anyhow::Error>::msg::<alloc::string::String>\n"
        )
    }

    #[test]
    fn traceback_keeps_author_frames_and_one_exception() {
        let inner = "hello\nTraceback (most recent call last):\n  File \"/0/bulkhead_entry.py\", line 1, in <module>\n    import plugin\n  \
                     File \"/1/plugin.py\", line 3, in <module>\n    @tool\n     ^^^^\n  File \"/2/bulkhead_plugin/_tool.py\", line 80, in tool\n    \
                     return _register(function)\nTypeError: tool mute: write a docstring";
        let uncaught = read(&said(inner, "TypeError: tool mute: write a docstring")).unwrap();
        assert_eq!(uncaught.exception, "TypeError: tool mute: write a docstring");
        let before = "hello\nTraceback (most recent call last):\n  File \"plugin.py\", line 3, in <module>\n    @tool\n     ^^^^\n";
        assert_eq!(uncaught.before, before);
    }

    #[test]
    fn traceback_keeps_multiline_text_and_cause() {
        let inner = "Traceback (most recent call last):\n  File \"/1/helper.py\", line 3, in f\n    {}[\"a\"]\n    ~~^^^^^\nKeyError: 'a'\n\n\
                     The above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  \
                     File \"/0/bulkhead_entry.py\", line 1, in <module>\n    import plugin\n  File \"/1/helper.py\", line 6, in <module>\n    f()\n    ~^^\n\
                     ValueError: first\n  second\nthird";
        let uncaught = read(&said(inner, "ValueError: first\n      second\n    third")).unwrap();
        assert_eq!(uncaught.exception, "ValueError: first\n  second\nthird");
        assert!(
            uncaught.before.contains("KeyError: 'a'\n\nThe above") && !uncaught.before.contains("/0/"),
            "{uncaught:?}"
        );
    }

    #[test]
    fn exception_without_author_frames_has_no_traceback() {
        let inner = "Traceback (most recent call last):\n  File \"/0/bulkhead_entry.py\", line 4, in <module>\n    _offers.check(set([]))\n  \
                     File \"/2/bulkhead_plugin/_offers.py\", line 3, in check\n    raise TypeError(\nTypeError: the plugin has prompts";
        let uncaught = read(&said(inner, "TypeError: the plugin has prompts")).unwrap();
        assert_eq!(
            uncaught,
            Uncaught { before: String::new(), exception: "TypeError: the plugin has prompts".to_owned() }
        );
    }

    #[test]
    fn text_without_traceback_is_left_alone() {
        for text in ["", "AssertionError: no such world", &said("hello", "Exited with i32 exit status 1")] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
