//! Comments end where code ends.

use crate::Finding;
use crate::repository::Repository;

/// The width of a line, of comments as of code (`max_width` of rustfmt, which leaves comments as they are).
const WIDTH: usize = 120;

/// Folders with Rust of our own.
const FOLDERS: [&str; 3] = ["host", "plugins", "tests"];

pub(crate) fn check(repository: &Repository) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for folder in FOLDERS {
        let files = repository.files(folder)?;
        for path in files.iter().filter(|path| path.extension().is_some_and(|is| is == "rs")) {
            let path = format!("{folder}/{}", path.display());
            findings.extend(too_wide(&path, &repository.text(&path)?));
        }
    }
    Ok(findings)
}

fn too_wide(path: &str, text: &str) -> Vec<Finding> {
    let is_wide = |line: &str| line.trim_start().starts_with("//") && line.chars().count() > WIDTH;
    let wide = text.lines().zip(1..).filter(|(line, _)| is_wide(line));
    wide.map(|(_, number)| format!("{path}:{number}: a comment of more than {WIDTH} characters; wrap it")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comment_that_is_wider_than_code_is_found() {
        let text =
            format!("// {}\n    /// {}\nlet long = \"// {}\";\n", "é".repeat(117), "a".repeat(112), "b".repeat(200));
        assert_eq!(too_wide("a.rs", &text), Vec::<Finding>::new());
        let wide = format!("fn a() {{}}\n    //! {}\n", "a".repeat(113));
        assert_eq!(too_wide("a.rs", &wide), ["a.rs:2: a comment of more than 120 characters; wrap it"]);
    }
}
