//! Calls that rollouts make: webhooks, and queries to Prometheus.

use std::time::Duration;

use http::Uri;
use serde_json::Value;
use xds_rollout::{HookPayload, Prometheus};

use super::fetch::{self, Answer, Caller};

/// Calls a webhook. Any status 2xx is a go.
///
/// # Errors
///
/// Says why it is no go.
pub(super) async fn call(
    caller: &Caller,
    url: &str,
    payload: &HookPayload,
    limit: Duration,
) -> Result<(), String> {
    // Texts always have a JSON form.
    let body = serde_json::to_vec(payload).unwrap_or_default();
    let answer = fetch::post(caller, url, body.into(), limit).await?;
    if answer.status.is_success() { Ok(()) } else { Err(shown(&answer)) }
}

/// The text about an answer: never its text, which may be that of something that only this server can reach.
fn shown(answer: &Answer) -> String {
    format!("{} after {} ms", answer.status, answer.duration.as_millis())
}

/// Asks for the value of a query, which must be one number.
///
/// # Errors
///
/// Says why there is none.
pub(super) async fn query(caller: &Caller, prometheus: &Prometheus) -> Result<f64, String> {
    let url = query_url(prometheus)?;
    let answer = fetch::get(caller, &url, QUERY_TIMEOUT).await?;
    if !answer.status.is_success() {
        return Err(format!("Prometheus answered {}", shown(&answer)));
    }
    let body: Option<Value> = serde_json::from_slice(&answer.body).ok();
    value(&body.ok_or("the answer is not JSON")?)
}

/// The URL of an instant query.
fn query_url(prometheus: &Prometheus) -> Result<String, String> {
    let address = prometheus.address.trim_end_matches('/');
    let mut url = format!("{address}/api/v1/query?query=");
    for byte in prometheus.query.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    match url.parse::<Uri>() {
        Ok(_) => Ok(url),
        Err(error) => Err(format!("the query does not make a URL: {error}")),
    }
}

/// The one number of an answer: a scalar, or a vector of one.
fn value(answer: &Value) -> Result<f64, String> {
    let data = answer.get("data").ok_or("the answer has no data")?;
    let result = data.get("result").unwrap_or(&Value::Null);
    let sample = match data.get("resultType").and_then(Value::as_str) {
        Some("scalar") => result,
        Some("vector") => match result.as_array().map(Vec::as_slice) {
            Some([one]) => one.get("value").unwrap_or(&Value::Null),
            Some([]) => return Err("the query returned no series".to_owned()),
            Some(many) => return Err(format!("the query returned {} series, not one", many.len())),
            None => return Err("the answer has no result".to_owned()),
        },
        Some("matrix") => return Err("the query returned a matrix, not one number".to_owned()),
        Some(_) => return Err("the query did not return one number".to_owned()),
        None => return Err("the answer has no result".to_owned()),
    };
    let text = sample.get(1).and_then(Value::as_str).ok_or("the sample has no value")?;
    text.parse().map_err(|_| "the sample's value is not a number".to_owned())
}

/// How long a query may take; an analysis gives a measurement up after a minute.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_number_is_read_and_nothing_else() {
        let vector =
            |result: Value| json!({"status": "success", "data": {"resultType": "vector", "result": result}});
        let one = json!({"metric": {}, "value": [1_700_000_000.5, "99.5"]});
        assert_eq!(value(&vector(json!([one]))), Ok(99.5));
        assert_eq!(value(&json!({"data": {"resultType": "scalar", "result": [1, "2"]}})), Ok(2.0));
        assert!(value(&vector(json!([{"value": [1, "NaN"]}]))).unwrap().is_nan());
        for (answer, said) in [
            (vector(json!([])), "no series"),
            (vector(json!([one, one])), "2 series"),
            (vector(json!([{"value": [1, 2]}])), "no value"),
            (vector(json!([{"value": [1, "much"]}])), "not a number"),
            (vector(json!([7])), "no value"),
            (vector(json!("garbage")), "no result"),
            (json!({"data": {"resultType": "matrix", "result": []}}), "a matrix"),
            (json!({"data": 5}), "no result"),
            (json!([]), "no data"),
        ] {
            let told = value(&answer).unwrap_err();
            assert!(told.contains(said), "{answer}: {told}");
        }
    }

    #[test]
    fn a_query_is_part_of_a_url() {
        let prometheus = Prometheus {
            address: "http://127.0.0.1:9090/".to_owned(),
            query: "rate(a{b=\"ü\"}[1m]) & 1".to_owned(),
            min: None,
            max: None,
        };
        let expected =
            "http://127.0.0.1:9090/api/v1/query?query=rate%28a%7Bb%3D%22%C3%BC%22%7D%5B1m%5D%29%20%26%201";
        assert_eq!(query_url(&prometheus).unwrap(), expected);
    }
}
