//! Relays another xDS server: asks it as the nodes of a file (`--relay`), and proposes what these are sent as the files of this server.
//!
//! [`stream`] drives one stream for each node, [`board`] shows how they are, [`connect`] opens connections, and [`proposal`] puts together what all of them hold. From then on
//! everything is as for files that are pushed: they are kept in the store whole, judged, and served while the relayed server is away.

mod board;
mod connect;
mod proposal;
mod stream;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use anyhow::Context as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use xds_api::RelayedNode;
use xds_cache::Layer;
use xds_cache::layer::Resources;
use xds_codec::Codec;
use xds_control::Control;
use xds_control::model::{Asked, ReloadOutcome, ServedLoad, WriteError};
use xds_relay::{RelayConfig, Subscriber};

pub(crate) use self::board::Board;
use self::board::lock;
use self::connect::Servers;
use self::proposal::Proposal;
use self::stream::Streams;

/// The relay of a server.
pub(crate) struct Relays {
    config: RelayConfig,
    codec: Codec,
    servers: Servers,
    board: Arc<Board>,
    requests: mpsc::Receiver<Request>,
}

/// Has the relay propose what it holds. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct RelayHandle(mpsc::Sender<Request>);

type Request = (Asked, oneshot::Sender<Result<ReloadOutcome, WriteError>>);

impl Relays {
    /// Reads the file of a relay.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, with its places.
    pub(crate) fn open(path: &Path, codec: &Codec) -> anyhow::Result<(Self, RelayHandle)> {
        let text =
            std::fs::read(path).with_context(|| format!("--relay {} cannot be read", path.display()))?;
        let config = RelayConfig::read(codec, &path.to_string_lossy(), &text).map_err(|found| {
            let lines: Vec<String> = found.iter().map(|fault| format!("  {fault}")).collect();
            anyhow::anyhow!("--relay {} cannot be used:\n{}", path.display(), lines.join("\n"))
        })?;
        let directory = path.parent().map_or_else(PathBuf::new, Path::to_owned);
        let servers = Servers::new(&config, &directory)?;
        let nodes = config.identities.iter().map(|identity| RelayedNode {
            group: identity.group.name.clone(),
            node_id: identity.node_id.clone(),
            server: None,
            since: SystemTime::now(),
            problem: Some("not connected yet".to_owned()),
            awaited: None,
            resources: Resources::new(),
            refused: Vec::new(),
            n_refused: 0,
        });
        let board = Arc::new(Board::new(nodes.collect()));
        let (sender, requests) = mpsc::channel(MAX_REQUESTS);
        Ok((Self { config, codec: codec.clone(), servers, board, requests }, RelayHandle(sender)))
    }

    /// What is known of each node.
    pub(crate) fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    /// Relays until the server ends.
    ///
    /// # Errors
    ///
    /// Never: a server that cannot be asked is a problem that is shown.
    pub(crate) async fn run(self, control: Control, mut stop: watch::Receiver<bool>) -> anyhow::Result<()> {
        let base = (control.served_load() != ServedLoad::None).then(|| control.base());
        let held = |layer: &Layer, identity: &xds_relay::Identity| {
            layer.resources(&identity.group.name).cloned().unwrap_or_default()
        };
        let (told, mut changed) = watch::channel(());
        let told = Arc::new(told);
        let holdings = Arc::new(Mutex::new(vec![None; self.config.identities.len()]));
        let mut tasks = JoinSet::new();
        for (index, identity) in self.config.identities.iter().enumerate() {
            let held = base.as_deref().map(|layer| held(layer, identity)).unwrap_or_default();
            let path = proposal::path_of(&identity.group.name);
            let streams = Streams {
                index,
                identity: identity.clone(),
                subscriber: Subscriber::new(self.config.variant, &identity.roots, &path, held.clone()),
                codec: self.codec.clone(),
                servers: self.servers.clone(),
                board: Arc::clone(&self.board),
                control: control.clone(),
                holdings: Arc::clone(&holdings),
                told: Arc::clone(&told),
            };
            if base.is_some() {
                lock(&holdings)[index] = Some(held);
            }
            tasks.spawn(streams.run());
        }
        control.settle_files();
        let mut proposal = Proposal::new(&self.config.identities, control);
        let mut requests = self.requests;
        // What the file says of groups may have changed while nobody looked.
        told.send_replace(());
        loop {
            let (asked, answer) = tokio::select! {
                _ = stop.wait_for(|is_stopping| *is_stopping) => return Ok(()),
                told = changed.changed() => match told {
                    Ok(()) => (Asked::ByNobody, None),
                    Err(_) => return Ok(()),
                },
                request = requests.recv() => match request {
                    Some((asked, answer)) => (asked, Some(answer)),
                    None => return Ok(()),
                },
            };
            let now = lock(&holdings).clone();
            let outcome = proposal.propose(&now, asked).await;
            if let Some(answer) = answer {
                // Whoever asked may be gone.
                let _ = answer.send(outcome);
            }
        }
    }
}

impl RelayHandle {
    /// Proposes what is held now.
    ///
    /// # Errors
    ///
    /// Why it is not taken; [`WriteError::Closed`] if the server ends.
    pub(crate) async fn propose(&self, asked: Asked) -> Result<ReloadOutcome, WriteError> {
        let (answer, answered) = oneshot::channel();
        self.0.send((asked, answer)).await.map_err(|_| WriteError::Closed)?;
        answered.await.map_err(|_| WriteError::Closed)?
    }
}

/// Reloads that wait.
const MAX_REQUESTS: usize = 16;
