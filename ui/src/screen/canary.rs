//! How do rollouts and wave deployments go, and should they go on?

use std::time::{Duration, SystemTime};

use maud::{Markup, html};
use serde_json::Value;
use xds_units::rfc3339;

use crate::draw::{
    Act, Line, Tone, badge, bar, bar_that_says, confirmed, node, object, percent, plot, revision, time,
};
use crate::page::{Area, Part, Screen};
use crate::path::{list as items, number, path, text};
use crate::rest::Failure;
use crate::screen::Ask;

pub(super) async fn list(ask: &Ask<'_>) -> Result<Screen, Failure> {
    let rollouts = ask.get("/v1/rollouts").await?;
    let waves = ask.get("/v1/waves").await?;
    let parts = vec![
        Part::new("rollouts", rollout_list(items(&rollouts, "rollouts"))),
        Part::new("waves", wave_list(items(&waves, "waveDeployments"))),
    ];
    Ok(Screen { title: "Canary".to_owned(), area: Area::Canary, head: html! {}, parts })
}

fn rollout_list(rollouts: &[Value]) -> Markup {
    let mut rollouts: Vec<&Value> = rollouts.iter().collect();
    rollouts.sort_by_key(|one| (has_ended(text(one, "phase")), std::cmp::Reverse(number(one, "sinceMs"))));
    html! {
        h2 { "Rollouts" }
        @if rollouts.is_empty() { p.empty { "There is none. " code { "xds-server rollout start" } " begins one." } }
        @for one in rollouts.iter().take(SHOWN) {
            article.panel {
                h3 { a href=(path(["canary", "rollouts", text(one, "id")])) { (text(&one["route"], "name")) ": " (text(one, "canary")) } " " (phase(text(one, "phase"))) }
                (weights(one))
                p { (text(one, "message")) }
            }
        }
        @if rollouts.len() > SHOWN { p.note { (rollouts.len() - SHOWN) " more are older." } }
    }
}

fn at(ms: u64) -> String {
    rfc3339(SystemTime::UNIX_EPOCH + Duration::from_millis(ms))
}

/// Returns `true` for a rollout that does nothing more by itself.
pub(super) fn has_ended(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Aborted" | "Failed")
}

fn phase(word: &str) -> Markup {
    let tone = match word {
        "Succeeded" | "completed" | "promoted" => Tone::Good,
        "Failed" | "held" | "reverted" => Tone::Bad,
        "Paused" | "Aborting" | "Aborted" | "paused" | "holding" => Tone::Warn,
        "Pending" | "Progressing" | "Promoting" | "progressing" => Tone::Busy,
        _ => Tone::Plain,
    };
    badge(tone, word)
}

/// The weights of stable and canary.
fn weights(one: &Value) -> Markup {
    let weight = |of: &str| one["weights"][of].as_f64().unwrap_or_default();
    let (stable, canary) = (weight("stable"), weight("canary"));
    // Weights have at most two decimals.
    let hundredths = |weight: f64| (weight * 100.0).round() as u64;
    let said = format!("{stable} % to stable, {canary} % to the canary");
    html! {
        (bar_that_says(&said, &[(Tone::Plain, hundredths(stable)), (Tone::Good, hundredths(canary))]))
        p { strong { (canary) " %" } " to " (text(one, "canary")) ", " strong { (stable) " %" } " to " (text(one, "stable"))
            "; step " (number(one, "step")) " of " (number(one, "nSteps")) }
    }
}

pub(super) async fn rollout(ask: &Ask<'_>, id: &str) -> Result<Screen, Failure> {
    let one = ask.get(&path(["v1", "rollouts", id])).await?;
    let series = ask.get(&path(["v1", "rollouts", id, "loads"])).await?;
    let back = path(["canary", "rollouts", id]);
    let head = html! {
        p { (object(&one["route"])) " rule " (text(&one["route"], "rule")) ": from " strong { (text(&one, "stable")) } " to " strong { (text(&one, "canary")) } }
    };
    let parts = vec![
        Part::new("state", state(&one)),
        Part::new("verbs", verbs(&one, id, &back)),
        Part::new("plots", plots(&series)),
        Part::new("events", events(&one)),
    ];
    Ok(Screen { title: format!("Rollout {id}"), area: Area::Canary, head, parts })
}

fn state(one: &Value) -> Markup {
    let acked = &one["acked"];
    let (of, n, nacked) = (number(acked, "of"), number(acked, "n"), number(acked, "nacked"));
    html! {
        p { (phase(text(one, "phase"))) " " (text(one, "message")) }
        (weights(one))
        h2 { "Who has these weights" }
        (bar(&[(Tone::Good, n, "acknowledged them"), (Tone::Bad, nacked, "reject them"), (Tone::Busy, of.saturating_sub(n + nacked), "pending")]))
        p { strong { (n) " of " (of) } " clients" }
        (verdict(one))
    }
}

/// The figures that the verdict is about.
fn verdict(one: &Value) -> Markup {
    let (heading, loads) = match (&one["loads"], &one["lastMeasurement"]) {
        (loads @ Value::Object(_), _) => {
            (format!("Requests of the last {} s", number(loads, "windowSeconds")), loads)
        }
        // Nothing is counted any more after the end.
        (_, last) => ("Requests of the last look".to_owned(), last),
    };
    let row = |name: &str, of: &Value| {
        html! {
            tr {
                th scope="row" { (name) }
                td { (number(of, "requests")) }
                td { (number(of, "failures")) }
                td { @match of["errorRate"].as_f64() { Some(rate) => (percent(rate * 100.0)), None => "unknown" } }
            }
        }
    };
    html! {
        @if loads.is_object() {
            h2 { (heading) }
            table {
                thead { tr { @for name in ["Backend", "Requests", "Failed", "Rate"] { th scope="col" { (name) } } } }
                tbody { (row(text(one, "canary"), &loads["canary"])) (row(text(one, "stable"), &loads["stable"])) }
            }
        }
        @if let Some(reason) = one["reason"].as_str() { p.said.failed { (reason) } }
        @if number(one, "failedMeasurements") > 0 { p.said.failed { (number(one, "failedMeasurements")) " measurements of this step failed" } }
        @if let Some(analysis) = one["spec"]["analysis"].as_object() {
            p.note { "It is judged by: " @for (name, value) in analysis { (name) " " (value) " " } }
        }
    }
}

fn verbs(one: &Value, id: &str, back: &str) -> Markup {
    let verb = |verb: &'static str, name: &'static str, is_grave: bool, why: &'static str| {
        let fields = [("id", id), ("verb", verb)];
        let act = Act { what: "rollout", name, confirm: name, is_grave, fields: &fields, to: back };
        confirmed(&act, &html! { p { (why) } })
    };
    let phase = text(one, "phase");
    html! {
        div.verbs {
            @if matches!(phase, "Progressing") { (verb("pause", "Pause", false, "The weights stay as they are until somebody resumes it.")) }
            @if phase == "Paused" { (verb("resume", "Resume", false, "It goes on with the next step.")) }
            @if matches!(phase, "Pending" | "Progressing" | "Paused" | "Promoting") {
                (verb("promote", "Promote", true, "All traffic goes to the canary now."))
            }
            @if !has_ended(phase) {
                (verb("abort", "Abort", true, "All traffic goes back to stable now."))
            }
            @if matches!(phase, "Aborted" | "Failed") { (verb("retry", "Retry", false, "It begins again with its first step.")) }
        }
    }
}

/// The plots of a rollout's requests. The last point is left out, because its time is not over: it would show a fall that is none.
fn plots(series: &Value) -> Markup {
    let points = items(series, "points");
    let points = points.split_last().map_or(points, |(_, whole)| whole);
    let each = number(series, "bucketSeconds").max(1);
    let seconds = each * points.len() as u64;
    let values = |of: &str, value: &dyn Fn(u64, u64) -> Option<f64>| -> Vec<Option<f64>> {
        points
            .iter()
            .map(|point| value(number(&point[of], "requests"), number(&point[of], "failures")))
            .collect()
    };
    let rate = |requests: u64, _| Some(requests as f64 / each as f64);
    let failures =
        |requests: u64, failures: u64| (requests > 0).then(|| failures as f64 / requests as f64 * 100.0);
    let lines = |value: &dyn Fn(u64, u64) -> Option<f64>| {
        [("stable", "stable"), ("canary", "canary")].map(|(name, class)| Line {
            name,
            class,
            values: values(name, value),
        })
    };
    let share: Vec<Option<f64>> = points
        .iter()
        .map(|point| {
            let [canary, stable] = ["canary", "stable"].map(|of| number(&point[of], "requests"));
            (canary + stable > 0).then(|| canary as f64 / (canary + stable) as f64 * 100.0)
        })
        .collect();
    let weight = points.iter().map(|point| point["weight"].as_f64()).collect();
    html! {
        @if !points.is_empty() {
            h2 { "Over time" }
            div.plots {
                (plot("Requests", "a second", &lines(&rate), seconds))
                (plot("Failed", "%", &lines(&failures), seconds))
                (plot("Share of the canary", "%", &[
                    Line { name: "weight", class: "weight", values: weight },
                    Line { name: "requests", class: "canary", values: share },
                ], seconds))
            }
        }
    }
}

fn events(one: &Value) -> Markup {
    html! {
        h2 { "What happened" }
        ol.events reversed { @for event in items(one, "events").iter().rev() {
            li { (time(&at(number(event, "atMs")))) " " (phase(text(event, "phase"))) " " (text(event, "message")) }
        } }
    }
}

fn wave_list(waves: &[Value]) -> Markup {
    html! {
        h2 { "Wave deployments" }
        @if waves.is_empty() { p.empty { "There is none. Any write begins one with " code { "?waves=1%,10%,100%" } "." } }
        @for one in waves {
            article.panel {
                h3 { a href=(path(["canary", "waves", &number(one, "id").to_string()])) { (text(one, "summary")) } " " (phase(text(one, "phase"))) }
                (members(one))
            }
        }
    }
}

pub(super) async fn wave(ask: &Ask<'_>, id: &str) -> Result<Screen, Failure> {
    let one = ask.get(&path(["v1", "waves", id])).await?;
    let back = path(["canary", "waves", id]);
    let verb = |verb: &'static str, name: &'static str, is_grave: bool, why: &'static str| {
        let fields = [("id", id), ("verb", verb)];
        let act = Act { what: "wave", name, confirm: name, is_grave, fields: &fields, to: &back };
        confirmed(&act, &html! { p { (why) } })
    };
    let word = text(&one, "phase");
    let state = html! {
        p { (phase(word)) " " (text(&one, "reason")) }
        (members(&one))
        dl.facts {
            dt { "Revision" } dd { (revision(number(&one, "id"))) }
            dt { "By" } dd { (text(&one, "actor")) }
            dt { "Began" } dd { (time(text(&one, "beganAt"))) }
            @if let Some(next) = one["nextAt"].as_str() { dt { "Next wave" } dd { (time(next)) } }
        }
        h2 { "Waves" }
        table {
            thead { tr { th scope="col" { "Share" } th scope="col" { "Revision" } } }
            tbody { @for step in items(&one, "waves") { tr { th scope="row" { (text(step, "share")) } td { (revision(number(step, "revision"))) } } } }
        }
    };
    let verbs = html! {
        div.verbs {
            @if matches!(word, "progressing" | "holding") { (verb("pause", "Pause", false, "No further node gets the change until somebody resumes it.")) }
            @if word == "paused" { (verb("resume", "Resume", false, "It goes on with the next wave.")) }
            @if word == "held" { (verb("resume", "Begin again", false, "It begins again with the first wave.")) }
            @if matches!(word, "progressing" | "holding" | "paused" | "held") { (verb("promote", "Promote", true, "All nodes get the change now.")) }
            @if matches!(word, "progressing" | "holding" | "paused") { (verb("abort", "Abort", true, "The nodes that have the change get what they had before.")) }
        }
    };
    let parts = vec![Part::new("state", state), Part::new("verbs", verbs)];
    Ok(Screen { title: text(&one, "summary").to_owned(), area: Area::Canary, head: html! {}, parts })
}

/// The clients of a wave deployment.
fn members(one: &Value) -> Markup {
    html! {
        (bar(&[
            (Tone::Good, number(one, "nAcked"), "acknowledged it"),
            (Tone::Bad, number(one, "nNacked"), "reject it"),
            (Tone::Busy, number(one, "nPending"), "pending"),
            (Tone::Plain, number(one, "nBehind"), "do not get it yet"),
        ]))
        p { @if let Some(share) = one["share"].as_str() { strong { (share) } " of the nodes have the change" } }
        @for nack in items(one, "nacked") { p.words { (node(text(nack, "node"))) ": " (text(nack, "message")) } }
    }
}

/// How many rollouts are listed.
const SHOWN: usize = 50;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rollout_that_failed_shows_why_and_the_figures_that_decided() {
        let figures = json!({"requests": 42, "failures": 40, "errorRate": 0.95});
        let rollout = json!({"phase": "Failed", "stable": "v1", "canary": "v2", "weights": {"stable": 100, "canary": 0},
            "reason": "40 of 42 requests of the canary failed", "lastMeasurement": {"canary": figures, "stable": figures},
            "acked": {"n": 1, "of": 1, "nacked": 0}});
        let text = state(&rollout).into_string();
        for said in ["40 of 42 requests of the canary failed", "Requests of the last look", "<td>42</td>"] {
            assert!(text.contains(said), "{said} in {text}");
        }
    }

    #[test]
    fn the_rate_is_that_of_the_last_interval_that_is_over() {
        let point = |requests: u64| {
            let load = json!({"requests": requests, "failures": 0});
            json!({"canary": load, "stable": load, "weight": 50.0})
        };
        let series = json!({"bucketSeconds": 10, "points": [point(100), point(120), point(0)]});
        let text = plots(&series).into_string();
        assert!(text.contains("stable 12 a second"), "{text}");
        assert_eq!(plots(&json!({"bucketSeconds": 10, "points": [point(7)]})).into_string(), "");
    }

    #[test]
    fn verbs_are_those_that_the_phase_allows() {
        for (phase, allowed) in [
            ("Pending", vec!["promote", "abort"]),
            ("Progressing", vec!["pause", "promote", "abort"]),
            ("Paused", vec!["resume", "promote", "abort"]),
            ("Promoting", vec!["promote", "abort"]),
            ("Aborting", vec!["abort"]),
            ("Aborted", vec!["retry"]),
            ("Succeeded", vec![]),
        ] {
            let text = verbs(&json!({"phase": phase}), "a", "/").into_string();
            let offered: Vec<&str> = text
                .split("name=\"verb\" value=\"")
                .skip(1)
                .filter_map(|rest| rest.split('"').next())
                .collect();
            assert_eq!(offered, allowed, "{phase}");
        }
    }

    #[test]
    fn a_panel_is_of_what_it_confirms() {
        let text = verbs(&json!({"phase": "Paused"}), "a", "/").into_string();
        for key in ["rollout?id=a&amp;verb=resume", "rollout?id=a&amp;verb=abort"] {
            assert!(text.contains(&format!("data-key=\"{key}\"")), "{key} in {text}");
        }
    }
}
