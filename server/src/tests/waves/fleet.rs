//! Many clients in one process: real sessions over the real publisher and status board, without sockets.

use std::sync::{Mutex, Weak};
use std::time::{Duration, Instant};

use xds_cache::status::{StreamEntry, StreamId, StreamInfo, Subscriber, Variant};
use xds_cache::wave::{Ranking, Share, Split};
use xds_cache::{Locality, Node, ViewChange, ViewReceiver};
use xds_control::model::wave::{WavePhase, WaveReport};
use xds_session::{Client, DeltaRequest, Entries, Entry, Limits, Nonce, Request, SotwRequest};

use super::*;

/// Every client of a server.
pub(super) struct Fleet {
    pub(super) clients: Vec<Simulated>,
    next_stream: u64,
    wants: Wants,
    /// The zone of a node id; empty for none.
    zone_of: ZoneOf,
}

/// The zone of a node id; empty for none.
pub(super) type ZoneOf = fn(&str) -> &'static str;

/// The names that clients ask for: a type, and the names of what of it, or all.
#[derive(Clone)]
struct Wants {
    resource_type: ResourceType,
    names: Vec<String>,
}

/// A client that wants all clusters, or one other resource.
pub(super) struct Simulated {
    pub(super) node: Arc<Node>,
    variant: Variant,
    wants: Wants,
    stream: StreamId,
    session: Arc<Session>,
    entry: Arc<StreamEntry>,
    receiver: ViewReceiver,
    /// The versions that it accepted: texts by name.
    pub(super) holds: BTreeMap<String, String>,
    pub(super) n_responses: usize,
    /// It rejects every response with this text in a cluster.
    pub(super) rejects: Option<&'static str>,
}

struct Session(Mutex<Client>);

impl Subscriber for Session {
    fn concerned(&self, change: &ViewChange) -> Option<Vec<ResourceType>> {
        Some(self.0.lock().unwrap().concerned(change))
    }
}

impl Fleet {
    /// So many nodes, `node-0` and so on, every other one with delta.
    pub(super) fn connect(server: &Server, n_clients: usize) -> Self {
        Self::connect_in(server, n_clients, |_| "", false)
    }

    /// So many nodes of a name, `NAME-0` and so on.
    pub(super) fn connect_as(server: &Server, name: &str, n_clients: usize) -> Self {
        let mut fleet = Self::connect(server, 0);
        for n in 0..n_clients {
            fleet.join(server, &format!("{name}-{n}"));
        }
        fleet.pump(server);
        fleet
    }

    /// The same nodes, in zones. They come back or have no configuration.
    pub(super) fn connect_in(server: &Server, n_clients: usize, zone_of: ZoneOf, comes_back: bool) -> Self {
        let wants = Wants { resource_type: ResourceType::Cluster, names: vec![] };
        Self::connect_for(server, n_clients, wants, zone_of, comes_back)
    }

    /// The same nodes, which lost their connection and show that they have configuration.
    pub(super) fn come_back(server: &Server, n_clients: usize) -> Self {
        Self::connect_in(server, n_clients, |_| "", true)
    }

    /// The same, for a RouteConfiguration.
    pub(super) fn connect_for_routes(server: &Server, n_clients: usize, name: &str) -> Self {
        let wants = Wants { resource_type: ResourceType::RouteConfiguration, names: vec![name.to_owned()] };
        Self::connect_for(server, n_clients, wants, |_| "", false)
    }

    /// The same, for nodes that show that they have configuration.
    pub(super) fn come_back_for_routes(server: &Server, n_clients: usize, name: &str) -> Self {
        let wants = Wants { resource_type: ResourceType::RouteConfiguration, names: vec![name.to_owned()] };
        Self::connect_for(server, n_clients, wants, |_| "", true)
    }

    fn connect_for(
        server: &Server,
        n_clients: usize,
        wants: Wants,
        zone_of: ZoneOf,
        comes_back: bool,
    ) -> Self {
        let mut fleet = Self { clients: Vec::new(), next_stream: 1, wants, zone_of };
        for n in 0..n_clients {
            fleet.add(server, &format!("node-{n}"), comes_back);
        }
        fleet.pump(server);
        fleet
    }

    /// A node that has no configuration connects.
    pub(super) fn join(&mut self, server: &Server, node: &str) {
        self.add(server, node, false);
    }

    /// A node connects that shows that it has configuration.
    pub(super) fn come(&mut self, server: &Server, node: &str) {
        self.add(server, node, true);
    }

    fn add(&mut self, server: &Server, node: &str, comes_back: bool) {
        let variant = if self.next_stream.is_multiple_of(2) { Variant::Delta } else { Variant::Sotw };
        let stream = StreamId(self.next_stream);
        let locality = Locality { zone: (self.zone_of)(node).to_owned(), ..Locality::default() };
        let node = Node { locality, ..Node::with_id(node) };
        self.clients.push(Simulated::connect(server, stream, node, variant, self.wants.clone(), comes_back));
        self.next_stream += 1;
    }

    /// Ends the stream of a node, and begins another one, which shows that it has configuration.
    pub(super) fn reconnect(&mut self, server: &Server, node: &str) {
        let rejects = self.leave(node);
        self.add(server, node, true);
        self.clients.last_mut().unwrap().rejects = rejects;
    }

    /// Ends the process of a node, and starts it again with nothing.
    pub(super) fn restart(&mut self, server: &Server, node: &str) {
        let rejects = self.leave(node);
        self.join(server, node);
        self.clients.last_mut().unwrap().rejects = rejects;
    }

    /// Ends the stream of a node; gives what it rejected.
    pub(super) fn leave(&mut self, node: &str) -> Option<&'static str> {
        let at = self.clients.iter().position(|client| client.node.id == node).unwrap();
        self.clients.swap_remove(at).rejects
    }

    /// Lets every client take in and answer what there is for it.
    pub(super) fn pump(&mut self, server: &Server) {
        self.clients.iter_mut().for_each(|client| client.pump(server));
    }

    /// Waits until `holds`, while clients answer and time passes.
    pub(super) async fn until(&mut self, server: &Server, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        for _ in 0..5_000 {
            self.pump(server);
            if holds(self) {
                return;
            }
            // The time of the test is stopped: this lets everything else happen.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("waited too long for {what}: {:#?}", server.control.waves().first());
    }

    pub(super) async fn until_phase(&mut self, server: &Server, phase: WavePhase) -> WaveReport {
        self.until(server, phase.as_str(), |_| newest(server).is_some_and(|newest| newest.phase == phase))
            .await;
        newest(server).unwrap()
    }

    /// Waits until a wave deployment waits after the wave with this share.
    pub(super) async fn until_held_at(&mut self, server: &Server, share: &str) -> WaveReport {
        let at = |report: WaveReport| {
            report.phase == WavePhase::Holding && report.share().is_some_and(|have| have.to_string() == share)
        };
        self.until(server, share, |_| newest(server).is_some_and(at)).await;
        newest(server).unwrap()
    }

    /// Waits until a wave deployment is paused, while nobody answers.
    pub(super) async fn until_paused(&self, server: &Server) -> WaveReport {
        for _ in 0..5_000 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if let Some(report) = newest(server).filter(|newest| newest.phase == WavePhase::Paused) {
                return report;
            }
        }
        panic!("it is not paused: {:#?}", newest(server));
    }

    pub(super) fn variant(&self, node: &str) -> Variant {
        self.clients.iter().find(|client| client.node.id == node).unwrap().variant
    }

    /// The node ids of those who have `text` of a cluster, in order.
    pub(super) fn with(&self, name: &str, text: &str) -> Vec<String> {
        let has = |client: &&Simulated| client.holds.get(name).is_some_and(|held| held == text);
        let mut nodes: Vec<String> =
            self.clients.iter().filter(has).map(|client| client.node.id.clone()).collect();
        nodes.sort();
        nodes
    }

    /// The node ids of a zone, in order.
    pub(super) fn of_zone(&self, zone: &str) -> Vec<String> {
        let of_zone = self.clients.iter().filter(|client| client.node.locality.zone == zone);
        let mut nodes: Vec<String> = of_zone.map(|client| client.node.id.clone()).collect();
        nodes.sort();
        nodes
    }

    /// The node ids that a share of a wave deployment has, by the hash alone.
    pub(super) fn expected(&self, deployment: u64, share: &str) -> Vec<String> {
        let share = Some(share.parse::<Share>().unwrap());
        let split = Split { deployment, share, ranking: Ranking::Hash };
        let ahead = self.clients.iter().filter(|client| split.is_ahead(&client.node));
        let mut nodes: Vec<String> = ahead.map(|client| client.node.id.clone()).collect();
        nodes.sort();
        nodes
    }

    pub(super) fn n_responses(&self) -> BTreeMap<String, usize> {
        self.clients.iter().map(|client| (client.node.id.clone(), client.n_responses)).collect()
    }

    pub(super) fn reject(&mut self, nodes: &[String], text: Option<&'static str>) {
        for client in self.clients.iter_mut().filter(|client| nodes.contains(&client.node.id)) {
            client.rejects = text;
        }
    }
}

pub(super) fn newest(server: &Server) -> Option<WaveReport> {
    server.control.waves().into_iter().next()
}

impl Simulated {
    fn connect(
        server: &Server,
        stream: StreamId,
        node: Node,
        variant: Variant,
        wants: Wants,
        comes_back: bool,
    ) -> Self {
        let node = Arc::new(node);
        let mut client = Client::new(Limits::default());
        client.open(stream, variant, None, stream.0 << 24);
        let session = Arc::new(Session(Mutex::new(client)));
        let weak = Arc::downgrade(&session) as Weak<dyn Subscriber>;
        let info = StreamInfo {
            id: stream,
            node: Arc::clone(&node),
            address: "127.0.0.1:5".into(),
            variant,
            service: None,
            since: SystemTime::UNIX_EPOCH,
            proofs: Arc::default(),
        };
        let entry = server.board.register(info, weak);
        let receiver = server.publisher.follow(&node);
        let simulated = Self {
            node: Arc::clone(&node),
            variant,
            wants,
            stream,
            session,
            entry,
            receiver,
            holds: BTreeMap::new(),
            n_responses: 0,
            rejects: None,
        };
        simulated.request(Nonce::None, None, Some(comes_back));
        simulated
    }

    /// `first` says of a stream's first request whether the client shows that it has configuration.
    fn request(&self, response_nonce: Nonce, error_detail: Option<String>, first: Option<bool>) {
        let (is_first, comes_back) = (first.is_some(), first == Some(true));
        let node = is_first.then(|| Arc::clone(&self.node));
        let type_url = self.wants.resource_type.type_url().to_owned();
        let request = match self.variant {
            Variant::Sotw => Request::Sotw(SotwRequest {
                node,
                type_url,
                resource_names: self.wants.names.clone(),
                version_info: if comes_back { "before".to_owned() } else { String::new() },
                response_nonce,
                error_detail,
            }),
            Variant::Delta => {
                let names =
                    if self.wants.names.is_empty() { vec!["*".to_owned()] } else { self.wants.names.clone() };
                let resource_names_subscribe = if is_first { names } else { vec![] };
                Request::Delta(DeltaRequest {
                    node,
                    type_url,
                    resource_names_subscribe,
                    initial_resource_versions: comes_back
                        .then(|| ("left".to_owned(), "before".to_owned()))
                        .into_iter()
                        .collect(),
                    response_nonce,
                    error_detail,
                    ..Default::default()
                })
            }
        };
        self.session.0.lock().unwrap().handle_request(self.stream, request).unwrap();
        self.settle();
    }

    fn pump(&mut self, server: &Server) {
        let view = loop {
            match self.receiver.take() {
                Some(view) if self.receiver.is_outdated_by(&view) => {
                    self.receiver = server.publisher.follow(&self.node);
                }
                newest => break newest,
            }
        };
        if let Some(view) = view {
            self.entry.record_view(view.key().clone(), view.is_unmatched());
            self.session.0.lock().unwrap().handle_view(view);
            self.settle();
        }
        loop {
            let response = self.session.0.lock().unwrap().poll_response(self.stream, Instant::now());
            self.settle();
            let Some(response) = response else { return };
            self.n_responses += 1;
            let sent: BTreeMap<String, String> = match &response.contents.entries {
                Entries::Table(table) => table.resources().map(|one| told(one)).collect(),
                Entries::Listed(entries) => entries
                    .iter()
                    .filter_map(|entry| match entry {
                        Entry::Full(resource) => Some(told(resource)),
                        Entry::Heartbeat(_) | Entry::Unpopulated(_) => None,
                    })
                    .collect(),
            };
            let nonce = Nonce::Ours(response.nonce);
            if self.rejects.is_some_and(|bad| sent.values().any(|text| text == bad)) {
                self.request(nonce, Some(format!("{} cannot take it", self.node.id)), None);
                continue;
            }
            if self.variant == Variant::Sotw {
                self.holds.clear();
            }
            for name in &response.contents.removed {
                self.holds.remove(&**name);
            }
            self.holds.extend(sent);
            self.request(nonce, None, None);
        }
    }

    fn settle(&self) {
        loop {
            let event = self.session.0.lock().unwrap().poll_event();
            let Some((_, event)) = event else { return };
            self.entry.record(&event, SystemTime::UNIX_EPOCH);
        }
    }
}

fn told(resource: &Resource) -> (String, String) {
    let is_routes = *resource.resource_type() == ResourceType::RouteConfiguration;
    let text = if is_routes { weights(resource) } else { text(resource) };
    (resource.name().to_string(), text)
}

/// The weights of the clusters of the first route that has several, such as `90/10`.
fn weights(resource: &Resource) -> String {
    let routes = codec().to_json(resource);
    let all = routes["virtual_hosts"][0]["routes"].as_array().into_iter().flatten();
    let clusters = all.filter_map(|route| route["route"]["weighted_clusters"]["clusters"].as_array()).next();
    let weights: Vec<String> =
        clusters.into_iter().flatten().map(|cluster| cluster["weight"].to_string()).collect();
    weights.join("/")
}
