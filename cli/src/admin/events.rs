//! `events`: the events of a server.

use std::io::{BufRead as _, BufReader, Read};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::connection::AdminArgs;
use crate::failure::Failure;
use crate::output::{Form, in_turn, one_line, print};

/// The flags of `events`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct EventsArgs {
    /// Continue with new events until the server ends; without this flag, show only the last 1024 events
    #[arg(long)]
    follow: bool,
    /// Only events after this one, such as 1795177244123-42
    #[arg(long, value_name = "ID")]
    since: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
}

/// An event as it comes in.
#[derive(Debug, Default, PartialEq)]
struct Event {
    id: String,
    name: String,
    data: String,
}

pub(crate) fn events(args: &EventsArgs) -> Result<(), Failure> {
    let form = Form::or_default(args.admin.output);
    let admin = args.admin.connect_for(None)?;
    // An unknown id asks for all kept events.
    let since = args.since.as_deref().or((!args.follow).then_some(UNKNOWN));
    let stream = admin.open("/v1/events", since)?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || read(stream, &sender));
    loop {
        let next = if args.follow {
            receiver.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            receiver.recv_timeout(QUIET)
        };
        match next {
            // There is no event before those that are kept.
            Ok(Ok(event)) if args.since.is_none() && event.name == "lagged" && !args.follow => {}
            Ok(Ok(event)) => print(&shown(&event, form)?)?,
            Ok(Err(reason)) => {
                return Err(Failure::Unreachable(format!("the stream of events ended: {reason}")));
            }
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Reads events until the stream ends.
fn read(stream: impl Read, events: &mpsc::Sender<Result<Event, String>>) {
    let mut event = Event::default();
    for line in BufReader::new(stream).lines() {
        let told = match line {
            Ok(line) => take(&mut event, &line).map(Ok),
            Err(error) => Some(Err(error.to_string())),
        };
        let is_over = told.as_ref().is_some_and(Result::is_err);
        let is_left = told.is_some_and(|told| events.send(told).is_err());
        if is_left || is_over {
            return;
        }
    }
}

/// Takes a line in; gives the event that it ends.
fn take(event: &mut Event, line: &str) -> Option<Event> {
    if line.is_empty() {
        let ended = std::mem::take(event);
        return (!ended.name.is_empty()).then_some(ended);
    }
    let (field, value) = line.split_once(':').unwrap_or((line, ""));
    let value = value.strip_prefix(' ').unwrap_or(value);
    match field {
        "id" => value.clone_into(&mut event.id),
        "event" => value.clone_into(&mut event.name),
        "data" => event.data.push_str(value),
        // A comment shows that the stream lives.
        _ => {}
    }
    None
}

/// Writes an event as one line: as a JSON object, or as its id, name and text.
fn shown(event: &Event, form: Form) -> Result<String, Failure> {
    let data: Value = serde_json::from_str(&event.data).unwrap_or_else(|_| Value::String(event.data.clone()));
    let answer = json!({"id": event.id, "event": event.name, "data": data});
    in_turn(form, &answer, || {
        let fields = data.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        let fields = fields.map(|(key, value)| match value.as_str() {
            Some(text) => format!("{key}={text}"),
            None => format!("{key}={value}"),
        });
        let fields = fields.collect::<Vec<_>>().join(" ");
        format!("{}  {}  {}\n", one_line(&event.id), one_line(&event.name), one_line(&fields))
    })
}

/// An event of no run of any server.
const UNKNOWN: &str = "0-0";
/// The pause after which all kept events have come.
const QUIET: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_and_shown_one_a_line() {
        let stream = ": keep-alive\n\nid: 7-1\nevent: nack\ndata: {\"node\":\"a\\u001b\",\"message\":\"no\\nway\"}\n\n";
        let (sender, receiver) = mpsc::channel();
        read(stream.as_bytes(), &sender);
        drop(sender);
        let events: Vec<Event> = receiver.iter().map(Result::unwrap).collect();
        let [event] = events.as_slice() else { panic!("{events:?}") };
        let table = shown(event, Form::Table).unwrap();
        assert!(table.starts_with("7-1  nack  ") && table.lines().count() == 1, "{table}");
        assert!(table.contains("message=no\\nway") && table.contains("node=a\\u{1b}"), "{table}");
        let json = shown(event, Form::Json).unwrap();
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&json["id"], &json["data"]["node"]), (&json!("7-1"), &json!("a\u{1b}")));
    }
}
