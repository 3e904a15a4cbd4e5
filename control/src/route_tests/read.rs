//! Reads RouteTests, with all their faults.

use std::sync::Arc;

use xds_cache::GroupName;
use xds_codec::document::TreeValue;
use xds_codec::{Diagnostic, Tree};
use xds_explain::{Client, Conditions, Language, Region, TextIs};
use xds_routes::{ReadOutcome, UnknownFields};
use xds_units::Span;

use super::expect::{Always, Claim, Expect, Expected, Redirect, RouteTest, Share, Test, TestPolicy, Whose};
use super::router;
use super::size::{self, MAX_TESTS};
use crate::question::{Fields, Part, REQUEST_FIELDS};

/// Reads a route document, as [`xds_routes::read()`] does. A RouteTest or RouterCheck whose `spec` has faults is refused.
#[must_use]
pub fn read_document(file: &Arc<str>, tree: &Tree, unknown: UnknownFields) -> ReadOutcome {
    let ReadOutcome::Objects(mut objects) = xds_routes::read(file, tree, unknown) else {
        return xds_routes::read(file, tree, unknown);
    };
    for object in objects.iter_mut().filter(|object| object.key.kind.is_test()) {
        if object.outcome.is_ok()
            && let Err(faults) = read(file, tree)
        {
            object.outcome = Err(faults);
        }
    }
    ReadOutcome::Objects(objects)
}

/// Reads the `spec` of a RouteTest or RouterCheck.
///
/// # Errors
///
/// Its faults, at least one, each with its place.
pub fn read(file: &Arc<str>, tree: &Tree) -> Result<RouteTest, Vec<Diagnostic>> {
    let mut reader = Reader { fields: Fields::new(Arc::clone(file)), clients: None };
    let root = Part { node: tree.root(), path: String::new() };
    let test = match root.field("kind").and_then(|kind| kind.node.as_str()) {
        Some("RouterCheck") => reader.router_check(&root),
        Some(_) | None => reader.spec(&root),
    };
    match (test, reader.fields.faults) {
        (Some(test), faults) if faults.is_empty() => Ok(test),
        (_, faults) => Err(faults),
    }
}

struct Reader {
    fields: Fields,
    clients: Option<Vec<Client>>,
}

impl Reader {
    fn spec(&mut self, root: &Part<'_>) -> Option<RouteTest> {
        let Some(spec) = root.field("spec") else {
            self.fields.fault("missing-field", root, "a RouteTest needs a `spec` with `tests` or `always`");
            return None;
        };
        let known = ["clients", "group", "node", "policy", "defaults", "tests", "always"];
        self.fields.check(&spec, &known);
        self.clients = spec.field("clients").map(|at| {
            let clients = self.fields.clients(&at);
            if clients.is_empty() && at.node.as_list().is_some_and(|mut items| items.next().is_none()) {
                self.fields.fault("invalid-value", &at, "there must be at least one client, or no `clients`");
            }
            clients
        });
        let whose = self.whose(&spec);
        let policy = spec.field("policy").and_then(|at| self.fields.parsed::<TestPolicy>(&at));
        let defaults = spec.field("defaults");
        if let Some(defaults) = &defaults {
            let not_here = ["curl", "call"];
            let mut known: Vec<&str> =
                REQUEST_FIELDS.into_iter().filter(|key| !not_here.contains(key)).collect();
            known.push("passes");
            self.fields.check(defaults, &known);
        }
        let tests = spec.field("tests").map(|at| self.fields.items(&at, MAX_TESTS)).unwrap_or_default();
        let claims = spec.field("always").map(|at| self.fields.items(&at, MAX_ALWAYS)).unwrap_or_default();
        if tests.is_empty() && claims.is_empty() && self.fields.faults.is_empty() {
            self.fields.fault("missing-field", &spec, "write `tests` or `always` with at least one item");
        }
        let tests = tests.iter().filter_map(|at| self.test(at, defaults.as_ref())).collect();
        let always = claims.iter().filter_map(|at| self.always(at)).collect();
        Some(RouteTest { clients: self.clients.take(), whose, policy, tests, always })
    }

    fn router_check(&mut self, root: &Part<'_>) -> Option<RouteTest> {
        let Some(spec) = root.field("spec") else {
            self.fields.fault(
                "missing-field",
                root,
                "a RouterCheck needs a `spec` with `routeConfig` and `tests`",
            );
            return None;
        };
        self.fields.check(&spec, &["clients", "group", "node", "policy", "routeConfig", "runtime", "tests"]);
        let clients = spec.field("clients").map(|at| {
            let clients = self.fields.clients(&at);
            if clients.iter().any(|client| client.language != Language::Envoy) || clients.is_empty() {
                self.fields.fault(
                    "invalid-value",
                    &at,
                    "a RouterCheck is about Envoys; write `envoy` or `envoy@1.38`",
                );
            }
            clients
        });
        let whose = self.whose(&spec);
        let policy = spec.field("policy").and_then(|at| self.fields.parsed::<TestPolicy>(&at));
        let route_config = match spec.field("routeConfig") {
            Some(at) => self.fields.text(&at),
            None => {
                let message = "a RouterCheck needs `routeConfig`, the name of a RouteConfiguration";
                self.fields.fault("missing-field", &spec, message);
                None
            }
        };
        let tests = router::tests(&mut self.fields, &spec, route_config.as_deref());
        Some(RouteTest { clients, whose, policy, tests, always: Vec::new() })
    }

    fn whose(&mut self, spec: &Part<'_>) -> Whose {
        match (spec.field("group"), spec.field("node")) {
            (Some(group), Some(_)) => {
                let message = "a test is about a `group` or a `node`; leave one of both out";
                self.fields.fault("invalid-value", &group, message);
                Whose::Own
            }
            (Some(at), None) => {
                let name = self.fields.text(&at).map(|name| GroupName::new(&name));
                match name {
                    Some(Ok(name)) => Whose::Group(name),
                    Some(Err(error)) => {
                        self.fields.fault("invalid-value", &at, error.to_string());
                        Whose::Own
                    }
                    None => Whose::Own,
                }
            }
            (None, Some(at)) => self.fields.text(&at).map_or(Whose::Own, Whose::Node),
            (None, None) => Whose::Own,
        }
    }

    fn test(&mut self, at: &Part<'_>, defaults: Option<&Part<'_>>) -> Option<Test> {
        if !size::fits(&mut self.fields, at) {
            return None;
        }
        self.fields.check(at, &["name", "request", "call", "target", "passes", "expect"]);
        let name = self.name(at);
        let request_part = at.field("request");
        if let Some(part) = &request_part {
            self.fields.check(part, &REQUEST_FIELDS);
        } else if at.field("call").is_none() && at.node.is_object() {
            self.fields.fault("missing-field", at, "a test needs a `request`, or a `call`");
            return None;
        }
        let own: Vec<Part<'_>> = request_part.into_iter().chain([at.clone()]).collect();
        let has = |parts: &[Part<'_>], key: &str| parts.iter().any(|part| part.field(key).is_some());
        let is_call = has(&own, "call");
        let of_defaults = defaults.map(std::slice::from_ref).unwrap_or_default();
        let is_target = has(&own, "target") || !has(&own, "host") && has(of_defaults, "target");
        let request = self.fields.request_with(&own, of_defaults);
        let passes = at.field("passes").or_else(|| defaults?.field("passes"));
        let passes = passes.map(|at| self.texts(&at)).unwrap_or_default();
        let expect = match at.field("expect") {
            Some(part) => self.expect(&part),
            None => {
                self.fields.fault("missing-field", at, "a test needs an `expect`");
                None
            }
        };
        self.check_senders(at, is_call, is_target);
        let (request, expect) = (request?, expect?);
        let name = name.unwrap_or_else(|| {
            let host = if is_target { "xds:///" } else { "" };
            format!("{} {host}{}{}", request.method, request.authority, request.path)
        });
        Some(Test {
            name,
            path: at.path.clone(),
            request,
            is_call,
            is_target,
            passes,
            expect: Expected::Outcome(Box::new(expect)),
        })
    }

    /// Refuses a request that none of the clients can send.
    fn check_senders(&mut self, at: &Part<'_>, is_call: bool, is_target: bool) {
        let Some(clients) = self.clients.as_ref().filter(|clients| !clients.is_empty()) else { return };
        let is_envoy = |client: &Client| client.language == Language::Envoy;
        let message = if is_target && clients.iter().all(is_envoy) {
            "only gRPC clients have a `target`, and none is among the `clients`"
        } else if !is_target && !is_call && !clients.iter().any(is_envoy) {
            "gRPC clients send only calls, and no other client is among the `clients`; write `call`"
        } else {
            return;
        };
        self.fields.fault("invalid-value", at, message);
    }

    fn name(&mut self, at: &Part<'_>) -> Option<String> {
        let at = at.field("name")?;
        let name = self.fields.text(&at)?;
        if name.is_empty() || name.chars().count() > MAX_NAME {
            let message = format!("must have 1 to {MAX_NAME} characters");
            self.fields.fault("invalid-value", &at, message);
            return None;
        }
        Some(name)
    }

    fn texts(&mut self, at: &Part<'_>) -> Vec<String> {
        let items = self.fields.items(at, MAX_NAMES);
        items.iter().filter_map(|item| self.fields.text(item)).collect()
    }

    fn expect(&mut self, part: &Part<'_>) -> Option<Expect> {
        let n_faults = self.fields.faults.len();
        let known = [
            "rule",
            "backends",
            "timeout",
            "retries",
            "redirect",
            "status",
            "unmatched",
            "denied",
            "session",
            "mirrors",
        ];
        self.fields.check(part, &known);
        if part.node.is_object() && part.node.entries().next().is_none() {
            let message = format!("says nothing; write one of {}", known.join(", "));
            self.fields.fault("missing-field", part, message);
        }
        let fields = &mut self.fields;
        let expect = Expect {
            rule: part.field("rule").and_then(|at| fields.text(&at)),
            backends: part.field("backends").map(|at| shares(fields, &at)).unwrap_or_default(),
            timeout: part.field("timeout").and_then(|at| timeout(fields, &at)),
            retries: part
                .field("retries")
                .and_then(|at| fields.number(&at, MAX_RETRIES))
                .and_then(|n| u32::try_from(n).ok()),
            redirect: part.field("redirect").and_then(|at| redirect(fields, &at)),
            status: part.field("status").and_then(|at| status(fields, &at)),
            unmatched: part.field("unmatched").and_then(|at| fields.flag(&at)),
            denied: part.field("denied").and_then(|at| fields.flag(&at)),
            session: part.field("session").and_then(|at| session(fields, &at)),
            mirrors: part.field("mirrors").map(|at| shares(fields, &at)).unwrap_or_default(),
        };
        (self.fields.faults.len() == n_faults).then_some(expect)
    }

    fn always(&mut self, at: &Part<'_>) -> Option<Always> {
        if !size::fits(&mut self.fields, at) {
            return None;
        }
        let n_faults = self.fields.faults.len();
        self.fields.check(at, &["name", "when", "never", "only"]);
        let name = self.name(at);
        let region = at.field("when").map(|when| self.region(&when)).unwrap_or_default();
        let claim = match (at.field("never"), at.field("only")) {
            (Some(_), Some(only)) => {
                self.fields.fault("invalid-value", &only, "write `never` or `only`, not both");
                None
            }
            (Some(never), None) => {
                self.fields.check(&never, &["backends", "unmatched"]);
                let backends = never.field("backends").map(|at| self.texts(&at)).unwrap_or_default();
                let unmatched = never.field("unmatched").and_then(|at| self.fields.flag(&at));
                let unmatched = unmatched.unwrap_or_default();
                if backends.is_empty() && !unmatched && never.node.is_object() {
                    let message = "says nothing; write `backends` with at least one, or `unmatched: true`";
                    self.fields.fault("missing-field", &never, message);
                }
                Some(Claim::Never { backends, unmatched })
            }
            (None, Some(only)) => {
                self.fields.check(&only, &["backends"]);
                let backends = only.field("backends").map(|at| self.texts(&at)).unwrap_or_default();
                if backends.is_empty() && only.node.is_object() {
                    let message = "says nothing; write `backends` with at least one";
                    self.fields.fault("missing-field", &only, message);
                }
                Some(Claim::Only { backends })
            }
            (None, None) => {
                if at.node.is_object() {
                    let message = "needs `never` or `only`, such as `never: {backends: [internal]}`";
                    self.fields.fault("missing-field", at, message);
                }
                None
            }
        };
        let claim = claim.filter(|_| self.fields.faults.len() == n_faults)?;
        let name = name.unwrap_or_else(|| match &claim {
            Claim::Never { backends, unmatched: false } => format!("never {}", backends.join(", ")),
            Claim::Never { backends, unmatched: true } if backends.is_empty() => "never unmatched".to_owned(),
            Claim::Never { backends, unmatched: true } => {
                format!("never {}, nor unmatched", backends.join(", "))
            }
            Claim::Only { backends } => format!("only {}", backends.join(", ")),
        });
        Some(Always { name, path: at.path.clone(), region, claim })
    }

    fn region(&mut self, at: &Part<'_>) -> Region {
        self.fields.check(at, &["host", "path", "method", "headers", "not"]);
        let hosts = match at.field("host") {
            Some(at) if at.node.as_list().is_some() => self.texts(&at),
            Some(at) => self.fields.text(&at).into_iter().collect(),
            None => Vec::new(),
        };
        let when = self.conditions(at);
        let unless = match at.field("not") {
            Some(at) if at.node.as_list().is_some() => self.fields.items(&at, MAX_NAMES),
            Some(at) => vec![at],
            None => Vec::new(),
        };
        let unless = unless.iter().map(|at| {
            self.fields.check(at, &["path", "method", "headers"]);
            let conditions = self.conditions(at);
            if conditions == Conditions::default() && at.node.is_object() {
                self.fields.fault("missing-field", at, "says nothing, and so leaves out every request");
            }
            conditions
        });
        let unless = unless.collect();
        Region { hosts, when, unless }
    }

    fn conditions(&mut self, at: &Part<'_>) -> Conditions {
        let path = at.field("path").and_then(|at| text_is(&mut self.fields, &at, &[]));
        let method = at.field("method").and_then(|at| self.fields.text(&at));
        let headers = at.field("headers").map(|at| self.fields.entries(&at, MAX_NAMES)).unwrap_or_default();
        let headers = headers.into_iter().filter_map(|(name, at)| {
            Some((name.to_ascii_lowercase(), text_is(&mut self.fields, &at, &["present", "absent"])?))
        });
        Conditions { path, method, headers: headers.collect() }
    }
}

/// A text, or one of `exact`, `prefix`, `suffix`, `contains` and `regex`; or a word.
fn text_is(fields: &mut Fields, at: &Part<'_>, words: &[&str]) -> Option<TextIs> {
    if let Some(text) = at.node.as_str() {
        return Some(match text {
            "present" if words.contains(&text) => TextIs::Present,
            "absent" if words.contains(&text) => TextIs::Absent,
            text => TextIs::Exact(text.to_owned()),
        });
    }
    let known = ["exact", "prefix", "suffix", "contains", "regex"];
    fields.check(at, &known);
    let mut said = known.into_iter().filter_map(|key| Some((key, at.field(key)?)));
    let (first, second) = (said.next(), said.next());
    if second.is_some() || first.is_none() && at.node.is_object() {
        let message = format!("must have one of {}", known.join(", "));
        fields.fault("invalid-value", at, message);
        return None;
    }
    let (key, at) = first?;
    let text = fields.text(&at)?;
    Some(match key {
        "exact" => TextIs::Exact(text),
        "prefix" => TextIs::Prefix(text),
        "suffix" => TextIs::Suffix(text),
        "contains" => TextIs::Contains(text),
        _ => {
            if let Err(error) = xds_re2::check_regex(&text) {
                fields.fault("invalid-value", &at, error);
                return None;
            }
            TextIs::Regex(text)
        }
    })
}

fn shares(fields: &mut Fields, at: &Part<'_>) -> Vec<(String, Share)> {
    let entries = fields.entries(at, MAX_NAMES);
    if entries.is_empty() && at.node.is_object() {
        fields.fault("missing-field", at, "says nothing; write the name of a backend with its share");
    }
    let entries = entries.into_iter();
    entries.filter_map(|(name, at)| Some((name.to_owned(), fields.parsed::<Share>(&at)?))).collect()
}

fn timeout(fields: &mut Fields, at: &Part<'_>) -> Option<Option<u64>> {
    if at.node.as_str() == Some("none") {
        return Some(None);
    }
    Some(Some(fields.parsed::<Span>(at)?.millis()))
}

fn redirect(fields: &mut Fields, at: &Part<'_>) -> Option<Redirect> {
    fields.check(at, &["status", "location"]);
    let status = at.field("status").and_then(|at| fields.number(&at, MAX_STATUS));
    let location = at.field("location").and_then(|at| fields.text(&at));
    Some(Redirect { status, location })
}

/// `404`, `UNAVAILABLE` or `grpc 14`.
fn status(fields: &mut Fields, at: &Part<'_>) -> Option<String> {
    match at.node.value() {
        TreeValue::Number(_) => fields.number(at, MAX_STATUS).map(|status| status.to_string()),
        TreeValue::Null
        | TreeValue::Bool(_)
        | TreeValue::String(_)
        | TreeValue::List(_)
        | TreeValue::Object(_) => fields.text(at),
    }
}

fn session(fields: &mut Fields, at: &Part<'_>) -> Option<Option<(String, String)>> {
    if at.node.as_str() == Some("none") {
        return Some(None);
    }
    fields.check(at, &["cookie", "header"]);
    match (at.field("cookie"), at.field("header")) {
        (Some(name), None) => Some(Some(("cookie".to_owned(), fields.text(&name)?))),
        (None, Some(name)) => Some(Some(("header".to_owned(), fields.text(&name)?))),
        (Some(_), Some(_)) | (None, None) => {
            if at.node.is_object() {
                fields.fault(
                    "invalid-value",
                    at,
                    "write `cookie: NAME`, `header: NAME`, or `none` in its place",
                );
            }
            None
        }
    }
}

/// Claims of one RouteTest: each is followed through all requests.
pub const MAX_ALWAYS: usize = 32;

/// Characters of a name.
const MAX_NAME: usize = 200;

/// Backends, headers and filters of one item.
const MAX_NAMES: usize = 64;

const MAX_RETRIES: u64 = 1_000;
const MAX_STATUS: u64 = 999;
