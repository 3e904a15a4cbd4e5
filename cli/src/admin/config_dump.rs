//! `config-dump compare`: what an Envoy has against what this server serves it.

use std::time::Duration;

use serde_json::Value;
use xds_codec::{Codec, UnknownFields};
use xds_control::chain;
use xds_settings::DescriptorArgs;

use super::connection::{AdminArgs, segment};
use super::snapshot;
use crate::failure::Failure;
use crate::output::{Table, cell, print_list};

mod compared;
mod dump;

use compared::{Compared, compare};
use dump::Dump;

/// The arguments of `config-dump`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConfigDumpArgs {
    #[command(subcommand)]
    command: ConfigDumpCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum ConfigDumpCommand {
    /// Compare what an Envoy has with what the server serves it: listeners, routes, clusters and endpoints, without those of
    /// its bootstrap
    #[command(after_help = EXIT_CODES)]
    Compare(CompareArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct CompareArgs {
    /// The admin interface of the Envoy, such as http://127.0.0.1:9901
    #[arg(long, value_name = "URL")]
    envoy: String,
    /// The node to compare with [default: that of the Envoy's bootstrap]
    #[arg(long, value_name = "ID")]
    node: Option<String>,
    #[command(flatten)]
    descriptors: DescriptorArgs,
    #[command(flatten)]
    admin: AdminArgs,
}

const EXIT_CODES: &str =
    "Exit codes: 0 no difference, 1 some, 2 wrong command line, 3 cannot reach the server or the Envoy";

/// Fails with exit code 1 if there is a difference.
pub(crate) fn config_dump(args: &ConfigDumpArgs) -> Result<(), Failure> {
    let ConfigDumpCommand::Compare(args) = &args.command;
    let codec = args.descriptors.codec().map_err(|error| Failure::Failed(chain(&error)))?;
    let dump = Dump::new(read_dump(&args.envoy)?);
    let node = args.node.clone().or_else(|| dump.node_id()).ok_or_else(|| {
        Failure::Usage("the dump of the Envoy names no node; say it with --node".to_owned())
    })?;
    let snapshot =
        snapshot::whole(&args.admin.connect()?, &format!("/v1/nodes/{}/snapshot", segment(&node)))?;
    let found = compare(&dump, &snapshot, &|type_url, resource| canonical(&codec, type_url, resource));
    let n_different = found.iter().filter(|one| one.verdict.is_difference()).count();
    let answer = serde_json::json!({
        "node": node,
        "connected": snapshot["connected"],
        "revision": snapshot["revision"],
        "differences": n_different,
        "resources": found.iter().map(Compared::to_json).collect::<Vec<_>>(),
    });
    print_list(args.admin.output, &answer, || table(&node, &snapshot, &found))?;
    match n_different {
        0 => Ok(()),
        n => Err(Failure::Failed(format!("{n} of {} resources differ", found.len()))),
    }
}

fn table(node: &str, snapshot: &Value, found: &[Compared]) -> Table {
    let is_away = snapshot["connected"] == false;
    let away = if is_away { ", which is not connected" } else { "" };
    let heading = format!("node {node}{away}, revision {}", cell(&snapshot["revision"]));
    let mut table =
        Table::new(&["TYPE", "NAME", "IS", "THERE", "SERVED", "WHY"]).headed(&heading).named_by(2);
    // Differences first: there may be thousands without.
    let (different, same): (Vec<_>, Vec<_>) = found.iter().partition(|one| one.verdict.is_difference());
    for one in different.into_iter().chain(same) {
        let dash = |version: &Option<String>| version.clone().unwrap_or_else(|| "-".to_owned());
        table.push(vec![
            one.kind.slug().to_owned(),
            one.name.clone(),
            one.verdict.as_str().to_owned(),
            dash(&one.there),
            dash(&one.served),
            one.why.clone(),
        ]);
    }
    table
}

/// The dump of an Envoy. It gets no token of this server.
fn read_dump(url: &str) -> Result<Value, Failure> {
    let plain = url.trim_end_matches('/');
    let plain = if plain.contains("://") { plain.to_owned() } else { format!("http://{plain}") };
    if !plain.starts_with("http://") {
        return Err(Failure::Usage(format!(
            "--envoy {url}: the admin interface of an Envoy speaks http only"
        )));
    }
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_global(Some(TIMEOUT))
        .build()
        .new_agent();
    let unreachable = |error: ureq::Error| {
        Failure::Unreachable(format!(
            "cannot reach the Envoy at {url}: {error}; say where its admin interface is with --envoy"
        ))
    };
    let mut answer = agent.get(format!("{plain}/config_dump?include_eds")).call().map_err(unreachable)?;
    let status = answer.status();
    let text = answer.body_mut().with_config().limit(MAX_DUMP_BYTES).read_to_string().map_err(unreachable)?;
    let dump = serde_json::from_str::<Value>(&text).ok().filter(|dump| dump["configs"].is_array());
    dump.ok_or_else(|| {
        Failure::Failed(format!("{url} answers with no dump of an Envoy (HTTP {})", status.as_u16()))
    })
}

/// A resource in the one form that equal resources have; `None` if its type is not known.
fn canonical(codec: &Codec, type_url: &str, resource: &Value) -> Option<Value> {
    let mut resource = resource.clone();
    resource.as_object_mut()?.remove("@type");
    let bytes = codec.message_from_json(type_url, &resource, UnknownFields::Ignore).ok()?;
    codec.message_to_json(type_url, &bytes).ok()
}

/// A dump of 100,000 endpoints takes an Envoy some seconds.
const TIMEOUT: Duration = Duration::from_secs(60);
/// That dump has some 100 MB.
const MAX_DUMP_BYTES: u64 = 1 << 30;
