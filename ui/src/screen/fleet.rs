//! Which clients are worst off?

use maud::{Markup, html};
use serde_json::Value;

use crate::draw::{Tone, badge, bar, counted, node, revision, short_type, sorted_heading, time};
use crate::page::{Area, Part, Screen};
use crate::path::{Params, list, number, text};
use crate::rest::Failure;
use crate::screen::Ask;

/// The parameters of the list, as the API has them.
const FILTERS: [&str; 8] = ["search", "state", "group", "client", "cluster", "locality", "sort", "page"];

/// A state of a node.
struct State {
    /// As the API names it.
    key: &'static str,
    /// What one node does, and what many do.
    one: &'static str,
    many: &'static str,
    tone: Tone,
}

const fn state(key: &'static str, one: &'static str, many: &'static str, tone: Tone) -> State {
    State { key, one, many, tone }
}

const STATES: [State; 6] = [
    state("rejected", "rejects something", "reject something", Tone::Bad),
    state("heldBack", "held back", "held back", Tone::Warn),
    state("pending", "pending", "pending", Tone::Busy),
    state("unmatched", "in no group", "in no group", Tone::Warn),
    state("absent", "asks for what does not exist", "ask for what does not exist", Tone::Warn),
    state("acknowledged", "acknowledged", "acknowledged", Tone::Good),
];

pub(super) async fn screen(ask: &Ask<'_>) -> Result<Screen, Failure> {
    let params = ask.params.only(&FILTERS);
    let fleet = ask.get(&params.after("/v1/fleet")).await?;
    Ok(Screen {
        title: "Fleet".to_owned(),
        area: Area::Fleet,
        head: filters(&params),
        parts: vec![
            Part::new("counts", counts(&fleet, &params)),
            Part::new("nodes", nodes(&fleet, &params)),
            Part::new("values", values(&fleet, &params)),
        ],
    })
}

fn filters(params: &Params) -> Markup {
    html! {
        form.filters method="get" action="/" role="search" {
            label for="search" { "Search" }
            input #search type="search" name="search" value=(params.text("search")) placeholder="part of a node id";
            label for="state" { "State" }
            select #state name="state" {
                option value="" { "all" }
                @for state in &STATES {
                    option value=(state.key) selected[params.get("state") == Some(state.key)] { (state.many) }
                }
            }
            @for name in ["group", "client", "cluster", "locality", "sort"] {
                @if let Some(value) = params.get(name) { input type="hidden" name=(name) value=(value); }
            }
            button type="submit" { "Show" }
            @if params.only(&FILTERS) != Params::default() { a href="/" { "Clear" } }
        }
    }
}

fn counts(fleet: &Value, params: &Params) -> Markup {
    let of = |state: &str| number(&fleet["states"], state);
    let parts: Vec<(Tone, u64, &str)> =
        STATES.iter().map(|state| (state.tone, of(state.key), state.many)).collect();
    html! {
        (bar(&parts))
        ul.chips {
            li { strong { (number(fleet, "total")) } " connected, revision " (revision(number(fleet, "revision"))) }
            @for State { key, one, many, tone } in &STATES {
                @let n = of(key);
                @if n > 0 {
                    li {
                        a href=(params.with("page", None).with("state", Some(key)).after("/")) {
                            (badge(*tone, &n.to_string())) " " (if n == 1 { one } else { many })
                        }
                    }
                }
            }
        }
        @if let Some(missing) = fleet["replicas"]["missing"].as_array().filter(|missing| !missing.is_empty()) {
            p.said.failed {
                "Not counted, because they do not answer: "
                @for one in missing { (text(one, "id")) " " }
            }
        }
    }
}

fn nodes(fleet: &Value, params: &Params) -> Markup {
    let found = list(fleet, "nodes");
    let sorted = |key, name| sorted_heading(params, "/", (key, key == "worst"), name);
    html! {
        @if found.is_empty() {
            p.empty { @if number(fleet, "total") == 0 { "No client is connected." } @else { "No node fits." } }
        } @else {
            div.wide tabindex="0" role="group" aria-label="Table" {
                table {
                    caption { (counted(number(fleet, "found"), "node", "nodes")) }
                    thead { tr {
                        (sorted("id", "Node"))
                        (sorted("worst", "State"))
                        th scope="col" { "Since" }
                        (sorted("revision", "Revision"))
                        (sorted("reconnects", "Came back"))
                        th scope="col" { "Software" }
                        th scope="col" { "Locality" }
                        th scope="col" { "Groups" }
                    } }
                    tbody { @for one in found { (row(one)) } }
                }
            }
            (pages(fleet, params))
        }
    }
}

fn row(one: &Value) -> Markup {
    let state = STATES.iter().find(|state| state.key == text(one, "state"));
    let key = |part: &str| format!("{part} {} {}", text(one, "replica"), text(one, "id"));
    html! {
        tr data-key=(key("")) {
            th scope="row" { (node(text(one, "id"))) @if let Some(replica) = one["replica"].as_str() { " at " (replica) } }
            td { @if let Some(state) = state { (badge(state.tone, state.one)) } }
            td { (time(text(one, "since"))) }
            td {
                @match one["revision"].as_u64() { Some(n) => (revision(n)), None => "none" }
                @if let Some(newest) = one["newest"].as_u64().filter(|newest| number(one, "revision") < *newest) { " of " (revision(newest)) }
            }
            td { @if number(one, "reconnects") > 0 { (counted(number(one, "reconnects"), "time", "times")) } }
            td { (text(one, "client")) }
            td { (text(one, "locality")) }
            td { @for group in list(one, "groups") { (group.as_str().unwrap_or_default()) " " } }
        }
        @if let Some(words) = one["rejection"].as_str() {
            tr.more data-key=(key("rejected")) { td colspan="8" {
                strong { (short_type(text(one, "rejectedType"))) " " } span.words { (words) }
            } }
        }
        @if number(one, "heldBack") > 0 {
            tr.more data-key=(key("held")) { td colspan="8" { (counted(number(one, "heldBack"), "change is held back", "changes are held back")) } }
        }
    }
}

fn pages(fleet: &Value, params: &Params) -> Markup {
    let page: u64 = params.text("page").parse().unwrap_or(1);
    let last = number(fleet, "found").div_ceil(PER_PAGE).min(LAST_PAGE);
    let to = |page: u64| params.with("page", Some(&page.to_string())).after("/");
    html! {
        @if last > 1 {
            nav.pages aria-label="Pages" {
                @if page > 1 { a rel="prev" href=(to(page - 1)) { "Back" } }
                span { "Page " (page) " of " (last) }
                @if page < last { a rel="next" href=(to(page + 1)) { "Next" } }
            }
        }
    }
}

fn values(fleet: &Value, params: &Params) -> Markup {
    let columns =
        [("client", "Software"), ("locality", "Locality"), ("cluster", "Cluster"), ("group", "Group")];
    html! {
        div.columns {
            @for (key, name) in columns {
                @let counts = list(&fleet["by"], key);
                @if !counts.is_empty() {
                    div {
                        h2 { (name) }
                        ul.counts { @for count in counts {
                            @let value = text(count, "value");
                            li {
                                span { (number(count, "n")) }
                                @if value.is_empty() { "none" } @else {
                                    a href=(params.with("page", None).with(key, Some(value)).after("/")) { (value) }
                                }
                            }
                        } }
                    }
                }
            }
        }
    }
}

/// As the API has them if nobody says otherwise.
const PER_PAGE: u64 = 100;

/// The API lists no more than ten of these.
const LAST_PAGE: u64 = 10;
