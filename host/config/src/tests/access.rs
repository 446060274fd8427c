//! Who may reach the host and with which credentials: listeners, issuers, administrators, keys.

use super::*;

#[test]
fn open_addresses_need_authentication_and_tls() {
    let flags = Flags { listen: Some("0.0.0.0:8808".to_owned()), ..Flags::default() };
    let config = |text: &str, insecure: Insecure| load_all(text, &[], &Flags { insecure, ..flags.clone() }).unwrap();
    let bare = config("", Insecure::default());
    assert!(bare.check_exposure(false).unwrap_err().message.contains("bulkhead token create"));
    assert!(bare.check_exposure(true).unwrap_err().message.contains("trusted_proxies"));
    let tls = "[server]\ntls = { certificate = 'c.pem', key = 'k.pem' }";
    for text in [tls, "[server]\ntrusted_proxies = ['10.0.0.0/8']"] {
        assert!(config(text, Insecure::default()).check_exposure(false).is_err());
        config(text, Insecure::default()).check_exposure(true).unwrap();
        config(&format!("{text}\n{ISSUER}"), Insecure::default()).check_exposure(false).unwrap();
    }
    config("", Insecure { plaintext: true, anonymous: false }).check_exposure(true).unwrap();
    config("", Insecure { plaintext: true, anonymous: true }).check_exposure(false).unwrap();
    Config::load(None, [], &Flags::default()).unwrap().check_exposure(false).unwrap();
    // A proxy on this machine brings others.
    let behind = load("[server]\ntrusted_proxies = ['127.0.0.1']").unwrap();
    assert!(!behind.is_local() && behind.check_exposure(false).is_err());
    behind.check_exposure(true).unwrap();
}

#[test]
fn anonymous_loopback_is_refused_where_others_can_connect() {
    let open = "[auth]\nanonymous_loopback = true";
    let config = load(open).unwrap();
    assert!(config.auth.anonymous_loopback.is_some() && config.is_local());
    assert!(load("[auth]\nanonymous_loopback = false").unwrap().auth.anonymous_loopback.is_none());
    load("[auth]\nanonymous_loopback = true\n[server]\nlisten = '[::1]:0'").unwrap();
    let refused = |text: &str, why: &str| {
        let problems = load(text).unwrap_err().join("; ");
        assert!(
            problems.contains("etc/bulkhead.toml:2: auth.anonymous_loopback = true") && problems.contains(why),
            "{problems}"
        );
    };
    refused(&format!("{open}\n[server]\ntrusted_proxies = ['127.0.0.1']"), "server.trusted_proxies");
    refused(&format!("{open}\n[server]\nlisten = '0.0.0.0:8808'"), "server.listen is \"0.0.0.0:8808\"");
    let issuer = ISSUER.strip_prefix("[auth]\n").unwrap();
    refused(&format!("{open}\n{issuer}"), "[[auth.issuer]]");
    // The flag is looked at, too.
    let flags = Flags { listen: Some("192.0.2.1:1".to_owned()), ..Flags::default() };
    assert!(load_all(open, &[], &flags).unwrap_err().join("; ").contains("192.0.2.1:1"));
}

const ISSUER: &str = "[auth]\nresource = 'https://MCP.example.com/mcp'\n[[auth.issuer]]\n\
    issuer = 'https://login.example.com'\ntenant = 'acme'";

#[test]
fn token_issuer_config_has_defaults() {
    let config = load(ISSUER).unwrap();
    let [issuer] = config.auth.issuers.as_slice() else { panic!() };
    assert_eq!(issuer.options.audiences, ["https://MCP.example.com/mcp"]);
    assert_eq!(issuer.options.algorithms.len(), 3);
    assert_eq!((issuer.options.keys_fresh_ms, issuer.options.keys_stale_ms), (300_000, 3_600_000));
    let refused = |line: &str, why: &str| refused_once(&format!("{ISSUER}\n{line}"), "etc/bulkhead.toml:", why);
    refused("algorithms = ['HS256']", "RS256, ES256, EdDSA");
    refused("algorithms = ['none']", "RS256, ES256, EdDSA");
    refused("client_secret = 'x'", "secrets are not kept in the configuration");
    refused("clock_skew_ms = 600001", "from 0 to 600000");
    refused("private_addresses = ['intranet']", "neither an address nor a network");
    refused("client_id = 'x'", "belong together");
    refused("tenants = ['a']", "tenant_claim");
    let claiming = ISSUER.replace("tenant = 'acme'", "tenants = ['*']");
    for claim in ["iss", "aud", "exp", "nbf", "iat", "scope", "scp"] {
        let problems = load(&format!("{claiming}\ntenant_claim = '{claim}'")).unwrap_err().join("; ");
        assert!(problems.contains("names no tenant"), "{problems}");
    }
    for claim in ["org", "sub", "azp", "client_id"] {
        load(&format!("{claiming}\ntenant_claim = '{claim}'")).unwrap();
    }
    refused("jwks_url = 'http://keys.example.com'", "https://");
    refused("color = 1", "no such key in [[auth.issuer]]");
    refused("[[auth.issuer]]\nissuer = 'https://login.example.com'\ntenant = 'b'", "there twice");
    refused("[[auth.scope]]\nname = 'a'\nadminister = true", "no such key");
    refused("[[auth.scope]]\ntools = ['x']", "auth.scope.name: missing");
    refused("[[auth.scope]]\nname = 'a'\ntenant_control = true", "needs tenant = true");
    refused("[[auth.scope]]\nname = 'a b'", "is no scope");
    refused("[[auth.scope]]\nname = 'offline_access'", "between clients and their issuer");
    let problems = load(&format!("{ISSUER}\n[[auth.scope]]\nname = 'a'\nincludes = ['b']")).unwrap_err();
    assert!(problems[0].contains("includes \"b\""), "{problems:?}");
    refused_once("[auth]\nresource = 'https://a/mcp/'", "etc/bulkhead.toml:2: auth.resource", "slash");
    refused_once(
        "[[auth.issuer]]\nissuer = 'https://a'\ntenant = 'b'",
        "etc/bulkhead.toml:1: auth.resource: missing",
        "",
    );
    refused_once("[server]\ntls = { certificate = 'a' }", "etc/bulkhead.toml:2: server.tls: needs", "key");
    refused_once("[server]\nready_requires = ['csv']", "etc/bulkhead.toml:2: server.ready_requires:", "plugin:csv");
    refused_once(
        "[server]\nready_requires = ['plugin:a b']",
        "etc/bulkhead.toml:2: server.ready_requires:",
        "plugin:NAME",
    );
    refused_once("[server]\ntrusted_proxies = ['proxy']", "etc/bulkhead.toml:2: server.trusted_proxies:", "network");
}

#[test]
fn admin_listener_needs_credential_and_remote_tls() {
    let admin = |text: &str| load(&format!("[admin]\n{text}")).map(|config| config.admin.unwrap());
    let found = admin("listen = '127.0.0.1:8809'\ntoken_file = 'admin.token'").unwrap();
    assert_eq!(found.secret, AdminSecret::File("etc/admin.token".into()));
    let digest = "ab".repeat(32);
    let tls = "tls = { certificate = 'c', key = 'k' }";
    let found = admin(&format!("listen = '0.0.0.0:8809'\ntoken_sha256 = '{digest}'\n{tls}")).unwrap();
    assert_eq!(found.secret, AdminSecret::Sha256([0xab; 32]));
    let refused = |text: &str, why: &str| refused_once(&format!("[admin]\n{text}"), "etc/bulkhead.toml:", why);
    refused("token_file = 'x'", "admin.listen: missing");
    refused("listen = '127.0.0.1:1'", "credential");
    refused(&format!("listen = '127.0.0.1:1'\ntoken_file = 'x'\ntoken_sha256 = '{digest}'"), "credential");
    refused("listen = '127.0.0.1:1'\ntoken_sha256 = 'abc'", "64 hexadecimal digits");
    refused("listen = 'localhost:1'\ntoken_file = 'x'", "numeric address");
    refused("listen = '0.0.0.0:1'\ntoken_file = 'x'", "admin.tls");
    refused("listen = '127.0.0.1:1'\ntoken_file = 'x'\ntoken = 'y'", "no such key");
    refused("listen = '127.0.0.1:1'\ntoken_file = 'x'\ntls = { key = 'k' }", "admin.tls: needs");
}

#[test]
fn secret_key_comes_from_file_or_variable_only() {
    assert_eq!(load("").unwrap().secrets.key_file, None);
    let config = load("[secrets]\nkey_file = 'secrets.key'").unwrap();
    assert_eq!(config.secrets.key_file, Some("etc/secrets.key".into()));
    refused_once("[secrets]\nkey = 'x'", "etc/bulkhead.toml:2: secrets.key: no such key", "key_file");
    assert!(Config::load(None, [("BULKHEAD_SECRET_KEY".to_owned(), "x".to_owned())], &Flags::default()).is_ok());
    refused_once(
        "[[plugin]]\nfile = 'a'\n[plugin.grants]\nenv = ['BULKHEAD_SECRET_KEY']",
        "etc/bulkhead.toml:4: plugin.?.grants.env:",
        "granted to nobody",
    );
}
