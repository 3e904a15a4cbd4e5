//! No principal with a scope changes what a node out of its scope is served, or reads a text of an object out of it: random policies,
//! groups and selectors, and every operation of the served `openapi.json`.
//!
//! `XDS_SEED` repeats a run, and `XDS_CASES` runs more worlds.

use std::pin::Pin;

use axum::body::Body;
use axum::http::Request;
use futures_util::StreamExt as _;
use http_body_util::BodyStream;
use serde_json::{Value, json};
use tower::Service as _;
use xds_cache::Node;
use xds_cache::status::{EventKind, Named, Sent};

use super::super::acked::AckingClient;
use super::super::fuzz::splitmix::Random;
use super::*;

/// The groups that a world may have. The globs of scopes are made of their beginnings.
const GROUPS: [&str; 5] = ["edge", "edge2", "prod", "core", "shop"];
const NAMESPACES: [&str; 2] = ["ours", "theirs"];
const NODES: [&str; 7] = ["edge-1", "edge-2", "prod-1", "prod-2", "core-1", "both-1", "other-1"];
const SELECTED: [&str; 9] =
    ["edge-*", "edge-1", "prod-*", "prod-2", "core-1", "both-1", "*-1", "shop-*", "other-1"];
const ROLES_OF_SCOPES: [&str; 4] = ["viewer", "operator", "admin", "admin"];
const ADMIN: &str = "admin";
/// Each world has so many principals with a scope.
const N_PRINCIPALS: usize = 3;
/// How often each of them sends every operation.
const N_ROUNDS: usize = 4;
/// After so many requests the admin puts back what principals may have deleted.
const RENEWED: usize = 60;

/// What a principal may see.
#[derive(Debug)]
struct Scoped {
    name: String,
    role: &'static str,
    groups: Option<String>,
    namespace: Option<&'static str>,
}

impl Scoped {
    fn has_group(&self, group: &str) -> bool {
        let matches =
            |glob: &str| glob.strip_suffix('*').map_or(glob == group, |start| group.starts_with(start));
        self.groups.as_deref().is_some_and(matches)
    }

    /// Returns `true` if a text with this mark must not reach the principal.
    fn hides(&self, mark: &Mark) -> bool {
        match (&self.groups, mark.namespace) {
            (Some(_), _) => !self.has_group(mark.group),
            (None, Some(namespace)) => self.namespace != Some(namespace),
            (None, None) => true,
        }
    }
}

/// A word that only objects of one group have, or only documents of one namespace in it.
#[derive(Debug)]
struct Mark {
    word: String,
    group: &'static str,
    namespace: Option<&'static str>,
}

/// What nodes are served, by node and kind of client.
type Views = BTreeMap<(&'static str, &'static str), Seen>;

#[derive(Clone, Default)]
struct Seen {
    groups: Vec<String>,
    resources: BTreeMap<(String, String), Arc<Resource>>,
}

struct World {
    rest: Rest,
    random: Random,
    principals: Vec<Scoped>,
    marks: Vec<Mark>,
    operations: Vec<Operation>,
    /// The operations that need a principal without a scope, by their index.
    for_all: BTreeSet<usize>,
    rollouts: Vec<String>,
    /// Answers that go on, by principal.
    streams: Vec<(usize, Pin<Box<BodyStream<Body>>>)>,
    n_denied: usize,
    n_changed: usize,
    clients: Vec<AckingClient>,
    _policy: watch::Sender<Arc<Policy>>,
}

struct Operation {
    method: String,
    path: String,
    /// Name and type of its query parameters.
    queries: Vec<(String, String)>,
    has_body: bool,
}

impl Random {
    fn any<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    fn selector(&mut self) -> Value {
        match self.below(6) {
            0 => json!({"all": true}),
            1 => json!({"nodeIds": [self.any(&SELECTED)], "clusters": [self.any(&["a", "b"])]}),
            2 => json!({"clusters": [self.any(&["a", "b"])]}),
            _ => json!({"nodeIds": (0..=self.below(2)).map(|_| self.any(&SELECTED)).collect::<Vec<_>>()}),
        }
    }
}

impl World {
    async fn new(mut random: Random) -> Self {
        let principals: Vec<Scoped> = (0..N_PRINCIPALS).map(|n| scoped(&mut random, n)).collect();
        let shown = |scoped: &Scoped| {
            let groups = scoped.groups.as_ref().map(|glob| format!(", groups: ['{glob}']"));
            let namespaces = scoped.namespace.map(|one| format!(", namespaces: [{one}]"));
            format!("role: {}{}{}", scoped.role, groups.unwrap_or_default(), namespaces.unwrap_or_default())
        };
        let rows: Vec<(String, String)> =
            principals.iter().map(|one| (one.name.clone(), shown(one))).collect();
        let mut rows: Vec<(&str, &str)> = rows.iter().map(|(name, more)| (&**name, &**more)).collect();
        rows.push((ADMIN, "role: admin"));
        let (sender, policy) = watch::channel(Arc::new(policy(&rows)));
        let access = Access { policy, ..Access::default() };
        let options = Options { watches_files: true, ..Options::default() };
        let rest = Rest::with_access(Server::open_as_is(MemoryStore::new(), options), access);
        rest.server.control.load_files(load(&[("files", &[("hush-file", "1")])])).await.unwrap();
        let document = ask(&rest, ADMIN, "GET", "/openapi.json", "").await.json();
        let marks = Vec::from_iter(GROUPS.iter().enumerate().flat_map(|(n, group)| {
            let of = |namespace: Option<&'static str>| Mark {
                word: format!("hush{n}{}", namespace.unwrap_or("all")),
                group,
                namespace,
            };
            [of(None), of(Some(NAMESPACES[0])), of(Some(NAMESPACES[1]))]
        }));
        let mut world = Self {
            rest,
            random,
            principals,
            marks,
            operations: operations(&document),
            for_all: BTreeSet::new(),
            rollouts: Vec::new(),
            streams: Vec::new(),
            n_denied: 0,
            n_changed: 0,
            clients: Vec::new(),
            _policy: sender,
        };
        world.renew().await;
        world.connect();
        world
    }

    /// Connects clients that reject something in words about everything that they are served.
    fn connect(&mut self) {
        let connect = |(id, node): (usize, &&str)| AckingClient::connect(&self.rest.server, id as u64, node);
        self.clients = NODES.iter().enumerate().map(connect).collect();
        for (client, id) in self.clients.iter().zip(NODES) {
            let Some(view) = self.rest.server.publisher.view_of(&Node::with_id(id)) else { continue };
            let is_of_view =
                |mark: &&Mark| view.key().groups.iter().any(|group| group.to_string() == mark.group);
            let words: Vec<&str> = self.marks.iter().filter(is_of_view).map(|mark| &*mark.word).collect();
            let revision = Revision(self.rest.server.revision());
            let sent = Sent { nonce: 1, version_info: "v".into(), revision, is_final: true };
            let message = format!("no such filter in {}", words.join(", "));
            client.record(EventKind::Nacked { sent, message: message.into(), named: Named::default() });
        }
    }

    /// Puts back the groups, some of them with another selector, and what they hold.
    async fn renew(&mut self) {
        for (n, group) in GROUPS.iter().enumerate() {
            let priority = self.random.below(5) * 10;
            let selector = self.random.selector();
            // Node IDs of the group's name, so that each group has a node at times.
            let selector =
                if self.random.below(2) == 0 { json!({"nodeIds": [format!("{group}-*")]}) } else { selector };
            self.admin(
                "PUT",
                &format!("/v1/groups/{group}"),
                &json!({"selector": selector, "priority": priority}),
            )
            .await;
            for name in [format!("c-{group}"), "shared".to_owned(), format!("hush{n}all-cluster")] {
                let cluster =
                    json!({"name": name, "alt_stat_name": format!("hush{n}all"), "connect_timeout": "1s"});
                self.admin("PUT", &format!("/v1/groups/{group}/resources/clusters/{name}"), &cluster).await;
            }
            for namespace in NAMESPACES {
                let body = native(n, namespace, &format!("hush{n}{namespace}"));
                self.admin("POST", &format!("/v1/apply?group={group}"), &body).await;
            }
            let test = json!({"name": "t", "request": {"host": "a", "path": format!("/hush{n}theirs")}, "expect": {"status": 500}});
            let body = json!({"apiVersion": "xds-server.io/v1", "kind": "RouteTest",
                              "metadata": {"name": format!("t-{group}"), "namespace": "theirs"},
                              "spec": {"group": group, "clients": ["envoy"], "tests": [test]}});
            self.admin("POST", &format!("/v1/apply?group={group}"), &body).await;
            let rollout = json!({"route": {"kind": "Route", "namespace": "theirs", "name": format!("r-{group}"), "rule": "0"},
                                 "stable": format!("a-{group}"), "canary": format!("b-{group}"), "steps": [{"pause": {}}]});
            self.admin("POST", "/v1/rollouts", &rollout).await;
        }
        self.admin("POST", "/v1/apply?group=prod", &gateway()).await;
        for host in GROUPS {
            let route = http_route("theirs", &format!("h-{host}"), host, "/hush2theirs");
            self.admin("POST", "/v1/apply?group=prod", &route).await;
        }
        let rollouts = ask(&self.rest, ADMIN, "GET", "/v1/rollouts", "").await.json();
        let ids = rollouts["rollouts"].as_array().into_iter().flatten();
        self.rollouts = ids.map(|one| one["id"].as_str().unwrap().to_owned()).collect();
    }

    /// Done as far as it can be now: a rollout may be there already.
    async fn admin(&self, method: &str, path: &str, body: &Value) {
        let reply = ask(&self.rest, ADMIN, method, path, &body.to_string()).await;
        assert!(reply.status < 500 || reply.status == 503, "{method} {path} {body}: {reply:?}");
        let may_fail = [409, 403, 422].contains(&reply.status);
        assert!(reply.status < 300 || may_fail, "{method} {path} {body}: {reply:?}");
    }

    /// What each node is served, as each kind of client.
    fn views(&self) -> Views {
        let publisher = &self.rest.server.publisher;
        let mut views = Views::new();
        for id in NODES {
            for agent in ["envoy", "gRPC Go"] {
                let node = Node { user_agent_name: agent.to_owned(), ..Node::with_id(id) };
                let Some(view) = publisher.view_of(&node) else { continue };
                let groups = view.key().groups.iter().map(ToString::to_string);
                let of = |resource: &Arc<Resource>| {
                    let key = (resource.resource_type().type_url().to_owned(), resource.name().to_string());
                    (key, Arc::clone(resource))
                };
                let resources = view.resources().map(of).collect();
                views.insert((id, agent), Seen { groups: groups.collect(), resources });
            }
        }
        views
    }

    /// Sends every operation as each principal.
    async fn run(&mut self) {
        for who in 0..self.principals.len() {
            for path in ["/v1/events", "/v1/rollouts?watch=true"] {
                let name = self.principals[who].name.clone();
                let body = self.rest.stream(&name, path).await;
                self.streams.push((who, Box::pin(BodyStream::new(body))));
            }
        }
        let mut before = self.views();
        for n in 0..self.operations.len() * N_PRINCIPALS * N_ROUNDS {
            if n % RENEWED == RENEWED - 1 {
                self.renew().await;
                self.connect();
                before = self.views();
            }
            let (who, operation) = (n % N_PRINCIPALS, n / N_PRINCIPALS % self.operations.len());
            // After the first round, what changes something for principals with a scope.
            if n >= self.operations.len() * N_PRINCIPALS
                && (self.operations[operation].method == "GET" || self.for_all.contains(&operation))
            {
                continue;
            }
            let (method, path, body) = self.request(who, operation);
            let Some((status, text)) = self.send(who, &method, &path, &body).await else { continue };
            let principal = &self.principals[who];
            let what = format!("{principal:?}: {method} {path} {body}: {status}");
            assert!(status < 500 || status == 503, "{what}: {text}");
            self.n_denied += usize::from(status == 403);
            if text.contains("about all groups and namespaces at once") {
                self.for_all.insert(operation);
            }
            check_text(principal, &self.marks, &what, &text);
            if method != "GET" {
                let after = self.views();
                self.n_changed += usize::from(
                    after.iter().any(|(key, seen)| before.get(key).is_none_or(|old| !is_same(old, seen))),
                );
                check_views(principal, &what, &before, &after);
                before = after;
            }
        }
        self.drain();
    }

    /// What answers that go on have said. Nothing of it is waited for.
    fn drain(&mut self) {
        use futures_util::FutureExt as _;
        for (who, stream) in &mut self.streams {
            let mut text = String::new();
            while let Some(Some(Ok(frame))) = stream.next().now_or_never() {
                text += &String::from_utf8_lossy(frame.data_ref().unwrap_or(&bytes::Bytes::new()));
            }
            check_text(&self.principals[*who], &self.marks, "events", &text);
        }
    }

    /// The status and the text, with all headers; `None` for an answer that goes on, which is kept.
    async fn send(&mut self, who: usize, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        let bearer = format!("Bearer {}", self.principals[who].name);
        let mut request = Request::builder().method(method).uri(path).header("authorization", bearer);
        request = request.header("content-type", "application/json");
        if path.starts_with("/v1/weights") {
            request = request.header("if-match", "*");
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = self.rest.router.clone().call(request).await.unwrap();
        let (parts, body) = response.into_parts();
        if parts.headers.get("content-type").is_some_and(|of| of == "text/event-stream") {
            self.streams.push((who, Box::pin(BodyStream::new(body))));
            return None;
        }
        let bytes = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
        Some((parts.status.as_u16(), format!("{:?} {}", parts.headers, String::from_utf8_lossy(&bytes))))
    }

    /// A request for an operation: parameters that mean something here or elsewhere, and a body that fits, or one of another operation.
    fn request(&mut self, who: usize, operation: usize) -> (String, String, String) {
        let Operation { method, path, queries, has_body } = &self.operations[operation];
        let (method, template, has_body) = (method.clone(), path.clone(), *has_body);
        let queries = queries.clone();
        let rollouts = self.rollouts.clone();
        let random = &mut self.random;
        // Mostly what the principal may do, so that something is done.
        let own: Vec<&str> =
            GROUPS.into_iter().filter(|group| self.principals[who].has_group(group)).collect();
        let group =
            if own.is_empty() || random.below(3) == 0 { random.any(&GROUPS) } else { random.any(&own) };
        let (name, namespace) = (
            random.any(&[format!("c-{group}"), format!("r-{group}"), "shared".to_owned()]),
            random.any(&NAMESPACES),
        );
        let kind =
            random.any(&["Route", "Backend", "Listener", "RouteTest", "RouteConfiguration", "HTTPRoute"]);
        let mut path = template.clone();
        for (segment, value) in [
            ("{group}", group.to_owned()),
            ("{type}", "clusters".to_owned()),
            ("{kind}", kind.to_owned()),
            ("{namespace}", random.any(&[namespace, group]).to_owned()),
            ("{name}", if kind == "Route" { format!("r-{group}") } else { name }),
            ("{rule}", "0".to_owned()),
            ("{id}", random.any(&NODES).to_owned()),
            ("{rollout}", random.any(&rollouts)),
            ("{deployment}", "1".to_owned()),
            ("{revision}", (1 + random.below(40)).to_string()),
            ("{replica}", "1".to_owned()),
        ] {
            path = path.replace(segment, &value);
        }
        // A parameter that this test does not know.
        while let Some((start, rest)) = path.split_once('{') {
            path = format!("{start}1{}", rest.split_once('}').unwrap().1);
        }
        let mut shown = Vec::new();
        for _ in 0..random.below(4).saturating_sub(2) {
            let Some((query, kind)) = queries.get(random.below(queries.len())) else { continue };
            // Nobody acknowledges anything here.
            if ["wait", "timeout", "limit", "after"].contains(&&**query)
                || shown.iter().any(|one: &String| one.starts_with(query))
            {
                continue;
            }
            let value = match &**kind {
                "boolean" => random.any(&["true", "false"]).to_owned(),
                "integer" => (1 + random.below(40)).to_string(),
                _ => match &**query {
                    "group" => random.any(&GROUPS).to_owned(),
                    "namespace" => namespace.to_owned(),
                    "node" | "nodes" => random.any(&NODES).to_owned(),
                    "object" => format!("{group}/clusters/c-{group}"),
                    "client" | "profile" => random.any(&["envoy", "grpc"]).to_owned(),
                    _ => random.any(&[group, namespace, "clusters", "envoy", "1s"]).to_owned(),
                },
            };
            shown.push(format!("{query}={value}"));
        }
        // Who has groups names one for documents; who has none may not.
        shown.retain(|one| !one.starts_with("group=") || !own.is_empty());
        if path == "/v1/apply" && !own.is_empty() && !shown.iter().any(|one| one.starts_with("group=")) {
            shown.push(format!("group={group}"));
        }
        if !shown.is_empty() {
            path += &format!("?{}", shown.join("&"));
        }
        let body =
            if has_body { self.body(&template, &path, group, namespace).to_string() } else { String::new() };
        (method, path, body)
    }

    fn body(&mut self, template: &str, path: &str, group: &str, namespace: &'static str) -> Value {
        let random = &mut self.random;
        let n = GROUPS.iter().position(|one| *one == group).unwrap();
        let name = path.split('?').next().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        let (priority, selector) = (random.below(6) * 10, random.selector());
        let cluster = |name: String| json!({"@type": ResourceType::Cluster.type_url(), "name": name, "connect_timeout": "2s"});
        let state =
            random.any(&[json!("current"), json!(1 + n), json!({"files": {"a.yaml": "resources: []"}})]);
        let node = random.any(&NODES);
        let whose = random.any(&[json!({"group": group}), json!({"node": node})]);
        let with = |mut body: Value| {
            body.as_object_mut().unwrap().extend(whose.as_object().unwrap().clone());
            body
        };
        let bodies = [
            ("/v1/groups/{group}", json!({"selector": selector, "priority": priority})),
            ("/v1/groups/{group}/resources", json!({"resources": [cluster("shared".to_owned()), cluster(format!("c-{group}"))]})),
            ("/v1/groups/{group}/resources/{type}/{name}", json!({"name": name, "connect_timeout": format!("{}s", 3 + priority)})),
            ("/v1/apply", random.any(&[
                native(n, namespace, &format!("new{priority}")),
                json!({"apiVersion": "xds-server.io/v1", "kind": "RouteTest", "metadata": {"name": "own", "namespace": namespace},
                       "spec": with(json!({"policy": "refuse", "tests": [{"request": {"host": "a"}, "expect": {"status": 200}}]}))}),
                json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("a-{group}"), "namespace": namespace},
                       "spec": {"ports": [{"port": 80, "name": "p"}]}}),
                http_route(namespace, "h", group, "/"),
            ])),
            ("/v1/validate", native(n, namespace, "validated")),
            ("/v1/explain", with(json!({"request": {"host": "a", "path": "/"}}))),
            ("/v1/diff", with(json!({"from": random.any(&[json!("current"), json!(1 + n)]), "to": state}))),
            ("/v1/files", json!({"files": {"a.yaml": "resources: []"}})),
            ("/v1/rollback", json!({"to": 1 + random.below(30)})),
            ("/v1/rollouts", json!({"route": {"kind": "Route", "namespace": namespace, "name": format!("r-{group}"), "rule": "0"},
                                    "stable": format!("a-{group}"), "canary": format!("b-{group}"), "steps": [{"pause": {}}]})),
            ("/v1/weights/", json!({"backends": {format!("a-{group}"): 1, format!("b-{group}"): 9}})),
        ];
        let own = bodies
            .iter()
            .filter(|(path, _)| template == *path || (path.ends_with('/') && template.starts_with(path)));
        let own: Vec<&Value> = own.map(|(_, body)| body).collect();
        match own.first().filter(|_| random.below(8) != 0) {
            Some(own) => (*own).clone(),
            None => bodies[random.below(bodies.len())].1.clone(),
        }
    }
}

fn scoped(random: &mut Random, n: usize) -> Scoped {
    let glob = random.any(&["edge*", "edge", "prod", "core", "shop", "e*"]);
    // One of each kind in each world.
    let (groups, namespace) = match n {
        0 => (Some(glob.to_owned()), None),
        1 => (None, Some(random.any(&NAMESPACES))),
        _ => (Some(glob.to_owned()), Some(random.any(&NAMESPACES))),
    };
    Scoped { name: format!("principal{n}"), role: random.any(&ROLES_OF_SCOPES), groups, namespace }
}

/// A listener, a route and its backends of a namespace, with a word in the route's path. Each group and namespace has a port.
fn native(n: usize, namespace: &str, word: &str) -> Value {
    let group = GROUPS[n];
    let port = 10_000 + 2 * n + usize::from(namespace == NAMESPACES[1]);
    let [listener, route, one, two] = ["l", "r", "a", "b"].map(|part| format!("{part}-{group}"));
    json!({"version": "xds-server/v1", "namespace": namespace, "listeners": {&listener: {"port": port}},
           "routes": {route: {"listen": listener, "rules": [{"match": {"path": format!("/{word}")}, "to": {&one: 90, &two: 10}}]}},
           "backends": {&one: {"endpoints": "127.0.0.1:1"}, &two: {"endpoints": "127.0.0.1:2"}}})
}

/// A Gateway of `prod` that takes the routes of every namespace.
fn gateway() -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "gw", "namespace": "theirs"},
           "spec": {"gatewayClassName": "xds-server", "listeners": [
               {"name": "l", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}}]}})
}

/// A route for a host of that Gateway.
fn http_route(namespace: &str, name: &str, host: &str, path: &str) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": name, "namespace": namespace},
           "spec": {"parentRefs": [{"name": "gw", "namespace": "theirs"}], "hostnames": [format!("{host}.example")],
                    "rules": [{"matches": [{"path": {"value": path}}]}]}})
}

fn operations(document: &Value) -> Vec<Operation> {
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let queries = operation["parameters"].as_array().into_iter().flatten();
            let queries = queries.filter(|one| one["in"] == "query").map(|one| {
                let kind = one["schema"]["type"].as_str().unwrap_or("string");
                (one["name"].as_str().unwrap().to_owned(), kind.to_owned())
            });
            found.push(Operation {
                method: method.to_uppercase(),
                path: path.clone(),
                queries: queries.collect(),
                has_body: !operation["requestBody"].is_null(),
            });
        }
    }
    assert!(found.len() > 50, "{}", found.len());
    found
}

fn check_text(principal: &Scoped, marks: &[Mark], what: &str, text: &str) {
    if let Some(mark) = marks.iter().find(|mark| principal.hides(mark) && text.contains(&mark.word)) {
        panic!("{what}: {principal:?} reads {mark:?} in {text}");
    }
}

fn is_same(old: &Seen, new: &Seen) -> bool {
    let versions = |seen: &Seen| {
        seen.resources.iter().map(|(key, one)| (key.clone(), one.version())).collect::<Vec<_>>()
    };
    versions(old) == versions(new)
}

/// A node of no group in scope is served the same, except for what routes of the principal's namespace add.
fn check_views(principal: &Scoped, what: &str, before: &Views, after: &Views) {
    for ((id, agent), old) in before {
        if old.groups.iter().any(|group| principal.has_group(group)) || old.resources.is_empty() {
            continue;
        }
        let new = after.get(&(id, agent)).cloned().unwrap_or_default();
        for (key, resource) in &old.resources {
            let now = new.resources.get(key);
            if now.is_some_and(|now| now.version() == resource.version()) {
                continue;
            }
            let (json, now) =
                (codec().to_json(resource), now.map(|now| codec().to_json(now)).unwrap_or_default());
            let is_own = |json: &Value| principal.namespace.is_some_and(|one| json.to_string().contains(one));
            let is_kept = |host: &&Value| {
                is_own(host) || now["virtual_hosts"].as_array().is_some_and(|all| all.contains(host))
            };
            let hosts = json["virtual_hosts"].as_array().filter(|_| principal.namespace.is_some());
            let is_kept =
                hosts.map_or_else(|| is_own(&json), |hosts| hosts.iter().all(|host| is_kept(&host)));
            assert!(is_kept, "{what}: {id} as {agent} had {json:#} and has {now:#}");
        }
        if principal.namespace.is_none() {
            let keys = |seen: &Seen| seen.resources.keys().cloned().collect::<BTreeSet<_>>();
            assert_eq!(keys(&new), keys(old), "{what}: {id} as {agent}");
        }
    }
}

#[tokio::test]
async fn no_principal_reaches_beyond_its_scope_by_any_operation() {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name)
            .ok()
            .map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}: {text}")))
    };
    let (seed, n_cases) = (number("XDS_SEED", 43), number("XDS_CASES", 1));
    let (mut n_denied, mut n_changed) = (0, 0);
    for seed in seed..seed + n_cases {
        println!("XDS_SEED={seed} XDS_CASES=1");
        let mut world = World::new(Random(seed)).await;
        world.run().await;
        n_denied += world.n_denied;
        n_changed += world.n_changed;
    }
    assert!(
        n_denied > 20 && n_changed > 0,
        "{n_denied} requests are denied, and {n_changed} change something"
    );
}
