//! What is one object, what is wrong with it, and how does it split requests?

use maud::{Markup, html};
use serde_json::Value;

use crate::draw::{Act, Tone, badge, confirmed, percent, place, time};
use crate::page::{Area, Part, Screen};
use crate::path::{list, path, text};
use crate::rest::Failure;
use crate::screen::Ask;
use crate::screen::canary::has_ended;
use crate::screen::routes::{all_conditions, is_bad};

pub(super) async fn screen(ask: &Ask<'_>, [kind, namespace, name]: [&str; 3]) -> Result<Screen, Failure> {
    let document = ask.get(&path(["v1", "documents", kind, namespace, name])).await?;
    let weights = ask.find(&path(["v1", "weights", kind, namespace, name])).await?;
    let rollouts = ask.get("/v1/rollouts").await?;
    let is_of = |one: &&Value| {
        let route = &one["route"];
        [text(route, "kind"), text(route, "namespace"), text(route, "name")] == [kind, namespace, name]
            && !has_ended(text(one, "phase"))
    };
    let rollout = list(&rollouts, "rollouts").iter().find(is_of);
    let back = path(["routes", kind, namespace, name]);
    let head = html! {
        dl.facts {
            dt { "From" } dd { (text(&document, "source")) " " (place(&document["file"])) }
            dt { "Group" } dd { (text(&document, "group")) }
            @if document["overridden"] == true { dt { "Overridden" } dd { "by the API" } }
        }
    };
    let parts = vec![
        Part::new("conditions", conditions(&document)),
        Part::new("weights", rules(weights.as_ref(), rollout, [kind, namespace, name], &back)),
        Part::new(
            "text",
            html! {
                h2 { "As it was written" }
                pre tabindex="0" { (serde_json::to_string_pretty(&document["document"]).unwrap_or_default()) }
            },
        ),
    ];
    Ok(Screen { title: format!("{kind} {namespace}/{name}"), area: Area::Routes, head, parts })
}

fn conditions(document: &Value) -> Markup {
    html! {
        h2 { "Conditions" }
        @let all: Vec<&Value> = all_conditions(&document["status"]).collect();
        @if all.is_empty() { p.empty { "It has none." } } @else {
            div.wide tabindex="0" role="group" aria-label="Table" { table { tbody { @for one in all { (condition(one)) } } } }
        }
    }
}

/// A condition as a row.
fn condition(one: &Value) -> Markup {
    let tone = if is_bad(one) { Tone::Bad } else { Tone::Good };
    html! {
        tr {
            th scope="row" { (text(one, "type")) }
            td { (badge(tone, text(one, "status"))) }
            td { (text(one, "reason")) }
            td.words { (text(one, "message")) }
            td { (time(text(one, "lastTransitionTime"))) }
        }
    }
}

fn rules(
    weights: Option<&Value>,
    rollout: Option<&Value>,
    [kind, namespace, name]: [&str; 3],
    back: &str,
) -> Markup {
    html! {
        @if let Some(weights) = weights {
            h2 { "Weights" }
            @for rule in list(weights, "rules") {
                @let id = text(rule, "id");
                @let tag = text(rule, "etag");
                @let fields = [("kind", kind), ("namespace", namespace), ("name", name), ("rule", id), ("tag", tag)];
                article.panel {
                    h3 { "Rule " (id) " " @if rule["overridden"] == true { (badge(Tone::Warn, "overridden")) } }
                    (shares(rule))
                    @if let Some(rollout) = rollout.filter(|one| text(&one["route"], "rule") == id) {
                        p { "A rollout changes them: " a href=(path(["canary", "rollouts", text(rollout, "id")])) { (text(rollout, "id")) } }
                    } @else {
                        div.verbs {
                            (confirmed(&Act { what: "weights", name: "Change…", confirm: "Change them", is_grave: false, fields: &fields, to: back }, &inputs(rule, id)))
                            @if rule["overridden"] == true {
                                (confirmed(&Act { what: "reset-weights", name: "Reset…", confirm: "Use the file's", is_grave: true, fields: &fields, to: back }, &html! { p { "The weights of the file count again." } }))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn shares(rule: &Value) -> Markup {
    html! {
        ul.counts { @for (backend, share) in rule["effective"].as_object().into_iter().flatten() {
            li { span { (percent(share.as_f64().unwrap_or_default())) } (backend) }
        } }
    }
}

fn inputs(rule: &Value, id: &str) -> Markup {
    html! {
        p.note { "A share that is left empty stays, or gets what the others leave." }
        @for (backend, _) in rule["effective"].as_object().into_iter().flatten() {
            @let input = format!("share-{id}-{backend}");
            div.field {
                label for=(input) { (backend) ", %" }
                input id=(input) name=(format!("percent.{backend}")) inputmode="decimal" size="6";
            }
        }
    }
}
