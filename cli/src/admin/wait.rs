//! `wait`: waits until clients use what is served.

use std::thread::sleep;
use std::time::{Duration, Instant};

use xds_units::Span;

use super::connection::{Admin, AdminArgs, Answer, segment};
use super::outcome::{acknowledged, finish};
use super::writes::split_object;
use crate::failure::Failure;
use crate::output::print_in;
use crate::progress::Progress;

/// The flags of `wait`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct WaitArgs {
    /// Only clients whose node ID matches this pattern, such as edge-* [default: all that are connected]
    #[arg(long, value_name = "GLOB")]
    nodes: Option<String>,
    /// How many clients must use it at least, those that connect later included
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: usize,
    /// The revision that they must use, with everything that they ask for: a number, or current [default: current, if there is no
    /// --object]
    #[arg(long, value_name = "REV", value_parser = revision)]
    revision: Option<String>,
    /// The object whose current version they must use: a document such as HTTPRoute/prod/shop, or a resource of a group such as
    /// edge/clusters/a. Only clients that ask for something of it count
    #[arg(long, value_name = "OBJECT", value_parser = object)]
    object: Option<String>,
    /// Time limit, such as 30s or 10m; a server that is still starting is waited for, too
    #[arg(long, value_name = "TIME", default_value = "30s")]
    timeout: Span,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn wait(args: &WaitArgs) -> Result<(), Failure> {
    let admin = args.admin.connect_for(Some(LONGEST_QUESTION + PATIENCE))?;
    let deadline = Instant::now().checked_add(args.timeout.duration());
    let uses = args.revision.clone().or_else(|| args.object.is_none().then(|| "current".to_owned()));
    let questions = [("uses", &uses), ("object", &args.object)];
    for (key, value) in questions.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
        let question = format!("{key}={}", segment(value));
        finish(ask(args, &admin, &question, deadline)?, NOT_YET, |body| {
            print_in(args.admin.output, body, || acknowledged(body))
        })?;
    }
    Ok(())
}

/// Asks until there is an answer, or the time is up. A single question takes a few seconds at most, so that a server that died is
/// noticed.
fn ask(args: &WaitArgs, admin: &Admin, question: &str, deadline: Option<Instant>) -> Result<Answer, Failure> {
    let nodes = args.nodes.as_ref().map(|nodes| format!("&nodes={}", segment(nodes))).unwrap_or_default();
    let path = format!("/v1/acks?{question}{nodes}&wait=acked&minClients={}", args.count);
    let _progress = Progress::of_wait("waiting until clients have acknowledged it");
    let left =
        || deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
    let mut was_reached = false;
    loop {
        let limit = left().min(LONGEST_QUESTION);
        let why = match admin.get_any(&format!("{path}&timeout={}ms", limit.as_millis())) {
            Ok(answer) if answer.is_pending() && !left().is_zero() => {
                was_reached = true;
                // Of servers that do not ask each other, the answer comes at once.
                sleep(PAUSE.min(left()));
                continue;
            }
            Ok(answer) if [404, 503].contains(&answer.status) => {
                // The object may come, and the server may become ready.
                was_reached = true;
                let absent = if answer.status == 404 { "absent: " } else { "" };
                format!("{absent}{}", answer.problem())
            }
            Err(Failure::Unreachable(why)) => why,
            answered => return answered,
        };
        if left().is_zero() {
            return Err(if was_reached { Failure::NotYet(why) } else { Failure::Unreachable(why) });
        }
        sleep(PAUSE.min(left()));
    }
}

/// Reads a revision.
fn revision(text: &str) -> Result<String, String> {
    match text == "current" || text.parse::<u64>().is_ok() {
        true => Ok(text.to_owned()),
        false => Err("neither a revision, such as 7, nor current".to_owned()),
    }
}

/// Reads the name of an object. As in other commands, a document without a namespace is in `default` if its kind has namespaces.
fn object(text: &str) -> Result<String, String> {
    let wrong = || "write KIND/NAMESPACE/NAME, such as HTTPRoute/prod/shop, or GROUP/TYPE/NAME, such as edge/clusters/a";
    let (first, others) = text.split_once('/').ok_or_else(wrong)?;
    if xds_routes::Kind::of_name(first).is_some() {
        let (namespace, name) = split_object(first, others).map_err(|failure| failure.to_string())?;
        return Ok(format!("{first}/{namespace}/{name}"));
    }
    match others.split_once('/') {
        Some((of_type, name)) if ![first, of_type, name].contains(&"") => Ok(text.to_owned()),
        Some(_) | None => Err(wrong().to_owned()),
    }
}

const NOT_YET: &str = "not all of these clients use it yet";

/// How long the server waits for an answer to one question.
const LONGEST_QUESTION: Duration = Duration::from_secs(5);

/// How much longer the answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Before a server is asked again that does not answer, or has nothing to answer yet.
const PAUSE: Duration = Duration::from_millis(200);

const EXIT_CODES: &str = "Exit codes: 0 they all use it, 1 a client rejects it, 2 wrong command line, 3 cannot reach the server, \
4 not yet";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_a_document_or_a_resource_of_a_group() {
        for (text, read) in [
            ("HTTPRoute/prod/shop", "HTTPRoute/prod/shop"),
            ("HTTPRoute/shop", "HTTPRoute/default/shop"),
            ("GatewayClass/c", "GatewayClass/-/c"),
            ("edge/clusters/a/b", "edge/clusters/a/b"),
        ] {
            assert_eq!(object(text).as_deref(), Ok(read));
        }
        for text in ["shop", "edge/clusters", "edge//a", "/clusters/a", "HTTPRoute//a", "HTTPRoute/prod/"] {
            assert!(object(text).is_err(), "{text}");
        }
        assert!(revision("7").is_ok() && revision("current").is_ok() && revision("-1").is_err());
    }
}
