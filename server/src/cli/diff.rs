//! `diff`: the requests that a change of files moves.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use xds_cache::{GroupName, Node, Profile, Publisher, Revision, View};
use xds_codec::Diagnostic;
use xds_control::acks::view_key_of_group;
use xds_control::model::Texts;
use xds_control::{Places, Secrets};
use xds_explain::{Changes, Client, Explanation, Language, Model, diff};

use crate::cli::explain::{Form, parse_group, user_agent};
use crate::cli::failure::Failure;
use crate::cli::get::ClientKind;
use crate::cli::offline::{FilesArgs, Offline};
use crate::cli::output;
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

/// One side.
struct Side {
    offline: Offline,
    texts: Texts,
    publisher: Publisher,
}

/// Exit code 0 if every request is treated as before, 1 if not, or if that was not decided.
pub(crate) fn run(args: &DiffArgs) -> Result<(), Failure> {
    let [before, after] = args.files.paths.as_slice() else {
        return Err(Failure::Usage("write two paths: before and after the change".to_owned()));
    };
    let sides = [Side::read(args, before)?, Side::read(args, after)?];
    let clients = match &*args.clients {
        [] => {
            let languages = Language::of_profile(Profile::from(args.profile));
            languages.iter().map(|language| Client::newest(*language)).collect()
        }
        clients => clients.to_vec(),
    };
    let mut all: Vec<Changes> = Vec::new();
    for client in clients {
        let views = [sides[0].view(args, client)?, sides[1].view(args, client)?];
        let [old, new] = [&views[0], &views[1]].map(|view| Model::of_view(view, client));
        let mut changes = diff(&old, &new);
        changes.locate(
            |explanations| sides[0].locate(&views[0], explanations),
            |explanations| sides[1].locate(&views[1], explanations),
        );
        all.push(changes);
    }
    let n_errors: usize = sides.iter().map(Side::n_errors).sum();
    show(&all, args.output, n_errors)?;
    if all.iter().all(Changes::is_empty) { Ok(()) } else { Err(Failure::Silent) }
}

impl Side {
    fn read(args: &DiffArgs, path: &Path) -> Result<Self, Failure> {
        let files = FilesArgs { paths: vec![path.to_owned()], ..args.files.clone() };
        let offline = Offline::read(&files, Secrets::Any)?;
        if offline.scan.files.is_empty() {
            return Err(Failure::Failed(format!("{} has no configuration files", path.display())));
        }
        let publisher = Publisher::new();
        publisher.publish(Revision(1), offline.groups());
        let texts = offline.all_texts();
        Ok(Self { offline, texts, publisher })
    }

    /// What the client is served.
    fn view(&self, args: &DiffArgs, client: Client) -> Result<Arc<View>, Failure> {
        let view = match &args.node {
            Some(id) => self
                .publisher
                .view_of(&Node { user_agent_name: user_agent(client).to_owned(), ..Node::with_id(id) }),
            None => self.publisher.view_at(&view_key_of_group(&args.group, client.language.profile())),
        };
        view.ok_or_else(|| Failure::Failed(format!("nothing is served to the group {}", args.group)))
    }

    fn locate(&self, view: &View, explanations: &mut [Explanation]) {
        Places { view, documents: &self.offline.translated.documents, texts: &self.texts }
            .locate(explanations);
    }

    fn n_errors(&self) -> usize {
        self.offline.diagnostics.iter().filter(|one| Diagnostic::is_error(one)).count()
    }
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
