//! A server and one client with everything between them in queues.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use xds_cache::layer::{EffectiveGroup, Groups};
use xds_cache::status::{EventKind, Standing, StreamId, Variant};
use xds_cache::{
    HeldBack, Node, NodeGroup, Publisher, Resource, ResourceKey, ResourceType, Revision, View, ViewReceiver,
};
use xds_session::{Client, DeltaRequest, Entries, Entry, Limits, Nonce, Request, SotwRequest};

use crate::hitless::config::{
    CLUSTER, Config, ENDPOINTS, HOST, LISTENER, N_KINDS, ROUTE, SCOPE, references, resource, resource_type,
};
use crate::hitless::envoy::Envoy;
use crate::hitless::grpc::Grpc;
use crate::hitless::vhds::route_of;
use crate::hitless::wire::{Ask, Reply, Verdict};

/// The client of a history.
#[derive(Clone, Debug)]
pub(crate) enum Model {
    Envoy(Envoy),
    Grpc(Grpc),
}

/// What kind of client a history has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) is_delta: bool,
    pub(crate) is_per_type: bool,
    pub(crate) is_grpc: bool,
    pub(crate) is_phased: bool,
    /// Whether a listener has scoped routes.
    pub(crate) is_scoped: bool,
    /// Whether route configurations have their virtual hosts on demand.
    pub(crate) is_on_demand: bool,
    pub(crate) max_response_bytes: usize,
}

#[derive(Clone, Debug)]
struct Pipe {
    id: StreamId,
    /// Its type and which of the streams of that type it is; `None` for ADS.
    key: Option<(usize, (u64, String))>,
    has_sent: bool,
    to_server: VecDeque<Ask>,
    to_client: VecDeque<Reply>,
    /// What is asked for by name, and the last nonce, by kind.
    names: [BTreeSet<String>; N_KINDS],
    /// The routes that the server knows the stream to ask for.
    routes: BTreeSet<String>,
    nonces: [Option<u64>; N_KINDS],
}

/// How the model of an Envoy shows what is not in use yet.
const WARMING: &str = "warming ";

/// A resource that the client refuses.
#[derive(Clone, Debug)]
pub(crate) struct Culprit {
    pub(crate) kind: usize,
    pub(crate) name: String,
    pub(crate) content: String,
}

impl Culprit {
    /// What a real client thinks of a response: docs/client-status.md has the table.
    fn verdict(&self, reply: &Reply, setup: Setup) -> Verdict {
        let is_nack = reply.kind == self.kind && reply.resources.get(&self.name) == Some(&self.content);
        if !is_nack {
            return Verdict { is_nack, parts: 0 };
        }
        if self.kind == SCOPE && !setup.is_delta {
            return Verdict { is_nack, parts: 0 };
        }
        let takes_others = setup.is_grpc || [CLUSTER, LISTENER].contains(&self.kind);
        let names =
            reply.resources.keys().filter(|name| **name < self.name || (takes_others && **name > self.name));
        Verdict { is_nack, parts: names.fold(Verdict::REMOVALS, |parts, name| parts | Verdict::part(name)) }
    }
}

#[derive(Clone)]
pub(crate) struct World {
    setup: Setup,
    publisher: Arc<Publisher>,
    /// What was published last.
    view: Option<Arc<View>>,
    /// So that the view is one that somebody follows.
    receiver: Option<Arc<ViewReceiver>>,
    pub(crate) config: Config,
    node: Arc<Node>,
    client: Client,
    pub(crate) model: Model,
    pipes: Vec<Pipe>,
    n_streams: u64,
    n_asks: u64,
    /// Whether the client has everything and the server knows it. Only from then on nothing may be missing: first responses wait
    /// for nothing.
    is_established: bool,
    has_rejected: bool,
    /// What the client refuses whenever it comes, of all that the script publishes.
    pub(crate) culprit: Option<Culprit>,
    /// The standing rejections of each type that the server told of last.
    standing: BTreeMap<ResourceType, Arc<Standing>>,
    /// The types of which the client's last answer was a rejection.
    rejected_last: BTreeSet<ResourceType>,
    /// Of which kinds, or streams, the client ever accepted a response: that is the version that it shows when it comes back.
    accepted: BTreeSet<(usize, (u64, String))>,
    /// The clusters, listeners and scopes that every configuration had.
    lasting: BTreeSet<(usize, String)>,
    /// How many clusters the first configuration had.
    n_clusters: usize,
    /// The virtual hosts that a configuration did not have though it had their route.
    absent: BTreeSet<String>,
    pub(crate) now: Instant,
}

impl World {
    pub(crate) fn new(setup: Setup) -> Self {
        Self::with(setup, Config::new(setup.is_scoped, setup.is_on_demand))
    }

    pub(crate) fn with(setup: Setup, config: Config) -> Self {
        let limits = Limits {
            is_phased: setup.is_phased,
            max_response_bytes: setup.max_response_bytes,
            ..Limits::default()
        };
        let agent = if setup.is_grpc { "gRPC Go" } else { "envoy" };
        let mut world = Self {
            setup,
            publisher: Arc::new(Publisher::new()),
            view: None,
            receiver: None,
            config,
            node: Arc::new(Node { user_agent_name: agent.to_owned(), ..Node::with_id("n") }),
            client: Client::new(limits),
            model: if setup.is_grpc {
                Model::Grpc(Grpc::new())
            } else {
                Model::Envoy(Envoy::new(setup.is_delta, setup.is_per_type, setup.is_scoped))
            },
            pipes: vec![],
            n_streams: 0,
            n_asks: 0,
            is_established: false,
            has_rejected: false,
            culprit: None,
            standing: BTreeMap::new(),
            rejected_last: BTreeSet::new(),
            accepted: BTreeSet::new(),
            lasting: BTreeSet::new(),
            n_clusters: 0,
            absent: BTreeSet::new(),
            now: Instant::now(),
        };
        world.lasting = world.config.resources().into_keys().collect();
        world.lasting.retain(|(kind, _)| [CLUSTER, LISTENER, SCOPE].contains(kind));
        world.n_clusters = world.lasting.iter().filter(|(kind, _)| *kind == CLUSTER).count();
        world.publish();
        world.connect();
        world
    }

    /// Ends all streams, with all that is on its way; the client connects anew, and the server knows nothing of it.
    pub(crate) fn connect(&mut self) {
        let limits = Limits {
            is_phased: self.setup.is_phased,
            max_response_bytes: self.setup.max_response_bytes,
            ..Limits::default()
        };
        self.client = Client::new(limits);
        self.pipes.clear();
        let asks = match &mut self.model {
            Model::Envoy(envoy) => envoy.connect(),
            Model::Grpc(grpc) => grpc.connect(),
        };
        asks.into_iter().for_each(|ask| self.ask(ask));
    }

    fn open(&mut self, key: Option<(usize, (u64, String))>) -> Pipe {
        self.n_streams += 1;
        let id = StreamId(self.n_streams);
        let variant = if self.setup.is_delta { Variant::Delta } else { Variant::Sotw };
        let service = key.as_ref().map(|(kind, _)| resource_type(*kind));
        self.client.open(id, variant, service, self.n_streams << 32);
        Pipe {
            id,
            key,
            has_sent: false,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            names: Default::default(),
            routes: BTreeSet::new(),
            nonces: [None; N_KINDS],
        }
    }

    fn ask(&mut self, mut ask: Ask) {
        ask.number = self.number();
        let key = self.setup.is_per_type.then(|| (ask.kind, ask.stream.clone()));
        let position = self.pipes.iter().position(|pipe| pipe.key == key).unwrap_or_else(|| {
            let pipe = self.open(key);
            self.pipes.push(pipe);
            self.pipes.len() - 1
        });
        let pipe = &mut self.pipes[position];
        if ask.is_close {
            self.accepted.remove(&(ask.kind, ask.stream.clone()));
            pipe.to_client.clear();
            pipe.key = Some((N_KINDS, (0, String::new())));
        }
        pipe.to_server.push_back(ask);
    }

    fn number(&mut self) -> u64 {
        self.n_asks += 1;
        self.n_asks
    }

    pub(crate) fn publish(&mut self) {
        let resources = self.config.resources().into_iter();
        let resources = resources.map(|((kind, name), content)| resource(kind, &name, &content));
        // So that the node is never one that the server knows nothing of.
        let always = Resource::plain(ResourceType::Runtime, "always", "1");
        let resources = resources.chain([always]).map(Arc::new).collect();
        let definition = NodeGroup::default_group();
        let name = definition.name.clone();
        let group = EffectiveGroup::new(definition, resources);
        self.note_published();
        let revision = self.view.as_ref().map_or(0, |view| view.revision().0) + 1;
        self.publisher.publish(Revision(revision), Groups::from_iter([(name, Arc::new(group))]));
        let mut receiver = self.publisher.follow(&self.node);
        self.view = receiver.take();
        self.receiver = Some(Arc::new(receiver));
        self.follow();
    }

    /// The client follows what was published last, once it has said who it is.
    fn follow(&mut self) {
        if self.client.node().is_some() {
            self.view.iter().for_each(|view| self.client.handle_view(Arc::clone(view)));
        }
    }

    /// What was published, to be published again by [`publish_again`](Self::publish_again).
    pub(crate) fn published(&self) -> (Config, Option<Arc<View>>) {
        (self.config.clone(), self.view.clone())
    }

    pub(crate) fn publish_again(&mut self, (config, view): (Config, Option<Arc<View>>)) {
        (self.config, self.view) = (config, view);
        self.note_published();
        self.follow();
    }

    fn note_published(&mut self) {
        let published = self.config.resources();
        trace(|| format!("published {published:?}"));
        self.lasting.retain(|key| published.contains_key(key));
        for (_, route) in published.keys().filter(|(kind, _)| *kind == ROUTE) {
            let hosts = [0, 1].map(|host| format!("{route}/h{host}"));
            let absent = hosts.into_iter().filter(|host| !published.contains_key(&(HOST, host.clone())));
            self.absent.extend(absent);
        }
    }

    /// A request comes to a virtual host.
    pub(crate) fn request(&mut self, name: &str) -> bool {
        let Model::Envoy(envoy) = &mut self.model else { return false };
        let ask = envoy.request(name);
        trace(|| format!("a request to {name}: {ask:?}"));
        let has_asked = ask.is_some();
        ask.into_iter().for_each(|ask| self.ask(ask));
        has_asked
    }

    /// Whether any response was rejected.
    pub(crate) fn has_rejected(&self) -> bool {
        self.has_rejected
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_silent(&self) -> bool {
        self.pipes.iter().all(|pipe| pipe.to_server.is_empty() && pipe.to_client.is_empty())
    }

    pub(crate) fn n_pipes(&self) -> usize {
        self.pipes.len()
    }

    /// Delivers the oldest request of a stream. Streams overtake each other, but whatever a client did because of a response is there
    /// before its answer: Envoys have one connection for all their streams.
    pub(crate) fn deliver_request(&mut self, position: usize) -> bool {
        let Some(pipe) = self.pipes.get(position) else { return false };
        let id = pipe.id;
        let number = pipe.to_server.front().filter(|ask| ask.answer.is_some()).map(|ask| ask.number);
        let oldest_before = |world: &Self| {
            let fronts = world.pipes.iter().enumerate();
            let fronts =
                fronts.filter_map(|(position, pipe)| Some((pipe.to_server.front()?.number, position)));
            fronts.min().filter(|(oldest, _)| number.is_some_and(|number| *oldest < number))
        };
        while let Some((_, earlier)) = oldest_before(self) {
            self.deliver_to_server(earlier);
        }
        self.pipes
            .iter()
            .position(|pipe| pipe.id == id)
            .is_some_and(|position| self.deliver_to_server(position))
    }

    fn deliver_to_server(&mut self, position: usize) -> bool {
        let Some(pipe) = self.pipes.get_mut(position) else { return false };
        let Some(ask) = pipe.to_server.pop_front() else { return false };
        if ask.is_close {
            self.client.handle_close(pipe.id);
            self.pipes.remove(position);
            return true;
        }
        let node = (!std::mem::replace(&mut pipe.has_sent, true)).then(|| Arc::clone(&self.node));
        let type_url = resource_type(ask.kind).type_url().to_owned();
        let (nonce, is_nack) = ask.answer.map_or((None, false), |(nonce, is_nack)| (Some(nonce), is_nack));
        let error_detail = is_nack.then(|| "no".to_owned());
        if ask.kind == ROUTE && ask.answer.is_none() {
            pipe.routes.extend(ask.add.iter().cloned());
            pipe.routes.retain(|route| !ask.remove.contains(route));
        }
        let request: Request = if self.setup.is_delta {
            DeltaRequest {
                node,
                type_url,
                resource_names_subscribe: ask.add.into_iter().collect(),
                resource_names_unsubscribe: ask.remove.into_iter().collect(),
                initial_resource_versions: ask
                    .has
                    .iter()
                    .map(|(name, content)| (name.clone(), version(ask.kind, name, content)))
                    .collect(),
                response_nonce: nonce.map_or(Nonce::None, Nonce::Ours),
                error_detail,
            }
            .into()
        } else {
            // Every request says all names, and the nonce of the last response.
            if nonce.is_none() && !ask.is_wildcard {
                pipe.names[ask.kind].clone_from(&ask.names);
            }
            pipe.nonces[ask.kind] = nonce.or(pipe.nonces[ask.kind]);
            let key = pipe.key.as_ref().map_or_else(Default::default, |(_, stream)| stream.clone());
            let has_accepted = self.accepted.contains(&(ask.kind, key));
            SotwRequest {
                node,
                type_url,
                version_info: if has_accepted { "some".to_owned() } else { String::new() },
                resource_names: pipe.names[ask.kind].iter().cloned().collect(),
                response_nonce: pipe.nonces[ask.kind].map_or(Nonce::None, Nonce::Ours),
                error_detail,
            }
            .into()
        };
        let id = pipe.id;
        let names = pipe.names[ask.kind].clone();
        trace(|| format!("{id} asks {} {names:?}, answers {:?}", ask.kind, ask.answer));
        self.client.handle_request(id, request).expect("a client within the protocol");
        self.follow();
        self.take_events();
        true
    }

    /// Takes one response from the server and puts it on its way.
    pub(crate) fn poll(&mut self, position: usize) -> Result<bool, String> {
        let Some(pipe) = self.pipes.get(position) else { return Ok(false) };
        let (id, key) = (pipe.id, pipe.key.clone());
        let response = self.client.poll_response(id, self.now);
        self.take_events();
        let Some(response) = response else { return self.left_out(position).map_or(Ok(false), Err) };
        let owner = match key {
            // The client has closed the stream.
            Some((N_KINDS, _)) => return Ok(true),
            Some((_, (owner, _))) => owner,
            None => 0,
        };
        let contents = response.contents;
        let kind = (0..N_KINDS).find(|kind| resource_type(*kind) == contents.resource_type);
        let text = |resource: &Arc<Resource>| {
            (resource.name().to_string(), String::from_utf8_lossy(&resource.value()).into_owned())
        };
        let resources = match &contents.entries {
            Entries::Table(table) => table.resources().map(text).collect(),
            Entries::Listed(entries) => entries
                .iter()
                .filter_map(|entry| match entry {
                    Entry::Full(resource) => Some(text(resource)),
                    Entry::Heartbeat(_) | Entry::Unpopulated(_) => None,
                })
                .collect(),
        };
        let (aliases, unpopulated) = others(&contents.entries);
        let removed = contents.removed.iter().map(ToString::to_string).collect();
        let kind = kind.expect("a kind");
        let nonce = response.nonce;
        let reply = Reply { kind, owner, nonce, resources, removed, aliases, unpopulated };
        trace(|| format!("{id} is sent {reply:?}, held back: {:?}", self.held_back()));
        self.pipes[position].to_client.push_back(reply);
        Ok(true)
    }

    /// The route that a scope in use leads to, if the client asks for it and the server, which has nothing to send, has neither sent it
    /// nor is about to when the client has what the route needs. A client
    /// that rejects what the route needs does without it.
    fn left_out(&self, position: usize) -> Option<String> {
        let Model::Envoy(envoy) = &self.model else { return None };
        let pipe = self.pipes.get(position).filter(|_| self.is_established && !self.has_rejected)?;
        // What is on its way may take the scope away.
        let mut on_their_way = self.pipes.iter().flat_map(|pipe| &pipe.to_client);
        let changes_scopes =
            |reply: &Reply| reply.kind == SCOPE && !(reply.removed.is_empty() && reply.resources.is_empty());
        if on_their_way.any(changes_scopes) {
            return None;
        }
        let is_on_its_way = |route: &String| {
            let mut replies = pipe.to_client.iter().filter(|reply| reply.kind == ROUTE);
            let is_asked_anew = pipe.to_server.iter().any(|ask| ask.kind == ROUTE && ask.answer.is_none());
            // A route that is to go afterwards is listed as a removal, also while it waits for its clusters.
            let waits = |held: &HeldBack| {
                held.resource.name[..] == **route && (!held.is_removal || self.has_clusters_on_their_way())
            };
            is_asked_anew
                || replies.any(|reply| reply.resources.contains_key(route))
                || self.client.held_back().iter().any(waits)
        };
        let mut awaited = envoy.awaited_routes();
        let route = awaited.find(|route| pipe.routes.contains(route) && !is_on_its_way(route))?;
        Some(format!("the server is silent, and a scope leads to {route}, which is not there"))
    }

    fn has_clusters_on_their_way(&self) -> bool {
        let is_of_cluster = |kind: usize| [CLUSTER, ENDPOINTS].contains(&kind);
        self.pipes.iter().any(|pipe| {
            pipe.to_client.iter().any(|reply| is_of_cluster(reply.kind))
                || pipe.to_server.iter().any(|ask| is_of_cluster(ask.kind))
        })
    }

    /// Delivers the oldest response of a stream; what the client says to it is on its way then.
    pub(crate) fn deliver_response(&mut self, position: usize, verdict: Verdict) -> Result<bool, String> {
        let Some(pipe) = self.pipes.get_mut(position) else { return Ok(false) };
        let Some(reply) = pipe.to_client.pop_front() else { return Ok(false) };
        let id = pipe.id;
        let verdict = match &self.culprit {
            Some(culprit) if !verdict.is_nack => culprit.verdict(&reply, self.setup),
            Some(_) | None => verdict,
        };
        if !verdict.is_nack {
            let key = pipe.key.as_ref().map_or_else(Default::default, |(_, stream)| stream.clone());
            self.accepted.insert((reply.kind, key));
        }
        trace(|| format!("{id} receives {} #{} {verdict:?}", reply.kind, reply.nonce));
        self.has_rejected |= verdict.is_nack;
        let asks = match &mut self.model {
            Model::Envoy(envoy) => envoy.receive(&reply, &verdict),
            Model::Grpc(grpc) => grpc.receive(&reply, &verdict),
        };
        asks.into_iter().for_each(|ask| self.ask(ask));
        let answer = Some((reply.nonce, verdict.is_nack));
        let number = self.number();
        // Unless the stream has just been closed.
        if let Some(pipe) =
            self.pipes.iter_mut().find(|p| p.id == id && !p.to_server.iter().any(|ask| ask.is_close))
        {
            pipe.to_server.push_back(Ask { kind: reply.kind, number, answer, ..Ask::default() });
        }
        let fault = self.fault().filter(|_| self.is_established);
        if let Model::Envoy(envoy) = &mut self.model {
            envoy.vhds.forget_told_gone();
        }
        fault.map_or(Ok(true), |fault| Err(format!("after {reply:?}: {fault}")))
    }

    pub(crate) fn fault(&self) -> Option<String> {
        match &self.model {
            Model::Envoy(envoy) => {
                let forgotten = self.forgotten(envoy);
                envoy.fault().or(forgotten).or_else(|| self.lost()).or_else(|| self.told_gone(envoy))
            }
            Model::Grpc(grpc) => grpc.fault(),
        }
    }

    /// A scope that changed while requests waited for its routes. Streams for each type tell the server too late what is asked for, and
    /// so does a new connection. Routes whose clusters have gone cannot come any more.
    fn forgotten(&self, envoy: &Envoy) -> Option<String> {
        let is_known = !self.setup.is_per_type && self.n_streams == 1 && !self.has_rejected;
        let can_come = self.lasting.iter().filter(|(kind, _)| *kind == CLUSTER).count() == self.n_clusters;
        let name = envoy.forgotten().filter(|_| is_known && can_come)?;
        Some(format!("{name} leads elsewhere before its routes are there"))
    }

    /// What the client had, does not have any more, and was never taken away.
    fn lost(&self) -> Option<String> {
        let has = self.has();
        let lost = self.lasting.iter().find(|key| !has.contains_key(key))?;
        Some(format!("{} is lost, and was always published", lost.1))
    }

    /// The virtual host of a route in use that was told to be gone, though it was in every configuration that had the route.
    fn told_gone(&self, envoy: &Envoy) -> Option<String> {
        let host = |name: &String| name.replace("/a1", "/h1");
        let is_fault = |name: &&String| !self.absent.contains(&host(name)) && envoy.is_in_use(route_of(name));
        let gone = envoy.vhds.told_gone().iter().find(is_fault)?;
        Some(format!("{gone} is told to be gone, its route is in use, and it was always published"))
    }

    /// The virtual hosts that the client asks for, and the names that a request waits for.
    pub(crate) fn hosts(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let Model::Envoy(envoy) = &self.model else { return Default::default() };
        let asked = envoy.vhds.asked().map(|name| name.replace("/a1", "/h1")).collect();
        (asked, envoy.vhds.pending().clone())
    }

    pub(crate) fn has(&self) -> BTreeMap<(usize, String), String> {
        match &self.model {
            Model::Envoy(envoy) => envoy.has(),
            Model::Grpc(grpc) => grpc.has(),
        }
    }

    /// Nothing is on its way, and the client has everything.
    pub(crate) fn establish(&mut self) {
        self.is_established = true;
        if let Model::Grpc(grpc) = &mut self.model {
            grpc.forgive();
        }
    }

    /// Delivers everything until nothing is on its way; accepted all.
    pub(crate) fn drain(&mut self) -> Result<(), String> {
        let yes = Verdict { is_nack: false, parts: 0 };
        for _ in 0..10_000 {
            let mut has_moved = false;
            for position in 0..self.pipes.len() {
                has_moved |= self.deliver_request(position);
                has_moved |= self.poll(position)?;
                has_moved |= self.deliver_response(position, yes)?;
            }
            if !has_moved {
                return Ok(());
            }
        }
        Err("the session does not fall silent".into())
    }

    /// Delivers everything, as over a connection on which bytes take so long that all else takes no time, and returns how many times the
    /// server has sent something and got an answer.
    pub(crate) fn round_trips(&mut self) -> Result<usize, String> {
        let yes = Verdict { is_nack: false, parts: 0 };
        for n in 0..100 {
            for position in 0..self.pipes.len() {
                while self.deliver_request(position) {}
            }
            let mut has_sent = false;
            for position in 0..self.pipes.len() {
                while self.poll(position)? {
                    has_sent = true;
                }
            }
            if !has_sent {
                return Ok(n);
            }
            for position in 0..self.pipes.len() {
                while self.deliver_response(position, yes)? {}
            }
        }
        Err("the session does not fall silent".into())
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.client.handle_timeout(self.now);
        self.take_events();
    }

    fn take_events(&mut self) {
        while let Some((_, event)) = self.client.poll_event() {
            let of = event.resource_type;
            match event.kind {
                EventKind::Standing(standing) => drop(self.standing.insert(of, standing)),
                EventKind::Nacked { .. } => drop(self.rejected_last.insert(of)),
                EventKind::Acked(_) => drop(self.rejected_last.remove(&of)),
                EventKind::Subscribed
                | EventKind::Sent(_)
                | EventKind::CameBack
                | EventKind::CameUpToDate
                | EventKind::Current(_)
                | EventKind::HeldBack
                | EventKind::GraceExpired => {}
            }
        }
        while self.client.poll_wake().is_some() {}
    }

    /// A client that refuses one resource has everything else that does not wait for that, and the server says what it refuses.
    pub(crate) fn check_all_but_the_culprit(
        &self,
        expected: &BTreeMap<(usize, String), String>,
    ) -> Result<(), String> {
        let Some(Culprit { kind, name, content }) = &self.culprit else { return Ok(()) };
        let (has, held) = (self.has(), self.client.held_back());
        if expected.get(&(*kind, name.clone())) != Some(content) {
            // It is another one by now, or gone.
            let standing = self.standing.get(&resource_type(*kind)).filter(|standing| !standing.is_empty());
            return match has == *expected && standing.is_none() {
                true => Ok(()),
                false => {
                    Err(format!("it ends with {has:?} instead of {expected:?}, and {standing:?} stands"))
                }
            };
        }
        self.check_that_nothing_new_waits()?;
        let mut waiting = BTreeSet::from([(*kind, name.clone())]);
        let mut is_whole = true;
        for (key, content) in has.iter().filter(|(_, content)| content.starts_with(WARMING)) {
            // It waits for what is refused, and is what was sent.
            is_whole &= expected.get(key).is_none_or(|expected| content.ends_with(expected));
            waiting.insert(key.clone());
        }
        if !is_whole {
            return Err(format!("{has:?} warms, and {expected:?} is published"));
        }
        while let Some(next) = held.iter().find(|held| {
            waiting.contains(&key_of(held.waits_for.resource())) && !waiting.contains(&key_of(&held.resource))
        }) {
            waiting.insert(key_of(&next.resource));
        }
        // What waits leads to others than the client uses.
        let mut led_to: BTreeSet<(usize, String)> = BTreeSet::new();
        let mut open: Vec<(usize, String)> = waiting.iter().cloned().collect();
        while let Some(key) = open.pop() {
            for content in [has.get(&key), expected.get(&key)].into_iter().flatten() {
                let content = content.trim_start_matches(WARMING);
                open.extend(references(content).into_iter().filter(|to| led_to.insert(to.clone())));
            }
        }
        // What is to go may be in use by what waits.
        for (key, published) in expected.iter().filter(|(key, _)| !waiting.contains(*key)) {
            let found = has.get(key);
            if found != Some(published) && (found.is_some() || !led_to.contains(key)) {
                let held = self.held_back();
                return Err(format!(
                    "of {key:?} the client has {found:?} instead of {published}, and refuses {name}; {waiting:?} wait, held back: {held:?}"
                ));
            }
        }
        if has.get(&(*kind, name.clone())) == Some(content) {
            return Err(format!("the client uses {content}, which it refuses"));
        }
        let of = resource_type(*kind);
        let standing = self.standing.get(&of).filter(|standing| !standing.is_empty());
        let is_said = match standing {
            Some(standing) => {
                standing.n_unknown == 0 && standing.rejected.iter().map(|one| &*one.name).eq([name.as_str()])
            }
            None => self.rejected_last.contains(&of),
        };
        if self.has_rejected && !is_said {
            return Err(format!("the client refuses {name}, and the server says {standing:?}"));
        }
        Ok(())
    }

    /// A client that has nothing of a resource does not wait for the correction of what that leads to; one that is established may go on
    /// with what it had instead.
    fn check_that_nothing_new_waits(&self) -> Result<(), String> {
        let has = self.has();
        let is_new = |held: &&HeldBack| {
            let key = key_of(&held.resource);
            let is_refused =
                self.culprit.as_ref().is_some_and(|culprit| key == (culprit.kind, culprit.name.clone()));
            !held.is_removal && key.0 != SCOPE && !is_refused && !has.contains_key(&key)
        };
        match self.client.held_back().iter().find(is_new).filter(|_| !self.is_established) {
            Some(held) => Err(format!(
                "{} waits for {}, and the client has nothing of it: {has:?}",
                held.resource, held.waits_for
            )),
            None => Ok(()),
        }
    }

    /// All that decides what can happen from here on, but for what is published.
    pub(crate) fn state(&self) -> String {
        let mut pipes = self.pipes.clone();
        let asks = || self.pipes.iter().flat_map(|pipe| &pipe.to_server);
        let numbers: BTreeSet<u64> = asks().map(|ask| ask.number).collect();
        for ask in pipes.iter_mut().flat_map(|pipe| &mut pipe.to_server) {
            ask.number = numbers.range(..ask.number).count() as u64;
        }
        format!(
            "{:?} {:?} {pipes:?} {} {} {:?} {:?} {:?}",
            self.client,
            self.model,
            self.is_established,
            self.has_rejected,
            self.accepted,
            self.standing,
            self.rejected_last
        )
    }

    /// What the server does not send yet.
    pub(crate) fn held_back(&self) -> Vec<String> {
        let line = |held: &HeldBack| format!("{}: {}", held.resource, held.waits_for);
        self.client.held_back().iter().map(line).collect()
    }
}

/// The kind and name of a resource.
fn key_of(key: &ResourceKey) -> (usize, String) {
    let kind = (0..N_KINDS).find(|kind| resource_type(*kind) == key.resource_type);
    (kind.unwrap_or(N_KINDS), key.name.to_string())
}

/// The other names of resources, and the names without any.
fn others(entries: &Entries) -> (BTreeMap<String, Vec<String>>, BTreeSet<String>) {
    let (mut aliases, mut unpopulated) = (BTreeMap::new(), BTreeSet::new());
    let Entries::Listed(entries) = entries else { return (aliases, unpopulated) };
    for entry in entries {
        match entry {
            Entry::Full(resource) if !resource.aliases().is_empty() => {
                let others = resource.aliases().iter().map(ToString::to_string).collect();
                aliases.insert(resource.name().to_string(), others);
            }
            Entry::Unpopulated(name) => drop(unpopulated.insert(name.to_string())),
            Entry::Full(_) | Entry::Heartbeat(_) => {}
        }
    }
    (aliases, unpopulated)
}

fn version(kind: usize, name: &str, content: &str) -> String {
    resource(kind, name, content).version().to_string()
}

/// Tells what happens, if `XDS_TRACE` is set.
#[expect(clippy::print_stdout, reason = "to look into a history that failed")]
fn trace(line: impl Fn() -> String) {
    static IS_TRACED: LazyLock<bool> = LazyLock::new(|| std::env::var_os("XDS_TRACE").is_some());
    if *IS_TRACED {
        println!("{}", line());
    }
}
