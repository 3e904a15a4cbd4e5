//! `diff`: the requests that a change of files moves, or that moved between two revisions of a server, or that files would move there.

use std::path::Path;

use serde_json::{Value, json};
use xds_explain::{Changes, Model, diff};
use xds_units::escape::clean_lines;

use crate::about::AboutArgs;
use crate::admin::ConnectionArgs;
use crate::explain::Form;
use crate::failure::Failure;
use crate::offline::{FilesArgs, texts};
use crate::output;
use crate::served::Served;

/// The flags of `diff`.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("paths", |paths| paths.num_args(2).value_names(["A", "B"]).help(PATHS)))]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    about: AboutArgs,
    /// The form of the result
    #[arg(long, value_enum, value_name = "FORM", default_value = "text")]
    output: Form,
    #[command(flatten)]
    files: FilesArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

const PATHS: &str = "Before and after the change, each a file or directory (`-` is standard input), or a state of a running server: \
                     `rev:NUMBER` or `current`. A path beside such a state is what the server would serve if it watched that";

/// Exit code 0 if every request is treated as before, 1 if not, or if that was not decided.
pub(crate) fn run(args: &DiffArgs) -> Result<(), Failure> {
    let [before, after] = args.files.paths.as_slice() else {
        return Err(Failure::Usage("write two paths: before and after the change".to_owned()));
    };
    match (state(before)?, state(after)?) {
        (None, None) => compare_files(args, before, after),
        (Some(before), Some(after)) => ask(args, &before, &after),
        (Some(before), None) => ask(args, &before, &files(args, after)?),
        (None, Some(after)) => ask(args, &files(args, before)?, &after),
    }
}

/// The state of a server that an argument names; `None` if it is a path.
fn state(path: &Path) -> Result<Option<Value>, Failure> {
    match path.to_str() {
        Some("current") => Ok(Some(json!("current"))),
        Some(text) => match text.strip_prefix("rev:").map(str::parse::<u64>) {
            Some(Ok(revision)) => Ok(Some(json!(revision))),
            Some(Err(_)) => Err(Failure::Usage(format!("{text} is not a revision: write rev:12"))),
            None => Ok(None),
        },
        None => Ok(None),
    }
}

/// Files as a state of a server that watched them.
fn files(args: &DiffArgs, path: &Path) -> Result<Value, Failure> {
    let (scan, _) = args.files.scan(&[path.to_owned()]);
    let texts = texts(scan)?;
    if texts.is_empty() {
        return Err(Failure::Failed(format!("{} has no configuration files", path.display())));
    }
    Ok(json!({"files": texts}))
}

/// Of a running server.
fn ask(args: &DiffArgs, before: &Value, after: &Value) -> Result<(), Failure> {
    let mut question = json!({"from": before, "to": after});
    args.about.write(&mut question, None);
    let query = format!("text={}", args.output == Form::Text);
    let answer = args.connection.connect()?.post(&format!("/v1/diff?{query}"), &question)?;
    match args.output {
        Form::Json => output::print_json(&answer)?,
        Form::Text => output::print(&clean_lines(answer["text"].as_str().unwrap_or_default()))?,
    }
    if answer["same"] == true { Ok(()) } else { Err(Failure::Silent) }
}

/// Of files.
fn compare_files(args: &DiffArgs, before: &Path, after: &Path) -> Result<(), Failure> {
    let sides = [side(args, before)?, side(args, after)?];
    let whose = args.about.whose();
    let mut all: Vec<Changes> = Vec::new();
    for client in args.about.clients(None) {
        let views = [sides[0].view(&whose, client)?, sides[1].view(&whose, client)?];
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
    for (at, changes) in Changes::together(all.to_vec()).iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        text.push_str(&clean_lines(&changes.to_text()));
    }
    output::print(&text)
}
