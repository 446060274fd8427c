//! `cargo xtask docs`: writes the pages that are generated, and checks every Markdown file of the repository.
//!
//! Owns which page comes from which program, and the form of pages: links, snippets, length. Must not know what the
//! generated pages say: the host and tidy write them. Invariant: `--check` changes nothing, and everything wrong is
//! printed before it fails.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use xtask::{layout, serve, steps};

use crate::suite;

/// What to do, and with which host.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Change nothing; fail if a generated page is stale.
    #[arg(long)]
    pub(crate) check: bool,
    /// The program `bulkhead` that writes its pages; it is built if none is named.
    #[arg(long, value_name = "FILE")]
    pub(crate) host: Option<PathBuf>,
}

/// The pages that the host writes, by the word that it takes for each. That of the command line repeats `--help`, and
/// is made for packages only.
const HOST_PAGES: [&str; 4] = ["configuration", "errors", "metrics", "client-setup"];
const REFERENCE: &str = "host/docs/reference";
/// Folders that hold nothing of ours.
const FOREIGN: [&str; 4] = ["target", "node_modules", ".git", ".venv"];

const README_WORDS_MAX: usize = 900;
const PAGE_WORDS_MAX: usize = 1_200;
/// Pages that are looked things up in, however long they are.
const REFERENCES: [&str; 3] = [REFERENCE, "host/docs/contributing/requirements", "host/docs/contributing/glossary.md"];

/// Writes the generated pages, or compares them, and checks every page.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mut findings = Vec::new();
    for (path, text) in generated(options)? {
        let file = layout::root().join(&path);
        if std::fs::read_to_string(&file).is_ok_and(|there| there == text) {
            continue;
        }
        if options.check {
            findings.push(format!("{path} is stale: run `cargo xtask docs`"));
        } else {
            std::fs::write(&file, text).with_context(|| format!("cannot write {path}"))?;
            eprintln!("xtask: wrote {path}");
        }
    }
    let pages = Pages::read(&layout::root())?;
    anyhow::ensure!(pages.0.len() > 20, "only {} Markdown files: where are the documents?", pages.0.len());
    findings.extend(pages.wrong_links(&layout::root()));
    for (path, text) in &pages.0 {
        findings.extend(wrong_form(path, text));
        findings.extend(wrong_snippets(path, text)?);
    }
    for finding in &findings {
        eprintln!("docs: {finding}");
    }
    if !findings.is_empty() {
        bail!("documents: {} findings", findings.len());
    }
    Ok(())
}

/// The generated pages by their paths.
fn generated(options: &Options) -> anyhow::Result<Vec<(String, String)>> {
    let host = match &options.host {
        Some(host) => host.clone(),
        None => {
            steps::run("build the host", steps::cargo().args(serve::HOST))?;
            built_host()?
        }
    };
    let mut pages = Vec::new();
    for page in HOST_PAGES {
        let text = steps::output(Command::new(&host).args(["reference", page]))?;
        pages.push((format!("{REFERENCE}/{page}.md"), text));
    }
    let bounds = steps::output(suite::run_tidy().arg("--").arg("--bounds"))?;
    pages.push((format!("{REFERENCE}/bounds.md"), bounds));
    Ok(pages)
}

/// The host that `cargo build` and `cargo test` make.
///
/// # Errors
/// There is none: it was not built, or into another folder than this program.
pub(crate) fn built_host() -> anyhow::Result<PathBuf> {
    let host = host_beside(&std::env::current_exe().context("this program has no path")?);
    anyhow::ensure!(host.is_file(), "{} is missing: run `cargo build --workspace --bin bulkhead`", host.display());
    Ok(host)
}

/// The host in the build folder that this program is in. `cargo xtask` has a profile of its own, and so a folder of its
/// own beside that of the host.
fn host_beside(program: &Path) -> PathBuf {
    let build = program.ancestors().nth(2).unwrap_or(program);
    build.join("debug").join("bulkhead")
}

/// Every Markdown file by its path from the repository's root.
struct Pages(BTreeMap<String, String>);

impl Pages {
    fn read(root: &Path) -> anyhow::Result<Self> {
        let mut pages = BTreeMap::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
                let entry = entry?;
                let path = entry.path();
                let name = entry.file_name();
                if entry.file_type()?.is_dir() {
                    if !FOREIGN.iter().any(|foreign| name == *foreign) {
                        folders.push(path);
                    }
                } else if path.extension().is_some_and(|extension| extension == "md") {
                    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                    pages.insert(path.strip_prefix(root)?.display().to_string(), text);
                }
            }
        }
        Ok(Self(pages))
    }

    /// Links to files that are not there, and to headings that a page does not have. Other sites are not asked.
    fn wrong_links(&self, root: &Path) -> Vec<String> {
        let anchors: BTreeMap<_, _> = self.0.iter().map(|(path, text)| (path.as_str(), anchors(text))).collect();
        let mut findings = Vec::new();
        for (path, text) in &self.0 {
            for link in links(text) {
                if link.contains("://") || link.starts_with("mailto:") {
                    continue;
                }
                let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
                let target = if file.is_empty() { Some(path.clone()) } else { resolved(path, file) };
                let Some(target) = target.filter(|target| root.join(target).exists()) else {
                    findings.push(format!("{path}: there is no {link}"));
                    continue;
                };
                let has_anchor = anchors.get(target.as_str()).is_some_and(|anchors| anchors.contains(anchor));
                if !anchor.is_empty() && !has_anchor {
                    findings.push(format!("{path}: {target} has no heading #{anchor}"));
                }
            }
        }
        findings
    }
}

/// A path as it is written on a page, from the repository's root; `None` if it leaves the repository.
fn resolved(page: &str, link: &str) -> Option<String> {
    let mut parts: Vec<_> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// A block of code: the word behind its fence, the line on which it begins, and its text.
struct Block {
    language: String,
    line: usize,
    text: String,
}

/// The lines of a page that are no code, and its blocks of code.
fn divided(text: &str) -> (Vec<&str>, Vec<Block>) {
    let mut prose = Vec::new();
    let mut blocks = Vec::new();
    let mut open: Option<(usize, Block)> = None;
    for (number, line) in text.lines().enumerate() {
        let content = line.trim_start();
        let indent = line.len() - content.len();
        match (&mut open, content.strip_prefix("```")) {
            (None, Some(language)) => {
                let language = language.trim().to_owned();
                open = Some((indent, Block { language, line: number + 1, text: String::new() }));
            }
            (None, None) => prose.push(line),
            (Some(_), Some("")) => blocks.extend(open.take().map(|(_, block)| block)),
            (Some((indent, block)), _) => {
                block.text.push_str(line.get(*indent..).unwrap_or(content));
                block.text.push('\n');
            }
        }
    }
    blocks.extend(open.map(|(_, block)| block));
    (prose, blocks)
}

/// A line without what stands in backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// The targets of links and pictures.
fn links(text: &str) -> Vec<String> {
    let (prose, _) = divided(text);
    let mut found = Vec::new();
    for line in prose {
        let line = without_code(line);
        for (begin, end) in [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"'), ("href=\"", '"')] {
            let targets = line.split(begin).skip(1).filter_map(|rest| rest.split_once(end));
            found.extend(targets.map(|(target, _)| target.trim().to_owned()));
        }
    }
    found
}

/// The names that links to headings use: letters, digits, dashes and underscores of the heading, a number behind one
/// that repeats.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in divided(text).0 {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let title = title.trim().to_lowercase().replace(' ', "-");
        let name: String = title.chars().filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter)).collect();
        let taken = (1..).map(|count| format!("{name}-{count}"));
        let name = std::iter::once(name.clone()).chain(taken).find(|name| !found.contains(name));
        found.extend(name);
    }
    found
}

/// Pages that are too long, or do not begin with their readers.
fn wrong_form(path: &str, text: &str) -> Vec<String> {
    let is_page = path.starts_with("host/docs/") || path.starts_with("plugins/docs/");
    let is_reference = REFERENCES.iter().any(|reference| path.starts_with(reference));
    let words_max = match path {
        "README.md" => README_WORDS_MAX,
        "plugins/README.md" => PAGE_WORDS_MAX,
        _ if is_page && !is_reference => PAGE_WORDS_MAX,
        _ => usize::MAX,
    };
    let words = text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
    let mut findings = Vec::new();
    if words > words_max {
        findings.push(format!("{path} has {words} words; {words_max} is the most"));
    }
    let first = text.lines().skip(1).find(|line| !line.is_empty()).unwrap_or_default();
    if is_page && !path.starts_with("host/docs/contributing/requirements") && !first.starts_with("For ") {
        findings.push(format!("{path}: begin with who it is for: `For operators. …`"));
    }
    findings
}

/// Blocks of shell, TOML, JSON and Python that do not parse.
fn wrong_snippets(path: &str, text: &str) -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    for Block { language, line, text } in divided(text).1 {
        let problem = match language.as_str() {
            "sh" | "bash" => parsed_by(Command::new("bash").arg("-n"), &text)?,
            "toml" => toml::from_str::<toml::Table>(&text).err().map(|error| error.message().to_owned()),
            "json" => serde_json::from_str::<serde_json::Value>(&text).err().map(|error| error.to_string()),
            // Without Python its guests are not built either.
            "python" if steps::output(Command::new("python3").arg("--version")).is_ok() => {
                parsed_by(Command::new("python3").args(["-c", "import ast, sys; ast.parse(sys.stdin.read())"]), &text)?
            }
            _ => None,
        };
        findings.extend(problem.map(|problem| format!("{path}:{line}: this {language} does not parse: {problem}")));
    }
    Ok(findings)
}

/// What a program that reads a text from stdin says is wrong with it.
fn parsed_by(command: &mut Command, text: &str) -> anyhow::Result<Option<String>> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that has seen enough closes its end; its verdict counts.
        let _ = stdin.write_all(text.as_bytes());
    }
    let output = child.wait_with_output()?;
    Ok((!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(texts: &[(&str, &str)]) -> Pages {
        Pages(texts.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    #[test]
    fn host_is_that_of_cargo_build_whatever_profile_this_program_has() {
        for profile in ["debug", "xtask"] {
            assert_eq!(
                host_beside(&Path::new("/src/target").join(profile).join("xtask")),
                Path::new("/src/target/debug/bulkhead")
            );
        }
    }

    #[test]
    fn dead_links_are_found() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("a")).unwrap();
        let first = "# One\n[b](b.md#the-second-part) [c](c.md) [up](../../x) ![p](p.svg)\n`[code](d.md)` <img src=\"q.svg\">\n\
            ```sh\n[[ x ]](e.md)\n```\n[web](https://example.com/none) [here](#one) [not here](#two) [b](b.md#other)\n";
        let second = "# `The` second part?\n## The second part\n[self](#the-second-part-1)\n";
        let pages = pages(&[("a/a.md", first), ("a/b.md", second)]);
        for (path, text) in &pages.0 {
            std::fs::write(root.path().join(path), text).unwrap();
        }
        assert_eq!(
            pages.wrong_links(root.path()),
            [
                "a/a.md: there is no c.md",
                "a/a.md: there is no ../../x",
                "a/a.md: there is no p.svg",
                "a/a.md: there is no q.svg",
                "a/a.md: a/a.md has no heading #two",
                "a/a.md: a/b.md has no heading #other",
            ]
        );
    }

    #[test]
    fn snippets_that_do_not_parse_are_found() {
        let text = "# x\n```sh\nif true\n```\n- item\n  ```toml\n  [a]\n  b = 1\n  ```\n```toml\n[a\n```\n```json\n{\"a\": 1,}\n```\n\
            ```json\n{}\n```\n```sh\necho 'fine'\n```\n```text\n[a\n```\n";
        let findings = wrong_snippets("x.md", text).unwrap();
        let places: Vec<_> = findings.iter().map(|finding| finding.split(" does").next().unwrap()).collect();
        assert_eq!(places, ["x.md:2: this sh", "x.md:10: this toml", "x.md:13: this json"]);
    }

    #[test]
    fn long_pages_and_pages_without_readers_are_found() {
        let long = format!("# x\n\nFor operators. {}", "word ".repeat(PAGE_WORDS_MAX));
        assert_eq!(wrong_form("host/docs/concepts.md", &long).len(), 1);
        assert!(wrong_form("host/docs/reference/configuration.md", &long).is_empty());
        assert_eq!(wrong_form("README.md", &long).len(), 1);
        assert_eq!(wrong_form("host/docs/security.md", "# x\n\nThis page is short.").len(), 1);
        assert!(wrong_form("plugins/sdk/rust/README.md", "# x\n\nThis page is short.").is_empty());
    }
}
