//! Placeholders out, values in, and the other way round.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use wasmtime_wasi_http::{Error, WasiBody};

use super::*;
use bulkhead_calls::policy::Denial;
use bulkhead_calls::secrets::{InjectionPoints, Secret};

const VALUE: &str = "s3cr3t/+\"value\" &=";

fn secret(name: &str, to: &str, places: InjectionPoints) -> Secret {
    Secret { name: name.to_owned(), value: VALUE.to_owned(), destinations: vec![to.parse().unwrap()], places }
}

const ALL: InjectionPoints = InjectionPoints { header: true, query: true, body: true };
const HEADER: InjectionPoints = InjectionPoints { header: true, query: false, body: false };

fn target<'a>(host: &'a str, path: &'a str) -> Target<'a> {
    Target { method: "GET", tls: true, host, port: 443, path }
}

fn body(text: &str) -> WasiBody {
    Full::new(Bytes::from(text.to_owned())).map_err(|never| match never {}).boxed_unsync()
}

fn request(uri: &str, headers: &[(&str, &str)], text: &str) -> http::Request<WasiBody> {
    let mut request = http::Request::builder().uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body(text)).unwrap()
}

async fn sent(
    secrets: &[Secret],
    host: &str,
    request: http::Request<WasiBody>,
) -> Result<(http::request::Parts, String), Refusal> {
    let path = request.uri().path().to_owned();
    let (request, _) = inject(request, secrets, target(host, &path)).await?;
    let (head, body) = request.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Ok((head, String::from_utf8(bytes.to_vec()).unwrap()))
}

fn missing(outcome: Result<(http::request::Parts, String), Refusal>) -> String {
    match outcome {
        Err(Refusal::Missing(secret)) => Denial::Secret(secret).to_string(),
        other => panic!("{:?}", other.map(|(head, body)| (head.uri, body))),
    }
}

#[tokio::test]
async fn secret_is_injected_into_header_query_and_body() {
    let secrets = [secret("KEY", "https://a.example/v1", ALL)];
    let headers = [("authorization", "Bearer {{secret:KEY}}"), ("x-plain", "{{secret KEY}}"), ("range", "bytes=0-3")];
    let asked = request("https://a.example/v1/x?a={{secret:KEY}}&b=%7B%7Bsecret%3AKEY%7D%7d", &headers, "");
    let (head, _) = sent(&secrets, "a.example", asked).await.unwrap();
    assert_eq!(head.headers["authorization"], format!("Bearer {VALUE}"));
    assert!(head.headers["authorization"].is_sensitive());
    assert_eq!(head.headers["x-plain"], "{{secret KEY}}");
    assert_eq!(head.headers["accept-encoding"], "identity");
    assert!(!head.headers.contains_key("range"));
    let encoded = "s3cr3t%2F%2B%22value%22%20%26%3D";
    assert_eq!(head.uri.query().unwrap(), format!("a={encoded}&b={encoded}"));

    let text = "{\"k\": \"{{secret:KEY}}\", \"other\": \"{{secret:NOBODYS}}\"}";
    let length = text.len().to_string();
    for (media_type, expected) in [
        ("application/json; charset=utf-8", "s3cr3t/+\\\"value\\\" &="),
        ("application/x-www-form-urlencoded", encoded),
        ("text/plain", VALUE),
    ] {
        let headers = [("content-type", media_type), ("content-length", length.as_str())];
        let (head, body) = sent(&secrets, "a.example", request("https://a.example/v1", &headers, text)).await.unwrap();
        assert_eq!(body, text.replace("{{secret:KEY}}", expected), "{media_type}");
        assert_eq!(head.headers["content-length"], body.len().to_string());
    }
}

#[tokio::test]
async fn secret_goes_only_to_bound_destinations_and_places() {
    let secrets = [secret("KEY", "https://a.example/v1", HEADER), secret("QUERY", "https://b.example", ALL)];
    let header = |name: &str| [("authorization", format!("Bearer {{{{secret:{name}}}}}"))];
    for (uri, host, name) in [
        ("https://b.example/v1", "b.example", "KEY"),
        ("https://a.example/v2", "a.example", "KEY"),
        ("https://a.example/v1/../v2", "a.example", "KEY"),
        ("https://a.example/v1", "a.example", "OTHER"),
    ] {
        let headers = header(name);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let refused = missing(sent(&secrets, host, request(uri, &headers, "")).await);
        assert_eq!(refused, format!("secret {name} in the header"));
    }
    let in_query = request("https://a.example/v1?q={{secret:KEY}}", &[], "");
    assert_eq!(missing(sent(&secrets, "a.example", in_query).await), "secret KEY in the query");
    let in_path = request("https://b.example/bot{{secret:QUERY}}/x", &[], "");
    assert_eq!(missing(sent(&secrets, "b.example", in_path).await), "secret QUERY in the path");
    let in_body = request("https://b.example/", &[], "{{secret:KEY}}");
    assert_eq!(missing(sent(&secrets, "b.example", in_body).await), "secret KEY in the body");
    // Nothing is bound to a body there, so that nobody looks into it.
    let (_, text) = sent(&secrets, "a.example", request("https://a.example/v1", &[], "{{secret:KEY}}")).await.unwrap();
    assert_eq!(text, "{{secret:KEY}}");
    let many = [("x", "{{secret:KEY}}".repeat(17))];
    let many: Vec<_> = many.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let refused = sent(&secrets, "a.example", request("https://a.example/v1", &many, "")).await;
    assert!(matches!(refused, Err(Refusal::Failed(Error::HttpRequestHeaderSectionSize(None)))));
}

/// Sends a body in these pieces; what went out, and what ended it.
async fn sent_in_pieces(pieces: &[&str], length: Option<usize>) -> (String, Option<Error>) {
    let secrets = [secret("KEY", "https://a.example", ALL), secret("FAR", "https://b.example", ALL)];
    let frames: Vec<_> = pieces.iter().map(|piece| Ok(Frame::data(Bytes::from((*piece).to_owned())))).collect();
    let body = BodyExt::boxed_unsync(StreamBody::new(futures::stream::iter(frames)));
    let mut request = http::Request::builder().uri("https://a.example/");
    if let Some(length) = length {
        request = request.header("content-length", length);
    }
    let (request, _) = inject(request.body(body).unwrap(), &secrets, target("a.example", "/")).await.unwrap();
    let mut body = request.into_body();
    let mut seen = Vec::new();
    loop {
        match body.frame().await {
            None => return (String::from_utf8(seen).unwrap(), None),
            Some(Ok(frame)) => seen.extend(frame.into_data().unwrap()),
            Some(Err(error)) => return (String::from_utf8(seen).unwrap(), Some(error)),
        }
    }
}

#[tokio::test]
async fn oversized_body_ends_at_its_secret_placeholder() {
    let large = "x".repeat((1 << 20) + 1);
    let refused = |error: &Option<Error>| matches!(error, Some(Error::HttpRequestBodySize(Some(1_048_576))));
    let far = "%7B%7bsecret%3AFAR%7d%7D";
    for length in [None, Some(2 << 20)] {
        for placeholder in ["{{secret:KEY}}", far] {
            // Whole, between two frames, and cut at every place.
            for cut in 0..placeholder.len() {
                let (begin, end) = placeholder.split_at(cut);
                let (seen, error) = sent_in_pieces(&[&large, begin, end, "after"], length).await;
                assert!(refused(&error) && seen == format!("{large}{begin}"), "{placeholder} {cut} {error:?}");
            }
            let (seen, error) = sent_in_pieces(&[placeholder, &large], Some(2 << 20)).await;
            assert!(refused(&error) && seen.is_empty(), "{error:?}");
        }
        let others = ["{{secret:NOBODYS}}", "{{secret:", "KEY", "{{secret KEY}}"];
        let pieces = [&[large.as_str()], &others[..]].concat();
        let (seen, error) = sent_in_pieces(&pieces, length).await;
        assert!(error.is_none() && seen == pieces.concat(), "what names no secret goes out as it is: {error:?}");
    }
}

#[test]
fn secret_placeholder_name_length_is_bounded() {
    let text = |length: usize| format!("{{{{secret:{}}}}}", "n".repeat(length)).into_bytes();
    assert_eq!(find(&text(64), 0), Some((0..75, "n".repeat(64).as_str())));
    assert_eq!(find(&text(65), 0), None);
}

#[tokio::test]
async fn secret_placeholder_search_takes_linear_time() {
    let secrets = [secret("KEY", "https://a.example", ALL)];
    let end = "{{secret:KEY}}";
    let text = "{{secret:".repeat(((1 << 20) - end.len()) / 9) + end;
    let begun = std::time::Instant::now();
    let (_, body) = sent(&secrets, "a.example", request("https://a.example/", &[], &text)).await.unwrap();
    assert!(body.ends_with(VALUE));
    // Reading each of them to the end of the text takes minutes.
    assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
}

async fn answered(headers: &[(&str, &str)], pieces: Vec<Vec<u8>>) -> Result<(http::response::Parts, String), Error> {
    let secrets = [secret("KEY", "https://a.example", HEADER)];
    let (_, injected) =
        inject(request("https://a.example/", &[], ""), &secrets, target("a.example", "/")).await.unwrap();
    let mut response = http::Response::builder();
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    let frames = pieces.into_iter().map(|piece| Ok::<_, Error>(http_body::Frame::data(Bytes::from(piece))));
    let response = response.body(StreamBody::new(futures::stream::iter(frames)).boxed_unsync()).unwrap();
    let (head, body) = injected.scrub(response)?.into_parts();
    let bytes = body.collect().await?.to_bytes();
    Ok((head, String::from_utf8(bytes.to_vec()).unwrap()))
}

#[tokio::test]
async fn echoed_secret_is_scrubbed_in_any_chunking_and_spelling() {
    use base64::Engine as _;
    let base64 = base64::engine::general_purpose::STANDARD.encode(VALUE);
    let spellings = [
        VALUE.to_owned(),
        "s3cr3t%2F%2B%22value%22%20%26%3D".to_owned(),
        "s3cr3t%2f%2b%22value%22%20%26%3d".to_owned(),
        "s3cr3t%2F%2B%22value%22+%26%3D".to_owned(),
        "s3cr3t/+\\\"value\\\" &=".to_owned(),
        "s3cr3t\\/+\\\"value\\\" &=".to_owned(),
        base64,
    ];
    for spelling in spellings {
        let text = format!("s3s3cr3{spelling}{spelling}, s3cr3t/+\"valu");
        let expected = "s3s3cr3{{secret:KEY}}{{secret:KEY}}, s3cr3t/+\"valu";
        for size in 1..=text.len() {
            let pieces = text.as_bytes().chunks(size).map(<[u8]>::to_vec).collect();
            let (_, body) = answered(&[], pieces).await.unwrap();
            assert_eq!(body, expected, "{spelling} in pieces of {size}");
        }
    }
    let headers = [("location", "https://b.example/?k=s3cr3t%2F%2B%22value%22%20%26%3D"), ("content-length", "5")];
    let (head, _) = answered(&headers, Vec::new()).await.unwrap();
    assert_eq!(head.headers["location"], "https://b.example/?k={{secret:KEY}}");
    assert!(!head.headers.contains_key("content-length"));
}

#[tokio::test]
async fn echoed_secret_is_scrubbed_for_the_whole_server() {
    for (to, at_port, is_known) in [
        ("https://a.example/v1", 443, true),
        ("POST https://a.example", 443, true),
        ("https://*.example/v1", 443, true),
        ("https://a.example/v1", 8443, false),
        ("https://b.example", 443, false),
        ("http://a.example:443", 443, false),
    ] {
        let secrets = [secret("KEY", to, ALL)];
        let at = Target { port: at_port, ..target("a.example", "/log") };
        let headers = [("accept-encoding", "gzip"), ("range", "bytes=0-3")];
        let asked = request("https://a.example/log", &headers, "{{secret:KEY}}");
        let (sent, injected) = inject(asked, &secrets, at).await.unwrap();
        assert_eq!(sent.headers()["accept-encoding"], if is_known { "identity" } else { "gzip" }, "{to}");
        assert_eq!(sent.headers().contains_key("range"), !is_known, "{to}");
        assert_eq!(sent.into_body().collect().await.unwrap().to_bytes(), "{{secret:KEY}}", "nothing goes out there");
        let answer = injected.scrub(http::Response::new(body(VALUE))).unwrap();
        let expected = if is_known { "{{secret:KEY}}" } else { VALUE };
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), expected, "{to}");
        let asked = request("https://a.example/log", &[("x", "{{secret:KEY}}")], "");
        assert!(matches!(inject(asked, &secrets, at).await, Err(Refusal::Missing(_))), "{to}");
    }
}

#[tokio::test]
async fn unrequested_compressed_response_to_secret_is_refused() {
    let refused = answered(&[("content-encoding", "gzip")], vec![vec![1]]).await;
    assert!(matches!(refused, Err(Error::HttpResponseContentCoding(Some(coding))) if coding == "gzip"));
    assert!(answered(&[("content-encoding", "identity")], Vec::new()).await.is_ok());
}

#[tokio::test]
async fn encoded_response_headers_do_not_leak_a_secret() {
    let coded = |values: &'static [(&'static str, &'static str)]| async move {
        match answered(values, Vec::new()).await {
            Err(Error::HttpResponseContentCoding(coding)) => coding,
            other => panic!("{values:?} {:?}", other.map(|(head, _)| head)),
        }
    };
    assert_eq!(coded(&[("content-encoding", VALUE)]).await, None, "the value is no name of a coding");
    assert_eq!(coded(&[("content-encoding", "czNjcjN0Lys")]).await, None);
    for hidden in [
        &[("content-encoding", "identity"), ("content-encoding", "gzip")][..],
        &[("content-encoding", "identity, GZip")],
        &[("transfer-encoding", "gzip, chunked")],
    ] {
        let refused = answered(hidden, Vec::new()).await;
        assert!(
            matches!(refused, Err(Error::HttpResponseContentCoding(Some(coding))) if coding == "gzip"),
            "{hidden:?}"
        );
    }
    let plain = [("content-encoding", "Identity"), ("content-encoding", ""), ("transfer-encoding", "chunked")];
    assert!(answered(&plain, Vec::new()).await.is_ok());
}

#[tokio::test]
async fn base64_echo_of_a_secret_is_scrubbed() {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
    let escaped = |text: &str| text.replace('+', "%2B").replace('/', "%2f").replace('=', "%3D");
    for (before, after) in (0..4).flat_map(|before| (0..4).map(move |after| (before, after))) {
        for around in ["\0\0\0", "\u{7f}\u{7f}\u{7f}", "u:~"] {
            let text = format!("{}{VALUE}{}", &around[..before], &around[..after]);
            for engine in [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD] {
                let encoded = engine.encode(&text);
                // A character that holds a bit of the value goes with it, and so does the padding behind it.
                let begin = &encoded[..before * 8 / 6];
                let end = if after == 0 { "" } else { &encoded[((before + VALUE.len()) * 8).div_ceil(6)..] };
                let expected = format!("{begin}{{{{secret:KEY}}}}{end}");
                for (echoed, expected) in [(escaped(&encoded), escaped(&expected)), (encoded.clone(), expected.clone())]
                {
                    for size in [1, 7, echoed.len()] {
                        let pieces = echoed.as_bytes().chunks(size).map(<[u8]>::to_vec).collect();
                        let (_, body) = answered(&[], pieces).await.unwrap();
                        assert_eq!(body, expected, "{before} {after} {echoed}");
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn header_name_containing_a_secret_is_dropped() {
    let secrets = [Secret { value: "s3cr3t-Value".to_owned(), ..secret("KEY", "https://a.example", HEADER) }];
    let (_, injected) =
        inject(request("https://a.example/", &[], ""), &secrets, target("a.example", "/")).await.unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-s3cr3t-value", HeaderValue::from_static("1"));
    trailers.insert("x-sum", HeaderValue::from_static("s3cr3t-Value"));
    let answer = StreamBody::new(futures::stream::iter([Ok::<_, Error>(Frame::trailers(trailers))])).boxed_unsync();
    let mut response = http::Response::new(answer);
    // As base64 of `user:s3cr3t-Value` is, once it is the name of a header.
    for name in ["s3cr3t-value", "x-s3cr3t-value-y", "s3cr3t%2dvalue", "dxnlcjpzm2nym3qtvmfsdwu", "x-other"] {
        response.headers_mut().append(name, HeaderValue::from_static("1"));
    }
    let (head, body) = injected.scrub(response).unwrap().into_parts();
    assert_eq!(head.headers.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["x-other"]);
    let trailers = body.collect().await.unwrap().trailers().cloned().unwrap();
    assert_eq!(trailers.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["x-sum"]);
    assert_eq!(trailers["x-sum"], "{{secret:KEY}}");
}

#[tokio::test]
async fn response_without_bound_secret_is_unchanged() {
    let secrets = [secret("KEY", "https://b.example", ALL)];
    let headers = [("accept-encoding", "gzip"), ("range", "bytes=0-3")];
    let asked = request("https://a.example/", &headers, "");
    let (sent, injected) = inject(asked, &secrets, target("a.example", "/")).await.unwrap();
    assert_eq!((&sent.headers()["accept-encoding"], sent.headers().len()), (&"gzip".parse().unwrap(), 2));
    let answer = http::Response::builder().header("content-length", "3").body(body(VALUE)).unwrap();
    let answer = injected.scrub(answer).unwrap();
    assert_eq!(answer.headers()["content-length"], "3");
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), VALUE);
}

#[test]
fn debug_output_hides_secret_values() {
    let secret = secret("KEY", "https://a.example", ALL);
    let scrubber = scrub::Scrubber::new(&[&secret]);
    assert!(!format!("{secret:?} {scrubber:?}").contains("s3cr3t"));
}
