//! A program on a real gRPC library, which takes commands over its standard input.
//!
//! `tests/clients/README.md` describes the protocol.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use envoy_types::pb::envoy::service::status::v3::ClientStatusResponse;
use prost::Message as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::time::timeout;

use crate::process::{Log, Process};
use crate::tools;

/// A gRPC library.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Library {
    /// C-core, by way of Python.
    Grpcio,
    /// grpc-js with grpc-js-xds.
    GrpcJs,
    /// grpc-go.
    GrpcGo,
    /// grpc-java. Its worker only opens channels.
    GrpcJava,
}

impl Library {
    /// The libraries whose workers know every command.
    pub const ALL: [Self; 3] = [Self::Grpcio, Self::GrpcJs, Self::GrpcGo];

    /// Returns the command that runs the worker, or `None` if its toolchain is missing.
    async fn command(self) -> Result<Option<Command>> {
        match self {
            Self::Grpcio => {
                let mut command = Command::new(tools::python().await?);
                command.arg(tools::clients_dir().join("grpcio.py"));
                Ok(Some(command))
            }
            Self::GrpcJs => Ok(tools::node_modules().await?.map(|modules| {
                let mut command = Command::new("node");
                command.arg(tools::clients_dir().join("grpc-js/worker.js")).env("NODE_PATH", modules);
                command
            })),
            Self::GrpcGo => Ok(tools::go_worker().await?.map(Command::new)),
            Self::GrpcJava => Ok(tools::java_worker().await?.map(|class_path| {
                let mut command = Command::new("java");
                command.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &class_path]);
                command.arg("Worker");
                command
            })),
        }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Grpcio => "grpcio",
            Self::GrpcJs => "grpc-js",
            Self::GrpcGo => "grpc-go",
            Self::GrpcJava => "grpc-java",
        })
    }
}

/// A running program. Dropping it ends it.
#[derive(Debug)]
pub struct Worker {
    process: Process,
    stdin: AsyncMutex<ChildStdin>,
    pending: Pending,
    next_id: AtomicU64,
}

impl Worker {
    /// Starts a program with an xDS bootstrap; `None` if its toolchain is missing.
    ///
    /// # Errors
    ///
    /// If its library cannot be installed, or the program does not answer.
    pub async fn start(library: Library, bootstrap: &str) -> Result<Option<Self>> {
        Self::start_with_env(library, bootstrap, &[]).await
    }

    /// The same with more variables in its environment.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub async fn start_with_env(
        library: Library,
        bootstrap: &str,
        env: &[(&str, &str)],
    ) -> Result<Option<Self>> {
        let Some(mut command) = library.command().await? else { return Ok(None) };
        command.env_remove("GRPC_XDS_BOOTSTRAP").env("GRPC_XDS_BOOTSTRAP_CONFIG", bootstrap);
        // Tokens are not sent without it, and nothing else depends on it.
        command.env("GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS", "true");
        command.envs(env.iter().copied());
        let (process, stdin, stdout) = Process::spawn_talking(&library.to_string(), &mut command)?;
        let pending = Pending::default();
        tokio::spawn(read_answers(stdout, pending.clone()));
        let worker = Self { process, stdin: AsyncMutex::new(stdin), pending, next_id: AtomicU64::new(1) };
        worker.hello().await?;
        Ok(Some(worker))
    }

    /// Asks who it is.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub async fn hello(&self) -> Result<Hello> {
        self.ask(json!({"cmd": "hello"})).await
    }

    /// Opens a channel; it connects at its first call.
    ///
    /// # Errors
    ///
    /// If the library refuses the target.
    pub async fn open(&self, target: &str) -> Result<Channel<'_>> {
        let id = format!("{target}#{}", self.next_id.fetch_add(1, Ordering::Relaxed));
        let _: Value = self.ask(json!({"cmd": "open", "channel": id, "target": target})).await?;
        Ok(Channel { worker: self, id })
    }

    /// Asks for the library's state of its resources: versions, states, errors.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub async fn client_status(&self) -> Result<ClientStatusResponse> {
        #[derive(Deserialize)]
        struct Encoded {
            response: String,
        }
        let encoded: Encoded = self.ask(json!({"cmd": "csds"})).await?;
        Ok(ClientStatusResponse::decode(STANDARD.decode(encoded.response)?.as_slice())?)
    }

    /// The text that the program wrote to its standard error.
    #[must_use]
    pub fn log(&self) -> Log {
        self.process.log()
    }

    /// Sends a command and waits for its answer.
    async fn ask<T: DeserializeOwned>(&self, mut command: Value) -> Result<T> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        command["id"] = id.into();
        let answer = async {
            let answer = self.pending.expect(id);
            self.stdin.lock().await.write_all(format!("{command}\n").as_bytes()).await?;
            let answer = answer.await.context("the program has ended")?;
            answer.map_err(|error| anyhow!(error)).and_then(|ok| Ok(serde_json::from_value(ok)?))
        };
        let answer = timeout(ANSWER_LIMIT, answer).await.context("no answer in time").flatten();
        answer.with_context(|| format!("worker command {command}\n{}", self.process.log()))
    }
}

/// The identity of a worker.
#[derive(Clone, Debug, Deserialize)]
pub struct Hello {
    /// The library, as [`Library`] is displayed.
    pub library: String,
    /// Its version.
    pub version: String,
}

/// A gRPC channel in a worker.
///
/// It stays open until [`close`](Self::close) or until the worker ends; dropping it does nothing.
#[derive(Debug)]
pub struct Channel<'w> {
    worker: &'w Worker,
    id: String,
}

impl<'w> Channel<'w> {
    /// Makes calls and counts their outcomes.
    ///
    /// # Errors
    ///
    /// If the worker does not answer; a failed call is counted.
    pub async fn call(&self, calls: &Calls) -> Result<Counts> {
        let mut command = calls.command("call", &self.id);
        command["calls"] = calls.n.into();
        command["in_flight"] = calls.n_in_flight.into();
        self.worker.ask(command).await
    }

    /// Makes one call and returns the name of the backend that answered.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn who(&self) -> Result<String> {
        let counts = self.call(&Calls::new(1)).await?;
        counts.ensure_no_errors()?;
        counts.names.into_keys().next().context("no answer")
    }

    /// Makes calls in the background, `per_second` of them, until [`Hold::stop`].
    ///
    /// # Errors
    ///
    /// If the worker does not answer.
    pub async fn hold(&self, calls: &Calls, per_second: u32) -> Result<Hold<'w>> {
        let id = format!("{}#{}", self.id, self.worker.next_id.fetch_add(1, Ordering::Relaxed));
        let mut command = calls.command("hold", &self.id);
        command["hold"] = id.as_str().into();
        command["per_second"] = per_second.into();
        let _: Value = self.worker.ask(command).await?;
        Ok(Hold { worker: self.worker, id })
    }

    /// Returns the channel's state, such as `READY`, and connects an idle one if `connect` says so.
    ///
    /// # Errors
    ///
    /// If the worker does not answer.
    pub async fn state(&self, connect: bool) -> Result<String> {
        #[derive(Deserialize)]
        struct State {
            state: String,
        }
        let command = json!({"cmd": "state", "channel": self.id, "connect": connect});
        Ok(self.worker.ask::<State>(command).await?.state)
    }

    /// Closes the channel; with the last one for a target, the library gives up its resources.
    ///
    /// # Errors
    ///
    /// If the worker does not answer.
    pub async fn close(self) -> Result<()> {
        let _: Value = self.worker.ask(json!({"cmd": "close", "channel": self.id})).await?;
        Ok(())
    }
}

/// Calls under way in the background.
#[derive(Debug)]
#[must_use = "the calls go on until it is stopped"]
pub struct Hold<'w> {
    worker: &'w Worker,
    id: String,
}

impl Hold<'_> {
    /// Ends the calls and counts their outcomes.
    ///
    /// # Errors
    ///
    /// If the worker does not answer.
    pub async fn stop(self) -> Result<Counts> {
        self.worker.ask(json!({"cmd": "stop", "hold": self.id})).await
    }
}

/// The calls to make, and how often.
#[derive(Clone, Debug)]
pub struct Calls {
    /// How many; means nothing to a [`Hold`].
    pub n: u32,
    /// How many at a time; means nothing to a [`Hold`].
    pub n_in_flight: u32,
    /// The method's path.
    pub method: String,
    /// The message.
    pub body: String,
    /// Metadata of each call.
    pub metadata: BTreeMap<String, String>,
    /// The time limit of each call.
    pub limit: Duration,
}

impl Calls {
    /// `n` calls to the echo method, a few at a time, with a limit that no healthy call comes near.
    #[must_use]
    pub fn new(n: u32) -> Self {
        Self {
            n,
            n_in_flight: n.clamp(1, 8),
            method: "/echo.Echo/Who".to_owned(),
            body: String::new(),
            metadata: BTreeMap::new(),
            limit: Duration::from_secs(10),
        }
    }

    fn command(&self, name: &str, channel: &str) -> Value {
        json!({
            "cmd": name,
            "channel": channel,
            "method": self.method,
            "body": self.body,
            "metadata": self.metadata,
            "timeout_ms": self.limit.as_millis(),
        })
    }
}

/// The outcomes of calls.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Counts {
    /// How many calls each backend answered.
    pub names: BTreeMap<String, u64>,
    /// How many calls ended with each status other than `OK`.
    pub errors: BTreeMap<String, u64>,
    /// The text of the first error.
    pub first_error: Option<String>,
}

impl Counts {
    /// How many calls were answered.
    #[must_use]
    pub fn n_answered(&self) -> u64 {
        self.names.values().sum()
    }

    /// How many calls one backend answered.
    #[must_use]
    pub fn n_of(&self, name: &str) -> u64 {
        self.names.get(name).copied().unwrap_or(0)
    }

    /// Fails if a call failed.
    ///
    /// # Errors
    ///
    /// With the counts.
    pub fn ensure_no_errors(&self) -> Result<()> {
        ensure!(self.errors.is_empty(), "calls failed: {self:?}");
        Ok(())
    }
}

/// The outcome of a command.
type Outcome = Result<Value, String>;

/// The commands that wait for an answer.
#[derive(Clone, Debug, Default)]
struct Pending {
    waiting: Arc<Mutex<HashMap<u64, oneshot::Sender<Outcome>>>>,
}

impl Pending {
    fn expect(&self, id: u64) -> oneshot::Receiver<Outcome> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        receiver
    }

    fn answer(&self, id: u64, outcome: Outcome) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        if let Some(waiting) = waiting {
            // A caller that has given up waiting does not mind.
            let _ = waiting.send(outcome);
        }
    }

    /// Lets everyone know that there will be no answer.
    fn give_up(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

async fn read_answers(stdout: ChildStdout, pending: Pending) {
    #[derive(Deserialize)]
    struct Line {
        id: u64,
        #[serde(default)]
        ok: Value,
        error: Option<String>,
    }
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(line) = serde_json::from_str::<Line>(&line) else { break };
        pending.answer(line.id, line.error.map_or(Ok(line.ok), Err));
    }
    pending.give_up();
}

/// The longest command: a thousand calls on a busy machine, or calls that all run into their limit.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
