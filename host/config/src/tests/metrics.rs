use super::*;

#[test]
fn metrics_without_token_are_for_loopback_only() {
    let config = load("[metrics]\nlisten = '127.0.0.1:9464'").unwrap().metrics.unwrap();
    assert_eq!(
        (config.secret, config.tenants, config.options.series_max, config.options.tools),
        (None, true, 10_000, true)
    );
    let tls = "tls = { certificate = 'a', key = 'b' }";
    for lacking in ["", "token_file = 't'", tls] {
        let text = format!("[metrics]\nlisten = '0.0.0.0:9464'\n{lacking}");
        refused_once(&text, "etc/bulkhead.toml:1: metrics.listen", "set metrics.token_file");
    }
    assert!(load(&format!("[metrics]\nlisten = '0.0.0.0:9464'\ntoken_file = 't'\n{tls}")).is_ok());
}

#[test]
fn metrics_take_one_token_and_a_bounded_number_of_series() {
    let two = format!("token_file = 't'\ntoken_sha256 = '{}'", "0".repeat(64));
    let text = format!("[metrics]\nlisten = '127.0.0.1:9464'\n{two}");
    refused_once(&text, "etc/bulkhead.toml:1: metrics: ", "one token");
    refused_once(
        "[metrics]\nlisten = '127.0.0.1:9464'\nseries_max = 10",
        "etc/bulkhead.toml:3: metrics.series_max",
        "1000",
    );
    refused_once("[metrics]\ntools = false", "etc/bulkhead.toml:1: metrics.listen: ", "ADDR:PORT");
    let config = load("[metrics]\nlisten = '[::1]:0'\ntenants = 'none'\ntools = false").unwrap().metrics.unwrap();
    assert!(!config.tenants && !config.options.tools);
}
