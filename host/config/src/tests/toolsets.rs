//! Entries of toolsets and how tools are listed.

use super::*;
use bulkhead_domain::toolset::{Hint, ToolFilter, Toolset};

#[test]
fn toolset_is_read() {
    let text = "[server]\ntools_per_page = 7\ntool_search = true\n\
        [[toolset]]\nname = 'support'\ntenants = ['acme']\nrequestors = ['anna']\ntool_search = false\n\
        include = { plugins = ['crm'], tools = ['text_*'], annotations = { read_only = true } }\n\
        [toolset.exclude]\nannotations = { destructive = true, open_world = false }\n\
        [[toolset]]\nname = 'rest'";
    let config = load(text).unwrap();
    assert_eq!((config.server.tools_per_page, config.server.tool_search), (7, true));
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let support = Toolset {
        name: "support".to_owned(),
        tenants: names(&["acme"]),
        requestors: names(&["anna"]),
        include: Some(ToolFilter {
            plugins: names(&["crm"]),
            tools: names(&["text_*"]),
            hints: vec![(Hint::ReadOnly, true)],
        }),
        exclude: ToolFilter {
            hints: vec![(Hint::Destructive, true), (Hint::OpenWorld, false)],
            ..ToolFilter::default()
        },
        tool_search: Some(false),
    };
    let rest = Toolset { name: "rest".to_owned(), ..Toolset::default() };
    assert_eq!(config.toolsets, [support, rest]);
    let plain = load("").unwrap();
    assert_eq!((plain.server.tools_per_page, plain.server.tool_search), (200, false));
}

#[test]
fn toolset_mistakes_are_refused_with_their_place() {
    let refused = |line: &str, begins: &str, why: &str| {
        refused_once(&format!("[[toolset]]\nname = 'a'\n{line}"), &format!("etc/bulkhead.toml:{begins}"), why);
    };
    refused("tokens = ['x']", "3: toolset.a.tokens: no such key", "there are name, tenants, requestors,");
    refused("tenants = []", "1: toolset.a.tenants: is empty", "leave it out for all");
    refused("tenants = ['a b']", "3: toolset.a.tenants: a name has", "");
    refused("requestors = ['']", "3: toolset.a.requestors: must not be empty", "");
    refused("include = {}", "3: toolset.a.include: names nothing", "or leave it out");
    refused("exclude = { tools = [] }", "3: toolset.a.exclude: names nothing", "");
    refused("include = { names = ['x'] }", "3: toolset.a.include.names: no such key", "plugins, tools and annotations");
    refused("include = { tools = 'x' }", "3: toolset.a.include.tools: must be a list", "");
    refused(
        "exclude = { annotations = { readOnlyHint = true } }",
        "3: toolset.a.exclude.annotations.readOnlyHint: no such annotation",
        "read_only",
    );
    refused("tool_search = 1", "3: toolset.a.tool_search: must be true or false", "");
    refused(
        &format!("include = {{ tools = ['{}'] }}", "x".repeat(513)),
        "3: toolset.a.include.tools:",
        "512 is the most",
    );
    refused_once("[[toolset]]\ntenants = ['a']", "etc/bulkhead.toml:1: toolset.?.name: missing", "");
    refused_once("[toolset]\nname = 'a'", "etc/bulkhead.toml:1: toolset: write [[toolset]]", "");
    let twice = "[[toolset]]\nname = 'a'\n[[toolset]]\nname = 'a'";
    refused_once(twice, "etc/bulkhead.toml:3: toolset.name: \"a\" is already the toolset at etc/bulkhead.toml:1", "");
    let many: String = (0..257).map(|at| format!("[[toolset]]\nname = 'a{at}'\n")).collect();
    refused_once(&many, "etc/bulkhead.toml:", "toolset: there are 257 toolsets; 256 is the most");
    refused_once("[server]\ntools_per_page = 0", "etc/bulkhead.toml:2: server.tools_per_page: must not be 0", "");
    refused_once("[server]\ntools_per_page = 1001", "etc/bulkhead.toml:2: server.tools_per_page:", "maximum of 1000");
}

#[test]
fn tool_name_and_hiding_are_configured() {
    let config = load("[[plugin]]\nfile='a'\n[plugin.tool.echo]\nname='say'\nhidden=true\n[plugin.tool.diff]").unwrap();
    let tools = &config.plugins[0].policy.source.tools;
    assert_eq!((tools["echo"].name.as_deref(), tools["echo"].hidden), (Some("say"), true));
    assert_eq!((tools["diff"].name.as_deref(), tools["diff"].hidden), (None, false));
    let refused = |line: &str, why: &str| {
        refused_once(&format!("[[plugin]]\nfile='a'\n[plugin.tool.t]\n{line}"), "etc/bulkhead.toml:4:", why);
    };
    refused("name = 'two words'", "plugin.?.tool.t.name: the name of a tool has 1 to 128 characters");
    refused("name = ''", "1 to 128 characters");
    refused("name = 'search_tools'", "is a tool of the host itself");
    refused("hidden = 'yes'", "must be true or false");
}

#[test]
fn names_inside_plugins_are_refused_with_the_names_that_clients_see() {
    let key = |name: &str| format!("[[plugin]]\nfile='a'\n[plugin.tool.\"{name}\"]\nhidden=true");
    let refused = |name: &str, shown: &str| {
        let why = format!("clients see no tool by this name, but {shown:?}: write that");
        refused_once(&key(name), &format!("etc/bulkhead.toml:3: plugin.?.tool.{name}: "), &why);
    };
    refused("acme.units.to-feet", "acme_units_to-feet");
    let long = "x".repeat(65);
    refused(&long, &bulkhead_domain::tool_names::portable(&[&long])[0]);
    assert!(load(&key("acme_units_to-feet")).is_ok());

    let set = |line: &str| format!("[[toolset]]\nname = 'a'\n{line}");
    let lists = [
        (
            set("exclude = { tools = ['acme.*'] }"),
            "etc/bulkhead.toml:1: toolset.a.exclude.tools: \"acme.*\"",
            "\"acme_*\"",
        ),
        (
            set("include = { tools = ['acme.x'] }"),
            "etc/bulkhead.toml:1: toolset.a.include.tools: \"acme.x\"",
            "\"acme_x\"",
        ),
        ("[[auth.scope]]\nname = 's'\ntools = ['a.x']".to_owned(), "default: auth.scope: tools of \"s\"", "\"a_x\""),
    ];
    for (text, begins, shown) in lists {
        refused_once(&text, begins, shown);
        // What the operator calls a tool is one that clients see.
        load(&format!("{text}\n[[plugin]]\nfile='a'\nprefix='acme.'\n[plugin.tool.t]\nname='a.x'")).unwrap();
    }
}

#[test]
fn configured_names_that_clients_refuse_are_known() {
    let warned = |line: &str, chars_max| {
        let config = load(&format!("[[plugin]]\nfile='a'\nname='crm'\n{line}")).unwrap();
        crate::refused_by_clients(&config.plugins, chars_max)
    };
    let of = |line: &str| warned(line, 64).concat();
    assert!(
        of("prefix = 'crm.'").starts_with("plugin crm: prefix = \"crm.\": it holds \".\""),
        "{}",
        of("prefix = 'crm.'")
    );
    assert!(of("[plugin.tool.t]\nname = 'a.b'").starts_with("plugin crm: name = \"a.b\": it holds"));
    let long = format!("[plugin.tool.t]\nname = '{}'", "x".repeat(70));
    assert!(of(&long).contains("it has 70 characters, and clients take 64"));
    assert_eq!(warned(&long, 128), Vec::<String>::new());
    assert_eq!(of("prefix = 'crm_'\n[plugin.tool.t]\nname = 'a-b'"), "");
}
