//! Earlier spellings of commands: `bulkhead admin …` was a tree of its own, and scripts have it.

use serde_json::json;
use tests::client::{Client, all_capabilities};
use tests::wait::until;
use tests::{Host, Setup, command};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// An earlier spelling and the present one. `{task}` and `{token}` are made anew for each; `{afar}` is the administrators' listener.
const SPELLINGS: &[(&str, &str)] = &[
    ("admin tasks list", "tasks list --page"),
    ("admin tasks list --max 1", "tasks list --max 1 --page"),
    ("admin tasks list --tenant acme --status running", "tasks list --tenant acme --status running --page"),
    ("admin tasks list --plugin text", "tasks list --plugin text --page"),
    ("admin tasks list --status nonsense", "tasks list --status nonsense --page"),
    ("admin tasks inspect {task}", "tasks show {task}"),
    ("tasks inspect {task}", "tasks show {task}"),
    ("admin tasks inspect 00", "tasks show 00"),
    ("admin tasks pause {task} --message later", "tasks pause {task} --message later --batch"),
    ("admin tasks resume {task}", "tasks resume {task} --batch"),
    ("admin tasks cancel {task} 00", "tasks cancel {task} 00"),
    ("admin tasks cancel {task}", "tasks cancel --batch {task}"),
    ("admin tasks cancel --plugin text", "tasks cancel --plugin text"),
    ("admin tasks purge {task}", "tasks purge {task} --batch"),
    ("admin tasks purge", "tasks purge --batch"),
    ("admin tasks cancel {task} --plugin desk", "tasks cancel --batch {task} --plugin desk"),
    ("admin limits", "limits"),
    ("admin limits --tenant acme --requestor anna --max 3", "limits --tenant acme --requestor anna --max 3"),
    ("admin tokens list", "token list"),
    ("admin tokens revoke {token}", "token revoke {token}"),
    ("admin tokens revoke nothing", "token revoke nothing"),
    ("admin reload --check", "host reload --check"),
    ("admin reload", "host reload"),
    ("admin drain --status", "host status"),
    ("admin {afar} limits", "limits {afar}"),
    ("admin {afar} tasks list", "tasks list --page {afar}"),
    ("admin tasks {afar} inspect {task}", "tasks show {task} {afar}"),
    ("admin {afar} tokens list", "token list {afar}"),
    ("admin {afar} reload --check", "host reload --check {afar}"),
    ("admin --url http://127.0.0.1:1 limits", "limits --url http://127.0.0.1:1"),
    // From here on the host takes nothing new.
    ("admin drain --no-wait", "host drain --no-wait"),
    ("admin drain --status", "host drain --status"),
    ("admin drain --undo", "host drain --undo"),
    ("admin", ""),
    ("admin tasks", "tasks"),
];

/// Makes what a spelling names, and runs it; what it said, with the names of what was made in place of their ids.
struct Runner<'a> {
    host: &'a Host,
    anna: &'a Client,
    afar: String,
}

impl Runner<'_> {
    async fn task(&self) -> String {
        let task = self.anna.task("wait", json!({"ms": 600_000})).await;
        until("the task to run", async || {
            let shown = command::json(&["tasks", "show", &task], &self.host.setup.data()).await;
            (shown["status"] == "running").then_some(())
        })
        .await;
        task
    }

    async fn run(&self, line: &str, is_json: bool) -> String {
        let data = self.host.setup.data();
        let mut made = Vec::new();
        if line.contains("{task}") {
            made.push(("{task}", self.task().await));
        }
        if line.contains("{token}") {
            let token = command::json(&["token", "create", "--requestor", "ci"], &data).await;
            made.push(("{token}", token["id"].as_str().expect("an id").to_owned()));
        }
        let mut filled = line.replace("{afar}", &self.afar);
        for (name, id) in &made {
            filled = filled.replace(name, id);
        }
        let is_help = ["", "admin", "tasks", "admin tasks"].contains(&line);
        if is_json && !is_help {
            filled.push_str(" --json");
        }
        let mut arguments: Vec<&str> = filled.split_whitespace().collect();
        let data = data.to_str().expect("a path");
        if !line.contains("afar") && !line.contains("--url") && !is_help {
            arguments.extend(["--data", data]);
        }
        let output = command::output(&mut command::bulkhead(), &arguments, None).await;
        let said = format!(
            "{:?}\n{}\n{}",
            output.status.code(),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let mut said = made.iter().fold(said, |said, (name, id)| said.replace(id, name));
        if !made.is_empty() {
            said = without_numbers(&said);
        }
        without_spans(&said)
    }
}

/// How often a pair of spellings is compared anew.
const AGAIN_MAX: usize = 5;

/// Times and counts of one task are not those of another.
fn without_numbers(said: &str) -> String {
    let words = said.split_inclusive(|character: char| !character.is_ascii_alphanumeric());
    let word = |word: &str| {
        let end = word.trim_end_matches(|character: char| !character.is_ascii_alphanumeric());
        let is_number = !end.is_empty()
            && end.bytes().all(|byte| byte.is_ascii_hexdigit())
            && end.bytes().any(|byte| byte.is_ascii_digit());
        if is_number { word.replacen(end, "#", 1) } else { word.to_owned() }
    };
    words.map(word).collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// "3s ago" is another moment than "4s ago".
fn without_spans(said: &str) -> String {
    let is_span = |word: &str| {
        word.strip_suffix('s')
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let lines = said.lines().map(|line| {
        let words = line.split_whitespace().map(|word| if is_span(word) { "#s" } else { word });
        words.collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn earlier_spellings_say_what_the_present_ones_say() {
    let setup = Setup::with(&["desk", "text"]);
    let file = setup.path("admin.token");
    std::fs::write(&file, TOKEN).expect("a file");
    let setup = setup.config(&format!("[admin]\nlisten = \"127.0.0.1:0\"\ntoken_file = {file:?}"));
    let token = setup.token("anna", "acme").await;
    let host = setup.start().await;
    let anna = Client::connect_as(&host, Some(&token), all_capabilities()).await;
    let url = super::admin::listener(&host).await;
    let runner = Runner { host: &host, anna: &anna, afar: format!("--url {url} --token-file {}", file.display()) };
    runner.task().await;
    for (earlier, now) in SPELLINGS {
        for is_json in [false, true] {
            let mut said = [runner.run(earlier, is_json).await, runner.run(now, is_json).await];
            // A task that goes on between the two is counted elsewhere by the second; what really differs differs each time.
            for _ in 0..AGAIN_MAX {
                if said[0] == said[1] {
                    break;
                }
                said = [runner.run(earlier, is_json).await, runner.run(now, is_json).await];
            }
            assert_eq!(said[0], said[1], "{earlier}: {now}");
        }
    }
}
