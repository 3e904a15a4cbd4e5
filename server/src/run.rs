//! The wiring: one server from start to end. The parts meet only here, and nothing is decided here.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use xds_access::Trail;
use xds_api::counts::RequestCounts;
use xds_api::{Access, ApiState, EventHub, Models, Trials};
use xds_cache::loads::LoadLimits;
use xds_cache::{LoadBoard, Publisher, Reason, Refusals, Revision, StatusBoard};
use xds_codec::Codec;
use xds_control::BoxFuture;
use xds_control::model::{Asked, ChangeSource, TraceParent};
use xds_control::peers::{Peers, Status};
use xds_control::{Acks, Control, Guarding, Roster, SaveSet, Sharing, Verify};
use xds_files::timing::Timing;
use xds_replica::etcd::Etcd;
use xds_replica::{Feed, Member, Presence, PresenceOptions, Remote, Replica};
use xds_rollout::Phase;
use xds_store::{JournalStore, LastGood, Store};

use crate::access::AccessFiles;
use crate::config::{Config, PeerConfig, TraceConfig};
use crate::culprits::KeptCulprits;
use crate::drain;
use crate::event_streams;
use crate::grpc::{Boards, Grpc, GrpcConfig, ReceiveLimits};
use crate::listen::{self, Ends, Port, PortRules, Shares, Tls, TlsFiles, TlsHealth};
use crate::metrics::{Metrics, PublicationSource, Servers};
use crate::oracle::Serving;
use crate::page;
use crate::peers::{self, Answers, Follower, Followers, Linking, PeerPort, PeerServers, Upstream};
use crate::relay::{Board, RelayHandle, Relays};
use crate::rollouts::{self, Rollouts};
use crate::source;
use crate::source::again::Again;
use crate::source::watch::{FileSource, FileSourceHandle};
use crate::spiffe::Agent;
#[cfg(feature = "spiffe")]
use crate::spiffe::AgentHealth;
use crate::traces::{Collector, Traces};

/// Serves until SIGTERM or SIGINT, then ends in good order.
///
/// # Errors
///
/// If the server cannot start: an address in use, a data directory that is locked or damaged. Or if a part of it fails for good.
pub async fn serve(config: Config) -> anyhow::Result<()> {
    let signals = Signals::new().context("signals cannot be received")?;
    let listeners = Listeners::bind(&config).await?;
    let access =
        AccessFiles::open(&config.access, config.admin_token.as_ref(), config.tls.timing.poll_interval)?;
    let tls = Encryption::open(&config, access.trail())?;
    let OpenStore { store, presence, feed, upstream, confirmed } = open_store(&config, &listeners).await?;
    let parts = ServerParts::open(&config, store, &tls, &access)?;
    let followers = Followers::open(&config.data_dir, config.replica_grace, Arc::clone(&parts.culprits));
    let peers = parts.peers(&config, presence.clone(), &followers);
    let (shutdown, stop) = watch::channel(false);
    let ports = parts.ports(&config, &tls);
    let grpc = parts.grpc(&config, &access, confirmed);
    let (relays, relaying) = parts.relay(&config)?.unzip();
    let (rollouts, driver) = rollouts::new(parts.rollouts(&config, peers.clone()));
    let board = relays.as_ref().map(Relays::board);
    let state = parts.api(&config, rollouts, &access, (peers.clone(), board), &tls);
    let mut router = xds_api::router_with(state.clone(), grpc.admin_routes());
    if config.has_ui {
        router = page::over(router, config.tls.admin.is_some());
    }
    listeners.announce(&config)?;

    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(serve_http(listeners.admin, ports.admin, router, stop.clone(), config.drain_timeout));
    let answers = parts.answers(&config, state.clone());
    if let (Some(listener), Some(port), Some(feed)) = (listeners.peer, ports.peer, feed) {
        tokio::spawn(Arc::clone(&feed).tend());
        let serves = PeerPort { answers: Arc::clone(&answers), feed, followers };
        tasks.spawn(serve_peers(listener, port, serves, stop.clone()));
    }
    if let Some(upstream) = upstream {
        tasks.spawn(parts.attach(upstream, answers, stop.clone()));
    }
    if let Some(peers) = peers {
        parts.follow_peers(peers, &grpc);
    }
    if let Some(listener) = listeners.probe {
        let router = xds_api::probe_router(state);
        tasks.spawn(serve_http(listener, ports.probe, router, stop.clone(), config.drain_timeout));
    }
    let stopped = wait_for(stop);
    tasks.spawn(async move { grpc.serve(listeners.xds, ports.xds, stopped).await.context("the xDS port") });
    parts.keep_up(&config, &tls, &access);
    tokio::spawn(driver.run());
    let files = parts.watch(&config)?;
    let handle = files.as_ref().map(|(_, handle)| handle.clone());
    parts.reload_by((handle.clone(), relaying), tls.clone(), Arc::clone(&access));
    if let Some(relays) = relays {
        tasks.spawn(relays.run(parts.control.clone(), shutdown.subscribe()));
    }
    let reader = handle.clone();
    if let Some((files, _)) = files {
        let deliver = parts.deliver();
        tasks.spawn(async move { files.run(deliver).await.context("the watched files") });
    }

    let outcome = tokio::select! {
        () = signals.wait(handle, tls, access) => Ok(()),
        // A task that ends before the shutdown has failed.
        Some(ended) = tasks.join_next() => ended.context("a part of the server panicked").flatten(),
    };
    tracing::info!("shutting down");
    parts.control.shut_down();
    shutdown.send_replace(true);
    if let Some(reader) = reader {
        reader.stop().await;
    }
    let drained = async { while tasks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(config.drain_timeout + LINGER, drained).await;
    say_goodbye(presence, parts.traces).await;
    outcome
}

/// Starts what the control does without requests, for as long as the process runs.
fn follow(control: &Control, verify: Verify) {
    tokio::spawn(control.clone().follow_store());
    tokio::spawn(control.clone().follow_files());
    tokio::spawn(control.clone().follow_waves());
    tokio::spawn(control.clone().follow_spread());
    tokio::spawn(control.clone().follow_elsewhere());
    tokio::spawn(control.clone().follow_differences());
    tokio::spawn(control.clone().end_overrides());
    tokio::spawn(control.clone().follow_tests());
    tokio::spawn(control.clone().follow_oracle());
    tokio::spawn(control.clone().watch_disk());
    if verify == Verify::Sampled {
        tokio::spawn(control.clone().verify());
    }
}

/// The store, and what is known through it of other servers.
struct OpenStore {
    store: Arc<dyn Store>,
    /// This server among those with the same store.
    presence: Option<Arc<Presence>>,
    /// What servers that follow this one read.
    feed: Option<Arc<Feed>>,
    /// The servers that this one follows.
    upstream: Option<Arc<Upstream>>,
    /// `None` if nobody else writes to it.
    confirmed: Option<Confirmed>,
}

/// When everything that a shared store has was last taken in; `None` until then.
type Confirmed = watch::Receiver<Option<tokio::time::Instant>>;

/// Opens the store in the data directory, or the copy there of one that several servers share, or of that of another server. Then others
/// know of this one.
async fn open_store(config: &Config, listeners: &Listeners) -> anyhow::Result<OpenStore> {
    let dir = &config.data_dir;
    let unusable = || format!("the data directory {} cannot be used", dir.display());
    let (mut presence, mut feed, mut upstream, mut confirmed) = (None, None, None, None);
    let may_be_followed = config.peers.is_some();
    let (store, notes): (Arc<dyn Store>, _) = match (&config.shared, &config.upstream) {
        (_, Some(follows)) => {
            let servers = Upstream::new(follows.addresses.clone(), follows.files.clone());
            upstream = Some(Arc::clone(&servers));
            let (store, notes) = Replica::follow(dir, servers, xds_replica::Options::default()).await?;
            confirmed = Some(store.confirmed());
            (Arc::new(store), notes)
        }
        (None, None) => {
            let (store, notes) =
                JournalStore::open(dir, xds_store::Options::default()).with_context(unusable)?;
            let store: Arc<dyn Store> = Arc::new(store);
            if may_be_followed {
                feed = Some(Feed::of_journal(dir, Arc::clone(&store)).with_context(unusable)?);
            }
            (store, notes)
        }
        (Some(shared), None) => {
            let etcd: Arc<dyn Remote> = Arc::new(Etcd::new(shared.url.clone(), shared.options.clone()));
            let options = xds_replica::Options {
                timeout: shared.timeout,
                member: Some((config.instance_id.clone(), listeners.member(config)?)),
                presence: PresenceOptions { may_lead: may_be_followed, ..PresenceOptions::default() },
                ..xds_replica::Options::default()
            };
            let (store, notes) = Replica::open(dir, etcd, shared.keys.clone(), options).await?;
            presence = store.presence();
            confirmed = Some(store.confirmed());
            let store = Arc::new(store);
            if may_be_followed {
                feed = Some(store.feed().with_context(unusable)?);
            }
            (store, notes)
        }
    };
    for note in notes {
        tracing::warn!(%note, "the store was opened with a remark");
    }
    Ok(OpenStore { store, presence, feed: feed.map(Arc::new), upstream, confirmed })
}

/// Whose clients count, and who makes changes.
fn sharing(config: &Config) -> Sharing {
    if config.relay.is_some() {
        // What is relayed is kept whole, as files of a shared store are.
        return Sharing::Linked;
    }
    match (&config.upstream, &config.shared, &config.peers) {
        (Some(_), ..) => Sharing::Follower,
        (None, None, None) => Sharing::Alone,
        (None, Some(_), None) => Sharing::Apart,
        (None, _, Some(_)) => Sharing::Linked,
    }
}

fn now_in_seconds() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}

/// The Envoy that judges changes, if there is one.
fn oracle(config: &Config, metrics: &Arc<Metrics>) -> anyhow::Result<Option<Arc<dyn xds_control::Oracle>>> {
    let Some(path) = &config.files.oracle else { return Ok(None) };
    let questions = config.data_dir.join("oracle");
    let oracle = Serving::open(path, &questions, Arc::clone(metrics))
        .with_context(|| format!("the directory {} of --oracle cannot be used", questions.display()))?;
    Ok(Some(Arc::new(oracle)))
}

/// The traces of changes, if they are wanted. They are sent from now on.
fn traces(config: &Config, metrics: &Arc<Metrics>) -> Option<Arc<Traces>> {
    let TraceConfig { url, ca, identity, headers, sample } = config.traces.clone()?;
    let collector = Collector { url, ca, identity, headers, instance_id: config.instance_id.clone() };
    let (traces, exporter) = Traces::new(sample, collector, Arc::clone(metrics));
    tokio::spawn(exporter.run());
    tokio::spawn(Arc::clone(&traces).tend());
    Some(traces)
}

/// The parts that are made once and shared.
struct ServerParts {
    codec: Codec,
    publisher: Arc<Publisher>,
    board: Arc<StatusBoard>,
    roster: Arc<Roster>,
    loads: Arc<LoadBoard>,
    culprits: Arc<KeptCulprits>,
    refusals: Arc<Refusals>,
    acks: Arc<Acks>,
    metrics: Arc<Metrics>,
    traces: Option<Arc<Traces>>,
    counts: Arc<RequestCounts>,
    servers: Arc<Servers>,
    control: Control,
}

impl ServerParts {
    fn open(
        config: &Config,
        store: Arc<dyn Store>,
        tls: &Encryption,
        access: &AccessFiles,
    ) -> anyhow::Result<Self> {
        let codec = config.files.descriptors.codec()?;
        let publisher = Arc::new(Publisher::draining(config.drain));
        let board = StatusBoard::new();
        let loads = Arc::new(LoadBoard::new(LoadLimits {
            kept_for: config.loads.window,
            bucket: config.loads.interval,
            max_series: config.loads.max_series,
        }));
        let acks = Arc::new(Acks::new(Arc::clone(&publisher), Arc::clone(&board)));
        let refusals = Arc::<Refusals>::default();
        let is_copy = config.shared.is_some() || config.upstream.is_some();
        let servers = Servers::new(Arc::clone(&store), is_copy);
        let counts = Arc::<RequestCounts>::default();
        let roster = Arc::new(Roster::new(Arc::clone(&publisher), Arc::clone(&board)));
        let metrics =
            Metrics::new(Arc::clone(&publisher), Arc::clone(&roster), Arc::clone(&refusals), tls.all());
        let metrics = metrics
            .with_access(Arc::clone(access.counts()), Arc::clone(access.trail()))
            .with_agent(tls.agent.clone())
            .with_servers(&servers)
            .with_requests(Arc::clone(&counts));
        let metrics = Arc::new(metrics);
        let traces = traces(config, &metrics);
        let counting = Counting { metrics: Arc::clone(&metrics), traces: traces.clone() };
        let parts = xds_control::ControlParts {
            codec: codec.clone(),
            store,
            publisher: Arc::clone(&publisher),
            board: Arc::clone(&board),
            acks: Arc::clone(&acks),
            loads: Arc::clone(&loads),
            observer: Some(Arc::new(counting)),
            oracle: oracle(config, &metrics)?,
        };
        let options = xds_control::Options {
            watches_files: !config.files.roots.is_empty() || config.relay.is_some(),
            is_relay: config.relay.is_some(),
            strict: config.files.is_strict,
            hold_mass_removal: config.files.hold_mass_removal.share(),
            routes: config.routes.clone(),
            waves: config.waves.clone(),
            session: session_limits(config),
            verify: config.files.verify,
            guarding: Guarding { secrets: config.secrets, tries_identities: config.access.is_dry_run },
            is_partial_start: config.files.is_partial_start,
            test_policy: config.files.test_policy,
            oracle_policy: config.files.oracle_policy,
            sharing: sharing(config),
        };
        let control = Control::open(parts, options).context("the stored state cannot be read")?;
        Ok(Self {
            codec,
            publisher,
            board,
            roster,
            loads,
            culprits: KeptCulprits::open(&config.data_dir),
            refusals,
            acks,
            metrics,
            traces,
            counts,
            servers,
            control,
        })
    }

    fn grpc(&self, config: &Config, access: &AccessFiles, confirmed: Option<Confirmed>) -> Arc<Grpc> {
        let limits = session_limits(config);
        let settings = GrpcConfig {
            identifier: config.instance_id.clone(),
            limits,
            max_message_bytes: config.limits.max_message_bytes,
            client_status: config.xds_client_status,
            access_dry_run: config.access.is_dry_run,
            needs_token: config.access.needs_issuers,
            authenticates_clients: config.tls.authenticates_clients() || config.access.needs_issuers,
            rest_polling: config.polling.is_on,
            max_poll_bytes: config.polling.max_bytes,
            max_polls: config.polling.max_polls,
            hosts: config.polling.hosts.clone(),
            needs_credential: !config.tls.allows_anonymous,
            max_node_memory: config.limits.max_node_memory,
            max_subscription_memory: config.limits.max_subscription_memory,
            receive: ReceiveLimits {
                process: config.limits.max_receive_bytes,
                per_source: config.limits.max_receive_bytes_per_address,
                per_connection: config.limits.max_message_bytes,
                patience: MESSAGE_PATIENCE,
            },
            first_request_timeout: config.limits.first_request_timeout,
            max_streams: config.limits.max_streams,
            max_streams_per_connection: config.limits.max_streams_per_connection,
            keepalive_interval: config.keepalive.interval,
            keepalive_timeout: config.keepalive.timeout,
            max_connection_age: config.max_connection_age,
            drain_timeout: config.drain_timeout,
            load_report_interval: config.routes.reports_loads.then_some(config.loads.interval),
            ..GrpcConfig::default()
        };
        let boards = Boards {
            publisher: Arc::clone(&self.publisher),
            board: Arc::clone(&self.board),
            loads: Arc::clone(&self.loads),
            culprits: Arc::clone(&self.culprits),
            refusals: Arc::clone(&self.refusals),
            trail: Arc::clone(access.trail()),
            traces: self.traces.clone(),
        };
        let (codec, metrics) = (self.codec.clone(), Arc::clone(&self.metrics));
        let grpc = Grpc::new(boards, access.policy(), codec, metrics, settings);
        if let Some(confirmed) = confirmed {
            grpc.confirm_by(move || *confirmed.borrow());
        }
        grpc
    }

    /// The ports, with connections for each as far as open files allow.
    fn ports(&self, config: &Config, tls: &Encryption) -> Ports {
        let limits = &config.limits;
        let wanted = Shares {
            xds: limits.max_connections,
            admin: limits.max_admin_connections,
            probe: PROBE_CONNECTIONS,
        };
        let shares = Shares::new(listen::raise_limit(), wanted);
        let silence = config.keepalive.interval + config.keepalive.timeout;
        let port = |rules, tls: Option<&Arc<Tls>>| Port::new(rules, tls.cloned(), Arc::clone(&self.refusals));
        let admin = |name, max_connections: usize| PortRules {
            name,
            max_connections,
            reason: Reason::AdminConnections,
            opening: ADMIN_OPENING,
            idle: limits.admin_idle_timeout,
            stalled: ADMIN_STALLED,
            may_take_later: false,
            max_of_address: max_connections / 2,
            is_http1_only: name == PROBE,
        };
        let xds = PortRules {
            name: "xds",
            max_connections: shares.xds,
            reason: Reason::Connections,
            opening: silence,
            idle: XDS_IDLE.max(silence),
            stalled: silence,
            may_take_later: true,
            // A fleet may be behind one address, so it counts only when the port is full.
            max_of_address: shares.xds / 2,
            is_http1_only: false,
        };
        Ports {
            xds: port(xds, tls.xds.as_ref()),
            admin: port(admin("admin", shares.admin), tls.admin.as_ref()),
            probe: port(admin(PROBE, shares.probe), None),
            peer: config.peers.as_ref().map(|_| port(admin("peer", PEER_CONNECTIONS), tls.peer.as_ref())),
        }
    }

    /// The other servers whose clients count; `None` if there cannot be any.
    fn peers(
        &self,
        config: &Config,
        presence: Option<Arc<Presence>>,
        followers: &Arc<Followers>,
    ) -> Option<Arc<PeerServers>> {
        let linking = config
            .peers
            .as_ref()
            .map(|peers| Linking { files: peers.files.clone(), culprits: Arc::clone(&self.culprits) });
        if presence.is_none() && linking.is_none() {
            return None;
        }
        let (own, others) = (config.instance_id.clone(), (presence, Arc::clone(followers)));
        Some(PeerServers::new(own, others, linking, config.replica_grace, self.status()))
    }

    /// Has changes count the clients of other servers too, shares clients with these, and keeps links with them.
    fn follow_peers(&self, peers: Arc<PeerServers>, grpc: &Grpc) {
        let others = Arc::clone(&peers);
        grpc.share_with(move || others.streams_of_others());
        if peers.is_linked() {
            self.control.set_peers(Arc::<PeerServers>::clone(&peers));
        }
        self.servers.set(Arc::<PeerServers>::clone(&peers));
        let control = self.control.clone();
        tokio::spawn(peers.follow(move |problem| control.note_replicas(problem)));
    }

    /// Lets the servers that this one follows ask it about its clients.
    fn attach(
        &self,
        upstream: Arc<Upstream>,
        answers: Arc<Answers>,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = anyhow::Result<()>> + Send + use<> {
        let follower = Follower { answers, since: now_in_seconds(), stop };
        let control = self.control.clone();
        async move {
            upstream.attach(follower, move |problem| control.note_replicas(problem)).await;
            Ok(())
        }
    }

    /// What other servers are told of this one.
    fn answers(&self, config: &Config, state: ApiState) -> Arc<Answers> {
        Arc::new(Answers {
            id: config.instance_id.clone(),
            status: self.status(),
            culprits: Arc::clone(&self.culprits),
            answer: Box::new(move |question| {
                let state = state.clone();
                Box::pin(async move { xds_api::answer_peer(&state, question).await })
            }),
        })
    }

    fn status(&self) -> Box<dyn Fn() -> Status + Send + Sync> {
        // The control and the metrics know the other servers, and these ask for this.
        let (control, board) = (self.control.downgrade(), Arc::clone(&self.board));
        Box::new(move || {
            let streams = board.n_streams() as u64;
            let Some(control) = control.upgrade() else { return Status { streams, ..Status::default() } };
            let (revision, fingerprint) = control.fingerprint();
            Status { revision: revision.0, streams, fingerprint: Some((revision.0, fingerprint)) }
        })
    }

    fn rollouts(&self, config: &Config, peers: Option<Arc<PeerServers>>) -> rollouts::DriverParts {
        rollouts::DriverParts {
            peers: peers.filter(|peers| peers.is_linked()).map(|peers| -> Arc<dyn Peers> { peers }),
            control: self.control.clone(),
            publisher: Arc::clone(&self.publisher),
            board: Arc::clone(&self.board),
            loads: Arc::clone(&self.loads),
            clock: rollouts::wall_clock(),
            caller: rollouts::Caller {
                reach: config.rollout_reach.clone(),
                trust: config.rollout_trust.clone(),
                refusals: Arc::clone(&self.refusals),
            },
            observer: Some(Arc::new(Counting { metrics: Arc::clone(&self.metrics), traces: None })),
        }
    }

    fn api(
        &self,
        config: &Config,
        rollouts: Rollouts,
        access: &AccessFiles,
        (peers, relay): (Option<Arc<PeerServers>>, Option<Arc<Board>>),
        tls: &Encryption,
    ) -> ApiState {
        let rollouts: Arc<dyn xds_api::rollouts::Rollouts> = Arc::new(rollouts);
        self.metrics.show_rollouts(&rollouts);
        ApiState {
            counts: Arc::clone(&self.counts),
            peers: peers.map(|peers| -> Arc<dyn Peers> { peers }),
            relay: relay.map(|relay| -> Arc<dyn xds_api::Relay> { relay }),
            control: self.control.clone(),
            publisher: Arc::clone(&self.publisher),
            board: Arc::clone(&self.board),
            roster: Arc::clone(&self.roster),
            loads: Arc::clone(&self.loads),
            refusals: Arc::clone(&self.refusals),
            rollouts,
            acks: Arc::clone(&self.acks),
            codec: self.codec.clone(),
            trials: Trials::default(),
            max_document_values: config.files.max_document_values,
            texts: Arc::new(Again::new(
                self.codec.clone(),
                file_limits(config),
                config.routes.unknown_fields,
            )),
            access: Arc::new(Access {
                token: access.token(),
                accepts_certificates: config.tls.has_admin_ca(),
                clients_need_credential: !config.tls.allows_anonymous,
                allowed_hosts: config.admin_hosts.clone(),
                policy: access.policy(),
                trail: Arc::clone(access.trail()),
                counts: Arc::clone(access.counts()),
                ..Access::default()
            }),
            events: EventHub::start(&self.control, &self.board, &self.publisher),
            certificates: Some(Arc::new(Ends(tls.all()))),
            models: Models::default(),
        }
    }

    /// The watched files, if there are any.
    fn watch(&self, config: &Config) -> anyhow::Result<Option<(FileSource, FileSourceHandle)>> {
        if config.files.roots.is_empty() {
            return Ok(None);
        }
        let directory = config.data_dir.join("last-good");
        let last_good = LastGood::open(&directory)
            .with_context(|| format!("the last good copies in {} cannot be used", directory.display()))?;
        let parts = source::watch::WatchParts {
            roots: config.files.roots.clone(),
            follows_links: config.files.follows_links,
            limits: file_limits(config),
            is_partial_start: config.files.is_partial_start,
            unknown_fields: config.routes.unknown_fields,
            timing: Timing::with_poll_interval(config.files.poll_interval),
            codec: Arc::new(self.codec.clone()),
            last_good,
            is_for_all: self.control.shares_store(),
        };
        if self.control.shares_store() {
            let (settled, save) = settled_set(&config.data_dir);
            self.control.remember_files(settled, save);
        }
        let control = self.control.clone();
        let saved = Box::new(move |failure: Option<&str>| control.note_copies(failure));
        let (files, handle) =
            FileSource::open(parts, saved).context("the last good copies cannot be read")?;
        let (layer, documents) = files.copies();
        self.control.recall(layer, documents);
        Ok(Some((files, handle)))
    }

    /// The server that is relayed, if there is one.
    fn relay(&self, config: &Config) -> anyhow::Result<Option<(Relays, RelayHandle)>> {
        let Some(path) = config.relay.as_deref() else { return Ok(None) };
        let (relays, handle) = Relays::open(path, &self.codec)?;
        self.servers.set_relay(relays.board());
        Ok(Some((relays, handle)))
    }

    /// Starts what goes on by itself, for as long as the process runs.
    fn keep_up(&self, config: &Config, tls: &Encryption, access: &Arc<AccessFiles>) {
        follow(&self.control, config.files.verify);
        tls.follow(self);
        tokio::spawn(Arc::clone(access).follow(self.control.clone()));
        tokio::spawn(Arc::clone(&self.culprits).keep());
        tokio::spawn(drain::drive(Arc::clone(&self.publisher)));
        tokio::spawn(retire_views(Arc::clone(&self.publisher)));
    }

    /// Has a reload read all files: those of TLS and of the access policy too, and these alone if no others are watched or relayed.
    fn reload_by(
        &self,
        files: (Option<FileSourceHandle>, Option<RelayHandle>),
        tls: Encryption,
        access: Arc<AccessFiles>,
    ) {
        self.control.set_reload(Arc::new(move |confirm| {
            let files = files.clone();
            tls.look_soon();
            access.look_soon();
            let asked = if confirm { Asked::Confirmed } else { Asked::Plainly };
            Box::pin(async move {
                match files {
                    (Some(files), _) => files.reload(asked).await.map(Some),
                    (None, Some(relay)) => relay.propose(asked).await.map(Some),
                    (None, None) => Ok(None),
                }
            })
        }));
    }

    /// Passes on what is wrong with the certificates of a port or with their source, and why clients cannot connect.
    fn note_tls(&self, subject: &'static str) -> impl Fn(Option<String>, Option<String>) + use<> {
        let control = self.control.clone();
        move |problem, unready| control.note_tls(subject, problem, unready)
    }

    /// Passes the contents of the files to the control.
    fn deliver(&self) -> source::watch::Deliver {
        let control = self.control.clone();
        let metrics = Arc::clone(&self.metrics);
        Box::new(move |load, asked| -> BoxFuture<'static, _> {
            let control = control.clone();
            let metrics = Arc::clone(&metrics);
            Box::pin(async move {
                let has_error = |file: &&xds_control::model::FileStatus| {
                    file.diagnostics.iter().any(xds_codec::Diagnostic::is_error)
                };
                metrics.file_errors(load.files.values().filter(has_error).count());
                match control.shares_store() {
                    true => control.take_watched(load, asked).await,
                    false => control.take_files(load, asked).await,
                }
            })
        })
    }
}

/// The set of files that the server had when they last settled, and how it is kept. Without it, a server that starts waits longer
/// before it proposes its files.
fn settled_set(data_dir: &Path) -> (Option<String>, SaveSet) {
    let path = data_dir.join("files-settled");
    let settled = std::fs::read_to_string(&path).ok().map(|text| text.trim().to_owned());
    let save = move |set: &str| {
        if let Err(error) = std::fs::write(&path, set) {
            tracing::warn!(%error, path = %path.display(), "which files were read last cannot be kept");
        }
    };
    (settled.filter(|set| !set.is_empty()), Box::new(save))
}

/// How much one file may have.
fn file_limits(config: &Config) -> xds_codec::Limits {
    xds_codec::Limits {
        max_bytes: config.files.max_file_bytes,
        max_document_values: config.files.max_document_values,
        ..xds_codec::Limits::default()
    }
}

/// How clients are served.
fn session_limits(config: &Config) -> xds_session::Limits {
    xds_session::Limits {
        max_names_per_type: config.limits.max_names_per_type,
        max_response_bytes: config.limits.max_response_bytes,
        addition_grace: config.limits.addition_grace,
        removal_grace: config.limits.removal_grace,
        settle_time: config.limits.settle_time,
        is_phased: !config.limits.is_naive,
        ..xds_session::Limits::default()
    }
}

/// Counts publications, and traces them.
#[derive(Debug)]
struct Counting {
    metrics: Arc<Metrics>,
    traces: Option<Arc<Traces>>,
}

impl xds_control::Observer for Counting {
    fn published(&self, source: ChangeSource, revision: Revision, parent: Option<TraceParent>) {
        let source = match source {
            ChangeSource::File => PublicationSource::Files,
            ChangeSource::Store => PublicationSource::Store,
            ChangeSource::Api
            | ChangeSource::Rollback
            | ChangeSource::Revert
            | ChangeSource::Expiry
            | ChangeSource::Waves
            | ChangeSource::Rollout
            | ChangeSource::Verify => PublicationSource::Api,
        };
        self.metrics.published(source, revision);
        if let Some(traces) = &self.traces {
            traces.publishes(revision, parent);
        }
    }

    fn changed(&self, changed: xds_control::Changed<'_>) {
        if let Some(traces) = &self.traces {
            traces.changed(changed);
        }
    }

    fn wave(&self, phase: xds_control::model::wave::WavePhase, share: Option<xds_cache::wave::Share>) {
        self.metrics.wave(phase, share);
    }

    fn tested(&self, passed: usize, failed: usize) {
        self.metrics.tested(passed, failed);
    }

    fn spread(&self, share: u8, took: Duration) {
        self.metrics.spread(share, took);
    }

    fn waits_since(&self, at: Option<Instant>) {
        self.metrics.waits_since(at);
    }

    fn render(&self, condition: xds_control::Condition<'_>) -> String {
        self.metrics.ready(condition.is_ready);
        self.metrics.grpc_unsupported(condition.unsupported);
        self.metrics.problems(&condition.problems);
        self.metrics.render()
    }
}

impl rollouts::Observer for Counting {
    fn rollouts(&self, counts: &BTreeMap<Phase, usize>) {
        self.metrics.rollouts(counts);
    }
}

/// The state of the connections of each port.
struct Ports {
    xds: Arc<Port>,
    admin: Arc<Port>,
    probe: Arc<Port>,
    peer: Option<Arc<Port>>,
}

/// TLS of the ports that have it.
#[derive(Clone)]
struct Encryption {
    xds: Option<Arc<Tls>>,
    admin: Option<Arc<Tls>>,
    peer: Option<Arc<Tls>>,
    /// The source of certificates that are not in files.
    agent: Option<Arc<Agent>>,
}

impl Encryption {
    fn open(config: &Config, trail: &Arc<Trail>) -> anyhow::Result<Self> {
        let agent = config.tls.spiffe.clone().map(Agent::new);
        let open = |port, files: &Option<TlsFiles>| {
            let timing = config.tls.timing;
            let open = |files| Tls::open(port, files, agent.as_deref(), timing, Arc::clone(trail));
            let opened = files.clone().map(open).transpose();
            opened.with_context(|| format!("TLS on the {port} port cannot be set up"))
        };
        let peer = config.peers.as_ref().and_then(PeerConfig::tls);
        Ok(Self {
            xds: open("xds", &config.tls.xds)?,
            admin: open("admin", &config.tls.admin)?,
            peer: open("peer", &peer)?,
            agent,
        })
    }

    fn all(&self) -> Vec<Arc<Tls>> {
        [&self.xds, &self.admin, &self.peer].into_iter().flatten().cloned().collect()
    }

    /// Looks at the files, and listens to the agent, while the process lives.
    fn follow(&self, parts: &ServerParts) {
        #[cfg(feature = "spiffe")]
        if let Some(agent) = &self.agent {
            let note = parts.note_tls("SPIFFE agent");
            tokio::spawn(
                Arc::clone(agent).follow(move |AgentHealth { problem, unready }| note(problem, unready)),
            );
        }
        for tls in self.all() {
            let note = parts.note_tls(tls.port());
            tokio::spawn(tls.follow(move |TlsHealth { problem, unready }| note(problem, unready)));
        }
    }

    fn look_soon(&self) {
        self.all().iter().for_each(|tls| tls.look_soon());
    }
}

/// The sockets. They are bound first, so that a port in use is reported at once.
struct Listeners {
    xds: TcpListener,
    admin: TcpListener,
    probe: Option<TcpListener>,
    peer: Option<TcpListener>,
}

impl Listeners {
    async fn bind(config: &Config) -> anyhow::Result<Self> {
        let listen = config.listen;
        Ok(Self {
            peer: match &config.peers {
                Some(peers) => Some(bind("--peer-listen", peers.listen).await?),
                None => None,
            },
            xds: bind("--xds-listen", listen.xds).await?,
            admin: bind("--admin-listen", listen.admin).await?,
            probe: match listen.probe {
                Some(address) => Some(bind("--probe-listen", address).await?),
                None => None,
            },
        })
    }

    /// What this server says of itself to the others with the same store.
    fn member(&self, config: &Config) -> io::Result<Member> {
        let address = match (&self.peer, &config.peers) {
            (Some(peer), Some(peers)) => Some(peers.address(peer.local_addr()?)),
            (_, _) => None,
        };
        Ok(Member { peer: address, release: env!("CARGO_PKG_VERSION").to_owned(), since: now_in_seconds() })
    }

    /// Logs where the server listens, for people and for programs.
    fn announce(&self, config: &Config) -> io::Result<()> {
        let kind = |files: &Option<TlsFiles>| match files {
            None => "off",
            Some(files) if files.trust.asks() => "mutual",
            Some(_) => "server",
        };
        let ports =
            [("xds", &self.xds, kind(&config.tls.xds)), ("admin", &self.admin, kind(&config.tls.admin))];
        let peer_tls =
            if config.peers.as_ref().is_some_and(|peers| peers.files.is_some()) { "mutual" } else { "off" };
        let probe = self.probe.iter().map(|probe| ("probe", probe, "off"));
        let peer = self.peer.iter().map(|peer| ("peer", peer, peer_tls));
        for (service, listener, tls) in ports.into_iter().chain(probe).chain(peer) {
            tracing::info!(service, addr = %listener.local_addr()?, tls, "listening");
        }
        if config.admin_token.is_some()
            && config.tls.admin.is_none()
            && !config.listen.admin.ip().is_loopback()
        {
            tracing::warn!(
                "the admin token crosses the network unencrypted: give --admin-tls-cert and --admin-tls-key"
            );
        }
        let address = self.xds.local_addr()?;
        tracing::info!(
            "attach an Envoy: xds-server bootstrap envoy --node-id edge-1 --xds-address {address} > envoy.json \
             && envoy -c envoy.json"
        );
        Ok(())
    }
}

async fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| match address.port() {
        0 => format!("cannot listen on {flag} {address}"),
        _ => format!("cannot listen on {flag} {address}; is another server running? port 0 takes a free one"),
    })
}

/// SIGTERM and SIGINT end the server, SIGHUP has the files read again.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn wait(mut self, files: Option<FileSourceHandle>, tls: Encryption, access: Arc<AccessFiles>) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => {
                    tls.look_soon();
                    access.look_soon();
                    access.reopen();
                    if let Some(files) = &files {
                        files.look();
                    }
                }
            }
        }
    }
}

/// Serves HTTP until the shutdown, and then for a bounded time.
async fn serve_http(
    listener: TcpListener,
    port: Arc<Port>,
    router: Router,
    stop: watch::Receiver<bool>,
    drain_timeout: Duration,
) -> anyhow::Result<()> {
    let router = event_streams::end_with_the_server(router, stop.clone());
    listen::serve_http(listener, port, router, wait_for(stop), drain_timeout).await;
    Ok(())
}

/// Serves the other servers with the same store until the shutdown.
async fn serve_peers(
    listener: TcpListener,
    port: Arc<Port>,
    serves: PeerPort,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    peers::serve(listener, port, serves, wait_for(stop)).await.context("the port for other servers")
}

/// Has the other servers stop to count the clients of this one, which are gone, and sends the last spans.
async fn say_goodbye(presence: Option<Arc<Presence>>, traces: Option<Arc<Traces>>) {
    if let Some(presence) = presence
        && tokio::time::timeout(FAREWELL, presence.end()).await.is_err()
    {
        tracing::warn!("the shared store did not take in that this server ends; it finds out by itself");
    }
    if let Some(traces) = traces {
        traces.end().await;
    }
}

async fn wait_for(mut stop: watch::Receiver<bool>) {
    // A sender that is gone means the same.
    let _ = stop.wait_for(|is_stopping| *is_stopping).await;
}

async fn retire_views(publisher: Arc<Publisher>) {
    let mut interval = tokio::time::interval(RETIRE_INTERVAL);
    loop {
        interval.tick().await;
        publisher.retire_unused(Instant::now());
    }
}

/// A view is dropped one to two intervals after its last client.
const RETIRE_INTERVAL: Duration = Duration::from_secs(60);
/// Connections of other servers. Each opens one, and one that follows two.
const PEER_CONNECTIONS: usize = 2_048;
/// How long the shared store may take to hear that this server ends. It finds out by itself otherwise.
const FAREWELL: Duration = Duration::from_secs(3);
/// The name of the port for probes.
const PROBE: &str = "probe";

/// Connections for probes. Few clients use them, every few seconds.
const PROBE_CONNECTIONS: usize = 64;
/// How long an admin connection may take to send a request.
const ADMIN_OPENING: Duration = Duration::from_secs(10);
/// How long an admin client may read nothing of its answer; events come every 15 s at least.
const ADMIN_STALLED: Duration = Duration::from_secs(30);
/// How long an xDS connection is kept without a stream. Clients open another one when they need it.
const XDS_IDLE: Duration = Duration::from_secs(600);
/// How long a message may make no progress: a lost packet is sent again within seconds.
const MESSAGE_PATIENCE: Duration = Duration::from_secs(10);
/// Tasks that still run this long after the drain timeout are left behind.
const LINGER: Duration = Duration::from_secs(1);
