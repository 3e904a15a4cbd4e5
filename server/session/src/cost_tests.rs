//! The cost of requests: as much as the names in them, whatever the stream asks for and holds already, and whatever their shape.
//!
//! Names and resources that are looked at are counted, not time. Every history is run with some names and with four times as many:
//! if the cost grew with the square it would be sixteen times as much.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use xds_cache::layer::{EffectiveGroup, Groups};
use xds_cache::status::{StreamId, Variant};
use xds_cache::{Node, NodeGroup, Publisher, Resource, ResourceDraft, ResourceType, Revision, View};

use crate::{Client, DeltaRequest, Limits, Nonce, Request, SessionError, SotwRequest, steps};

/// A client on one stream, and what it asks for.
pub(crate) struct Asking {
    pub(crate) client: Client,
    resource_type: ResourceType,
    now: Instant,
    last: Nonce,
}

const STREAM: StreamId = StreamId(1);

impl Asking {
    pub(crate) fn new(variant: Variant, resource_type: ResourceType, limits: Limits) -> Self {
        let mut client = Client::new(limits);
        client.open(STREAM, variant, None, 1);
        Self { client, resource_type, now: Instant::now(), last: Nonce::None }
    }

    fn delta(of: ResourceType, resources: Vec<Resource>) -> Self {
        // Costs are the same for every type, and not what this limit is about.
        let limits = Limits { max_unknown_names: u32::MAX, ..Limits::default() };
        let mut asking = Self::new(Variant::Delta, of, limits);
        asking.client.handle_view(view(resources));
        asking
    }

    fn change(&mut self, subscribe: &[String], unsubscribe: &[String]) -> Result<(), SessionError> {
        self.send(DeltaRequest {
            resource_names_subscribe: subscribe.to_vec(),
            resource_names_unsubscribe: unsubscribe.to_vec(),
            ..DeltaRequest::default()
        })
    }

    fn send(&mut self, request: DeltaRequest) -> Result<(), SessionError> {
        let node = Some(Arc::new(Node::with_id("n")));
        let type_url = self.resource_type.type_url().to_owned();
        self.handle(DeltaRequest { node, type_url, ..request })
    }

    fn replace(&mut self, names: &[String]) -> Result<(), SessionError> {
        let node = Some(Arc::new(Node::with_id("n")));
        let type_url = self.resource_type.type_url().to_owned();
        self.handle(SotwRequest { node, type_url, resource_names: names.to_vec(), ..SotwRequest::default() })
    }

    fn handle(&mut self, request: impl Into<Request>) -> Result<(), SessionError> {
        let handled = self.client.handle_request(STREAM, request.into());
        while self.client.poll_event().is_some() || self.client.poll_wake().is_some() {}
        handled
    }

    /// Takes every response, and answers none.
    fn poll(&mut self) {
        while let Some(response) = self.client.poll_response(STREAM, self.now) {
            self.last = Nonce::Ours(response.nonce);
        }
        while self.client.poll_event().is_some() || self.client.poll_wake().is_some() {}
    }

    fn ack(&mut self) {
        let request = DeltaRequest { response_nonce: self.last, ..DeltaRequest::default() };
        self.send(request).unwrap();
    }
}

/// A view of these resources, for every node.
pub(crate) fn view(resources: Vec<Resource>) -> Arc<View> {
    let publisher = Publisher::new();
    publisher.publish(Revision(1), groups(resources));
    publisher.follow(&Node::with_id("n")).take().unwrap()
}

pub(crate) fn groups(resources: Vec<Resource>) -> Groups {
    let definition = NodeGroup::default_group();
    let resources = resources.into_iter().map(Arc::new).collect();
    let name = definition.name.clone();
    let group = EffectiveGroup::new(definition, resources);
    Groups::from_iter([(name, Arc::new(group))])
}

fn names(n: usize, name: impl Fn(usize) -> String) -> Vec<String> {
    (0..n).map(name).collect()
}

fn endpoints(n: usize) -> Vec<Resource> {
    (0..n).map(|i| Resource::plain(ResourceType::ClusterLoadAssignment, &format!("e{i}"), "x")).collect()
}

fn draft(of: ResourceType, name: &str) -> ResourceDraft {
    Resource::plain(of, name, "x").to_draft()
}

fn virtual_host(name: &str, domains: &[String]) -> Resource {
    let aliases = domains.iter().map(|domain| format!("r/{domain}").into()).collect();
    Resource::new(ResourceDraft { aliases, ..draft(ResourceType::VirtualHost, name) })
}

fn other() -> ResourceType {
    ResourceType::from_type_url("type.googleapis.com/T")
}

/// How much a history with `n` names looks at, for each of them.
fn cost(history: fn(usize), n: usize) -> u64 {
    steps::take();
    history(n);
    steps::take() / n as u64
}

/// Checks that a history costs at most `limit` for each name, however many there are. The logarithm is in the limit.
fn check(what: &str, limit: u64, history: fn(usize)) {
    let (few, many) = (cost(history, 250), cost(history, 1000));
    assert!(few <= limit && many <= limit, "{what}: {few} steps a name with 250, {many} with 1,000");
}

#[test]
fn names_that_come_and_go_without_an_ack_cost_themselves() {
    check("churn of names that do not exist", 200, |n| {
        let mut asking = Asking::delta(ResourceType::ClusterLoadAssignment, endpoints(1));
        let mut before = vec![];
        for round in 0..4 {
            let after = names(n, |i| format!("{round}-{i}"));
            asking.change(&after, &before).unwrap();
            asking.poll();
            before = after;
        }
    });
    check("churn of one name a request", 200, |n| {
        let mut asking = Asking::delta(ResourceType::ClusterLoadAssignment, endpoints(n));
        asking.change(&names(n, |i| format!("e{i}")), &[]).unwrap();
        asking.poll();
        for i in 0..n {
            asking.change(&[], &[format!("e{i}")]).unwrap();
        }
        for i in 0..n {
            asking.change(&[format!("e{i}")], &[]).unwrap();
        }
        asking.poll();
    });
    check("churn with an answer to every request", 200, |n| {
        let mut asking = Asking::delta(ResourceType::ClusterLoadAssignment, endpoints(n));
        asking.change(&names(n, |i| format!("e{i}")), &[]).unwrap();
        for i in 0..n {
            asking.poll();
            asking.change(&[format!("x{i}")], &[format!("e{i}")]).unwrap();
        }
    });
}

#[test]
fn globs_cost_their_members() {
    check("globs and their members come and go", 300, |n| {
        let mut asking = Asking::delta(other(), vec![]);
        let globs = names(n, |i| format!("xdstp://a/T/{i}/*"));
        let members = names(n, |i| format!("xdstp://a/T/{i}/x"));
        for _ in 0..3 {
            asking.change(&members, &[]).unwrap();
            asking.change(&globs, &members).unwrap();
            asking.poll();
            asking.change(&[], &globs).unwrap();
        }
    });
    check("globs of one directory with other parameters", 300, |n| {
        let of_table = names(n, |i| format!("xdstp://a/T/d/{i}"));
        let resources = of_table.iter().map(|name| Resource::plain(other(), name, "x")).collect();
        let mut asking = Asking::delta(other(), resources);
        asking.change(&["xdstp://a/T/d/*".to_owned()], &[]).unwrap();
        asking.poll();
        let globs = names(n, |i| format!("xdstp://a/T/d/*?k={i}"));
        asking.change(&globs, &[]).unwrap();
        asking.poll();
        asking.change(&[], &globs).unwrap();
    });
    check("a glob that is named many times, and in many spellings", 300, |n| {
        let of_table = names(n, |i| format!("xdstp://a/T/d/{i}"));
        let resources = of_table.iter().map(|name| Resource::plain(other(), name, "x")).collect();
        let mut asking = Asking::delta(other(), resources);
        let held = of_table.iter().map(|name| (name.clone(), "0".to_owned())).collect();
        let spellings = ["xdstp://a/T/d/*", "xdstp://a/T/%64/*"];
        let globs = names(n, |i| spellings[i % 2].to_owned());
        asking
            .send(DeltaRequest {
                resource_names_subscribe: globs.clone(),
                initial_resource_versions: held,
                ..DeltaRequest::default()
            })
            .unwrap();
        asking.change(&globs, &globs).unwrap();
    });
}

#[test]
fn a_wildcard_costs_what_it_covers_once_a_request() {
    check("a wildcard that is named many times", 100, |n| {
        let mut asking = Asking::delta(ResourceType::ClusterLoadAssignment, endpoints(n));
        asking.change(&names(n, |_| "*".to_owned()), &[]).unwrap();
        asking.poll();
        asking.change(&names(n, |_| "*".to_owned()), &names(n, |_| "*".to_owned())).unwrap();
        asking.poll();
    });
}

#[test]
fn versions_that_match_nothing_cost_themselves() {
    check("initial versions beside hosts", 100, |n| {
        let mut asking = Asking::delta(ResourceType::VirtualHost, vec![]);
        let held = names(n, |i| format!("q/{i}")).into_iter().map(|name| (name, "0".to_owned())).collect();
        asking
            .send(DeltaRequest {
                resource_names_subscribe: names(n, |i| format!("r/{i}")),
                initial_resource_versions: held,
                ..DeltaRequest::default()
            })
            .unwrap();
        asking.poll();
    });
}

#[test]
fn hosts_of_virtual_hosts_cost_themselves() {
    check("hosts that one virtual host serves", 300, |n| {
        let mut asking =
            Asking::delta(ResourceType::VirtualHost, vec![virtual_host("r/v", &["*".to_owned()])]);
        asking.change(&names(n, |i| format!("r/{i}")), &[]).unwrap();
        asking.poll();
        for i in 0..n / 2 {
            asking.change(&[], &[format!("r/{i}")]).unwrap();
        }
        asking.change(&[], &names(n, |i| format!("r/{i}"))).unwrap();
        asking.poll();
    });
    check("a virtual host for each of the hosts", 300, |n| {
        let virtual_hosts =
            (0..n).map(|i| virtual_host(&format!("r/v{i}"), &[format!("*.{i}.io")])).collect();
        let mut asking = Asking::delta(ResourceType::VirtualHost, virtual_hosts);
        asking.change(&["*".to_owned()], &[]).unwrap();
        asking.change(&names(n, |i| format!("r/a.{i}.io")), &[]).unwrap();
        asking.poll();
        asking.ack();
        asking.change(&[], &["*".to_owned()]).unwrap();
        asking.poll();
        asking.ack();
    });
    check("routes that come while hosts are asked for", 300, |n| {
        let routes = names(n, |i| format!("route{i}"));
        let routes = routes.iter().map(|name| Resource::plain(ResourceType::RouteConfiguration, name, "x"));
        let mut asking = Asking::delta(ResourceType::VirtualHost, routes.collect());
        asking.change(&names(n, |i| format!("r/{i}")), &[]).unwrap();
        asking.poll();
        asking.resource_type = ResourceType::RouteConfiguration;
        for i in 0..n {
            asking.change(&[format!("route{i}")], &[]).unwrap();
            asking.poll();
            asking.ack();
        }
    });
}

#[test]
fn patterns_of_hosts_cost_the_names_that_they_serve() {
    check("patterns with a time to live", 300, |n| {
        let pattern = |i: usize| ResourceDraft {
            host_pattern: true,
            ttl: Some(Duration::from_secs(5)),
            ..draft(ResourceType::Listener, &format!("*.{i}.io"))
        };
        let mut asking =
            Asking::delta(ResourceType::Listener, (0..n).map(|i| Resource::new(pattern(i))).collect());
        asking.change(&names(n, |i| format!("a.x{i}.io")), &[]).unwrap();
        asking.poll();
        asking.change(&names(n, |i| format!("a.{i}.io")), &[]).unwrap();
        asking.poll();
        asking.ack();
    });
}

#[test]
fn lists_cost_themselves() {
    check("SotW lists that take turns", 200, |n| {
        let mut asking = Asking::new(Variant::Sotw, ResourceType::ClusterLoadAssignment, Limits::default());
        asking.client.handle_view(view(endpoints(n)));
        for _ in 0..3 {
            asking.replace(&names(n, |i| format!("e{i}"))).unwrap();
            asking.poll();
            asking.replace(&["e0".to_owned()]).unwrap();
            asking.poll();
        }
    });
}

#[test]
fn a_small_request_costs_little_beside_a_large_subscription() {
    // Nothing is sent to a client of which the server knows nothing, and which shows that it holds something; nor before there is
    // anything to serve.
    for (what, has_view) in [("nothing is loaded", false), ("nothing is known of the client", true)] {
        for held in [BTreeMap::new(), BTreeMap::from([("x".to_owned(), "0".to_owned())])] {
            let mut asking =
                Asking::new(Variant::Delta, ResourceType::ClusterLoadAssignment, Limits::default());
            if has_view {
                asking.client.handle_view(view(vec![]));
            }
            asking
                .send(DeltaRequest {
                    resource_names_subscribe: names(10_000, |i| i.to_string()),
                    initial_resource_versions: held,
                    ..DeltaRequest::default()
                })
                .unwrap();
            steps::take();
            asking.change(&["a".to_owned()], &["b".to_owned()]).unwrap();
            let n_steps = steps::take();
            assert!(n_steps < 50, "{what}: {n_steps} steps");
        }
    }
}

#[test]
fn a_stream_that_never_acknowledges_keeps_a_bounded_amount() {
    let limits = Limits { max_names_per_type: 100, ..Limits::default() };
    for resource_type in [ResourceType::ClusterLoadAssignment, ResourceType::Cluster, other()] {
        for is_polled in [false, true] {
            let mut asking = Asking::new(Variant::Delta, resource_type.clone(), limits);
            asking.client.handle_view(view(vec![]));
            let mut before = vec![];
            let mut refused = None;
            for round in 0..50 {
                let after = names(40, |i| format!("{round}-{i}"));
                if let Err(error) = asking.change(&after, &before) {
                    refused = Some((round, error));
                    break;
                }
                if is_polled {
                    asking.poll();
                }
                before = after;
            }
            let n_entries = asking.client.n_entries();
            assert!(n_entries <= 200, "{resource_type}, polled: {is_polled}: {n_entries} entries");
            if is_polled {
                let expected = SessionError::TooManyDropped { n_names: 40, n_dropped: 80, limit: 100 };
                assert_eq!(refused, Some((2, expected)), "{resource_type}");
            } else {
                // No response is on its way that could bring anything back.
                assert_eq!(refused, None, "{resource_type}");
            }
        }
    }
}

#[test]
fn what_exists_is_asked_for_again_and_again_without_an_ack() {
    let limits = Limits { max_names_per_type: 100, ..Limits::default() };
    let mut asking = Asking::new(Variant::Delta, ResourceType::ClusterLoadAssignment, limits);
    asking.client.handle_view(view(endpoints(80)));
    let all = names(80, |i| format!("e{i}"));
    for _ in 0..100 {
        asking.change(&all, &[]).unwrap();
        asking.poll();
        asking.change(&[], &all).unwrap();
        asking.poll();
    }
    let n_entries = asking.client.n_entries();
    assert!(n_entries <= 17 * 80 + 100 + 257, "{n_entries} entries");
}

/// How long it takes for 100,000 names: `cargo test --release -p xds-session --lib -- --ignored --nocapture measure`.
#[test]
#[ignore = "measures, and claims nothing"]
fn measure_100_000_names() {
    const N: usize = 100_000;
    let timed = |what: &str, work: &mut dyn FnMut()| {
        let began = Instant::now();
        work();
        println!("{what}: {:?}", began.elapsed());
    };
    let of = ResourceType::ClusterLoadAssignment;
    let (there, missing) = (names(N, |i| format!("e{i}")), names(N, |i| format!("x{i}")));
    let mut asking = Asking::delta(of.clone(), endpoints(N));
    timed("delta, subscribe to what there is", &mut || asking.change(&there, &[]).unwrap());
    timed("the responses", &mut || asking.poll());
    timed("unsubscribe", &mut || asking.change(&[], &there).unwrap());
    timed("subscribe to what there is not", &mut || asking.change(&missing, &[]).unwrap());
    timed("the responses", &mut || asking.poll());
    let mut asking = Asking::delta(of.clone(), endpoints(N));
    timed("delta, wildcard", &mut || asking.change(&["*".to_owned()], &[]).unwrap());
    timed("the responses", &mut || asking.poll());
    let mut asking = Asking::new(Variant::Sotw, of, Limits::default());
    asking.client.handle_view(view(endpoints(N)));
    timed("SotW, ask for what there is", &mut || asking.replace(&there).unwrap());
    timed("the responses", &mut || asking.poll());
    timed("the same again", &mut || asking.replace(&there).unwrap());
    timed("the end of the stream", &mut || asking.client.handle_close(STREAM));
}
