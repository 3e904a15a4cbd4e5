//! Random histories of a server and a subscriber: whatever is lost or comes late, the subscriber ends with what the server has for it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;
use xds_cache::layer::Resources;
use xds_cache::{Resource, ResourceType};
use xds_codec::Codec;
use xds_relay::{Request, Response, Roots, Sent, Subscriber, Variant};

const TYPES: [ResourceType; 4] = [
    ResourceType::Cluster,
    ResourceType::ClusterLoadAssignment,
    ResourceType::Listener,
    ResourceType::RouteConfiguration,
];

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn often(&mut self, n: u64) -> bool {
        self.below(n) > 0
    }
}

/// What a server has: by type and name, what a resource refers to, and a number that makes contents differ.
type World = BTreeMap<(ResourceType, String), (Vec<String>, u64)>;

/// The bytes of a resource. With the number 13 it is refused: a cluster without a name for its endpoints' source is none.
fn encoded(codec: &Codec, (kind, name): (&ResourceType, &str), (to, number): &(Vec<String>, u64)) -> Bytes {
    let ads = json!({"ads": {}, "resource_api_version": "V3"});
    let bad = *number == 13;
    let mut message = match kind.slug() {
        "clusters" => json!({
            "name": name, "type": "EDS", "alt_stat_name": number.to_string(),
            "eds_cluster_config": {"eds_config": ads, "service_name": to.first().cloned().unwrap_or_default()},
            "lb_policy": "ROUND_ROBIN",
        }),
        "endpoints" => json!({
            "cluster_name": name,
            "endpoints": [{"priority": 0, "lb_endpoints": [{"endpoint": {"address": {"socket_address":
                {"address": "127.0.0.1", "port_value": 1 + number}}}}]}],
        }),
        "listeners" => json!({
            "name": name, "stat_prefix": number.to_string(),
            "address": {"socket_address": {"address": "127.0.0.1", "port_value": 80}},
            "filter_chains": to.iter().map(|to| json!({"name": to, "filters": [{
                "name": "hcm", "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                    "stat_prefix": "a", "rds": {"config_source": ads, "route_config_name": to}}}]})).collect::<Vec<_>>(),
        }),
        _ => json!({
            "name": name, "virtual_hosts": [{"name": number.to_string(), "domains": ["*"],
                "routes": to.iter().map(|to| json!({"match": {"prefix": "/"}, "route": {"cluster": to}})).collect::<Vec<_>>()}],
        }),
    };
    if bad {
        // A violation that is found in each type.
        match kind.slug() {
            "clusters" => message["connect_timeout"] = json!("-1s"),
            "endpoints" => message["policy"] = json!({"overprovisioning_factor": 0}),
            "listeners" => message["listener_filters"] = json!([{"name": ""}]),
            _ => message["virtual_hosts"][0]["domains"] = json!([]),
        }
    }
    codec.message_from_json(kind.type_url(), &message, xds_codec::UnknownFields::Refuse).unwrap()
}

/// A server of one stream, as the protocol describes it; shares no code with the product.
#[derive(Default)]
struct Server {
    world: World,
    /// By type: what is subscribed to, and what was sent, by name and number.
    types: BTreeMap<ResourceType, Told>,
    n_responses: u64,
    nacks: Vec<String>,
    /// True if it says of names that they do not exist, as the protocol asks of it.
    tells_absence: bool,
}

#[derive(Clone, Default)]
struct Told {
    all: bool,
    names: BTreeSet<String>,
    sent: BTreeMap<String, String>,
    /// Names that are subscribed to and not answered yet.
    new: BTreeSet<String>,
    owed: bool,
}

impl Server {
    fn version((to, number): &(Vec<String>, u64)) -> String {
        format!("{number}-{}", to.join("+"))
    }

    fn hear(&mut self, request: Request) {
        match request {
            Request::Sotw { resource_type, names, error, version, .. } => {
                self.nacks.extend(error);
                let is_first = !self.types.contains_key(&resource_type);
                let now = self.now(&resource_type);
                let versions = self.versions(&resource_type);
                let told = self.types.entry(resource_type.clone()).or_default();
                let names: BTreeSet<String> = names.into_iter().collect();
                told.all |= is_first && names.is_empty() && resource_type.has_legacy_wildcard();
                told.owed |= names.iter().any(|name| !told.names.contains(name));
                if is_first && version == now && told.all {
                    // A server that knows the version need not answer.
                    told.sent = versions;
                } else {
                    told.owed |= is_first;
                }
                told.names = names;
            }
            Request::Delta { resource_type, subscribe, unsubscribe, held, error, .. } => {
                self.nacks.extend(error);
                let is_first = !self.types.contains_key(&resource_type);
                let told = self.types.entry(resource_type.clone()).or_default();
                told.all |= is_first && subscribe.is_empty() && resource_type.has_legacy_wildcard();
                told.owed |= is_first || !subscribe.is_empty();
                told.sent.extend(held);
                for name in subscribe {
                    if !is_first {
                        told.sent.remove(&name);
                    }
                    told.new.insert(name.clone());
                    told.names.insert(name);
                }
                for name in unsubscribe {
                    assert!(told.names.remove(&name), "{name} was not subscribed to");
                    told.sent.remove(&name);
                }
            }
        }
    }

    fn versions(&self, kind: &ResourceType) -> BTreeMap<String, String> {
        let all = self.world.iter().filter(|((of, _), _)| of == kind);
        all.map(|((_, name), content)| (name.clone(), Self::version(content))).collect()
    }

    /// The SotW version of a type.
    fn now(&self, kind: &ResourceType) -> String {
        let all = self.world.iter().filter(|((of, _), _)| of == kind);
        let all = all.map(|((_, name), content)| format!("{name}={};", Self::version(content)));
        format!("v{}", all.collect::<String>())
    }

    /// What the server would send of a type; `None` if there is nothing to say.
    fn respond(
        &mut self,
        codec: &Codec,
        variant: Variant,
        kind: &ResourceType,
        most: usize,
    ) -> Option<Response> {
        let mut told = self.types.get(kind)?.clone();
        let wanted = |name: &String| told.all || told.names.contains(name);
        let there: BTreeMap<&String, _> = self
            .world
            .iter()
            .filter(|((of, name), _)| of == kind && wanted(name))
            .map(|((_, name), c)| (name, c))
            .collect();
        let versions: BTreeMap<String, String> =
            there.iter().map(|(name, content)| ((*name).clone(), Self::version(content))).collect();
        let sent = |name: &&String| {
            let content = encoded(codec, (kind, name), there[*name]);
            Sent {
                name: (variant == Variant::Delta).then(|| (*name).clone()),
                version: versions[*name].clone(),
                ttl: None,
                content: Some((kind.type_url().to_owned(), content)),
            }
        };
        let mut response = Response { type_url: kind.type_url().to_owned(), ..Response::default() };
        match variant {
            Variant::Sotw => {
                if !told.owed && told.sent == versions {
                    return None;
                }
                response.resources = there.keys().map(sent).collect();
                (told.sent, told.owed) = (versions.clone(), false);
                response.version = self.now(kind);
            }
            Variant::Delta => {
                let new: Vec<&String> = there
                    .keys()
                    .filter(|name| told.sent.get(**name) != versions.get(**name))
                    .take(most)
                    .copied()
                    .collect();
                let absent = std::mem::take(&mut told.new).into_iter().filter(|_| self.tells_absence);
                let gone: BTreeSet<String> = absent
                    .chain(told.sent.keys().cloned())
                    .filter(|name| !versions.contains_key(name))
                    .collect();
                if new.is_empty() && gone.is_empty() && !told.owed {
                    return None;
                }
                response.resources = new.iter().map(sent).collect();
                for name in new {
                    told.sent.insert(name.clone(), versions[name].clone());
                }
                gone.iter().for_each(|name| _ = told.sent.remove(name));
                response.removed = gone.into_iter().collect();
                told.owed = false;
            }
        }
        self.n_responses += 1;
        response.nonce = self.n_responses.to_string();
        self.types.insert(kind.clone(), told);
        Some(response)
    }
}

/// What somebody who sees the whole world would hold: references followed from all clusters and listeners.
fn expected(world: &World) -> BTreeMap<(ResourceType, String), String> {
    let mut found = BTreeMap::new();
    let below = |kind: &ResourceType| match kind.slug() {
        "clusters" => ResourceType::ClusterLoadAssignment,
        "listeners" => ResourceType::RouteConfiguration,
        _ => ResourceType::Runtime,
    };
    for (key, content) in world
        .iter()
        .filter(|((kind, _), _)| *kind == ResourceType::Cluster || *kind == ResourceType::Listener)
    {
        found.insert(key.clone(), Server::version(content));
        for to in &content.0 {
            let key = (below(&key.0), to.clone());
            if let Some(content) = world.get(&key) {
                found.insert(key, Server::version(content));
            }
        }
    }
    found
}

struct Run {
    random: Random,
    codec: Codec,
    variant: Variant,
    server: Server,
    subscriber: Subscriber,
    /// Requests that have not arrived.
    on_the_way: Vec<Request>,
    now: Instant,
    is_connected: bool,
}

impl Run {
    fn new(codec: &Codec, seed: u64) -> Self {
        let mut random = Random(seed);
        let variant = if random.below(2) == 0 { Variant::Delta } else { Variant::Sotw };
        let tells_absence = random.below(2) == 0;
        Self {
            random,
            codec: codec.clone(),
            variant,
            server: Server { tells_absence, ..Server::default() },
            subscriber: Subscriber::new(variant, &Roots::default(), "relay", Resources::new()),
            on_the_way: Vec::new(),
            now: Instant::now(),
            is_connected: false,
        }
    }

    fn change_world(&mut self) {
        let kind = TYPES[self.random.below(4) as usize].clone();
        let name = ["a", "b", "c", "d"][self.random.below(4) as usize].to_owned();
        if self.random.below(4) == 0 {
            self.server.world.remove(&(kind, name));
            return;
        }
        let n_to = match kind.slug() {
            "clusters" => 1,
            "listeners" | "routes" => self.random.below(3),
            _ => 0,
        };
        let mut to: Vec<String> =
            (0..n_to).map(|_| ["a", "b", "c", "d"][self.random.below(4) as usize].to_owned()).collect();
        to.sort();
        to.dedup();
        let number = self.random.below(16);
        self.server.world.insert((kind, name), (to, number));
    }

    fn connect(&mut self, is_same: bool) {
        let world = std::mem::take(&mut self.server.world);
        let (nacks, tells_absence) = (std::mem::take(&mut self.server.nacks), self.server.tells_absence);
        self.server = Server { world, nacks, tells_absence, ..Server::default() };
        self.on_the_way = self.subscriber.connected(is_same, self.now);
        self.is_connected = true;
    }

    fn send_some(&mut self, all: bool) -> bool {
        let mut did = false;
        while !self.on_the_way.is_empty() && (all || self.random.often(3)) {
            let request = self.on_the_way.remove(0);
            self.server.hear(request);
            did = true;
        }
        for kind in TYPES {
            if !all && self.random.below(2) == 0 {
                continue;
            }
            let most = if all { 100 } else { 1 + self.random.below(2) as usize };
            if let Some(response) = self.server.respond(&self.codec, self.variant, &kind, most) {
                let requests = self.subscriber.answered(&self.codec, response, self.now);
                self.on_the_way.extend(requests);
                did = true;
            }
        }
        did
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(self.random.below(1_500));
        let requests = self.subscriber.passed(self.now);
        if self.is_connected {
            self.on_the_way.extend(requests);
        }
        match self.random.below(12) {
            0 => {
                let is_same = self.random.below(2) == 0;
                self.connect(is_same);
            }
            1 => {
                // The process begins anew with what it had.
                let held = self.subscriber.resources().clone();
                self.subscriber = Subscriber::new(self.variant, &Roots::default(), "relay", held);
                self.connect(false);
            }
            2..=5 => self.change_world(),
            _ if self.is_connected => _ = self.send_some(false),
            _ => self.connect(false),
        }
    }

    /// Lets everything arrive.
    fn settle(&mut self) {
        if !self.is_connected {
            self.connect(false);
        }
        for _ in 0..50 {
            while self.send_some(true) {}
            self.now += Duration::from_secs(6);
            let requests = self.subscriber.passed(self.now);
            if requests.is_empty() && self.on_the_way.is_empty() && self.subscriber.awaited().is_none() {
                return;
            }
            self.on_the_way.extend(requests);
        }
        panic!("it does not settle: {:?}", self.subscriber.awaited());
    }
}

fn held(resources: &Resources) -> BTreeMap<(ResourceType, String), &Resource> {
    resources
        .iter()
        .map(|(key, resource)| ((key.resource_type.clone(), key.name.to_string()), &**resource))
        .collect()
}

#[test]
fn a_subscriber_ends_with_what_the_server_has_for_it() {
    let codec = Codec::new().unwrap();
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let seed = number("XDS_SEED", RandomState::new().hash_one(0_u8));
    let mut n_refused = 0;
    for case in 0..number("XDS_CASES", 256) {
        let seed = seed.wrapping_add(case);
        println!("seed {seed}");
        let mut run = Run::new(&codec, seed);
        for _ in 0..60 {
            run.step();
        }
        // What is refused at the end hides what it refers to; so end with something that can be held.
        n_refused += run.subscriber.refused().count();
        for content in run.server.world.values_mut() {
            content.1 = if content.1 == 13 { 14 } else { content.1 };
        }
        run.settle();
        let wanted = expected(&run.server.world);
        let mut found = held(run.subscriber.resources());
        if run.variant == Variant::Sotw || !run.server.tells_absence {
            // The absence of endpoints and routes means nothing then: what is referred to stays as it was.
            let is_named = |kind: &ResourceType, name: &str| {
                let above = run.server.world.iter().filter(|((of, _), _)| *of != *kind);
                above.flat_map(|(_, (to, _))| to).any(|to| to == name)
            };
            found.retain(|(kind, name), _| {
                run.server.world.contains_key(&(kind.clone(), name.clone()))
                    || kind.is_complete_in_sotw()
                    || !is_named(kind, name)
            });
        }
        assert_eq!(
            found.keys().cloned().collect::<BTreeSet<_>>(),
            wanted.keys().cloned().collect::<BTreeSet<_>>(),
            "seed {seed} {:?}",
            run.variant
        );
        for ((kind, name), resource) in &found {
            let content = &run.server.world[&(kind.clone(), name.clone())];
            let bytes = encoded(&codec, (kind, name), content);
            let expected = codec.resource_from_any(kind.type_url(), &bytes).unwrap();
            assert_eq!(resource.value(), expected.value(), "seed {seed} {kind} {name}");
        }
        let is_there =
            |kind: &ResourceType, name: &str| run.server.world.contains_key(&(kind.clone(), name.to_owned()));
        let refused: Vec<_> = run
            .subscriber
            .refused()
            .filter(|(kind, name, _)| kind.is_complete_in_sotw() || is_there(kind, name))
            .collect();
        assert!(refused.is_empty(), "seed {seed} {:?} {refused:?}", run.variant);
    }
    assert!(n_refused > 0, "nothing was ever refused");
}
