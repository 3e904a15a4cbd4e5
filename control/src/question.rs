//! Questions about requests as they are written: in the body of `POST /v1/explain` and in documents.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use xds_codec::document::{Node, Number, Position, TreeValue};
use xds_codec::{Diagnostic, Place, Severity, echo, echo_name, nearest};
use xds_explain::{Client, Connection, Request};

/// Reads fields, and collects everything that is wrong with them.
#[derive(Debug)]
pub struct Fields {
    file: Arc<str>,
    /// The faults, in the order in which fields were read; at most [`MAX_FAULTS`].
    pub faults: Vec<Diagnostic>,
}

/// An object whose fields are read, and its path in the document.
#[derive(Clone)]
pub struct Part<'t> {
    /// The object.
    pub node: Node<'t>,
    /// Its path; empty for the document itself.
    pub path: String,
}

impl fmt::Debug for Part<'_> {
    /// Only the path: values may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({})", self.path)
    }
}

impl<'t> Part<'t> {
    /// The value of a field; `None` if there is none, or if it is null.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<Self> {
        Some(Self { node: self.node.get(key)?, path: join(&self.path, key) })
    }
}

impl Fields {
    /// `file` is empty for the body of a request.
    #[must_use]
    pub fn new(file: Arc<str>) -> Self {
        Self { file, faults: Vec::new() }
    }

    /// Records a fault of a value.
    pub fn fault(&mut self, code: &'static str, at: &Part<'_>, message: impl Into<String>) {
        if self.faults.len() >= MAX_FAULTS {
            return;
        }
        let Position { line, column } = at.node.position();
        self.faults.push(Diagnostic {
            severity: Severity::Error,
            code,
            place: Place { file: Arc::clone(&self.file), line, column },
            path: at.path.clone(),
            message: message.into(),
            suggestion: None,
            related: Vec::new(),
            is_sensitive: false,
        });
    }

    /// Refuses anything but an object with these fields.
    pub fn check(&mut self, part: &Part<'_>, known: &[&str]) {
        if !part.node.is_object() {
            self.wrong_type(part, "an object");
        }
        for entry in part.node.entries().filter(|entry| !known.contains(&entry.key)) {
            let hint = match nearest(entry.key, known.iter().copied()) {
                Some(likely) => format!("did you mean `{likely}`?"),
                None => format!("the fields are {}", known.join(", ")),
            };
            let at = Part { node: entry.value, path: join(&part.path, entry.key) };
            self.fault("unknown-field", &at, format!("there is no field {}; {hint}", echo_name(entry.key)));
        }
    }

    /// The text of a value.
    pub fn text(&mut self, at: &Part<'_>) -> Option<String> {
        let text = at.node.as_str();
        if text.is_none() {
            self.wrong_type(at, "a text, in quotes if it looks like something else");
        }
        text.map(str::to_owned)
    }

    /// A value that is written as a text of its own grammar.
    pub fn parsed<T: FromStr<Err: ToString>>(&mut self, at: &Part<'_>) -> Option<T> {
        let text = self.text(at)?;
        let parsed = text.parse().map_err(|error: T::Err| error.to_string());
        parsed.map_err(|error| self.fault("invalid-value", at, error)).ok()
    }

    /// A whole number up to a limit.
    pub fn number(&mut self, at: &Part<'_>, max: u64) -> Option<u64> {
        let mut number = None;
        if let TreeValue::Number(Number::Integer(integer)) = at.node.value() {
            number = u64::try_from(integer).ok().filter(|number| *number <= max);
        }
        if number.is_none() {
            self.wrong_type(at, &format!("a whole number from 0 to {max}"));
        }
        number
    }

    /// `true` or `false`.
    pub fn flag(&mut self, at: &Part<'_>) -> Option<bool> {
        if let TreeValue::Bool(flag) = at.node.value() {
            return Some(flag);
        }
        self.wrong_type(at, "true or false");
        None
    }

    /// The items of a list of at most `max`.
    pub fn items<'t>(&mut self, at: &Part<'t>, max: usize) -> Vec<Part<'t>> {
        let Some(items) = at.node.as_list() else {
            self.wrong_type(at, "a list");
            return Vec::new();
        };
        let item = |(index, node)| Part { node, path: format!("{}[{index}]", at.path) };
        let items: Vec<Part<'t>> = items.enumerate().map(item).take(max + 1).collect();
        if items.len() > max {
            self.fault("too-many", at, format!("there may be at most {max}"));
        }
        items
    }

    /// The entries of an object with at most `max`.
    pub fn entries<'t>(&mut self, at: &Part<'t>, max: usize) -> Vec<(&'t str, Part<'t>)> {
        if !at.node.is_object() {
            self.wrong_type(at, "an object");
        }
        let entries = at.node.entries();
        let entry = |entry: xds_codec::document::Entry<'t>| {
            (entry.key, Part { node: entry.value, path: join(&at.path, entry.key) })
        };
        let entries: Vec<(&'t str, Part<'t>)> = entries.map(entry).take(max + 1).collect();
        if entries.len() > max {
            self.fault("too-many", at, format!("there may be at most {max}"));
        }
        entries
    }

    fn wrong_type(&mut self, at: &Part<'_>, wanted: &str) {
        self.fault("wrong-type", at, format!("must be {wanted}, not {}", at.node.kind()));
    }

    /// The clients of a list: `envoy`, `grpc-go@1.85`; `grpc` is all languages of gRPC.
    pub fn clients(&mut self, at: &Part<'_>) -> Vec<Client> {
        let mut clients = Vec::new();
        for item in self.items(at, MAX_CLIENTS) {
            match item.node.as_str() {
                Some("grpc") => clients.extend(xds_explain::Language::GRPC.map(Client::newest)),
                _ => clients.extend(self.parsed::<Client>(&item)),
            }
        }
        clients
    }

    /// The request that these parts describe together. Of several with the same field, the first counts. `None` if it is not complete;
    /// then there is a fault.
    pub fn request(&mut self, parts: &[Part<'_>]) -> Option<Request> {
        self.request_with(parts, &[])
    }

    /// The same with fields that count where these parts say nothing, neither themselves nor by `curl` or `call`.
    pub fn request_with(&mut self, own: &[Part<'_>], defaults: &[Part<'_>]) -> Option<Request> {
        let of_own = |key: &str| own.iter().find_map(|part| part.field(key));
        let said: &[&str] = match (of_own("curl"), of_own("call")) {
            (Some(_), _) => &NOT_WITH_CURL,
            (None, Some(_)) => &NOT_WITH_CALL,
            (None, None) => &[],
        };
        let of_defaults = |key: &str| match said.contains(&key) {
            true => None,
            false => defaults.iter().find_map(|part| part.field(key)),
        };
        let field = |key: &str| of_own(key).or_else(|| of_defaults(key));
        let parts: Vec<&Part<'_>> = own.iter().chain(defaults).collect();
        let n_faults = self.faults.len();
        let mut request = match (of_own("curl"), field("call")) {
            (Some(curl), _) => {
                if let Some(other) = NOT_WITH_CURL.iter().find_map(|key| of_own(key)) {
                    self.fault("invalid-value", &other, "`curl` says this already; leave one of both out");
                }
                let text = self.text(&curl).unwrap_or_default();
                let read = xds_explain::curl(&text);
                read.map_err(|error| self.fault("invalid-value", &curl, error.to_string()))
                    .unwrap_or_default()
            }
            (None, Some(call)) => {
                if let Some(other) = NOT_WITH_CALL.iter().find_map(|key| of_own(key)) {
                    self.fault("invalid-value", &other, "`call` says this already; leave one of both out");
                }
                Request { scheme: String::new(), ..Request::call("", &self.call(&call)) }
            }
            (None, None) => {
                let path = field("path").and_then(|at| self.path(&at));
                Request { scheme: String::new(), ..Request::get("", path.as_deref().unwrap_or("/")) }
            }
        };
        let named = of_own("target").or(of_own("host")).or(of_defaults("target")).or(of_defaults("host"));
        match (named, parts.first()) {
            (Some(at), _) => request.authority = self.text(&at).unwrap_or_default(),
            (None, Some(first)) if of_own("curl").is_none() => {
                let message = "a request needs a `host`, or a `target` if the client is gRPC without a proxy";
                self.fault("missing-field", first, message);
            }
            (None, _) => {}
        }
        if let Some(method) = field("method").and_then(|at| self.text(&at)) {
            request.method = method;
        }
        if let Some(at) = field("scheme") {
            match self.text(&at) {
                Some(scheme) if ["http", "https"].contains(&&*scheme) => request.scheme = scheme,
                Some(scheme) => {
                    self.fault("invalid-value", &at, format!("{} is neither http nor https", echo(&scheme)));
                }
                None => {}
            }
        }
        // Headers of all parts count, each name from the first that has it.
        let mut names: Vec<String> = Vec::new();
        for part in parts {
            let Some(at) = part.field("headers") else { continue };
            let own = self.headers(&at);
            let is_new = |(name, _): &(String, String)| !names.contains(&name.to_ascii_lowercase());
            let own: Vec<(String, String)> = own.into_iter().filter(is_new).collect();
            names.extend(own.iter().map(|(name, _)| name.to_ascii_lowercase()));
            request.headers.extend(own);
        }
        self.circumstances(&field, &mut request);
        request.route_config = field("routeConfig").and_then(|at| self.text(&at));
        request.connection = self.connection(&field, std::mem::take(&mut request.connection));
        (self.faults.len() == n_faults).then_some(request)
    }

    /// What else decides about a request: draws, runtime keys, what filters have set, the health of endpoints.
    fn circumstances<'t>(&mut self, field: &dyn Fn(&str) -> Option<Part<'t>>, request: &mut Request) {
        request.random = field("random").and_then(|at| self.number(&at, u64::MAX));
        if let Some(at) = field("runtime") {
            for (key, at) in self.entries(&at, MAX_ENTRIES) {
                let Some(text) = self.text(&at) else { continue };
                match parse_fraction(&text) {
                    Some(fraction) => drop(request.runtime.insert(key.to_owned(), fraction)),
                    None => self.fault("invalid-value", &at, FRACTION),
                }
            }
        }
        let texts = |fields: &mut Self, key: &str| {
            let entries = field(key).map(|at| fields.entries(&at, MAX_ENTRIES)).unwrap_or_default();
            let text = |(key, at): (&str, Part<'_>)| Some((key.to_owned(), fields.text(&at)?));
            entries.into_iter().filter_map(text).collect::<BTreeMap<String, String>>()
        };
        request.metadata = texts(self, "metadata");
        request.filter_state = texts(self, "filterState");
        if let Some(at) = field("healthy") {
            for (cluster, at) in self.entries(&at, MAX_ENTRIES) {
                let Some(text) = self.text(&at) else { continue };
                match parse_healthy(&text) {
                    Some(healthy) => drop(request.healthy.insert(cluster.to_owned(), healthy)),
                    None => self.fault("invalid-value", &at, HEALTHY),
                }
            }
        }
    }

    fn call(&mut self, at: &Part<'_>) -> String {
        let call = self.text(at).unwrap_or_default();
        let parts: Vec<&str> = call.strip_prefix('/').unwrap_or(&call).split('/').collect();
        if parts.len() != 2 || parts.contains(&"") {
            let message = format!("{} is no call; write package.Service/Method", echo(&call));
            self.fault("invalid-value", at, message);
        }
        call
    }

    fn path(&mut self, at: &Part<'_>) -> Option<String> {
        let path = self.text(at)?;
        if path.len() > MAX_PATH_BYTES {
            let message = format!("has {} bytes; the limit is {MAX_PATH_BYTES} bytes", path.len());
            self.fault("too-long", at, message);
            return None;
        }
        if !path.starts_with('/') && path != "*" {
            self.fault("invalid-value", at, format!("{} does not begin with `/`", echo(&path)));
            return None;
        }
        Some(path)
    }

    /// `name: value` or `name: [value, value]`.
    fn headers(&mut self, at: &Part<'_>) -> Vec<(String, String)> {
        let mut headers = Vec::new();
        for (name, at) in self.entries(at, MAX_ENTRIES) {
            if at.node.as_list().is_none() {
                headers.extend(self.text(&at).map(|value| (name.to_owned(), value)));
                continue;
            }
            for item in self.items(&at, MAX_ENTRIES) {
                headers.extend(self.text(&item).map(|value| (name.to_owned(), value)));
            }
        }
        headers
    }

    /// The connection; `own` is that of the request without these fields.
    fn connection<'t>(&mut self, field: &dyn Fn(&str) -> Option<Part<'t>>, own: Connection) -> Connection {
        let port = field("port").and_then(|at| self.number(&at, u16::MAX.into()));
        let from = field("from").and_then(|at| self.source(&at));
        let alpn = field("alpn").map(|at| self.items(&at, MAX_ENTRIES)).unwrap_or_default();
        let alpn: Vec<String> = alpn.iter().filter_map(|at| self.text(at)).collect();
        let certificate = field("clientCert").and_then(|at| {
            let text = self.text(&at)?;
            let parsed = parse_certificate(&text);
            parsed.map_err(|error| self.fault("invalid-value", &at, error)).ok()
        });
        Connection {
            listener: field("listener").and_then(|at| self.text(&at)),
            port: port.and_then(|port| u16::try_from(port).ok()).or(own.port),
            to: field("to").and_then(|at| self.address(&at)).or(own.to),
            from: from.map(|(ip, _)| ip),
            from_port: from.and_then(|(_, port)| port),
            sni: field("sni").and_then(|at| self.text(&at)).or(own.sni),
            alpn: if alpn.is_empty() { own.alpn } else { alpn },
            tls: field("tls").and_then(|at| self.flag(&at)),
            certificate,
        }
    }

    fn address(&mut self, at: &Part<'_>) -> Option<IpAddr> {
        let text = self.text(at)?;
        let parsed = text.parse().ok();
        if parsed.is_none() {
            self.fault("invalid-value", at, format!("{} is no IP address", echo(&text)));
        }
        parsed
    }

    fn source(&mut self, at: &Part<'_>) -> Option<(IpAddr, Option<u16>)> {
        let text = self.text(at)?;
        parse_source(&text).map_err(|error| self.fault("invalid-value", at, error)).ok()
    }
}

/// The request as the fields that [`Fields::request`] reads.
#[must_use]
pub fn to_json(request: &Request) -> Value {
    let connection = &request.connection;
    let mut fields = Map::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(key.to_owned(), value);
        }
    };
    set("host", Some(json!(request.authority)));
    set("path", Some(json!(request.path)));
    set("method", Some(json!(request.method)));
    set("scheme", Some(json!(request.scheme)).filter(|_| !request.scheme.is_empty()));
    let mut headers = Map::new();
    for (name, value) in &request.headers {
        let values = headers.entry(name.clone()).or_insert_with(|| json!([]));
        values.as_array_mut().into_iter().for_each(|values| values.push(json!(value)));
    }
    set("headers", Some(Value::Object(headers)).filter(|_| !request.headers.is_empty()));
    set("random", request.random.map(Value::from));
    let runtime = request.runtime.iter().map(|(key, (n, of))| (key.clone(), json!(format!("{n}/{of}"))));
    set("runtime", Some(Value::Object(runtime.collect())).filter(|_| !request.runtime.is_empty()));
    set("metadata", Some(json!(request.metadata)).filter(|_| !request.metadata.is_empty()));
    set("filterState", Some(json!(request.filter_state)).filter(|_| !request.filter_state.is_empty()));
    let healthy = request.healthy.iter().map(|(key, (n, of))| (key.clone(), json!(format!("{n}/{of}"))));
    set("healthy", Some(Value::Object(healthy.collect())).filter(|_| !request.healthy.is_empty()));
    set("routeConfig", request.route_config.as_ref().map(|name| json!(name)));
    set("listener", connection.listener.as_ref().map(|name| json!(name)));
    set("port", connection.port.map(Value::from));
    set("to", connection.to.map(|ip| json!(ip.to_string())));
    let from = connection.from.map(|ip| match connection.from_port {
        Some(port) => SocketAddr::new(ip, port).to_string(),
        None => ip.to_string(),
    });
    set("from", from.map(Value::from));
    set("sni", connection.sni.as_ref().map(|name| json!(name)));
    set("alpn", Some(json!(connection.alpn)).filter(|_| !connection.alpn.is_empty()));
    set("tls", connection.tls.map(Value::from));
    let certificate = connection.certificate.map(|state| match state {
        (_, true) => "validated",
        (true, false) => "presented",
        (false, false) => "none",
    });
    set("clientCert", certificate.map(Value::from));
    Value::Object(fields)
}

/// Reads `10.0.0.1` or `10.0.0.1:4000`.
///
/// # Errors
///
/// A sentence that says what to write.
pub fn parse_source(text: &str) -> Result<(IpAddr, Option<u16>), String> {
    if let Ok(ip) = text.parse() {
        return Ok((ip, None));
    }
    let addr: SocketAddr = text.parse().map_err(|_| "write an IP address, with a port if you like")?;
    Ok((addr.ip(), Some(addr.port())))
}

/// Reads the state of a client certificate: presented, and validated.
///
/// # Errors
///
/// A sentence that says what to write.
pub fn parse_certificate(text: &str) -> Result<(bool, bool), String> {
    match text {
        "none" => Ok((false, false)),
        "presented" => Ok((true, false)),
        "validated" | "presented,validated" => Ok((true, true)),
        _ => Err("write none, presented, or presented,validated".to_owned()),
    }
}

/// Reads `10/100`: `n` of a denominator that Envoy has.
#[must_use]
pub fn parse_fraction(text: &str) -> Option<(u32, u32)> {
    let (n, of) = text.split_once('/')?;
    let (n, of) = (n.parse().ok()?, of.parse().ok()?);
    [100, 10_000, 1_000_000].contains(&of).then_some((n, of))
}

/// Reads `2/3`: two healthy endpoints of three.
#[must_use]
pub fn parse_healthy(text: &str) -> Option<(usize, usize)> {
    let (n, of) = text.split_once('/')?;
    let (n, of) = (n.parse().ok()?, of.parse().ok()?);
    (n <= of).then_some((n, of))
}

/// The fields of a request.
pub const REQUEST_FIELDS: [&str; 22] = [
    "host",
    "path",
    "method",
    "headers",
    "scheme",
    "call",
    "target",
    "curl",
    "random",
    "runtime",
    "metadata",
    "filterState",
    "healthy",
    "routeConfig",
    "listener",
    "port",
    "to",
    "from",
    "sni",
    "alpn",
    "tls",
    "clientCert",
];

/// The path of a field in an object.
fn join(path: &str, key: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "-_".contains(character);
    match (path, !key.is_empty() && key.chars().all(is_plain)) {
        ("", true) => key.to_owned(),
        (_, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}[{}]", echo_name(key)),
    }
}

const NOT_WITH_CURL: [&str; 7] = ["host", "path", "method", "headers", "scheme", "call", "target"];

const NOT_WITH_CALL: [&str; 2] = ["path", "method"];

const FRACTION: &str =
    "write N/D with a denominator of 100, 10000 or 1000000, such as 10/100, which is ten percent";

const HEALTHY: &str = "write N/M, how many of the cluster's endpoints are healthy, such as 2/3";

/// Clients of one question.
pub const MAX_CLIENTS: usize = 8;

/// Headers, runtime keys and other entries.
const MAX_ENTRIES: usize = 100;

/// No client sends longer ones by default.
const MAX_PATH_BYTES: usize = 16 << 10;

/// Faults of one text that are kept.
pub const MAX_FAULTS: usize = 100;

#[cfg(test)]
mod tests {
    use xds_codec::{Limits, Syntax};

    use super::*;

    fn read(text: &str) -> (Option<Request>, Vec<String>) {
        let trees = xds_codec::parse("a.yaml", text.as_bytes(), Syntax::Yaml, &Limits::default()).unwrap();
        let mut fields = Fields::new("a.yaml".into());
        let part = Part { node: trees[0].root(), path: "request".to_owned() };
        fields.check(&part, &REQUEST_FIELDS);
        let request = fields.request(&[part]);
        (request, fields.faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let full = Request {
            connection: Connection {
                listener: Some("l".to_owned()),
                port: Some(443),
                to: Some([10, 0, 0, 1].into()),
                from: Some([10, 0, 0, 2].into()),
                from_port: Some(4000),
                sni: Some("a.test".to_owned()),
                alpn: vec!["h2".to_owned()],
                tls: Some(true),
                certificate: Some((true, false)),
            },
            scheme: "https".to_owned(),
            random: Some(u64::MAX),
            runtime: [("k".to_owned(), (1, 100))].into(),
            metadata: [("jwt.sub".to_owned(), "7".to_owned())].into(),
            filter_state: [("tier".to_owned(), "gold".to_owned())].into(),
            healthy: [("default/one".to_owned(), (2, 3))].into(),
            route_config: Some("r".to_owned()),
            ..Request::get("a.test", "/b?c=d")
        };
        let full = full.with("x-a", "1").with("x-a", "2").with("b", "");
        for request in [full, Request { scheme: String::new(), ..Request::call("a.test", "s/m") }] {
            let (mut read, faults) = read(&to_json(&request).to_string());
            let sorted = |request: &mut Request| request.headers.sort();
            read.iter_mut().for_each(sorted);
            let mut expected = request;
            sorted(&mut expected);
            assert_eq!((read, faults), (Some(expected), vec![]));
        }
    }

    #[test]
    fn a_call_and_a_curl_command_are_requests_too() {
        let (call, faults) = read("{target: 'xds:///a', call: s/m, headers: {x: '1'}}");
        assert_eq!(faults, [""; 0]);
        let call = call.unwrap();
        assert_eq!((&*call.authority, &*call.path, &*call.method), ("xds:///a", "/s/m", "POST"));
        assert_eq!(call.headers.last().unwrap().0, "x");
        let (curl, faults) = read("curl: curl -X PUT https://a.test/b");
        assert_eq!(faults, [""; 0]);
        let curl = curl.unwrap();
        assert_eq!((&*curl.authority, &*curl.path, &*curl.method), ("a.test", "/b", "PUT"));
    }

    #[test]
    fn faults_have_file_line_column_and_path() {
        let (request, faults) =
            read("host: a\npath: b\nheaders:\n  x-on: true\n  'a b': []\nprt: 1\nruntime: {k: 1/7}\n");
        assert_eq!(request, None);
        assert_eq!(
            faults,
            [
                "a.yaml:6:6: error[unknown-field] request.prt: there is no field \"prt\"; did you mean `port`?",
                "a.yaml:2:7: error[invalid-value] request.path: \"b\" does not begin with `/`",
                "a.yaml:4:9: error[wrong-type] request.headers.x-on: must be a text, in quotes if it looks like something else, not a bool",
                "a.yaml:7:14: error[invalid-value] request.runtime.k: write N/D with a denominator of 100, 10000 or 1000000, such as 10/100, which is ten percent",
            ]
        );
    }
}
