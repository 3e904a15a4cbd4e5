//! A server and one client with everything between them in queues: requests and responses wait until a step delivers them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Instant, SystemTime};

use xds_cache::group::Glob;
use xds_cache::layer::{EffectiveGroup, Groups};
use xds_cache::status::{StreamEntry, StreamId, StreamInfo, Subscriber, Variant};
use xds_cache::{
    GroupName, Node, NodeGroup, Publisher, Resource, ResourceType, Revision, StatusBoard, ViewChange,
    ViewReceiver,
};
use xds_session::{Client, DeltaRequest, Entries, Entry, Limits, Nonce, Request, Response, SotwRequest};

mod content;

pub(crate) use content::{
    N_KINDS, aliases, asked_names, content_of, in_wildcard, is_pattern, resource, resource_names,
    resource_type, target,
};

use crate::model::{Ask, Taste, TypeClient, Wire, WireResource};

/// One stream with what is on its way.
pub(crate) struct Pipe {
    id: StreamId,
    entry: Arc<StreamEntry>,
    has_sent: bool,
    to_server: VecDeque<Ask>,
    to_client: VecDeque<Wire>,
    nonces: BTreeSet<u64>,
    /// What the server has been told, which is older than what the client wants.
    processed: BTreeMap<usize, (bool, BTreeSet<String>)>,
    /// Kinds of which a name was ever given.
    named: BTreeSet<usize>,
    /// Kinds of which the client asked for something else since the last publication.
    fresh: BTreeSet<usize>,
    /// Whether it was polled in vain since something happened.
    is_silent: bool,
    /// The last nonce of each kind, if the server has no answer to it.
    unanswered: BTreeMap<usize, u64>,
    /// What the stream shows of the clusters.
    clusters: BTreeSet<String>,
}

pub(crate) struct World {
    publisher: Publisher,
    board: Arc<StatusBoard>,
    default: BTreeMap<(usize, String), u8>,
    other: BTreeMap<(usize, String), u8>,
    has_other: bool,
    revision: u64,
    node: Arc<Node>,
    client: Client,
    receiver: Option<ViewReceiver>,
    is_per_type: bool,
    is_phased: bool,
    variant: Variant,
    pub(crate) pipes: Vec<Pipe>,
    pub(crate) types: Vec<TypeClient>,
    n_streams: u64,
    pub(crate) n_responses: usize,
    /// Endpoints that a changed cluster waits for (R14), as sent.
    pub(crate) warming: BTreeSet<String>,
    sent_clusters: BTreeMap<String, String>,
    pub(crate) has_nacked: bool,
    /// The contents that the client refuses, if any.
    pub(crate) taste: Option<Taste>,
}

struct Nobody;

impl Subscriber for Nobody {
    fn concerned(&self, _: &ViewChange) -> Option<Vec<ResourceType>> {
        Some(vec![])
    }
}

impl World {
    pub(crate) fn new(
        variant: Variant,
        is_per_type: bool,
        max_response_bytes: usize,
        is_phased: bool,
    ) -> Self {
        let limits = Limits { max_response_bytes, is_phased, ..Limits::default() };
        let node = Node { user_agent_name: "envoy".to_owned(), ..Node::with_id("n") };
        let is_delta = variant == Variant::Delta;
        let mut world = Self {
            publisher: Publisher::new(),
            board: StatusBoard::new(),
            default: BTreeMap::new(),
            other: BTreeMap::new(),
            has_other: false,
            revision: 0,
            node: Arc::new(node),
            client: Client::new(limits),
            receiver: None,
            is_per_type,
            is_phased,
            variant,
            pipes: vec![],
            types: (0..N_KINDS).map(|kind| TypeClient::new(kind, is_delta, kind == 0 || kind == 2)).collect(),
            n_streams: 0,
            n_responses: 0,
            warming: BTreeSet::new(),
            sent_clusters: BTreeMap::new(),
            has_nacked: false,
            taste: None,
        };
        for kind in 0..if is_per_type { N_KINDS } else { 1 } {
            let pipe = world.open(kind);
            world.pipes.push(pipe);
        }
        world
    }

    fn open(&mut self, kind: usize) -> Pipe {
        self.n_streams += 1;
        let id = StreamId(self.n_streams);
        let service = self.is_per_type.then(|| resource_type(kind));
        let info = StreamInfo {
            id,
            node: Arc::clone(&self.node),
            address: "here".into(),
            variant: self.variant,
            service: service.clone(),
            since: SystemTime::UNIX_EPOCH,
            proofs: Arc::default(),
        };
        let nobody: Weak<dyn Subscriber> = Weak::<Nobody>::new();
        let entry = self.board.register(info, nobody);
        self.client.open(id, self.variant, service, id.0 << 32);
        Pipe {
            id,
            entry,
            has_sent: false,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            nonces: BTreeSet::new(),
            processed: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            is_silent: false,
            fresh: BTreeSet::new(),
            named: BTreeSet::new(),
            clusters: BTreeSet::new(),
        }
    }

    fn pipe_of(&self, kind: usize) -> usize {
        if self.is_per_type { kind } else { 0 }
    }

    pub(crate) fn ask(&mut self, ask: Ask) {
        let pipe = self.pipe_of(ask.kind);
        self.pipes[pipe].to_server.push_back(ask);
    }

    /// Everything on the way is lost; the client asks anew.
    pub(crate) fn reconnect(&mut self, kind: usize, is_legacy: bool, tells_versions: bool) {
        let position = self.pipe_of(kind);
        let id = self.pipes[position].id;
        self.client.handle_close(id);
        // It asks for its endpoints anew, and tells what it has.
        self.warming.clear();
        if self.pipe_of(0) == position {
            self.sent_clusters.clear();
        }
        let kinds = if self.is_per_type { kind..kind + 1 } else { 0..N_KINDS };
        self.pipes[position] = self.open(kind);
        for kind in kinds {
            if let Some(ask) = self.types[kind].reconnect(is_legacy, tells_versions) {
                self.ask(ask);
            }
        }
    }

    pub(crate) fn put(&mut self, kind: usize, name: &str, content: u8, in_other: bool) {
        let resources = if in_other { &mut self.other } else { &mut self.default };
        if content == 0 {
            resources.remove(&(kind, name.to_owned()));
        } else {
            resources.insert((kind, name.to_owned()), content);
        }
    }

    pub(crate) fn switch_view(&mut self) {
        self.has_other = !self.has_other;
    }

    pub(crate) fn publish(&mut self) {
        self.revision += 1;
        let revision = self.revision;
        let group = |definition: NodeGroup, content: &BTreeMap<(usize, String), u8>| {
            let resources = content.iter().map(|((kind, name), content)| resource(*kind, name, *content));
            // So that the node is never one that the server knows nothing of, and every publication makes views of its revision.
            let always = Resource::plain(ResourceType::Runtime, "always", revision.to_string());
            let resources = resources.chain([always]).map(Arc::new).collect();
            (definition.name.clone(), Arc::new(EffectiveGroup::new(definition, resources)))
        };
        let mut groups = Groups::from_iter([group(NodeGroup::default_group(), &self.default)]);
        let name = GroupName::new("other").expect("a name");
        let mut other = NodeGroup::for_node_id(name);
        other.selector.node_ids = vec![Glob::new("n")];
        groups.extend(self.has_other.then(|| group(other, &self.other)));
        for pipe in &mut self.pipes {
            pipe.is_silent = false;
            pipe.fresh.clear();
        }
        self.publisher.publish(Revision(revision), groups);
        self.follow();
    }

    fn follow(&mut self) {
        let Some(receiver) = &mut self.receiver else { return };
        while let Some(view) = receiver.take() {
            if !receiver.is_outdated_by(&view) {
                self.client.handle_view(view);
                return;
            }
            *receiver = self.publisher.follow(&self.node);
        }
    }

    /// What is served: content by name.
    pub(crate) fn served(&self, kind: usize) -> BTreeMap<String, u8> {
        let of_kind = |content: &BTreeMap<(usize, String), u8>| -> BTreeMap<String, u8> {
            content.iter().filter(|((k, _), _)| *k == kind).map(|((_, name), c)| (name.clone(), *c)).collect()
        };
        let mut served = of_kind(&self.default);
        if self.has_other {
            served.extend(of_kind(&self.other));
        }
        served
    }

    pub(crate) fn has_acked(&self, kind: usize) -> bool {
        let status = self.pipes[self.pipe_of(kind)].entry.status();
        status.types.get(&resource_type(kind)).is_some_and(|status| status.has_acked(Revision(self.revision)))
    }

    /// Whether the server knows everything that the client wants of a kind, and has nothing more to send.
    pub(crate) fn is_told(&self, kind: usize) -> bool {
        let pipe = &self.pipes[self.pipe_of(kind)];
        let is_of_kind =
            |ask: &Ask| ask.kind == kind && !(ask.subscribe.is_empty() && ask.unsubscribe.is_empty());
        let is_sotw = self.variant == Variant::Sotw;
        pipe.is_silent
            && !pipe.fresh.contains(&kind)
            && !pipe.to_server.iter().any(|ask| is_of_kind(ask) || (is_sotw && ask.kind == kind))
    }

    /// Delivers the oldest request of a stream.
    pub(crate) fn deliver_request(&mut self, position: usize) -> bool {
        let Some(ask) = self.pipes[position].to_server.pop_front() else { return false };
        self.process(position, &ask);
        self.pipes[position].is_silent = false;
        let pipe = &mut self.pipes[position];
        pipe.unanswered.retain(|kind, nonce| *kind != ask.kind || Some(*nonce) != ask.nonce);
        let node = (!std::mem::replace(&mut pipe.has_sent, true)).then(|| Arc::clone(&self.node));
        let id = pipe.id;
        let type_url =
            if self.is_per_type { String::new() } else { resource_type(ask.kind).type_url().to_owned() };
        let response_nonce = ask.nonce.map_or(Nonce::None, Nonce::Ours);
        let error_detail = ask.is_nack.then(|| format!("no: {}", ask.named.join(", ")));
        let request: Request = match self.variant {
            Variant::Sotw => SotwRequest {
                node,
                type_url,
                version_info: ask.version,
                resource_names: ask.list,
                response_nonce,
                error_detail,
            }
            .into(),
            Variant::Delta => DeltaRequest {
                node,
                type_url,
                resource_names_subscribe: ask.subscribe,
                resource_names_unsubscribe: ask.unsubscribe,
                initial_resource_versions: ask.initial_versions,
                response_nonce,
                error_detail,
            }
            .into(),
        };
        self.client.handle_request(id, request).expect("a client within the protocol");
        if self.receiver.is_none() {
            self.receiver = Some(self.publisher.follow(&self.node));
            self.follow();
        }
        self.tell_events();
        true
    }

    fn process(&mut self, position: usize, ask: &Ask) {
        let is_first = !self.pipes[position].processed.contains_key(&ask.kind);
        let had_named = self.pipes[position].named.contains(&ask.kind);
        if !ask.list.is_empty() {
            self.pipes[position].named.insert(ask.kind);
        }
        let (wants_all, names) = self.pipes[position].processed.entry(ask.kind).or_default();
        let before = (*wants_all, names.clone());
        let says_nothing = ask.list.is_empty() && ask.subscribe.is_empty();
        let is_legacy = is_first && says_nothing && (ask.kind == 0 || ask.kind == 2);
        let star = "*".to_owned();
        match self.variant {
            Variant::Sotw => {
                *wants_all =
                    ask.list.contains(&star) || is_legacy || (*wants_all && says_nothing && !had_named);
                *names = ask.list.iter().filter(|name| **name != star).cloned().collect();
            }
            Variant::Delta => {
                *wants_all = (*wants_all && !ask.unsubscribe.contains(&star))
                    || ask.subscribe.contains(&star)
                    || is_legacy;
                names.retain(|name| !ask.unsubscribe.contains(name));
                names.extend(ask.subscribe.iter().filter(|name| **name != star).cloned());
            }
        }
        let is_change = before != (*wants_all, names.clone()) || !ask.subscribe.is_empty();
        if is_first || is_change {
            self.pipes[position].fresh.insert(ask.kind);
        }
        if ask.kind == 0 {
            self.pipes[position].clusters.extend(ask.initial_versions.keys().cloned());
        }
    }

    /// Takes one response from the server, checks it, and puts it on its way.
    pub(crate) fn poll(&mut self, position: usize, now: Instant) -> Result<bool, String> {
        let id = self.pipes[position].id;
        let response = self.client.poll_response(id, now);
        self.tell_events();
        let Some(response) = response else {
            self.pipes[position].is_silent = true;
            return Ok(false);
        };
        self.n_responses += 1;
        let wire = wire(&response);
        self.check(position, &wire)?;
        self.pipes[position].to_client.push_back(wire);
        Ok(true)
    }

    /// Delivers the oldest response of a stream; the answer is on its way then.
    pub(crate) fn deliver_response(&mut self, position: usize, is_nack: bool) -> bool {
        let Some(wire) = self.pipes[position].to_client.pop_front() else { return false };
        let client = &mut self.types[wire.kind];
        let answer = match self.taste {
            Some(taste) => client.taste(&wire, taste),
            None => client.receive(&wire, is_nack),
        };
        self.has_nacked |= answer.is_nack;
        self.pipes[position].to_server.push_back(answer);
        true
    }

    /// Lets time pass until something happens by that; `None` if nothing does.
    pub(crate) fn pass_time(&mut self) -> Option<Instant> {
        let due = self.client.poll_timeout()?;
        self.client.handle_timeout(due);
        self.pipes.iter_mut().for_each(|pipe| pipe.is_silent = false);
        Some(due)
    }

    fn tell_events(&mut self) {
        while let Some((id, event)) = self.client.poll_event() {
            if let Some(pipe) = self.pipes.iter().find(|pipe| pipe.id == id) {
                pipe.entry.record(&event, SystemTime::UNIX_EPOCH);
            }
        }
        while self.client.poll_wake().is_some() {}
    }

    /// What must hold of every response: P3, P4, P5, and that nothing is sent that was not asked for (row A60).
    fn check(&mut self, position: usize, wire: &Wire) -> Result<(), String> {
        let served = self.served(0);
        let waits_for_endpoints = |processed: &BTreeMap<usize, (bool, BTreeSet<String>)>, name: &str| {
            processed.get(&1).is_some_and(|(all, names)| *all || names.contains(name))
        };
        let endpoints_pipe = self.pipe_of(1);
        let endpoints_asked = self.pipes[endpoints_pipe].processed.clone();
        let pipe = &mut self.pipes[position];
        if !pipe.nonces.insert(wire.nonce) {
            return Err(format!("P3: nonce {} twice", wire.nonce));
        }
        let mut seen = BTreeSet::new();
        for name in wire.resources.iter().map(|resource| &resource.name).chain(&wire.removed) {
            if !seen.insert(name) {
                return Err(format!("P4: {name} twice in {wire:?}"));
            }
        }
        let (wants_all, names) = pipe.processed.get(&wire.kind).cloned().unwrap_or_default();
        let mut judge = TypeClient::new(wire.kind, true, false);
        (judge.wants_all, judge.names) = (wants_all, names);
        // What a client drops while a list is on its way may be on the next one too: it might ask for it again meanwhile.
        let is_list = self.variant == Variant::Sotw && wire.kind == 0;
        let was_listed = |name: &String| {
            is_list && pipe.unanswered.contains_key(&wire.kind) && pipe.clusters.contains(name)
        };
        for resource in wire.resources.iter().filter(|resource| !was_listed(&resource.name)) {
            if !judge.wants(&resource.name, &resource.aliases) {
                return Err(format!("A60: {} was not asked for in {wire:?}", resource.name));
            }
        }
        pipe.unanswered.insert(wire.kind, wire.nonce);
        match wire.kind {
            0 => {
                if self.variant == Variant::Sotw {
                    pipe.clusters.clear();
                }
                pipe.clusters.extend(wire.resources.iter().map(|resource| resource.name.clone()));
                pipe.clusters.retain(|name| !wire.removed.contains(name));
                for resource in &wire.resources {
                    let before = self.sent_clusters.insert(resource.name.clone(), resource.version.clone());
                    if before.as_ref() != Some(&resource.version)
                        && waits_for_endpoints(&endpoints_asked, &resource.name)
                    {
                        self.warming.insert(resource.name.clone());
                    }
                }
            }
            1 => self.warming.retain(|name| !wire.resources.iter().any(|resource| resource.name == *name)),
            // What waits for what if the order is kept by waiting is proved in `hitless.rs`, with models that warm and drain.
            3 if !self.is_phased && pipe.processed.get(&0).is_some_and(|(wants_all, _)| *wants_all) => {
                for resource in &wire.resources {
                    let content =
                        resource.content.as_deref().and_then(|content| content.parse().ok()).unwrap_or(0);
                    let cluster = target(content);
                    let exists = served.get(cluster).is_some_and(|content| in_wildcard(0, cluster, *content));
                    if exists && !pipe.clusters.contains(cluster) {
                        return Err(format!(
                            "P5: route {} goes to {cluster}, which was not sent",
                            resource.name
                        ));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// A response as the client sees it.
fn wire(response: &Response) -> Wire {
    let contents = &response.contents;
    let kind = (0..N_KINDS).find(|kind| resource_type(*kind) == contents.resource_type).unwrap_or(N_KINDS);
    let full = |resource: &Arc<Resource>| WireResource {
        name: resource.name().to_string(),
        version: resource.version().to_string(),
        content: Some(content_of(kind, resource.name(), &resource.value())),
        aliases: resource.aliases().iter().map(ToString::to_string).collect(),
    };
    let resources = match &contents.entries {
        Entries::Table(table) => table.resources().map(full).collect(),
        Entries::Listed(entries) => entries
            .iter()
            .map(|entry| match entry {
                Entry::Full(resource) => full(resource),
                Entry::Heartbeat(resource) => WireResource { content: None, ..full(resource) },
                Entry::Unpopulated(name) => WireResource {
                    name: name.to_string(),
                    version: String::new(),
                    content: None,
                    aliases: vec![name.to_string()],
                },
            })
            .collect(),
    };
    Wire {
        kind,
        nonce: response.nonce,
        version: contents.version_info.to_string(),
        resources,
        removed: contents.removed.iter().map(ToString::to_string).collect(),
    }
}
