//! What would it change to go back?

use maud::{Markup, html};
use serde_json::{Value, json};

use crate::draw::{Act, confirmed, node, short_type};
use crate::page::{Area, Screen};
use crate::path::{list, number, path, text};
use crate::rest::Failure;
use crate::screen::Ask;

pub(super) async fn screen(ask: &Ask<'_>, revision: u64) -> Result<Screen, Failure> {
    let body = json!({ "revision": revision });
    // Whoever confirms undoes only what the preview shows.
    let tag = ask.rest.tag(ask.visitor, "/v1/history").await?;
    let trial = ask.rest.ask(ask.visitor, "/v1/rollback?dryRun=true", body).await?;
    let of = revision.to_string();
    let back = path(["changes", &of]);
    let act = Act {
        what: "rollback",
        name: "Go back to this revision",
        confirm: "Go back now",
        is_grave: true,
        fields: &[("revision", &of), ("tag", &tag)],
        to: &back,
    };
    let head = html! {
        p { "Everything that the API owns becomes what it was at revision " a href=(back) { (revision) } ". That is a new revision." }
        (warnings(&trial))
        @if trial["changed"] == true {
            (confirmed(&act, &html! { p { "This changes what clients are served." } }))
            (requests(&trial))
            (phases(&trial))
            (differences(&trial))
        } @else { p.said { "That would change nothing." } }
    };
    Ok(Screen { title: format!("Go back to revision {revision}?"), area: Area::Changes, head, parts: vec![] })
}

fn warnings(trial: &Value) -> Markup {
    html! {
        @for one in list(trial, "warnings") { p.said.failed { (text(one, "detail")) } }
    }
}

fn requests(trial: &Value) -> Markup {
    html! {
        @if !list(trial, "requests").is_empty() {
            h2 { "Requests that move" }
            @for of in list(trial, "requests") {
                h3 { (text(of, "group")) " (" (text(of, "client")) ")" }
                pre tabindex="0" { (text(of, "text")) }
            }
        }
        @if !list(trial, "affectedNodes").is_empty() {
            h2 { "Clients that it concerns" }
            p { @for id in list(trial, "affectedNodes").iter().take(SHOWN) { (node(id.as_str().unwrap_or_default())) " " } }
        }
    }
}

/// The steps in which clients would get it.
pub(super) fn phases(trial: &Value) -> Markup {
    let resource =
        |of: &Value| html! { li { (short_type(text(of, "type"))) " " code { (text(of, "name")) } } };
    html! {
        @if !list(trial, "phases").is_empty() { h2 { "Steps in which clients get it" } }
        @for of in list(trial, "phases") {
            h3 { (text(of, "group")) " (" (text(of, "client")) ")" }
            ol { @for phase in list(of, "phases") {
                li {
                    @for awaited in list(phase, "waitsFor") {
                        p.note { "after the " (text(awaited, "what")) " of " (short_type(text(awaited, "type"))) " " code { (text(awaited, "name")) } }
                    }
                    @if let Some(after) = phase["after"].as_str() { p.note { "after " (after) } }
                    @for (key, n) in [("send", "sendCount"), ("remove", "removeCount")] {
                        @let (named, n) = (list(phase, key), number(phase, n));
                        @if !named.is_empty() { (key) ul { @for one in named { (resource(one)) } } }
                        @if n > named.len() as u64 { p.note { (n - named.len() as u64) " more." } }
                    }
                }
            } }
        }
    }
}

fn differences(trial: &Value) -> Markup {
    html! {
        h2 { "Difference" }
        @for one in list(trial, "difference") {
            details {
                summary { code { (text(one, "what")) } }
                @if list(one, "changes").is_empty() {
                    h4 { "before" } pre tabindex="0" { (pretty(&one["before"])) }
                    h4 { "after" } pre tabindex="0" { (pretty(&one["after"])) }
                } @else {
                    ul { @for place in list(one, "changes") {
                        li { code { (text(place, "pointer")) } ": " (short(&place["old"])) " → " (short(&place["new"])) }
                    } }
                }
            }
        }
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn short(value: &Value) -> String {
    if value.is_null() { "nothing".to_owned() } else { value.to_string() }
}

/// How many clients are named.
const SHOWN: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_is_shown_with_both_values() {
        let trial = json!({"difference": [{"what": "~ cluster/a", "changes": [{"pointer": "/weight", "old": 1, "new": null}]}]});
        let text = differences(&trial).into_string();
        assert!(text.contains("<code>/weight</code>: 1 → nothing"), "{text}");
    }
}
