//! `bisect`: the revision that changed where a request goes.

use std::fmt::Write as _;

use http::Method;
use serde_json::{Value, json};
use xds_cache::Profile;
use xds_control::question;
use xds_units::escape::clean_lines;

use crate::about::AboutArgs;
use crate::admin::ConnectionArgs;
use crate::explain::{Form, RequestArgs};
use crate::failure::Failure;
use crate::output::{self, items};

/// The flags of `bisect`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BisectArgs {
    /// Where the whole request should go: a cluster, such as default/cart, or the status of an answer, such as 404
    #[arg(long, value_name = "CLUSTER|STATUS")]
    expect: String,
    /// Oldest revision to look at [default: the oldest that the server keeps]
    #[arg(long, value_name = "REVISION")]
    since: Option<u64>,
    #[command(flatten)]
    request: RequestArgs,
    #[command(flatten)]
    about: AboutArgs,
    /// The form of the result
    #[arg(long, value_enum, value_name = "FORM", default_value = "text")]
    output: Form,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Where the request went at a revision.
#[derive(Clone, Debug)]
struct Answer {
    revision: u64,
    is_expected: bool,
    /// In words.
    destination: String,
}

/// Exit code 0 if a revision changed the answer, 1 if none did.
pub(crate) fn run(args: &BisectArgs) -> Result<(), Failure> {
    let mut question = json!({"request": question::to_json(&args.request.request()?)});
    args.about.write(&mut question, args.request.is_of_target().then_some(Profile::Grpc));
    let admin = args.connection.connect()?;
    let history = admin.get_pages("/v1/history?limit=1000", "revisions")?;
    let is_asked = |entry: &&Value| args.since.is_none_or(|since| entry["revision"].as_u64() >= Some(since));
    let mut revisions: Vec<&Value> = items(&history["revisions"]).filter(is_asked).collect();
    revisions.reverse();
    let ask = |entry: &Value| -> Result<Answer, Failure> {
        let revision = entry["revision"].as_u64().unwrap_or_default();
        let mut question = question.clone();
        question["at"] = json!(revision);
        let body = ("application/json", question.to_string().into_bytes());
        let answer = admin.send(Method::POST, "/v1/explain", &[], Some(body))?;
        if answer.status == 404 {
            let destination = "nothing: there is no such group".to_owned();
            return Ok(Answer { revision, is_expected: false, destination });
        }
        Ok(read(revision, &answer.success()?, &args.expect))
    };
    let (&[first, .., last] | &[first @ last]) = &*revisions else {
        return Err(Failure::Failed("the server keeps no revision that could be looked at".to_owned()));
    };
    let (mut before, mut after) = (ask(first)?, ask(last)?);
    let mut n_asked = 2;
    if before.is_expected == after.is_expected {
        return Err(Failure::Failed(unchanged(&before, &after, &args.expect)));
    }
    let is_expected = after.is_expected;
    let (mut low, mut high) = (0, revisions.len() - 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        let Some(entry) = revisions.get(middle) else { break };
        let answer = ask(entry)?;
        n_asked += 1;
        if answer.is_expected == is_expected {
            (high, after) = (middle, answer);
        } else {
            (low, before) = (middle, answer);
        }
    }
    let entry = revisions.get(high).copied().unwrap_or(last);
    if args.output == Form::Json {
        let side = |answer: &Answer| json!({"revision": answer.revision, "expected": answer.is_expected, "destination": answer.destination});
        let found =
            json!({"revision": entry, "before": side(&before), "after": side(&after), "asked": n_asked});
        return output::print_json(&found);
    }
    let text = |key: &str| entry[key].as_str().unwrap_or_default();
    let mut lines = String::new();
    let _ = writeln!(
        lines,
        "revision {:<6}by {} at {}: {}",
        after.revision,
        text("actor"),
        text("at"),
        text("summary")
    );
    for answer in [&before, &after] {
        let word = if answer.is_expected { "as expected" } else { "not as expected" };
        let _ = writeln!(lines, "at {:<12}{}  ({word})", answer.revision, answer.destination);
    }
    let _ = writeln!(lines, "asked at       {n_asked} of {} revisions", revisions.len());
    output::print(&clean_lines(&lines))
}

/// Why no revision is found.
fn unchanged(first: &Answer, last: &Answer, expect: &str) -> String {
    let (from, to) = (first.revision, last.revision);
    if first.is_expected {
        return format!(
            "the request goes to {expect} at revision {from} and at {to}; no change is looked for in between"
        );
    }
    format!(
        "the request goes to {expect} neither at revision {from} ({}) nor at {to} ({}); write another --expect, or another --since",
        first.destination, last.destination
    )
}

/// Reads an answer of `/v1/explain`.
fn read(revision: u64, answer: &Value, expect: &str) -> Answer {
    let outcomes = items(&answer["explanations"]).flat_map(|one| items(&one["outcomes"]));
    let mut names: Vec<(String, String)> = outcomes.filter_map(destination).collect();
    names.dedup();
    let is_it = |name: &str| name == expect || name.strip_prefix("grpc/") == Some(expect);
    let is_expected = !names.is_empty() && names.iter().all(|(_, name)| is_it(name));
    let shown: Vec<String> = names.iter().map(|(share, name)| format!("{share}{name}")).collect();
    let destination = if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") };
    Answer { revision, is_expected, destination }
}

/// The share and the name of an outcome; `None` if no request has it.
fn destination(outcome: &Value) -> Option<(String, String)> {
    let part = |at: usize| outcome["share"][at].as_u64();
    let share = match (part(0), part(1)) {
        (Some(0), _) => return None,
        (Some(part), Some(whole)) if part != whole => format!("{part}/{whole} "),
        (_, _) => String::new(),
    };
    let texts = [&outcome["cluster"]["name"], &outcome["status"], &outcome["action"]];
    let name = texts.into_iter().find_map(Value::as_str)?;
    Some((share, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_as_expected_if_every_request_goes_there() {
        let cluster = |share: [u64; 2], name: &str| json!({"share": share, "cluster": {"name": name}, "action": "cluster"});
        let is_expected = |outcomes: &[Value], expect: &str| {
            let answer = read(7, &json!({"explanations": [{"outcomes": outcomes}]}), expect);
            (answer.is_expected, answer.destination)
        };
        let one = [cluster([1, 1], "grpc/default/one"), cluster([0, 1], "default/two")];
        assert_eq!(is_expected(&one, "default/one"), (true, "grpc/default/one".to_owned()));
        let both = [cluster([9, 10], "default/one"), cluster([1, 10], "default/two")];
        assert_eq!(
            is_expected(&both, "default/one"),
            (false, "9/10 default/one, 1/10 default/two".to_owned())
        );
        let answered = [json!({"share": [1, 1], "status": "404", "action": "no_route"})];
        assert_eq!(is_expected(&answered, "404"), (true, "404".to_owned()));
        assert_eq!(is_expected(&[], "404"), (false, "nothing".to_owned()));
    }
}
