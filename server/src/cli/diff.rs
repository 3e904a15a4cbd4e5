//! `diff`: the requests that a change of files moves.

use std::path::Path;

use serde_json::json;
use xds_cache::GroupName;
use xds_explain::{Changes, Client, Model, diff};

use crate::cli::explain::{Form, parse_group};
use crate::cli::failure::Failure;
use crate::cli::get::ClientKind;
use crate::cli::offline::FilesArgs;
use crate::cli::output;
use crate::cli::served::{Served, Whose};
use crate::escape::clean_lines;

/// The flags of `diff`.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("paths", |paths| paths.num_args(2).value_names(["A", "B"]).help(PATHS)))]
pub(crate) struct DiffArgs {
    /// Kind of clients
    #[arg(long, value_enum, value_name = "CLIENT", default_value = "envoy")]
    profile: ClientKind,
    /// Client with a version, such as envoy@1.38 or grpc-go; may be repeated [default: the newest of each language of the profile]
    #[arg(long = "client", value_name = "CLIENT")]
    clients: Vec<Client>,
    /// Group of the client
    #[arg(long, value_name = "GROUP", default_value = "default", value_parser = parse_group)]
    group: GroupName,
    /// Compare for the node with this ID, in all its groups
    #[arg(long, value_name = "ID", conflicts_with = "group")]
    node: Option<String>,
    /// The form of the result
    #[arg(long, value_enum, value_name = "FORM", default_value = "text")]
    output: Form,
    #[command(flatten)]
    files: FilesArgs,
}

const PATHS: &str = "The file or directory before the change, and the one after it; `-` is standard input";

/// Exit code 0 if every request is treated as before, 1 if not, or if that was not decided.
pub(crate) fn run(args: &DiffArgs) -> Result<(), Failure> {
    let [before, after] = args.files.paths.as_slice() else {
        return Err(Failure::Usage("write two paths: before and after the change".to_owned()));
    };
    let sides = [side(args, before)?, side(args, after)?];
    let whose = args.node.as_deref().map_or(Whose::Group(&args.group), Whose::Node);
    let clients = match &*args.clients {
        [] => Client::newest_of(args.profile.into()),
        clients => clients.to_vec(),
    };
    let mut all: Vec<Changes> = Vec::new();
    for client in clients {
        let views = [sides[0].view(whose, client)?, sides[1].view(whose, client)?];
        let [old, new] = [&views[0], &views[1]].map(|view| Model::of_view(view, client));
        let mut changes = diff(&old, &new);
        changes.locate(
            |explanations| sides[0].locate(&views[0], explanations),
            |explanations| sides[1].locate(&views[1], explanations),
        );
        all.push(changes);
    }
    let n_errors: usize = sides.iter().map(Served::n_errors).sum();
    show(&all, args.output, n_errors)?;
    if all.iter().all(Changes::is_empty) { Ok(()) } else { Err(Failure::Silent) }
}

fn side(args: &DiffArgs, path: &Path) -> Result<Served, Failure> {
    let served = Served::read(&FilesArgs { paths: vec![path.to_owned()], ..args.files.clone() })?;
    if served.offline.scan.files.is_empty() {
        return Err(Failure::Failed(format!("{} has no configuration files", path.display())));
    }
    Ok(served)
}

fn show(all: &[Changes], form: Form, n_errors: usize) -> Result<(), Failure> {
    if form == Form::Json {
        return output::print_json(&json!({"changes": all}));
    }
    let mut text = String::new();
    if n_errors > 0 {
        text.push_str(&format!(
            "{n_errors} errors in the files; xds-server validate shows them. What has none is compared:\n\n"
        ));
    }
    for (at, changes) in together(all).iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        text.push_str(&clean_lines(&changes.to_text()));
    }
    output::print(&text)
}

/// The answers, with those of clients for which the same changes as one.
fn together(all: &[Changes]) -> Vec<Changes> {
    let mut groups: Vec<Changes> = Vec::new();
    for changes in all {
        let text = |one: &Changes| Changes { client: String::new(), ..one.clone() }.to_text();
        match groups.iter_mut().find(|one| text(one) == text(changes)) {
            Some(one) => one.client = format!("{}, {}", one.client, changes.client),
            None => groups.push(changes.clone()),
        }
    }
    groups
}
