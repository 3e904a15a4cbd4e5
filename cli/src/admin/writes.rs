//! The common part of commands that write: their flags, and the file or body that is sent.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use http::Method;

use super::connection::{AdminArgs, segment};
use super::in_waves::WaveFlags;
use super::outcome::{finish, outcome};
use crate::failure::Failure;
use crate::output::{Ink, print_in};
use crate::progress::Progress;

/// How a change is made.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct WriteFlags {
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Wait until every client concerned has acknowledged the change
    #[arg(long)]
    wait: bool,
    /// Time limit for --wait, such as 1m, at most 5m [default: 10s]
    #[arg(long, value_name = "TIME", requires = "wait")]
    timeout: Option<String>,
    /// With --wait: how many clients must acknowledge the change at least, those that connect later included
    #[arg(long, value_name = "N", requires = "wait")]
    expect: Option<usize>,
    /// What to do if a client rejects the change: revert it, or keep it
    #[arg(long, value_enum, value_name = "WHAT", requires = "wait")]
    on_nack: Option<OnNack>,
    #[command(flatten)]
    waves: WaveFlags,
    #[command(flatten)]
    pub(super) admin: AdminArgs,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum OnNack {
    Revert,
    Keep,
}

/// The body to send, with its headers.
#[derive(Debug)]
pub(super) struct Change<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) headers: &'a [(&'a str, &'a str)],
    /// The media type and the bytes.
    pub(super) body: Option<(&'a str, Vec<u8>)>,
}

impl WriteFlags {
    /// Makes a change, and prints its outcome.
    pub(super) fn send(&self, change: Change<'_>) -> Result<(), Failure> {
        self.send_with(change, &[], Failure::Failed)
    }

    /// Sends it with further parameters of the query. `refused` turns the text of a refusal into a failure.
    pub(super) fn send_with(
        &self,
        change: Change<'_>,
        parameters: &[String],
        refused: impl Fn(String) -> Failure,
    ) -> Result<(), Failure> {
        let Change { method, path, headers, body } = change;
        let mut query = [parameters, &self.waves.query()].concat();
        query.extend(self.dry_run.then(|| "dryRun=true".to_owned()));
        query.extend(self.wait.then(|| "wait=acked".to_owned()));
        query.extend(self.timeout.as_ref().map(|time| format!("timeout={}", segment(time))));
        query.extend(self.expect.map(|n| format!("minClients={n}")));
        query.extend(self.on_nack.map(|what| match what {
            OnNack::Revert => "onNack=revert".to_owned(),
            OnNack::Keep => "onNack=keep".to_owned(),
        }));
        let admin = self.admin.connect_for(Some(WRITE_TIMEOUT))?;
        let awaited =
            if self.wait { "waiting until clients have acknowledged it" } else { "waiting for the server" };
        let progress = Progress::of_wait(awaited);
        let answer = admin.send(method, &format!("{path}?{}", query.join("&")), headers, body);
        drop(progress);
        let shown = finish(answer?, COMMITTED, |answer| {
            print_in(self.admin.output, answer, || outcome(answer, "would change:\n", Ink::of_stdout()))
        });
        shown.map_err(|failure| match failure {
            Failure::Failed(text) => refused(text),
            other @ (Failure::Silent | Failure::Usage(_) | Failure::Unreachable(_) | Failure::NotYet(_)) => {
                other
            }
        })
    }
}

/// Reads a file, or standard input for `-`; with its media type by its name, YAML if that says nothing.
pub(super) fn read_file(path: &Path) -> Result<(&'static str, Vec<u8>), Failure> {
    let mut bytes = Vec::new();
    let read = match path.to_str() {
        Some("-") => io::stdin().lock().take(MAX_FILE_BYTES).read_to_end(&mut bytes).map(drop),
        _ => {
            fs::File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)).map(drop)
        }
    };
    read.map_err(|error| Failure::Usage(format!("cannot read {}: {error}", path.display())))?;
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    Ok((if is_json { "application/json" } else { YAML }, bytes))
}

/// The namespace and name of an object that is written `NAMESPACE/NAME`, or `NAME` alone, which is in `default`; `-` is the
/// namespace of a kind that has none.
pub(super) fn split_object<'a>(kind: &str, object: &'a str) -> Result<(&'a str, &'a str), Failure> {
    let is_cluster_scoped = xds_routes::Kind::of_name(kind).is_some_and(|kind| kind.is_cluster_scoped());
    let (namespace, name) = match object.split_once('/') {
        Some(parts) => parts,
        None if is_cluster_scoped => ("-", object),
        None => ("default", object),
    };
    if namespace.is_empty() || name.is_empty() {
        return Err(Failure::Usage(format!(
            "{object:?} is neither NAME nor NAMESPACE/NAME, such as prod/greeter"
        )));
    }
    Ok((namespace, name))
}

/// What it means that clients do not all have a change in time.
const COMMITTED: &str = "the change is made, but not all clients that must have it have acknowledged it yet";
/// The media type of YAML.
pub(super) const YAML: &str = "application/yaml";
/// As long as a write may wait for its clients, and some more.
const WRITE_TIMEOUT: Duration = Duration::from_secs(330);
/// A byte more than the server takes, so that the server says what is too large.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024 + 1;
