//! Any history of a client, made of bytes: no panic, no endless answers, and bounds on what each call looks at and what is kept.
//!
//! `XDS_FUZZ_SECONDS=600 cargo test --release -p xds-session --lib fuzz` runs random histories for so long (default: two seconds, and always the
//! same histories), `XDS_SEED` repeats the one that failed. A coverage-guided fuzzer can call [`run`] in a build with `--cfg fuzzing`.

#[cfg(test)]
#[path = "../../../tests/src/splitmix.rs"]
mod splitmix;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use xds_cache::layer::{EffectiveGroup, Groups};
use xds_cache::status::{StreamId, Variant};
use xds_cache::{
    Node, NodeGroup, Publisher, Reference, Resource, ResourceDraft, ResourceKey, ResourceType, Revision,
};

use crate::{Client, DeltaRequest, Limits, Nonce, Request, SotwRequest, steps};

/// Plays one history.
///
/// # Panics
///
/// If a call panics, or looks at more than its input and what is kept explain, or more is kept than may be.
pub fn run(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let mut world = World::new(&mut bytes);
    while !bytes.0.is_empty() && world.n_calls < MAX_CALLS {
        world.call(&mut bytes);
        world.n_calls += 1;
    }
}

/// The rest of the input; zeros when it is used up.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, n: usize) -> usize {
        usize::from(self.next()) % n
    }

    fn is(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

/// A client, its server, and the account of what its calls may look at.
struct World {
    client: Client,
    publisher: Publisher,
    limits: Limits,
    now: Instant,
    revision: u64,
    n_calls: usize,
    n_resources: usize,
    /// The streams, which are open but for a moment.
    variants: [Variant; MAX_STREAMS],
    /// The nonces of the latest responses.
    nonces: Vec<u64>,
    /// The type that most requests are about.
    favourite: ResourceType,
    /// The names that the last request subscribed to.
    subscribed: Vec<String>,
}

impl World {
    fn new(bytes: &mut Bytes<'_>) -> Self {
        let limits = Limits {
            max_names_per_type: [4, 40, 400, 1000][bytes.below(4)],
            max_types: [2, 100][bytes.below(2)],
            max_response_bytes: [1, 300, 20_000, 3 << 20][bytes.below(4)],
            is_phased: bytes.is(),
            ..Limits::default()
        };
        let mut client = Client::new(limits);
        let variants = [Variant::Sotw, Variant::Delta, Variant::Delta];
        for (stream, variant) in (0..).zip(variants) {
            client.open(StreamId(stream), variant, None, stream << 20);
        }
        steps::take();
        Self {
            client,
            publisher: Publisher::new(),
            limits,
            now: Instant::now(),
            revision: 0,
            n_calls: 0,
            n_resources: 0,
            variants,
            nonces: vec![],
            favourite: type_of(bytes.below(N_TYPES)),
            subscribed: vec![],
        }
    }

    fn call(&mut self, bytes: &mut Bytes<'_>) {
        let n_kept = self.client.n_entries() + self.n_resources;
        match bytes.below(16) {
            0..8 => self.request(bytes, n_kept),
            8..12 => self.poll(bytes),
            12 | 13 => self.publish(bytes),
            14 => {
                self.now += Duration::from_millis(u64::from(bytes.next()) * 100);
                self.client.handle_timeout(self.now);
            }
            _ => {
                let service = bytes.is().then(|| type_of(bytes.below(N_TYPES)));
                let stream = bytes.below(MAX_STREAMS);
                self.reopen(stream, service, u64::from(bytes.next()) << 8);
            }
        }
        while self.client.poll_event().is_some() || self.client.poll_wake().is_some() {}
        steps::take();
        let n_entries = self.client.n_entries();
        let limit = MAX_STREAMS * N_TYPES * (2 * self.limits.max_names_per_type + 40 * MAX_RESOURCES + 600);
        assert!(n_entries <= limit, "{n_entries} entries");
    }

    /// The names in a request pay for themselves, whatever is kept; a wildcard or a glob for all that it may stand for, and an answer
    /// for what it is about.
    fn request(&mut self, bytes: &mut Bytes<'_>, n_kept: usize) {
        let position = bytes.below(MAX_STREAMS);
        let stream = StreamId(position as u64);
        let request = self.any_request(position, bytes);
        let size = self.client.request_size(stream, &request);
        // The first request for virtual hosts is told of what the routes that were sent refer to.
        let is_of_hosts = request.type_url() == ResourceType::VirtualHost.type_url();
        let is_wide = request.is_wide() || request.is_answer() || is_of_hosts;
        let n_explained = request.n_names() + if is_wide { n_kept } else { 0 };
        assert!(
            size <= n_explained + MAX_TABLES * n_kept,
            "a size of {size} for {n_explained} names, {n_kept} kept"
        );
        let n_dropped = self.client.n_dropped();
        steps::take();
        let handled = self.client.handle_request(stream, request);
        let spent = steps::take();
        // Names that were dropped before may be taken up again, once.
        let n_recalled = n_dropped.saturating_sub(self.client.n_dropped());
        let allowed = STEPS_EACH * (n_explained + n_recalled + 1) as u64;
        assert!(spent <= allowed, "{spent} steps are more than the {allowed} that the request explains");
        if handled.is_err() {
            self.reopen(position, None, 7);
        }
    }

    fn reopen(&mut self, stream: usize, service: Option<ResourceType>, first_nonce: u64) {
        let id = StreamId(stream as u64);
        self.client.handle_close(id);
        self.client.open(id, self.variants[stream], service, first_nonce);
    }

    /// A response pays for what there is, and what is owed.
    fn poll(&mut self, bytes: &mut Bytes<'_>) {
        let stream = StreamId(bytes.below(MAX_STREAMS) as u64);
        for _ in 0..1 + bytes.below(8) {
            // A plan looks at each waiting resource, and at its users, several times.
            let n_there = self.client.n_entries() + MAX_TABLES * self.n_resources;
            steps::take();
            let response = self.client.poll_response(stream, self.now);
            let (spent, allowed) = (steps::take(), 64 * STEPS_EACH * (n_there as u64 + 1));
            assert!(spent <= allowed, "{spent} steps are more than the {allowed} that a response explains");
            let Some(response) = response else {
                assert_eq!(self.client.response_size(stream, self.now), 0, "there was nothing to send");
                return;
            };
            self.nonces.push(response.nonce);
            self.nonces.drain(..self.nonces.len().saturating_sub(20));
        }
    }

    fn publish(&mut self, bytes: &mut Bytes<'_>) {
        self.revision += 1;
        let n = bytes.below(MAX_RESOURCES);
        let resources: BTreeMap<ResourceKey, Arc<Resource>> = (0..n)
            .map(|_| {
                let resource = any_resource(bytes);
                (resource.key().clone(), Arc::new(resource))
            })
            .collect();
        self.n_resources = self.n_resources.max(resources.len());
        self.publisher.publish(Revision(self.revision), groups(resources));
        let node = self.client.node().cloned().unwrap_or_default();
        let view = self.publisher.follow(&node).take();
        view.into_iter().for_each(|view| self.client.handle_view(view));
    }

    fn any_request(&mut self, stream: usize, bytes: &mut Bytes<'_>) -> Request {
        let node = (bytes.below(8) > 0).then(|| {
            let user_agent_name = ["", "envoy", "gRPC"][bytes.below(3)].to_owned();
            let features = ["xds.config.supports-resource-ttl", "xds.config.resource-in-sotw"];
            let client_features =
                features.iter().filter(|_| bytes.is()).map(|feature| (*feature).to_owned()).collect();
            Arc::new(Node { user_agent_name, client_features, ..Node::with_id("n") })
        });
        let type_url = match bytes.below(8) {
            0 => format!("type.googleapis.com/unknown.{}", bytes.next()),
            1..3 => type_of(bytes.below(N_TYPES)).type_url().to_owned(),
            _ => self.favourite.type_url().to_owned(),
        };
        let response_nonce = match bytes.below(4) {
            0 | 1 => Nonce::None,
            2 if bytes.is() => Nonce::Foreign,
            _ => {
                let latest = self.nonces.len().saturating_sub(1 + bytes.below(4));
                self.nonces
                    .get(latest)
                    .map_or(Nonce::Ours(u64::from(bytes.next())), |nonce| Nonce::Ours(*nonce))
            }
        };
        let error_detail = (bytes.below(8) == 0).then(|| "no".to_owned());
        let is_other = bytes.below(16) == 0;
        if (self.variants[stream] == Variant::Sotw) != is_other {
            let version_info = ["", "1"][bytes.below(2)].to_owned();
            let resource_names = any_names(bytes);
            return SotwRequest {
                node,
                type_url,
                version_info,
                resource_names,
                response_nonce,
                error_detail,
            }
            .into();
        }
        let held = if bytes.below(4) == 0 { any_names(bytes) } else { vec![] };
        // Names come and go as in a fleet that changes, or at random.
        let subscribed = any_names(bytes);
        let before = std::mem::replace(&mut self.subscribed, subscribed.clone());
        DeltaRequest {
            node,
            type_url,
            resource_names_subscribe: subscribed,
            resource_names_unsubscribe: if bytes.is() { before } else { any_names(bytes) },
            initial_resource_versions: held.into_iter().map(|name| (name, "0".repeat(16))).collect(),
            response_nonce,
            error_detail,
        }
        .into()
    }
}

fn type_of(kind: usize) -> ResourceType {
    match kind {
        0 => ResourceType::Cluster,
        1 => ResourceType::ClusterLoadAssignment,
        2 => ResourceType::Listener,
        3 => ResourceType::RouteConfiguration,
        4 => ResourceType::VirtualHost,
        5 => ResourceType::ScopedRouteConfiguration,
        6 => ResourceType::ExtensionConfig,
        _ => ResourceType::from_type_url("type.googleapis.com/T"),
    }
}

/// A few names, or many of one kind, or one many times.
fn any_names(bytes: &mut Bytes<'_>) -> Vec<String> {
    let n = match bytes.below(8) {
        0..3 => 0,
        3..6 => bytes.below(5),
        6 => bytes.below(60),
        _ => bytes.below(8) * 40,
    };
    let kind = bytes.below(N_NAMES);
    let first = usize::from(bytes.next());
    let is_mixed = n < 60 && bytes.is();
    let step = bytes.below(2);
    (0..n)
        .map(
            |i| {
                if is_mixed {
                    name(bytes.below(N_NAMES), bytes.below(8))
                } else {
                    name(kind, first + i * step)
                }
            },
        )
        .collect()
}

fn name(kind: usize, i: usize) -> String {
    match kind {
        0 => format!("n{i}"),
        1 => format!("r/{i}.io"),
        2 => format!("r/a.{i}.io"),
        3 => format!("a.{i}.io:80"),
        4 => format!("xdstp://a/T/d/{i}"),
        5 => format!("xdstp://a/T/{i}/*"),
        6 => format!("xdstp://a/T/d/*?k={i}"),
        7 => format!("xdstp://a/T/{i}/x"),
        8 => format!("xdstp://a/envoy.config.listener.v3.Listener/{i}.io?b=1&a={i}"),
        9 => {
            ["*", "", "/", "r/", "xdstp://", "xdstp://a/T/d/*", "xdstp://a/T/%64/*", "r/*"][i % 8].to_owned()
        }
        _ => format!("r/v{i}"),
    }
}

fn any_resource(bytes: &mut Bytes<'_>) -> Resource {
    let resource_type = type_of(bytes.below(N_TYPES));
    let (kind, i, flags) = (bytes.below(N_NAMES), bytes.below(12), bytes.next());
    let pattern = ["*.io", "*"][i % 2];
    let is_pattern = resource_type == ResourceType::Listener && flags & 3 == 0;
    let name = if is_pattern { pattern.to_owned() } else { name(kind, i) };
    let aliases = if resource_type == ResourceType::VirtualHost {
        vec![format!("r/{}", ["*", "*.io", "a.*", "1.io"][i % 4]).into()]
    } else if flags & 4 == 4 {
        vec![format!("n{}", i + 1).into()]
    } else {
        vec![]
    };
    let refers = flags & 8 == 8;
    let to = ResourceKey {
        resource_type: type_of(bytes.below(N_TYPES)),
        name: self::name(bytes.below(N_NAMES), bytes.below(8)).into(),
    };
    let draft = Resource::plain(resource_type, &name, vec![flags >> 5]).to_draft();
    Resource::new(ResourceDraft {
        aliases: aliases.into(),
        host_pattern: is_pattern,
        in_wildcard: flags & 16 == 0,
        ttl: (flags & 96 == 96).then(|| Duration::from_millis(300)),
        references: refers.then(|| Reference { to: to.into(), path: "x".into() }).into_iter().collect(),
        ..draft
    })
}

fn groups(resources: BTreeMap<ResourceKey, Arc<Resource>>) -> Groups {
    let definition = NodeGroup::default_group();
    let name = definition.name.clone();
    let group = EffectiveGroup::new(definition, resources.into_values().collect());
    Groups::from_iter([(name, Arc::new(group))])
}

const N_TYPES: usize = 8;
const N_NAMES: usize = 11;
const MAX_STREAMS: usize = 3;
const MAX_CALLS: usize = 200;
const MAX_RESOURCES: usize = 60;
/// The tables that a client may be using of one type, and the ones that it is led over.
const MAX_TABLES: usize = 20;
/// The steps that one name or resource may take: the tables that are looked at for it, times the names that it is found by.
const STEPS_EACH: u64 = 30;

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, RandomState};
    use std::sync::mpsc::{self, RecvTimeoutError};
    use std::thread;

    use super::splitmix::Random;
    use super::*;

    /// Histories that broke a bound once.
    const FOUND: [u64; 2] = [14_700_444_048_988_758_957, 7_184_480_940_559_006_239];

    fn history(seed: u64) -> Vec<u8> {
        let mut random = Random(seed);
        let n = 100 + random.below(3_000);
        (0..n).map(|_| random.number().to_le_bytes()[0]).collect()
    }

    fn of_environment(name: &str) -> Option<u64> {
        std::env::var(name).ok()?.parse().ok()
    }

    #[test]
    fn any_history_stays_within_its_bounds() {
        if let Some(seed) = of_environment("XDS_SEED") {
            return run(&history(seed));
        }
        for seed in FOUND {
            run(&history(seed));
        }
        let seconds = of_environment("XDS_FUZZ_SECONDS");
        let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(2));
        // Always the same histories in a run of all tests, so that a change fails by its own fault.
        let mut seed = seconds.map_or(0, |_| RandomState::new().hash_one(0));
        while Instant::now() < until {
            seed = seed.wrapping_add(1);
            let history = history(seed);
            let (tell, told) = mpsc::channel();
            let player = thread::spawn(move || {
                run(&history);
                // Nobody listens once the time is up.
                let _ = tell.send(());
            });
            // A history takes milliseconds; the sender is gone when it panics.
            let ended = told.recv_timeout(Duration::from_secs(15));
            assert_ne!(ended, Err(RecvTimeoutError::Timeout), "it does not end: XDS_SEED={seed} repeats it");
            assert!(player.join().is_ok(), "XDS_SEED={seed} repeats it");
        }
    }
}
