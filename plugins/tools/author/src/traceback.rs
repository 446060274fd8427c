//! What went wrong in a plugin's Python module, out of what componentize-py prints.
//!
//! Owns the form of that text: a traceback of componentize-py itself around that of the module, whose paths are those
//! inside of the guest, and the exception a second time under "Caused by". Invariant: what is not of this form is not
//! touched.

/// Folders as the guest sees them: the second and third of those that are given to componentize-py.
const PROJECT: &str = "/1/";
const SDK: &str = "/2/";

const OUTER: &str = "AssertionError: ";
const CAUSE: &str = "\n\nCaused by:\n";
const HEADER: &str = "Traceback (most recent call last):";

const FRAME: &str = "  File \"";

/// An exception that left the module.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Uncaught {
    /// What the module printed before. Ends in a line end, or is empty.
    pub(crate) before: String,
    /// The innermost place in a file of the author's, the exception, and the code of that place.
    pub(crate) mistake: String,
}

/// The exception, if the text ends in one.
pub(crate) fn read(text: &str) -> Option<Uncaught> {
    let (_, inner) = text.split_once(OUTER)?;
    let (inner, _) = inner.rsplit_once(CAUSE)?;
    let lines: Vec<&str> = inner.trim_end().lines().collect();
    let first = lines.iter().position(|line| *line == HEADER)?;
    // Of exceptions that led to one another, the last.
    let last = lines.iter().rposition(|line| *line == HEADER)?;
    let frames = frames(lines.get(last + 1..)?);
    let innermost = frames.last()?;
    let begin = last + 1 + innermost.end;
    let mut exception = lines.get(begin..)?.join("\n");
    if innermost.path.starts_with(SDK) {
        // The SDK says what is wrong with the plugin; that it is raised as a type's error is no help.
        exception = exception.strip_prefix("TypeError: ").map(str::to_owned).unwrap_or(exception);
    }
    let own = frames.iter().rev().find_map(|frame| Some((frame, frame.path.strip_prefix(PROJECT)?)));
    let mistake = match own {
        Some((frame, path)) => format!("{path}:{}: {exception}{}", frame.line, frame.excerpt()),
        None => format!("plugin.py: {exception}"),
    };
    let before = lines.get(..first)?.iter().map(|line| format!("{line}\n")).collect();
    Some(Uncaught { before, mistake })
}

/// One place on the way to an exception.
struct Frame<'a> {
    path: &'a str,
    line: &'a str,
    /// The code, with what is marked in it.
    code: Vec<&'a str>,
    /// Lines from the first frame to the end of this one.
    end: usize,
}

impl Frame<'_> {
    fn excerpt(&self) -> String {
        let empty = " ".repeat(self.line.len());
        let lines = self.code.iter().enumerate();
        lines.map(|(at, code)| format!("\n {} | {code}", if at == 0 { self.line } else { &empty })).collect()
    }
}

fn frames<'a>(lines: &[&'a str]) -> Vec<Frame<'a>> {
    let mut frames: Vec<Frame<'a>> = Vec::new();
    for (at, line) in lines.iter().copied().enumerate() {
        let place = line.strip_prefix(FRAME).and_then(|rest| rest.split_once("\", line "));
        if let Some((path, rest)) = place {
            let line = rest.split(',').next().unwrap_or(rest);
            frames.push(Frame { path, line, code: Vec::new(), end: at + 1 });
        } else if let Some(code) = line.strip_prefix("    ")
            && let Some(frame) = frames.last_mut().filter(|frame| frame.end == at)
        {
            frame.code.push(code);
            frame.end = at + 1;
        }
    }
    frames
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
    fn mistake_is_innermost_own_place_with_its_code() {
        let inner = "hello\nTraceback (most recent call last):\n  File \"/0/bulkhead_entry.py\", line 1, in <module>\n    import plugin\n  \
                     File \"/1/plugin.py\", line 13, in <module>\n    @tool\n     ^^^^\n  File \"/2/bulkhead_plugin/_tool.py\", line 80, in tool\n    \
                     return _register(function)\nTypeError: tool mute: write a docstring";
        let uncaught = read(&said(inner, "TypeError: tool mute: write a docstring")).unwrap();
        assert_eq!(uncaught.mistake, "plugin.py:13: tool mute: write a docstring\n 13 | @tool\n    |  ^^^^");
        assert_eq!(uncaught.before, "hello\n");
    }

    #[test]
    fn mistake_of_exceptions_in_a_row_is_the_last_one() {
        let inner = "Traceback (most recent call last):\n  File \"/1/helper.py\", line 3, in f\n    {}[\"a\"]\n    ~~^^^^^\nKeyError: 'a'\n\n\
                     The above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  \
                     File \"/0/bulkhead_entry.py\", line 1, in <module>\n    import plugin\n  File \"/1/helper.py\", line 6, in <module>\n    f()\n    ~^^\n\
                     ValueError: first\n  second\nthird";
        let uncaught = read(&said(inner, "ValueError: first\n      second\n    third")).unwrap();
        let mistake = "helper.py:6: ValueError: first\n  second\nthird\n 6 | f()\n   | ~^^".to_owned();
        assert_eq!(uncaught, Uncaught { before: String::new(), mistake });
    }

    #[test]
    fn mistake_of_syntax_is_where_it_does_not_parse() {
        let inner = "Traceback (most recent call last):\n  File \"/0/bulkhead_entry.py\", line 1, in <module>\n    import plugin\n  \
                     File \"/1/plugin.py\", line 5\n    def f(:\n          ^\nSyntaxError: invalid syntax";
        let uncaught = read(&said(inner, "  File \"/1/plugin.py\", line 5\n    SyntaxError: invalid syntax")).unwrap();
        assert_eq!(uncaught.mistake, "plugin.py:5: SyntaxError: invalid syntax\n 5 | def f(:\n   |       ^");
    }

    #[test]
    fn mistake_without_own_place_is_of_the_whole_plugin() {
        let inner = "Traceback (most recent call last):\n  File \"/0/bulkhead_entry.py\", line 4, in <module>\n    _offers.check(set([]))\n  \
                     File \"/2/bulkhead_plugin/_offers.py\", line 3, in check\n    raise TypeError(\nTypeError: the plugin has prompts";
        let uncaught = read(&said(inner, "TypeError: the plugin has prompts")).unwrap();
        assert_eq!(uncaught.mistake, "plugin.py: the plugin has prompts");
    }

    #[test]
    fn text_without_traceback_is_left_alone() {
        for text in ["", "AssertionError: no such world", &said("hello", "Exited with i32 exit status 1")] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
