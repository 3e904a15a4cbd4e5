//! Which routes are there, and where do they lead?

use std::collections::BTreeSet;

use http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;

use crate::draw::{Tone, badge, counted, object, place};
use crate::page::{Area, Part, Screen, problem};
use crate::path::{Params, list, number, path, text};
use crate::rest::Failure;
use crate::screen::Ask;

/// The parameters of the list, as the API has them.
const FILTERS: [&str; 6] = ["host", "path", "group", "node", "profile", "after"];

pub(super) async fn screen(ask: &Ask<'_>) -> Result<Screen, Failure> {
    let params = ask.params.only(&FILTERS);
    let bad = ask.get("/v1/conditions?limit=1000").await?;
    let routes = match ask.get(&params.after("/v1/routes")).await {
        Ok(routes) => tree(&routes, &params, &with_problems(&bad)),
        // The form above lets them choose what they may see.
        Err(failure) if [StatusCode::NOT_FOUND, StatusCode::FORBIDDEN].contains(&failure.status) => {
            problem(&failure)
        }
        Err(failure) => return Err(failure),
    };
    let parts = vec![Part::new("conditions", problems(&bad)), Part::new("routes", routes)];
    Ok(Screen { title: "Routes".to_owned(), area: Area::Routes, head: filters(&params), parts })
}

fn filters(params: &Params) -> Markup {
    let field = |name: &str, label: &str, example: &str| {
        html! {
            label for=(name) { (label) }
            input id=(name) type="search" name=(name) value=(params.text(name)) placeholder=(example);
        }
    };
    html! {
        form.filters method="get" action="/routes" role="search" {
            (field("host", "Host", "part of a domain"))
            (field("path", "Path", "part of a path"))
            (field("group", "Group", "default"))
            label for="profile" { "For" }
            select #profile name="profile" {
                @for (value, name) in [("", "the group's clients"), ("envoy", "Envoys"), ("grpc", "gRPC clients")] {
                    option value=(value) selected[params.text("profile") == value] { (name) }
                }
            }
            button type="submit" { "Show" }
        }
    }
}

/// The objects with a condition that is not as it should be.
fn problems(conditions: &Value) -> Markup {
    let bad: Vec<(&Value, &Value)> = list(conditions, "objects")
        .iter()
        .flat_map(|one| all_conditions(one).map(move |condition| (one, condition)))
        .filter(|(_, condition)| is_bad(condition))
        .collect();
    html! {
        @if !bad.is_empty() {
            h2 { "Objects with problems" }
            ul { @for (one, condition) in bad.iter().take(SHOWN) {
                li { (object(one)) " " (badge(Tone::Bad, &format!("{} {}", text(condition, "type"), text(condition, "status")))) " "
                    (text(condition, "reason")) ": " span.words { (text(condition, "message")) } }
            } }
            @if bad.len() > SHOWN { p.note { (bad.len() - SHOWN) " more." } }
            @if !conditions["next"].is_null() { p.note { "These are of the first " (list(conditions, "objects").len()) " objects." } }
        }
    }
}

/// The objects with problems, as routes name what they were written in.
fn with_problems(conditions: &Value) -> BTreeSet<String> {
    let bad = list(conditions, "objects").iter().filter(|one| all_conditions(one).any(is_bad));
    bad.map(|one| format!("{} {}/{}", text(one, "kind"), text(one, "namespace"), text(one, "name"))).collect()
}

/// The conditions of an object, of its parents and of its listeners.
pub(super) fn all_conditions(one: &Value) -> impl Iterator<Item = &Value> {
    let within = list(one, "parents").iter().chain(list(one, "listeners"));
    list(one, "conditions").iter().chain(within.flat_map(|part| list(part, "conditions")))
}

/// Returns `true` for a condition that is not as it should be. These two are good when they do not hold.
pub(super) fn is_bad(condition: &Value) -> bool {
    let is_true = text(condition, "status") == "True";
    is_true == matches!(text(condition, "type"), "Conflicted" | "PartiallyInvalid")
}

fn tree(routes: &Value, params: &Params, bad: &BTreeSet<String>) -> Markup {
    let all = list(routes, "routes");
    html! {
        p.note { "As " (text(routes, "client")) " is served them at revision " (number(routes, "revision")) "." }
        @if all.is_empty() { p.empty { "There is no such route." } }
        @for (n, route) in all.iter().enumerate() {
            @let (listener, host) = (text(route, "listener"), text(route, "host"));
            @let before = n.checked_sub(1).map(|before| (text(&all[before], "listener"), text(&all[before], "host")));
            @if before.is_none_or(|before| before.0 != listener) {
                h2 { (listener) @if let Some(port) = route["port"].as_u64() { ", port " (port) } }
            }
            @if before != Some((listener, host)) {
                h3 {
                    @for domain in list(route, "domains") { (domain.as_str().unwrap_or_default()) " " }
                    @if list(route, "domains").iter().all(|domain| domain != host) { span.note { (host) } }
                }
            }
            (one(route, bad))
        }
        @if let Some(next) = routes["next"].as_str() {
            nav.pages aria-label="Pages" { a rel="next" href=(params.with("after", Some(next)).after("/routes")) { "Next" } }
        }
    }
}

fn one(route: &Value, bad: &BTreeSet<String>) -> Markup {
    html! {
        div.route {
            p {
                strong { (text(route, "path")) }
                @for condition in list(route, "conditions") { ", " (condition.as_str().unwrap_or_default()) }
                @if text(route, "action") != "forward" { " " (badge(Tone::Plain, text(route, "action"))) }
                " " span.note { (written(&route["place"])) }
                @if bad.contains(text(&route["place"], "document")) { " " (badge(Tone::Bad, "has a problem")) }
            }
            @for backend in list(route, "backends") { (self::backend(backend)) }
        }
    }
}

/// The object that a route was written in, with its place.
fn written(of: &Value) -> Markup {
    let mut words = text(of, "document").splitn(2, ' ');
    let (kind, whole) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (namespace, name) = whole.split_once('/').unwrap_or(("-", whole));
    html! {
        @if !whole.is_empty() { a href=(path(["routes", kind, namespace, name])) { (kind) " " (whole) } " " }
        (place(of))
    }
}

fn backend(backend: &Value) -> Markup {
    let endpoints = list(backend, "endpoints");
    let n = number(backend, "nEndpoints");
    html! {
        details {
            summary {
                (share(&backend["share"])) " to " (text(backend, "name")) " "
                @if backend["isServed"] == false { (badge(Tone::Bad, "not served")) }
                @else if n > 0 { span.note { (counted(n, "endpoint", "endpoints")) } }
            }
            ul { @for one in endpoints {
                li { (text(one, "address")) " " (text(one, "zone")) " "
                    @if text(one, "health") != "HEALTHY" && text(one, "health") != "UNKNOWN" { (badge(Tone::Warn, text(one, "health"))) } }
            } }
            @if n > endpoints.len() as u64 { p.note { (n - endpoints.len() as u64) " more." } }
        }
    }
}

fn share(ratio: &Value) -> String {
    match (ratio[0].as_f64(), ratio[1].as_f64()) {
        (Some(n), Some(of)) if of > 0.0 => crate::draw::percent(n / of * 100.0),
        _ => "a part".to_owned(),
    }
}

/// How many problems are listed.
const SHOWN: usize = 50;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_route_of_an_object_with_a_problem_is_marked_where_it_stands() {
        let condition = |status: &str| json!({"type": "ResolvedRefs", "status": status});
        let object = |name: &str, status: &str| {
            json!({"kind": "HTTPRoute", "namespace": "default", "name": name,
                "parents": [{"conditions": [condition("True"), condition(status)]}]})
        };
        let bad = with_problems(&json!({"objects": [object("shop", "False"), object("blog", "True")]}));
        let route =
            |document: &str| json!({"path": "/", "action": "forward", "place": {"document": document}});
        for (document, is_marked) in [("HTTPRoute default/shop", true), ("HTTPRoute default/blog", false)] {
            let text = one(&route(document), &bad).into_string();
            assert_eq!(text.contains("has a problem"), is_marked, "{document}: {text}");
        }
    }
}
