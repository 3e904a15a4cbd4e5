//! `store`: exports and imports the stored changes as text, and makes a damaged data directory usable again.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use xds_control::chain;
use xds_replica::etcd::Etcd;
use xds_replica::{Adopted, Compacted};
use xds_settings::{SharedStore, SharedStoreArgs, default_data_dir};
use xds_store::{JournalStore, KeyOutcome, OpenError, Revision, Salvage};

use crate::failure::Failure;
use crate::output::{Table, clean, print};

/// The flags of `store`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum StoreCommand {
    /// Write the history and its contents to standard output, including secrets. A server may use the directory meanwhile
    Export(DirectoryArgs),
    /// Fill an empty data directory with an export
    Import(ImportArgs),
    /// Show what a damaged data directory would lose to become usable again; with --yes, repair it
    ///
    /// The journal is kept up to its first damage. Files that change are kept beside it as `*.damaged-N`; nothing is
    /// deleted. No server may use the directory.
    #[command(after_help = SALVAGE_EXIT_CODES)]
    Salvage(SalvageArgs),
    /// Put the history of a data directory into a shared store, of which the directory is a copy from then on
    ///
    /// Revisions, times and actors stay. No server may use the directory.
    #[command(visible_alias = "migrate")]
    Push(PushArgs),
    /// Make what is in a shared store count for all servers, although they have another history: after an etcd was restored
    /// from a backup on purpose
    ///
    /// Its state becomes the next revision, after all that the servers have given out. Servers that run follow by themselves.
    Adopt(AdoptArgs),
    /// Shorten the history in a shared store, and delete what nobody needs there. Servers may run meanwhile
    ///
    /// A server does that by itself; this works also when none runs, and when the etcd is full.
    #[command(after_help = COMPACT_EXIT_CODES)]
    Compact(CompactArgs),
    /// Make the copy of a shared store in a data directory the store of a server that is alone. Stop the server first
    Detach(DirectoryArgs),
}

const SALVAGE_EXIT_CODES: &str = "Exit codes: 0 nothing is damaged, or --yes and all was done; 1 something is damaged \
and was not changed, or the directory cannot be used; 2 wrong command line";

const COMPACT_EXIT_CODES: &str = "Exit codes: 0 the history has as many commits as it is to keep; 1 the etcd is full, so only \
what nobody needs was deleted, or it failed; 2 wrong command line";

#[derive(Clone, Debug, clap::Args)]
struct SalvageArgs {
    #[command(flatten)]
    directory: DirectoryArgs,
    /// Repair the directory; without this flag, only show what would be lost
    #[arg(long)]
    yes: bool,
}

#[derive(Clone, Debug, clap::Args)]
struct DirectoryArgs {
    /// The data directory [default: $XDG_STATE_HOME/xds-server, else ~/.local/state/xds-server]
    #[arg(long, env = "XDS_SERVER_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
struct ImportArgs {
    #[command(flatten)]
    directory: DirectoryArgs,
    /// The export [default: standard input]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
struct PushArgs {
    #[command(flatten)]
    directory: DirectoryArgs,
    #[command(flatten)]
    shared: SharedStoreArgs,
    /// Replace the history that is there by the present state of the directory, for all servers
    #[arg(long)]
    replace: bool,
}

#[derive(Clone, Debug, clap::Args)]
struct AdoptArgs {
    #[command(flatten)]
    shared: SharedStoreArgs,
    /// The revision up to which a server that is stopped may have another history
    #[arg(long, value_name = "REVISION")]
    above: Option<u64>,
}

#[derive(Clone, Debug, clap::Args)]
struct CompactArgs {
    #[command(flatten)]
    shared: SharedStoreArgs,
    /// How many commits stay; a server that is further behind begins anew at the oldest state that is kept
    #[arg(long, value_name = "NUMBER", default_value = "100")]
    keep: u64,
    /// Have etcd drop the old values of all its keys too, also of those that others have there
    #[arg(long)]
    etcd_history: bool,
}

pub(crate) fn run(args: &StoreArgs) -> Result<(), Failure> {
    match &args.command {
        StoreCommand::Push(args) => push(args),
        StoreCommand::Adopt(args) => adopt(args),
        StoreCommand::Compact(args) => compact(args),
        StoreCommand::Detach(args) => detach(args),
        StoreCommand::Export(args) => export(args),
        StoreCommand::Import(args) => import(args),
        StoreCommand::Salvage(args) => salvage(args),
    }
}

fn export(args: &DirectoryArgs) -> Result<(), Failure> {
    let directory = args.existing()?;
    let out = &mut BufWriter::new(io::stdout().lock());
    let exported = match JournalStore::open(&directory, xds_store::Options::default()) {
        Err(OpenError::Locked { .. }) => xds_store::export_in_use(&directory, out),
        Err(error) => return Err(cannot_open(&directory, &error)),
        Ok((store, notes)) => {
            for note in notes {
                // Nothing can be done if standard error is closed.
                let _ = writeln!(io::stderr().lock(), "note: {note}");
            }
            xds_store::export(&store, out)
        }
    };
    let head = exported.map_err(|error| Failure::Failed(format!("cannot export: {}", chain(&error))))?;
    let _ = writeln!(io::stderr().lock(), "exported up to revision {head}");
    Ok(())
}

fn import(args: &ImportArgs) -> Result<(), Failure> {
    let directory = args.directory.path()?;
    let imported = match &args.file {
        Some(path) => {
            let file = File::open(path)
                .map_err(|error| Failure::Usage(format!("cannot read {}: {error}", path.display())))?;
            xds_store::import(&directory, &mut BufReader::new(file))
        }
        None => xds_store::import(&directory, &mut io::stdin().lock()),
    };
    let head = imported.map_err(|error| Failure::Failed(format!("cannot import: {}", chain(&error))))?;
    let _ = writeln!(io::stderr().lock(), "imported up to revision {head} into {}", directory.display());
    Ok(())
}

fn push(args: &PushArgs) -> Result<(), Failure> {
    let directory = args.directory.existing()?;
    let shared = shared_store(&args.shared)?;
    let pushed = with_etcd(&shared, async |etcd| {
        xds_replica::push(&directory, &etcd, &shared.keys, args.replace).await
    })?;
    let pushed = pushed.map_err(|error| Failure::Failed(format!("cannot push: {}", chain(&error))))?;
    print(&format!(
        "{} has the history from revision {} to {}, and {} is a copy of it\n",
        shared.url,
        pushed.base,
        pushed.revision,
        directory.display()
    ))
}

fn adopt(args: &AdoptArgs) -> Result<(), Failure> {
    let shared = shared_store(&args.shared)?;
    let above = args.above.map(Revision);
    let adopted = with_etcd(&shared, async |etcd| xds_replica::adopt(&etcd, &shared.keys, above).await)?;
    let adopted = adopted.map_err(|error| Failure::Failed(format!("cannot adopt: {}", chain(&error))))?;
    let Adopted { was, revision, ends, others } = adopted;
    let mut text = format!("{} has the state of its revision {was} as revision {revision}\n", shared.url);
    for (id, end) in ends {
        text.push_str(&format!("server {} had another history, up to revision {end}\n", clean(&id)));
    }
    for id in others {
        text.push_str(&format!("server {} has not said that it had another history\n", clean(&id)));
    }
    print(&text)
}

fn compact(args: &CompactArgs) -> Result<(), Failure> {
    let shared = shared_store(&args.shared)?;
    let (compacted, dropped) = with_etcd(&shared, async |etcd| {
        let compacted = xds_replica::compact(&etcd, &shared.keys, args.keep).await;
        let dropped = if args.etcd_history { Some(etcd.drop_history().await) } else { None };
        (compacted, dropped)
    })?;
    match dropped {
        None => {}
        Some(Ok(())) => print("etcd has dropped the old values of its keys\n")?,
        Some(Err(error)) => {
            let _ = writeln!(io::stderr().lock(), "etcd could not drop old values: {error}");
        }
    }
    let compacted =
        compacted.map_err(|error| Failure::Failed(format!("cannot compact: {}", chain(&error))))?;
    let Compacted { head, base, n_keys, n_bytes, full } = compacted;
    print(&format!(
        "{} has the history from revision {base} to {head}; {n_keys} keys with {n_bytes} bytes were deleted\n",
        shared.url
    ))?;
    match full {
        None => Ok(()),
        Some(reason) => Err(Failure::Failed(format!(
            "the etcd is full, so an older state cannot take the place of commits: {reason}; docs/replicas.md says how to make room (store-full)"
        ))),
    }
}

fn shared_store(args: &SharedStoreArgs) -> Result<SharedStore, Failure> {
    let missing = || Failure::Usage("--store says where the shared store is".to_owned());
    SharedStore::new(args.clone())?.ok_or_else(missing)
}

/// Runs `work` with the etcd of a shared store.
fn with_etcd<T>(shared: &SharedStore, work: impl AsyncFnOnce(Etcd) -> T) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(runtime.block_on(async { work(Etcd::new(shared.url.clone(), shared.options.clone())).await }))
}

fn detach(args: &DirectoryArgs) -> Result<(), Failure> {
    let directory = args.existing()?;
    let detached = xds_replica::detach(&directory);
    let detached = detached.map_err(|error| Failure::Failed(format!("cannot detach: {}", chain(&error))))?;
    let what = if detached { "is a store of its own now" } else { "was a store of its own already" };
    print(&format!("{} {what}\n", directory.display()))
}

fn salvage(args: &SalvageArgs) -> Result<(), Failure> {
    let directory = args.directory.existing()?;
    let salvage = Salvage::find(&directory).map_err(|error| cannot_open(&directory, &error))?;
    if !salvage.is_needed() {
        return print(&format!("nothing is damaged; the store is at revision {}\n", salvage.kept));
    }
    print(&losses(&salvage))?;
    if !args.yes {
        print("nothing was changed; --yes does this, and keeps files that it changes as *.damaged-<n>\n")?;
        return Err(Failure::Silent);
    }
    let kept = salvage.kept;
    let moved = salvage.carry_out().map_err(|error| {
        Failure::Failed(format!("cannot salvage {}: {}", directory.display(), chain(&error)))
    })?;
    for (path, aside) in moved {
        print(&format!("the contents of {} are now in {}\n", shown(&path), shown(&aside)))?;
    }
    print(&format!("the store is at revision {kept}\n"))
}

/// All that is lost by a salvage, for people.
fn losses(salvage: &Salvage) -> String {
    let Salvage { kept, known, pieces, records, keys, .. } = salvage;
    let newest = records.last().map(|record| record.revision).max(*known).unwrap_or(*kept);
    let mut text = match newest.0.saturating_sub(kept.0) {
        0 => format!("every revision up to {kept} is kept\n"),
        1 => format!("revision {newest} is lost; the store goes back to revision {kept}\n"),
        _ => format!(
            "revisions {} to {newest} are lost; the store goes back to revision {kept}\n",
            kept.next()
        ),
    };
    if salvage.is_rescued() {
        text.push_str("the history is lost; the state is kept as far as it can be read\n");
    }
    for piece in pieces {
        let (path, bytes) = (shown(&piece.path), piece.bytes);
        let reason = clean(&piece.reason);
        match piece.offset {
            0 => text.push_str(&format!("dropped: all {bytes} bytes of {path} ({reason})\n")),
            offset => {
                text.push_str(&format!(
                    "dropped: {bytes} bytes of {path} from byte {offset} on ({reason})\n"
                ));
            }
        }
    }
    for part in salvage.unreadable() {
        let (path, offset, bytes) = (shown(&part.path), part.offset, part.bytes);
        text.push_str(&format!("unreadable: {bytes} bytes of {path} from byte {offset} on\n"));
    }
    text.push_str(&commits(salvage, newest.0.saturating_sub(kept.0)));
    let mut table = Table::new(&["KEY", "AFTERWARDS"]);
    for loss in keys {
        let outcome = match loss.outcome {
            KeyOutcome::Lost => "gone",
            KeyOutcome::RolledBack => "an older value",
            KeyOutcome::Returns => "back, although it was deleted",
        };
        table.push(vec![loss.key.clone(), outcome.to_owned()]);
    }
    if !keys.is_empty() {
        text.push_str(&table.render());
    }
    text
}

/// The lost commits that can be read, and how many cannot.
fn commits(salvage: &Salvage, n_lost: u64) -> String {
    let mut table = Table::new(&["LOST REVISION", "TIME", "ACTOR", "KEYS", "SUMMARY"]);
    for record in &salvage.records {
        let at = xds_api::rfc3339(UNIX_EPOCH + Duration::from_millis(record.at_ms));
        let (actor, summary) = (record.actor.clone(), record.summary.clone());
        table.push(vec![record.revision.to_string(), at, actor, record.n_keys.to_string(), summary]);
    }
    let mut text = if salvage.records.is_empty() { String::new() } else { table.render() };
    match n_lost.saturating_sub(salvage.records.len() as u64) {
        0 => {}
        1 => text.push_str("one lost revision cannot be read; what it changed is not known\n"),
        n => text.push_str(&format!("{n} lost revisions cannot be read; what they changed is not known\n")),
    }
    text
}

fn shown(path: &Path) -> String {
    clean(&path.to_string_lossy())
}

fn cannot_open(directory: &Path, error: &OpenError) -> Failure {
    Failure::Failed(format!("cannot open {}: {}", directory.display(), chain(error)))
}

impl DirectoryArgs {
    fn existing(&self) -> Result<PathBuf, Failure> {
        let directory = self.path()?;
        if !directory.is_dir() {
            return Err(Failure::Failed(format!("there is no data directory {}", directory.display())));
        }
        Ok(directory)
    }

    fn path(&self) -> Result<PathBuf, Failure> {
        Ok(self.data_dir.clone().map_or_else(default_data_dir, Ok)?)
    }
}
