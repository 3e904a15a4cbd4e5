//! Who changed what, and who has it?

use maud::{Markup, html};
use serde_json::Value;

use crate::draw::{Tone, bar, line_diff, node, revision, time};
use crate::page::{Area, Part, Screen};
use crate::path::{Params, list as items, number, path, text};
use crate::rest::Failure;
use crate::screen::Ask;
use crate::screen::rollback::phases;

pub(super) async fn list(ask: &Ask<'_>) -> Result<Screen, Failure> {
    let params = ask.params.only(&["after", "actor", "source"]);
    let history = ask.get(&params.with("limit", Some("100")).after("/v1/history")).await?;
    let mut acks = None;
    // Not all revisions concern clients: the states of a rollout do not.
    for one in items(&history, "revisions").iter().take(LOOKED_AT) {
        let found = ask.find(&format!("/v1/acks?revision={}", number(one, "revision"))).await?;
        acks = found.filter(|acks| number(acks, "total") > 0);
        if acks.is_some() || params.get("after").is_some() {
            break;
        }
    }
    let head = html! {
        form.filters method="get" action="/changes" role="search" {
            label for="actor" { "By" }
            input #actor type="search" name="actor" value=(params.text("actor")) placeholder="who";
            label for="source" { "Through" }
            select #source name="source" {
                @for (value, name) in SOURCES {
                    option value=(value) selected[params.text("source") == value] { (name) }
                }
            }
            button type="submit" { "Show" }
        }
    };
    let parts =
        vec![Part::new("newest", newest(acks.as_ref())), Part::new("history", table(&history, &params))];
    Ok(Screen { title: "Changes".to_owned(), area: Area::Changes, head, parts })
}

const SOURCES: [(&str, &str); 6] = [
    ("", "all"),
    ("file", "files"),
    ("api", "the API"),
    ("rollout", "rollouts"),
    ("rollback", "rollbacks"),
    ("revert", "reverts"),
];

fn newest(acks: Option<&Value>) -> Markup {
    html! {
        @if let Some(acks) = acks {
            h2 { "Revision " (revision(number(acks, "revision"))) }
            (progress(acks))
        }
    }
}

/// Who has a revision, as a bar and in words.
fn progress(acks: &Value) -> Markup {
    let (total, acked) = (number(acks, "total"), number(acks, "acked"));
    let parts = [
        (Tone::Good, acked, "acknowledged it"),
        (Tone::Bad, number(acks, "nNacked"), "reject it"),
        (Tone::Warn, number(acks, "nAlreadyFailing"), "rejected something before"),
        (Tone::Busy, number(acks, "nPending"), "pending"),
    ];
    html! {
        @if total == 0 { p.note { "It concerns no connected client." } } @else {
            (bar(&parts))
            p { strong { (acked) " of " (total) } " clients have acknowledged it"
                @for (_, n, name) in parts.iter().skip(1).filter(|(_, n, _)| *n > 0) { ", " (n) " " (name) }
            }
        }
    }
}

fn table(history: &Value, params: &Params) -> Markup {
    html! {
        div.wide tabindex="0" role="group" aria-label="Table" {
            table {
                thead { tr { @for name in ["Revision", "When", "Who", "Through", "What"] { th scope="col" { (name) } } } }
                tbody { @for one in items(history, "revisions") {
                    tr {
                        th scope="row" { (revision(number(one, "revision"))) }
                        td { (time(text(one, "at"))) }
                        td { (text(one, "actor")) @if let Some(other) = one["onBehalfOf"].as_str() { " for " (other) } }
                        td { (text(one, "source")) }
                        td.words { (text(one, "summary")) }
                    }
                } }
            }
        }
        @if let Some(next) = history["next"].as_str() {
            nav.pages aria-label="Pages" { a rel="next" href=(params.with("after", Some(next)).after("/changes")) { "Older" } }
        }
    }
}

pub(super) async fn one(ask: &Ask<'_>, of: u64) -> Result<Screen, Failure> {
    let entry = ask.get(&path(["v1", "history", &of.to_string()])).await?;
    let acks = ask.find(&format!("/v1/acks?revision={of}")).await?;
    let [back, steps] = ["rollback", "steps"].map(|screen| path(["changes", &of.to_string(), screen]));
    let head = html! {
        dl.facts {
            dt { "What" } dd { (text(&entry, "summary")) }
            dt { "When" } dd { (time(text(&entry, "at"))) }
            dt { "Who" } dd { (text(&entry, "actor")) @if let Some(other) = entry["onBehalfOf"].as_str() { " for " (other) } }
            dt { "Through" } dd { (text(&entry, "source")) }
        }
        p.links {
            @if of > 1 { a href=(path(["changes", &(of - 1).to_string()])) { "Revision " (of - 1) } " · " }
            a href=(path(["changes", &(of + 1).to_string()])) { "Revision " (of + 1) } " · "
            a href=(steps) { "Steps in which clients get it" } " · "
            a href=(back) { "Go back to this revision…" }
        }
    };
    let difference = html! {
        h2 { "Difference" }
        @for one in items(&entry, "difference") {
            details open[items(&entry, "difference").len() <= OPEN] {
                summary { code { (text(one, "what")) } }
                @match one["diff"].as_str() {
                    Some(diff) => (line_diff(diff)),
                    None => p.note { "Its lines are not kept, or are too many." },
                }
            }
        }
        @if items(&entry, "difference").is_empty() { p.note { "Nothing that can be shown." } }
    };
    let head = html! { (head) (difference) };
    let parts = vec![Part::new("progress", who_has(acks.as_ref()))];
    Ok(Screen { title: format!("Revision {of}"), area: Area::Changes, head, parts })
}

/// The steps in which clients that have the revision before get one.
pub(super) async fn steps(ask: &Ask<'_>, of: u64) -> Result<Screen, Failure> {
    let number = of.to_string();
    let entry = ask.get(&format!("{}?phases=true", path(["v1", "history", &number]))).await?;
    let head = html! {
        p { "For clients that have everything of the revision before: what " a href=(path(["changes", &number])) { "revision " (of) } " sends and removes, and what it waits for." }
        @if items(&entry, "phases").is_empty() { p.note { "No client gets anything else." } }
        (phases(&entry))
    };
    Ok(Screen { title: format!("Steps of revision {of}"), area: Area::Changes, head, parts: vec![] })
}

fn who_has(acks: Option<&Value>) -> Markup {
    let Some(acks) = acks else {
        return html! { h2 { "Who has it" } p.note { "The server no longer knows which clients it concerned." } };
    };
    html! {
        h2 { "Who has it" }
        (progress(acks))
        @if !items(acks, "nacked").is_empty() {
            h3 { "Rejected" }
            ul { @for one in items(acks, "nacked").iter().take(SHOWN) {
                li { (node(text(one, "node"))) ": " @if one["resource"].is_string() { code { (text(one, "resource")) } ": " } span.words { (text(one, "message")) } }
            } }
            (more(number(acks, "nNacked")))
        }
        @if !items(acks, "pending").is_empty() {
            h3 { "Not answered yet" }
            ul { @for one in items(acks, "pending").iter().take(SHOWN) {
                li { (node(one.as_str().unwrap_or_else(|| text(one, "node")))) }
            } }
            (more(number(acks, "nPending")))
        }
    }
}

/// How many of `n` clients are not named.
fn more(n: u64) -> Markup {
    html! { @if n > SHOWN as u64 { p.note { (n - SHOWN as u64) " more." } } }
}

/// How many revisions are looked at for the newest that concerns clients.
const LOOKED_AT: usize = 5;

/// How many differences are unfolded.
const OPEN: usize = 5;

/// How many clients are named.
const SHOWN: usize = 100;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn clients_that_are_not_named_are_counted() {
        let names = vec!["edge"; 1_000];
        let nacks = vec![json!({"node": "edge", "message": "no"}); 1_000];
        let acks = json!({"revision": 7, "total": 6_001, "acked": 1, "nPending": 2_000, "pending": names,
            "nNacked": 4_000, "nacked": nacks, "nAlreadyFailing": 0, "alreadyFailing": []});
        let text = who_has(Some(&acks)).into_string();
        for said in ["1 of 6001", "4000 reject it", "2000 pending", "3900 more.", "1900 more."] {
            assert!(text.contains(said), "{said} in {text}");
        }
    }
}
