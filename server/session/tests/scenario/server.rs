//! The server side of a scenario, driven as the gRPC layer drives it.

mod drive;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use xds_cache::group::Glob;
use xds_cache::layer::{EffectiveGroup, Groups, Resources};
use xds_cache::status::{StreamEntry, StreamId, StreamInfo, Subscriber, Variant};
use xds_cache::{
    DrainPolicy, Name, Node, NodeGroup, Origin, Profile, Publisher, Reference, Resource, ResourceDraft,
    ResourceKey, ResourceType, Revision, Scalar, Selector, StatusBoard, ViewChange, ViewReceiver,
};
use xds_session::{Client, DeltaRequest, Limits, Nonce, Request, SotwRequest};

use super::show::{self, Versions, known};
use super::words::{Words, duration, group_name, resource_type};

/// Everything of a scenario.
pub(crate) struct Server {
    publisher: Publisher,
    board: Arc<StatusBoard>,
    groups: Groups,
    revision: u64,
    limits: Limits,
    now: Instant,
    clients: BTreeMap<String, ClientSide>,
    streams: BTreeMap<String, StreamSide>,
    latest: String,
    n_connected: u64,
    changes: Vec<ViewChange>,
    /// Every resource that ever was or was sent, so that a request can name its version by its content.
    known: BTreeMap<(ResourceType, String, String), String>,
    versions: Versions,
}

struct ClientSide {
    client: Client,
    node: Arc<Node>,
    receiver: Option<ViewReceiver>,
}

struct StreamSide {
    id: StreamId,
    client: String,
    variant: Variant,
    entry: Arc<StreamEntry>,
    has_sent: bool,
    is_paused: bool,
    /// Whether something happened to it since it was polled.
    is_awake: bool,
}

/// The status board asks nobody here.
struct Nobody;

impl Subscriber for Nobody {
    fn concerned(&self, _: &ViewChange) -> Option<Vec<ResourceType>> {
        Some(vec![])
    }
}

/// Nonces of one stream are told from those of others.
fn first_nonce(id: StreamId) -> u64 {
    id.0 * 1000 + 1
}

impl Server {
    pub(crate) fn new() -> Self {
        let default = NodeGroup::default_group();
        let group = EffectiveGroup::new(default.clone(), Resources::new());
        Self {
            publisher: Publisher::new(),
            board: StatusBoard::new(),
            groups: Groups::from_iter([(default.name, Arc::new(group))]),
            revision: 0,
            limits: Limits::default(),
            now: Instant::now(),
            clients: BTreeMap::new(),
            streams: BTreeMap::new(),
            latest: String::new(),
            n_connected: 0,
            changes: vec![],
            known: BTreeMap::new(),
            versions: Versions::default(),
        }
    }

    /// Runs one command; what it leads to is added to `output`.
    pub(crate) fn run(&mut self, command: &str, output: &mut Vec<String>) -> Result<(), String> {
        let mut words = Words::new(command);
        match words.shift()?.as_str() {
            "set" => self.set(words)?,
            "remove" => self.remove(words)?,
            "group" => self.group(words)?,
            "ungroup" => drop(self.groups.remove(&group_name(&words.shift()?)?)),
            "publish" => self.publish(words)?,
            "limits" => self.limit(words)?,
            "connect" => self.connect(words)?,
            "request" => self.request(words, output)?,
            "close" => self.close(&words.shift()?)?,
            "pause" => self.stream_mut(&words.shift()?)?.is_paused = true,
            "resume" => {
                let side = self.stream_mut(&words.shift()?)?;
                (side.is_paused, side.is_awake) = (false, true);
            }
            "poll" => drop(self.poll(&words.shift()?, output)?),
            "time" => self.pass_time(duration(&words.shift()?)?),
            "status" => self.status(&words, output)?,
            "acked" => self.acked(words, output)?,
            "held" => self.held(words, output)?,
            "waiting" => self.waiting(words, output)?,
            "concerned" => self.concerned(words, output)?,
            other => return Err(format!("no command {other}")),
        }
        self.settle(output)
    }

    fn stream(&self, name: &str) -> Result<&StreamSide, String> {
        self.streams.get(name).ok_or_else(|| format!("no stream {name}"))
    }

    fn stream_mut(&mut self, name: &str) -> Result<&mut StreamSide, String> {
        self.streams.get_mut(name).ok_or_else(|| format!("no stream {name}"))
    }

    fn group_mut(&mut self, words: &Words) -> Result<&mut EffectiveGroup, String> {
        let name = group_name(words.option("group").unwrap_or("default"))?;
        Ok(Arc::make_mut(self.groups.get_mut(&name).ok_or("no such group")?))
    }

    fn set(&mut self, mut words: Words) -> Result<(), String> {
        let resource_type = resource_type(&words.shift()?)?;
        let in_wildcard = !words.take_flag("outside");
        let host_pattern = words.take_flag("hosts");
        let is_dns = words.take_flag("dns");
        let is_routed = words.take_flag("routed");
        for word in words.plain.clone() {
            let (name, content) = word.rsplit_once('=').ok_or_else(|| format!("{word}: NAME=CONTENT"))?;
            let resource = resource(resource_type.clone(), name, content, &words)?;
            let in_wildcard = in_wildcard && !(host_pattern && name.contains('*'));
            let value = if host_pattern {
                show::named(name, &resource.value())
            } else {
                resource.value().into_owned()
            };
            let clusters: Vec<&str> =
                resource.references().of_type(&ResourceType::Cluster).map(|name| &**name).collect();
            let value = if is_routed { show::routed(&value, &clusters) } else { value };
            let value = if is_dns { [show::DNS, &value].concat().into() } else { value.into() };
            let resource =
                Resource::new(ResourceDraft { value, in_wildcard, host_pattern, ..resource.to_draft() });
            self.known.insert(known(&resource), resource.version().to_string());
            self.group_mut(&words)?.resources.insert(Arc::new(resource));
        }
        Ok(())
    }

    fn remove(&mut self, mut words: Words) -> Result<(), String> {
        let resource_type = resource_type(&words.shift()?)?;
        for name in words.plain.clone() {
            let key = ResourceKey { resource_type: resource_type.clone(), name: name.as_str().into() };
            let gone = self.group_mut(&words)?.resources.remove(&key);
            gone.ok_or_else(|| format!("{name} is not there"))?;
        }
        Ok(())
    }

    fn group(&mut self, mut words: Words) -> Result<(), String> {
        let name = group_name(&words.shift()?)?;
        let globs = |key: &str| words.list(key).into_iter().map(Glob::new).collect();
        let mut selector =
            Selector { node_ids: globs("ids"), user_agents: globs("agents"), ..Selector::nothing() };
        if let Some((path, text)) = words.option("meta").and_then(|meta| meta.split_once(':')) {
            selector.metadata.insert(path.to_owned(), vec![Scalar::String(text.to_owned())]);
        }
        selector.all = name.is_default();
        let client = words.option("client").map(|_| Profile::Grpc);
        let definition = NodeGroup {
            name: name.clone(),
            selector,
            priority: words.number("priority")?.unwrap_or_default(),
            client,
            waves: None,
            drain: DrainPolicy::default(),
            identities: Arc::default(),
            tries_identities: false,
        };
        let label = words.option("label").map(Into::into);
        let resources = self.groups.get(&name).map(|group| group.resources.clone()).unwrap_or_default();
        self.groups
            .insert(name, Arc::new(EffectiveGroup { label, ..EffectiveGroup::new(definition, resources) }));
        Ok(())
    }

    fn publish(&mut self, words: Words) -> Result<(), String> {
        if !words.plain.is_empty() {
            self.set(words)?;
        }
        self.revision += 1;
        self.changes = self.publisher.publish(Revision(self.revision), self.groups.clone()).views;
        Ok(())
    }

    fn limit(&mut self, mut words: Words) -> Result<(), String> {
        let limits = &mut self.limits;
        limits.max_names_per_type = words.number("names")?.unwrap_or(limits.max_names_per_type);
        limits.max_unknown_names = words.number("unknown")?.unwrap_or(limits.max_unknown_names);
        limits.max_types = words.number("types")?.unwrap_or(limits.max_types);
        limits.max_response_bytes = words.number("bytes")?.unwrap_or(limits.max_response_bytes);
        limits.max_name_bytes = words.number("size")?.unwrap_or(limits.max_name_bytes);
        let time = |key: &str, default| words.option(key).map_or(Ok(default), duration);
        limits.addition_grace = time("addition", limits.addition_grace)?;
        limits.removal_grace = time("removal", limits.removal_grace)?;
        limits.settle_time = time("settle", limits.settle_time)?;
        limits.is_phased = !words.take_flag("naive");
        Ok(())
    }

    fn connect(&mut self, mut words: Words) -> Result<(), String> {
        let name = words.shift()?;
        let variant = match words.shift()?.as_str() {
            "sotw" => Variant::Sotw,
            "delta" => Variant::Delta,
            other => return Err(format!("no variant {other}")),
        };
        let service = words.option("service").map(resource_type).transpose()?;
        let mut node = Node::with_id(words.option("node").unwrap_or("n"));
        node.user_agent_name = words.option("agent").unwrap_or("envoy").to_owned();
        node.client_features = words.list("features").into_iter().map(str::to_owned).collect();
        if let Some((path, text)) = words.option("meta").and_then(|meta| meta.split_once(':')) {
            node.metadata.insert(path.to_owned(), Scalar::String(text.to_owned()));
        }
        let node = Arc::new(node);
        self.n_connected += 1;
        let id = StreamId(self.n_connected);
        let info = StreamInfo {
            id,
            node: Arc::clone(&node),
            address: "here".into(),
            variant,
            service: service.clone(),
            since: SystemTime::UNIX_EPOCH,
            proofs: Arc::default(),
        };
        let nobody: Weak<dyn Subscriber> = Weak::<Nobody>::new();
        let entry = self.board.register(info, nobody);
        let client_name = words.option("client").unwrap_or(&name).to_owned();
        let limits = self.limits;
        let client = self.clients.entry(client_name.clone()).or_insert_with(|| ClientSide {
            client: Client::new(limits),
            node,
            receiver: None,
        });
        client.client.open(id, variant, service, first_nonce(id));
        let (has_sent, is_paused, is_awake) = (false, false, false);
        let side = StreamSide { id, client: client_name, variant, entry, has_sent, is_paused, is_awake };
        self.streams.insert(name.clone(), side);
        self.latest = name;
        Ok(())
    }

    fn request(&mut self, mut words: Words, output: &mut Vec<String>) -> Result<(), String> {
        let stream = match words.plain.first().and_then(|word| word.strip_suffix(':')) {
            Some(stream) => stream.to_owned(),
            None => self.latest.clone(),
        };
        words.take_flag(&format!("{stream}:"));
        let type_url = match words.shift()?.as_str() {
            "none" => String::new(),
            word => resource_type(word)?.type_url().to_owned(),
        };
        let side = self.stream(&stream)?;
        let node = match words.option("node") {
            Some("none") => None,
            Some(id) => Some(Arc::new(Node::with_id(if id == "empty" { "" } else { id }))),
            None if side.has_sent => None,
            None => self.clients.get(&side.client).map(|client| Arc::clone(&client.node)),
        };
        let (id, variant, client) = (side.id, side.variant, side.client.clone());
        let response_nonce = self.nonce(&stream, words.option("nonce"))?;
        let error_detail = words.option("error").map(str::to_owned);
        let request = match variant {
            Variant::Sotw => {
                let shown = words.option("version").unwrap_or_default();
                let version_info = self.versions.meant(&ResourceType::from_type_url(&type_url), shown);
                let resource_names = words.plain;
                let request = SotwRequest {
                    node,
                    type_url,
                    version_info,
                    resource_names,
                    response_nonce,
                    error_detail,
                };
                Request::from(request)
            }
            Variant::Delta => Request::from(DeltaRequest {
                node,
                resource_names_subscribe: words.signed('+'),
                resource_names_unsubscribe: words.signed('-'),
                initial_resource_versions: self.held_versions(&type_url, &words),
                type_url,
                response_nonce,
                error_detail,
            }),
        };
        let client = self.clients.get_mut(&client).ok_or("no client")?;
        let side = self.streams.get_mut(&stream).ok_or("no stream")?;
        (side.has_sent, side.is_awake) = (true, true);
        if let Err(error) = client.client.handle_request(id, request) {
            output.push(format!("{stream} ended: {error}"));
            return self.close(&stream);
        }
        if client.receiver.is_none() {
            let node = client.client.node().ok_or("no node")?;
            client.receiver = Some(self.publisher.follow(node));
        }
        Ok(())
    }

    fn nonce(&self, stream: &str, text: Option<&str>) -> Result<Nonce, String> {
        let Some(text) = text else { return Ok(Nonce::None) };
        let (stream, number) = text.split_once('/').unwrap_or((stream, text));
        match number.parse::<u64>() {
            Ok(number) => Ok(Nonce::Ours(first_nonce(self.stream(stream)?.id) + number - 1)),
            Err(_) => Ok(Nonce::parse(text)),
        }
    }

    /// `irv=name@content`: the version is looked up; an unknown content is sent as it is.
    fn held_versions(&self, type_url: &str, words: &Words) -> BTreeMap<String, String> {
        let resource_type = ResourceType::from_type_url(type_url);
        let version = |name: &str, content: &str| {
            let key = (resource_type.clone(), name.to_owned(), content.to_owned());
            self.known.get(&key).cloned().unwrap_or_else(|| content.to_owned())
        };
        let pairs = words.list("irv").into_iter().filter_map(|pair| pair.split_once('@'));
        pairs.map(|(name, content)| (name.to_owned(), version(name, content))).collect()
    }

    fn close(&mut self, stream: &str) -> Result<(), String> {
        let side = self.streams.remove(stream).ok_or("no such stream")?;
        if let Some(client) = self.clients.get_mut(&side.client) {
            client.client.handle_close(side.id);
            if client.client.is_closed() {
                self.clients.remove(&side.client);
            }
        }
        Ok(())
    }

    fn pass_time(&mut self, duration: Duration) {
        self.now += duration;
        for client in self.clients.values_mut() {
            if client.client.poll_timeout().is_some_and(|due| due <= self.now) {
                client.client.handle_timeout(self.now);
            }
        }
    }

    fn status(&mut self, words: &Words, output: &mut Vec<String>) -> Result<(), String> {
        let name = words.plain.first().unwrap_or(&self.latest);
        let status = self.stream(name)?.entry.status();
        for (resource_type, of_type) in &status.types {
            let mut line = format!("{name} {} {}", resource_type.slug(), of_type.status().as_str());
            for (what, sent) in [("sent", &of_type.sent), ("acked", &of_type.acked)] {
                if let Some(sent) = sent {
                    line += &format!(" {what}={}", self.versions.show(resource_type, &sent.version_info));
                }
            }
            if let Some(nack) = &of_type.last_nack {
                let version = self.versions.show(resource_type, &nack.version_info);
                line += &format!(" nacked={version} {:?}", nack.message);
            }
            output.push(line);
        }
        if status.types.is_empty() {
            output.push(format!("{name} {}", status.status().as_str()));
        }
        Ok(())
    }

    fn acked(&self, mut words: Words, output: &mut Vec<String>) -> Result<(), String> {
        let status = self.stream(&words.shift()?)?.entry.status();
        let resource_type = resource_type(&words.shift()?)?;
        let revision = Revision(words.shift()?.parse().map_err(|_| "no revision")?);
        let of_type = status.types.get(&resource_type).cloned().unwrap_or_default();
        output.push(of_type.has_acked(revision).to_string());
        Ok(())
    }

    fn held(&self, mut words: Words, output: &mut Vec<String>) -> Result<(), String> {
        let name = words.shift().unwrap_or_else(|_| self.latest.clone());
        let side = self.stream(&name)?;
        let client = &self.clients.get(&side.client).ok_or("no client")?.client;
        for holding in client.holdings(side.id) {
            let content =
                holding.resource.as_ref().map_or("?".to_owned(), |resource| show::content(resource));
            let version = if holding.version.is_some() { content } else { "none".to_owned() };
            output.push(format!("{name} {} {}@{version}", holding.resource_type.slug(), holding.name));
        }
        Ok(())
    }

    fn waiting(&self, mut words: Words, output: &mut Vec<String>) -> Result<(), String> {
        let name = words.shift().unwrap_or_else(|_| self.latest.clone());
        let client = &self.clients.get(&self.stream(&name)?.client).ok_or("no client")?.client;
        output.extend(client.held_back().iter().map(|held| show::held_back(&name, held, self.now)));
        Ok(())
    }

    fn concerned(&self, mut words: Words, output: &mut Vec<String>) -> Result<(), String> {
        let side = self.stream(&words.shift()?)?;
        let resource_type = resource_type(&words.shift()?)?;
        let client = &self.clients.get(&side.client).ok_or("no client")?.client;
        let key = client.view().ok_or("no view")?.key();
        let changes = self.changes.iter().filter(|change| change.key == *key);
        output.push(
            changes.flat_map(|change| client.concerned(change)).any(|t| t == resource_type).to_string(),
        );
        Ok(())
    }
}

fn resource(
    resource_type: ResourceType,
    name: &str,
    content: &str,
    words: &Words,
) -> Result<Resource, String> {
    let mut value = content.as_bytes().to_vec();
    value.resize(words.number("size")?.unwrap_or(value.len()).max(value.len()), 0);
    let reference = |word: &&str| {
        let (to_type, name) = word.split_once('/').ok_or("refs=TYPE/NAME")?;
        let to = ResourceKey { resource_type: self::resource_type(to_type)?, name: name.into() };
        Ok::<_, String>(Reference { to: to.into(), path: "here".into() })
    };
    Ok(Resource::new(ResourceDraft {
        key: ResourceKey { resource_type, name: name.into() }.into(),
        value: value.into(),
        ttl: words.option("ttl").map(duration).transpose()?,
        aliases: words.list("alias").into_iter().map(Name::from).collect(),
        references: words.list("refs").iter().map(reference).collect::<Result<_, _>>()?,
        origin: Origin::Api,
        in_wildcard: true,
        host_pattern: false,
    }))
}
