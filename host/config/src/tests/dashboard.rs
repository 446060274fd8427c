use super::*;

#[test]
fn dashboard_is_off_and_without_tls_for_loopback_only() {
    assert_eq!(load("").unwrap().dashboard, None);
    let config = load("[dashboard]\nlisten = '127.0.0.1:8810'").unwrap().dashboard.unwrap();
    assert_eq!((config.allowed_hosts, config.tls), (Vec::new(), None));
    let text = "[dashboard]\nlisten = '0.0.0.0:8810'";
    refused_once(text, "etc/bulkhead.toml:1: dashboard.listen", "set dashboard.tls");
    let tls = "tls = { certificate = 'a', key = 'b' }\nallowed_hosts = ['ops.example.com']";
    let config = load(&format!("{text}\n{tls}")).unwrap().dashboard.unwrap();
    assert_eq!(config.allowed_hosts, ["ops.example.com"]);
}

#[test]
fn dashboard_needs_an_address() {
    refused_once("[dashboard]", "etc/bulkhead.toml:1: dashboard.listen: ", "ADDR:PORT");
    let hosts = "[dashboard]\nlisten = '127.0.0.1:1'\nallowed_hosts = ['https://a']";
    refused_once(hosts, "etc/bulkhead.toml:3: dashboard.allowed_hosts", "HOST:PORT");
    refused_once("[dashboard]\nlisten = '127.0.0.1'", "etc/bulkhead.toml:2: dashboard.listen", "ADDR:PORT");
}

#[test]
fn dashboard_links_to_traces_by_an_address_with_their_id() {
    let with = |link: &str| format!("[dashboard]\nlisten = '127.0.0.1:1'\ntrace_link = '{link}'");
    let link = "https://traces.example.com/trace/{trace_id}?view=all";
    assert_eq!(load(&with(link)).unwrap().dashboard.unwrap().trace_link.as_deref(), Some(link));
    for wrong in ["traces/{trace_id}", "javascript:{trace_id}", "https://a/", "https://a/{trace_id}/{trace_id}"] {
        refused_once(&with(wrong), "etc/bulkhead.toml:3: dashboard.trace_link", "{trace_id} in it once");
    }
}

#[test]
fn views_are_previewed_at_a_host_name_that_is_none_of_the_dashboard() {
    let with = |origin: &str| format!("[dashboard]\nlisten = '127.0.0.1:8810'\napp_preview_origin = '{origin}'");
    let tls = "\nallowed_hosts = ['ops.example.com:8810']\ntls = { certificate = 'a', key = 'b' }";
    assert_eq!(load("[dashboard]\nlisten = '127.0.0.1:1'").unwrap().dashboard.unwrap().app_preview_origin, None);
    for (origin, expected) in [
        ("http://apps.localhost", "http://apps.localhost:8810"),
        ("http://Apps.LOCALHOST:80", "http://apps.localhost"),
        ("https://apps.example.com:443", "https://apps.example.com"),
        ("https://apps.example.com:8443", "https://apps.example.com:8443"),
    ] {
        let config = load(&with(origin)).unwrap().dashboard.unwrap();
        assert_eq!(config.app_preview_origin.unwrap().text(8810), expected);
    }
    let key = "etc/bulkhead.toml:3: dashboard.app_preview_origin";
    for (origin, why) in [
        ("apps.localhost", "neither https:// nor http://"),
        ("file://apps", "neither https:// nor http://"),
        ("https://apps.example.com/", "more than a host name and a port"),
        ("https://a@apps.example.com", "more than a host name and a port"),
        ("https://apps.example.com:0", "no port behind its colon"),
        ("https://", "no host name"),
        ("https://10.0.0.1", "no host name"),
        ("https://0x7f.1", "no host name"),
        ("https://[::1]", "no host name"),
        ("https://apps;example.com", "no host name"),
        ("http://apps.example.com", "none of this machine"),
        ("http://localhost:9000", "a name of the dashboard itself"),
        ("http://bulkhead-0.localhost", "a name of the dashboard itself"),
    ] {
        refused_once(&with(origin), key, why);
    }
    refused_once(&format!("{}{tls}", with("https://OPS.example.com:1")), key, "a name of the dashboard itself");
    refused_once(&format!("{}{tls}", with("http://apps.localhost")), key, "this listener has TLS");
}

const ISSUER: &str = "[auth]\nresource = 'https://mcp.example.com/mcp'\n[[auth.issuer]]\n\
    issuer = 'https://login.example.com'\ntenant = 'acme'\n[dashboard]\nlisten = '127.0.0.1:1'\n[dashboard.oidc]\n";

#[test]
fn dashboard_lets_people_log_in_at_a_configured_issuer() {
    let rest = "issuer = 'https://login.example.com'\nclient_id = 'dashboard'\nclient_secret_file = 'secret'\n\
        scopes = ['tasks']\noperators = { claim = 'groups', value = 'admins' }";
    let config = load(&format!("{ISSUER}{rest}")).unwrap().dashboard.unwrap();
    let oidc = config.oidc.unwrap();
    assert_eq!((oidc.issuer.as_str(), oidc.client_id.as_str()), ("https://login.example.com", "dashboard"));
    assert_eq!(oidc.scopes, ["openid", "tasks"]);
    let operators = oidc.operators.unwrap();
    assert_eq!((operators.claim.as_str(), operators.value.as_str()), ("groups", "admins"));
    assert!(oidc.client_secret.is_some());
    let least = "issuer = 'https://login.example.com'\nclient_id = 'dashboard'";
    let oidc = load(&format!("{ISSUER}{least}")).unwrap().dashboard.unwrap().oidc.unwrap();
    assert_eq!((oidc.scopes, oidc.operators, oidc.client_secret), (vec!["openid".to_owned()], None, None));
}

#[test]
fn login_at_an_issuer_is_written_out_and_the_issuer_is_one_of_the_configured() {
    let refused = |rest: &str, place: &str, why: &str| refused_once(&format!("{ISSUER}{rest}"), place, why);
    let client = "client_id = 'dashboard'";
    refused(client, "etc/bulkhead.toml:8: dashboard.oidc.issuer", "missing");
    refused("issuer = 'https://login.example.com'", "etc/bulkhead.toml:8: dashboard.oidc.client_id", "missing");
    refused(&format!("issuer = 'https://a.example'\n{client}"), "etc/bulkhead.toml:8: dashboard.oidc.issuer", "of no");
    let known = format!("issuer = 'https://login.example.com'\n{client}\n");
    refused(&format!("{known}client_secret = 'x'"), "etc/bulkhead.toml:11: dashboard.oidc.client_secret", "not kept");
    refused(
        &format!("{known}operators = {{ claim = 'groups' }}"),
        "etc/bulkhead.toml:11: dashboard.oidc.operators.value",
        "missing",
    );
    refused(&format!("{known}scopes = ['a b']"), "etc/bulkhead.toml:11: dashboard.oidc.scopes", "");
}
