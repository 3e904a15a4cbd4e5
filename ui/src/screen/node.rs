//! What does one client have, and what waits for what?

use maud::{Markup, html};
use serde_json::Value;

use crate::draw::{Tone, badge, place, revision, short_type, time};
use crate::page::{Area, Part, Screen};
use crate::path::{Params, list, number, path, text};
use crate::rest::Failure;
use crate::screen::Ask;

pub(super) async fn screen(ask: &Ask<'_>, id: &str) -> Result<Screen, Failure> {
    let node = ask.get(&path(["v1", "nodes", id])).await?;
    let address = path(["nodes", id]);
    let mut parts = vec![
        Part::new("state", state(&node)),
        Part::new("types", types(&node)),
        Part::new("held", held(&node)),
        Part::new("streams", streams(&node)),
    ];
    if ask.params.get("config").is_some() {
        let place = Params::default().with("after", ask.params.get("after"));
        let served =
            ask.get(&place.with("limit", Some("100")).after(&path(["v1", "nodes", id, "snapshot"]))).await?;
        parts.push(Part::new("config", config(&served, &address)));
    }
    let head = html! {
        p.links {
            a href=(Params::default().with("config", Some("1")).after(&address)) { "Its configuration" } " · "
            a href=(Params::default().with("node", Some(id)).after("/try")) { "Try a request as this node" }
        }
    };
    Ok(Screen { title: id.to_owned(), area: Area::Fleet, head, parts })
}

fn state(node: &Value) -> Markup {
    html! {
        dl.facts {
            dt { "Status" } dd { (status(text(node, "status"))) }
            dt { "Has acknowledged" } dd { @match node["revision"].as_u64() { Some(n) => { "revision " (revision(n)) }, None => "nothing yet" } }
            dt { "Software" } dd { (text(&node["client"], "name")) " " (text(&node["client"], "version")) }
            dt { "Cluster" } dd { (text(node, "cluster")) }
            dt { "Groups" } dd { @for group in list(node, "groups") { (group.as_str().unwrap_or_default()) " " } }
            @if let Some(wave) = node["wave"].as_str() { dt { "Wave deployment" } dd { (wave) } }
        }
        @if node["unmatched"] == true {
            p.said.failed { "No node group but the default one selects this node, and that one has nothing." }
        }
        @if number(node, "drainingCount") > 0 {
            h2 { "Draining" }
            ul { @for one in list(node, "draining") {
                li { (short_type(text(one, "type"))) " " code { (text(one, "name")) } " " (text(one, "endpoint")) " until " (time(text(one, "until"))) }
            } }
        }
    }
}

fn status(word: &str) -> Markup {
    match word {
        "SYNCED" => badge(Tone::Good, "acknowledged"),
        "STALE" => badge(Tone::Busy, "pending"),
        "ERROR" => badge(Tone::Bad, "rejected"),
        "NOT_SENT" => badge(Tone::Warn, "absent"),
        other => badge(Tone::Plain, other),
    }
}

fn types(node: &Value) -> Markup {
    let types = node["types"].as_object();
    html! {
        h2 { "By type" }
        div.wide tabindex="0" role="group" aria-label="Table" {
            table {
                thead { tr { @for name in ["Type", "Status", "Sent", "Accepted", "Last rejection"] { th scope="col" { (name) } } } }
                tbody { @for (type_url, of) in types.into_iter().flatten() {
                    tr {
                        th scope="row" { (short_type(type_url)) }
                        td { (status(text(of, "status"))) }
                        td { code { (text(of, "versionSent")) } }
                        td { code { (text(of, "versionAcked")) } }
                        td { (time(text(&of["lastNack"], "at"))) " " span.words { (text(&of["lastNack"], "message")) } }
                    }
                    @for one in list(of, "rejected") {
                        tr {
                            th scope="row" {}
                            td { (badge(Tone::Bad, "rejected")) }
                            td colspan="2" { code { (text(one, "name")) } }
                            td { span.words { (text(one, "message")) } }
                        }
                    }
                    @if let Some(n) = of["unknownCount"].as_u64() {
                        tr {
                            th scope="row" {}
                            td { (badge(Tone::Busy, "unknown")) }
                            td colspan="3" { (n) " resources came in a rejected response and are offered again" }
                        }
                    }
                } }
            }
        }
    }
}

/// The changes that are held back, beside what they wait for.
fn held(node: &Value) -> Markup {
    // Streams of one client have the same changes held back.
    let held: Vec<&Value> = list(node, "streams")
        .iter()
        .map(|stream| list(stream, "heldBack"))
        .max_by_key(|held| held.len())
        .into_iter()
        .flatten()
        .take(MAX_DRAWN)
        .collect();
    let total =
        list(node, "streams").iter().map(|stream| number(stream, "heldBackCount")).max().unwrap_or_default();
    html! {
        @if total > 0 {
            h2 { (total) " changes are held back" }
            (graph(&held))
            ul { @for one in &held {
                li {
                    (text(one, "change")) " of " (short_type(text(one, "type"))) " " code { (text(one, "name")) }
                    " waits for the " (waits_for(&one["waitsFor"])) ", since " (time(text(one, "since")))
                }
            } }
        }
    }
}

fn waits_for(of: &Value) -> String {
    let what = match text(of, "what") {
        "sending" => "sending",
        "request" => "request",
        "ack" => "answer",
        "settling" => "settling",
        "change" => "change",
        "disuse" => "disuse",
        other => other,
    };
    format!("{what} of {} {}", short_type(text(of, "type")), text(of, "name"))
}

fn graph(held: &[&Value]) -> Markup {
    let name = |of: &Value| format!("{} {}", short_type(text(of, "type")), text(of, "name"));
    let mut right: Vec<String> = held.iter().map(|one| name(&one["waitsFor"])).collect();
    right.sort_unstable();
    right.dedup();
    let row = |n: usize| 16 + n * 26;
    let height = row(held.len().max(right.len()));
    html! {
        svg.graph viewBox=(format!("0 0 720 {height}")) aria-hidden="true" {
            @for (n, one) in held.iter().enumerate() {
                @let waited = right.iter().position(|known| *known == name(&one["waitsFor"])).unwrap_or_default();
                path d=(format!("M300,{} C360,{} 360,{} 420,{}", row(n), row(n), row(waited), row(waited))) {}
                text.end x="292" y=(row(n) + 4) { (shortened(&name(one))) }
                circle cx="300" cy=(row(n)) r="3" {}
            }
            @for (n, name) in right.iter().enumerate() {
                circle cx="420" cy=(row(n)) r="3" {}
                text x="428" y=(row(n) + 4) { (shortened(name)) }
            }
        }
    }
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= MAX_CHARS {
        name.to_owned()
    } else {
        name.chars().take(MAX_CHARS - 1).chain(['…']).collect()
    }
}

fn streams(node: &Value) -> Markup {
    html! {
        h2 { "Streams" }
        div.wide tabindex="0" role="group" aria-label="Table" {
            table {
                thead { tr { @for name in ["From", "Variant", "Service", "Since", "Identity", "Server"] { th scope="col" { (name) } } } }
                tbody { @for one in list(node, "streams") {
                    tr {
                        th scope="row" { (text(one, "address")) }
                        td { (text(one, "variant")) }
                        td { @match one["service"].as_str() { Some(of) => (short_type(of)), None => "ADS" } }
                        td { (time(text(one, "since"))) }
                        td { (text(one, "identity")) }
                        td { (text(one, "replica")) }
                    }
                } }
            }
        }
    }
}

fn config(served: &Value, address: &str) -> Markup {
    html! {
        h2 { "Its configuration at revision " (number(served, "revision")) }
        @for (type_url, of) in served["types"].as_object().into_iter().flatten() {
            h3 { (short_type(type_url)) " " code { (text(of, "version")) } }
            @for one in list(of, "resources") {
                details {
                    summary { (text(one, "name")) " " span.note { (text(one, "version")) " " (place(&one["file"])) } }
                    pre tabindex="0" { (serde_json::to_string_pretty(&one["resource"]).unwrap_or_default()) }
                }
            }
        }
        @if let Some(next) = served["next"].as_str() {
            p { a rel="next" href=(Params::default().with("config", Some("1")).with("after", Some(next)).after(address)) { "Next" } }
        }
    }
}

/// How many changes are drawn.
const MAX_DRAWN: usize = 20;

/// The longest name in a drawing.
const MAX_CHARS: usize = 44;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_held_back_is_drawn_beside_what_it_waits_for() {
        let held_back = |name: &str| {
            json!({"type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", "name": name, "change": "update",
                "since": "2026-11-28T05:00:00Z",
                "waitsFor": {"what": "ack", "type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "new"}})
        };
        let node =
            json!({"streams": [{"heldBack": [held_back("one"), held_back("other")], "heldBackCount": 2}]});
        let text = held(&node).into_string();
        assert!(text.contains("2 changes are held back"), "{text}");
        assert!(
            text.contains(
                "update of RouteConfiguration <code>one</code> waits for the answer of Cluster new, since"
            ),
            "{text}"
        );
        assert_eq!(text.matches("<path ").count(), 2, "a line for each change: {text}");
        assert_eq!(text.matches("<circle ").count(), 3, "both wait for the same: {text}");
        assert!(text.contains(r#"datetime="2026-11-28T05:00:00Z""#), "{text}");
        assert!(held(&json!({"streams": [{"heldBack": [], "heldBackCount": 0}]})).into_string().is_empty());
    }
}
