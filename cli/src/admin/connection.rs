//! A connection to the admin API: requests, answers, and problems in words.

use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::advice;
use super::answers::who_has_not;
use crate::failure::Failure;
use crate::output::{Form, clean};
use crate::tls::ClientTlsArgs;

/// The server to ask, and the form of the result.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// The form of the result [default: table on a terminal, else json]
    #[arg(long, value_enum, value_name = "FORM")]
    pub(crate) output: Option<Form>,
}

/// The server to ask, and how to ask it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConnectionArgs {
    /// The admin API
    #[arg(long, env = "XDS_SERVER_ADMIN", value_name = "URL", default_value = "http://127.0.0.1:18001")]
    admin: String,
    /// File with the token for the admin API; XDS_SERVER_ADMIN_TOKEN may hold the token itself
    #[arg(long, env = "XDS_SERVER_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    #[command(flatten)]
    tls: ClientTlsArgs,
}

/// A connection to the admin API.
#[derive(Debug)]
pub(crate) struct Admin {
    url: String,
    token: Option<String>,
    agent: ureq::Agent,
}

/// An answer: its status and its JSON.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl AdminArgs {
    /// Reads the token, if there is one. Connects at the first request only.
    pub(crate) fn connect(&self) -> Result<Admin, Failure> {
        self.connection.connect()
    }

    /// Sets how long the answer to a request may take; `None` means no limit.
    pub(crate) fn connect_for(&self, limit: Option<Duration>) -> Result<Admin, Failure> {
        self.connection.connect_for(limit)
    }
}

impl ConnectionArgs {
    /// Reads the token, if there is one. Connects at the first request only.
    pub(crate) fn connect(&self) -> Result<Admin, Failure> {
        self.connect_for(Some(TIMEOUT))
    }

    /// Sets how long the answer to a request may take; `None` means no limit.
    pub(crate) fn connect_for(&self, limit: Option<Duration>) -> Result<Admin, Failure> {
        let url = self.admin.trim_end_matches('/');
        let has_scheme = url.starts_with("http://") || url.starts_with("https://");
        let url = if has_scheme { url.to_owned() } else { format!("http://{url}") };
        let token = match &self.admin_token_file {
            Some(path) => Some(fs::read_to_string(path).map_err(|error| {
                Failure::Usage(format!("cannot read --admin-token-file {}: {error}", path.display()))
            })?),
            None => std::env::var("XDS_SERVER_ADMIN_TOKEN").ok(),
        };
        let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(limit.map_or(CONNECT_TIMEOUT, |limit| CONNECT_TIMEOUT.min(limit))))
            .timeout_global(limit);
        let config = if url.starts_with("https://") { config.tls_config(self.tls.http()?) } else { config };
        Ok(Admin { url, token, agent: config.build().into() })
    }
}

impl Admin {
    /// Asks, and demands success.
    pub(crate) fn get(&self, path: &str) -> Result<Value, Failure> {
        self.get_any(path)?.success()
    }

    /// Asks for a list and for the rest of its pages; the answer is the first page with the items of all. `path` may have a query.
    pub(crate) fn get_pages(&self, path: &str, list: &str) -> Result<Value, Failure> {
        let mut whole = self.get(path)?;
        let joint = if path.contains('?') { '&' } else { '?' };
        while let Some(next) = whole["next"].as_str() {
            let mut page = self.get(&format!("{path}{joint}after={}", segment(next)))?;
            // A page without items that has a next one would be asked for again and again.
            let items = page[list].as_array_mut().map(std::mem::take).filter(|items| !items.is_empty());
            whole["next"] = page["next"].take();
            match (whole[list].as_array_mut(), items) {
                (Some(all), Some(items)) => all.extend(items),
                (_, _) => break,
            }
        }
        Ok(whole)
    }

    /// Asks, and takes every answer.
    pub(crate) fn get_any(&self, path: &str) -> Result<Answer, Failure> {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        self.read(request.call())
    }

    /// Sends a body, and demands success.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.send(Method::POST, path, &[], Some((JSON, body.to_string().into_bytes())))?.success()
    }

    /// Asks for anything, with further headers and a body of a media type, and takes every answer.
    pub(crate) fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<(&str, Vec<u8>)>,
    ) -> Result<Answer, Failure> {
        let key = (method != Method::GET).then(random_key);
        let mut n_left = MAX_REPEATS;
        loop {
            let answer = self.send_once(&method, path, (headers, key.as_deref()), body.clone())?;
            if !answer.is_unknown() || n_left == 0 {
                return Ok(answer);
            }
            n_left -= 1;
            // Nobody has to read it.
            let _ = writeln!(io::stderr().lock(), "note: {UNKNOWN}");
            std::thread::sleep(REPEAT_PAUSE);
        }
    }

    fn send_once(
        &self,
        method: &Method,
        path: &str,
        (headers, key): (&[(&str, &str)], Option<&str>),
        body: Option<(&str, Vec<u8>)>,
    ) -> Result<Answer, Failure> {
        let mut request = http::Request::builder().method(method).uri(format!("{}{path}", self.url));
        for (name, value) in headers.iter().copied().chain(key.map(|key| ("idempotency-key", key))) {
            request = request.header(name, value);
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let answer = match body {
            Some((media_type, bytes)) => {
                request.header("content-type", media_type).body(bytes).map(|request| self.agent.run(request))
            }
            None => request.body(()).map(|request| self.agent.run(request)),
        };
        self.read(answer.unwrap_or_else(|error| Err(ureq::Error::Http(error))))
    }

    /// Opens a stream that goes on until the server or the reader ends it; after an event with an id, if one is given.
    pub(crate) fn open(&self, path: &str, last: Option<&str>) -> Result<impl io::Read + use<>, Failure> {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        match request.call() {
            Ok(answer) if answer.status().is_success() => Ok(answer.into_body().into_reader()),
            answer => match self.read(answer)?.success() {
                Ok(_) => Err(Failure::Failed(format!("{path} is not a stream"))),
                Err(failure) => Err(failure),
            },
        }
    }

    fn read(&self, answer: Result<http::Response<ureq::Body>, ureq::Error>) -> Result<Answer, Failure> {
        let unreachable = |error: ureq::Error| {
            if matches!(error, ureq::Error::BadUri(_) | ureq::Error::Http(_)) {
                return Failure::Usage(format!("--admin {} is not a URL: {error}", self.url));
            }
            Failure::Unreachable(format!(
                "cannot reach the server at {}: {error}; start it, or say where it is with --admin or XDS_SERVER_ADMIN",
                self.url
            ))
        };
        let mut answer = answer.map_err(unreachable)?;
        let status = answer.status().as_u16();
        let text =
            answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string().map_err(unreachable)?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Answer { status, body })
    }
}

impl Answer {
    /// Returns `true` if the server does not know whether it is done.
    fn is_unknown(&self) -> bool {
        self.status == 503
            && self.body["type"].as_str().is_some_and(|kind| kind.ends_with("/outcome-unknown"))
    }

    /// Returns `true` if it is done, and not all clients that have to have it do.
    pub(crate) fn is_pending(&self) -> bool {
        self.status == 202
    }

    /// The body of an answer that says that it is done: the one place that makes an exit code of a status.
    pub(crate) fn success(self) -> Result<Value, Failure> {
        if (200..300).contains(&self.status) {
            return Ok(self.body);
        }
        // Parameters that the server cannot read are those of the command line.
        let is_usage = self.body["type"].as_str().is_some_and(|kind| kind.ends_with("/bad-request"));
        Err(if is_usage { Failure::Usage(self.problem()) } else { Failure::Failed(self.problem()) })
    }

    /// What is wrong, in words.
    pub(crate) fn problem(&self) -> String {
        describe_problem(self.status, &self.body)
    }
}

/// The details of an `application/problem+json` body, one error a line.
fn describe_problem(status: u16, body: &Value) -> String {
    let text = |value: &Value, key: &str| {
        value.get(key).and_then(Value::as_str).map(|text| clean(&advice::for_shell(text)))
    };
    let title = text(body, "title").unwrap_or_else(|| "the server refused".to_owned());
    let mut message = match text(body, "detail") {
        Some(detail) => format!("{title}: {detail} (HTTP {status})"),
        None => format!("{title} (HTTP {status})"),
    };
    if status == 401 {
        message.push_str("; give the token with --admin-token-file or XDS_SERVER_ADMIN_TOKEN");
    }
    for error in body.get("errors").and_then(Value::as_array).into_iter().flatten() {
        let place = text(error, "pointer").or_else(|| {
            let number = |key: &str| error.get(key).and_then(Value::as_u64);
            let file = text(error, "file")?;
            Some(match (number("line"), number("column")) {
                (Some(line), Some(column)) => format!("{file}:{line}:{column}"),
                (Some(line), None) => format!("{file}:{line}"),
                (None, _) => file,
            })
        });
        message.push_str("\n  ");
        // In a body of many lines the pointer does not find the place.
        let line = text(error, "file").is_none().then(|| line_of(error)).flatten();
        for place in line.into_iter().chain(place) {
            message.push_str(&format!("{place}: "));
        }
        message.push_str(&text(error, "detail").unwrap_or_default());
        if let Some(suggestion) = text(error, "suggestion") {
            message.push_str(&format!("; did you mean `{suggestion}`?"));
        }
    }
    for line in who_has_not(body).lines() {
        message.push_str(&format!("\n  {line}"));
    }
    if let Some(revision) = body.get("reverted").and_then(Value::as_u64) {
        message.push_str(&format!("\n  taken back in revision {revision}"));
    }
    message
}

/// The place of an error of a body of several texts, as `apply` finds it again.
fn line_of(error: &Value) -> Option<String> {
    let [line, column] = ["line", "column"].map(|key| error.get(key).and_then(Value::as_u64));
    Some(format!("line {}:{}", line?, column?))
}

/// Percent-encodes one segment of a path.
pub(super) fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// The media type of JSON.
const JSON: &str = "application/json";
/// The server is near: on this host or in this network.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A reload waits for removals to settle; everything else is answered at once.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The answer about 100,000 nodes is some 100 MiB.
const MAX_ANSWER_BYTES: u64 = 1 << 30;

/// A key that no other request has: what hashers with random keys make of nothing.
fn random_key() -> String {
    let number = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", number(), number())
}

const UNKNOWN: &str = "the outcome is not known yet; the request is sent again, and is done once";

/// How often a request is sent again whose outcome is not known, and how long after the answer. A server tries for 10 s each time.
const MAX_REPEATS: usize = 5;
const REPEAT_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_problem_is_told_with_all_its_errors() {
        let body = json!({
            "title": "the change is not valid",
            "detail": "2 errors",
            "errors": [
                {"pointer": "/resources/0/nme", "detail": "unknown field", "suggestion": "name"},
                {"file": "a.yaml", "line": 3, "column": 1, "detail": "duplicate"},
            ],
        });
        assert_eq!(
            describe_problem(422, &body),
            "the change is not valid: 2 errors (HTTP 422)\n  /resources/0/nme: unknown field; did you mean `name`?\n  a.yaml:3:1: duplicate"
        );
        assert_eq!(describe_problem(500, &Value::String("oops".to_owned())), "the server refused (HTTP 500)");
    }

    #[test]
    fn a_request_whose_outcome_is_not_known_is_sent_again_with_its_key() {
        use std::io::{BufRead as _, BufReader};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let unknown = r#"{"type":"https://xds-server.io/problems/outcome-unknown"}"#;
            let answers = [("503 Service Unavailable", unknown), ("200 OK", "{}")];
            answers.map(|(status, body)| {
                let (mut stream, _) = listener.accept().unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let n = body.len();
                write!(stream, "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {n}\r\nconnection: close\r\n\r\n{body}").unwrap();
                let key = head.iter().find_map(|line| line.strip_prefix("idempotency-key: "));
                key.unwrap_or_default().to_owned()
            })
        });
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let admin = Admin { url, token: None, agent };
        let answer = admin.send(Method::DELETE, "/v1/a", &[], None).unwrap();
        assert_eq!(answer.status, 200);
        let [first, second] = server.join().unwrap();
        assert!(first.len() == 32 && first == second, "{first} {second}");
        assert_ne!(random_key(), random_key());
    }

    #[test]
    fn a_segment_keeps_its_slashes_to_itself() {
        assert_eq!(segment("a/b c~d?é"), "a%2Fb%20c~d%3F%C3%A9");
    }
}
