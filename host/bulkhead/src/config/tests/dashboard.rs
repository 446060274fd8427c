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
