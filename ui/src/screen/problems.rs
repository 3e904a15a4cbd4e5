//! What needs attention?

use std::time::{Duration, SystemTime};

use maud::{Markup, html};
use serde_json::Value;
use xds_units::parse_rfc3339;

use crate::draw::{Act, Tone, badge, confirmed, counted, node, time};
use crate::page::{Area, Part, Screen};
use crate::path::{list, number, text};
use crate::rest::Failure;
use crate::screen::Ask;

pub(super) async fn screen(ask: &Ask<'_>) -> Result<Screen, Failure> {
    let health = ready(ask).await?;
    let files = ask.seen("/v1/status/files").await?;
    let unmatched = ask.get("/v1/fleet?state=unmatched").await?;
    let rejecting = ask.get("/v1/fleet?state=rejects").await?;
    let tests = ask.seen("/v1/tests").await?;
    let certificates = ask.seen("/v1/certificates").await?;
    let parts = vec![
        Part::new("health", problems(&health)),
        Part::new("held", held(&files, &tests)),
        Part::new("files", errors(&files)),
        Part::new("clients", clients(&rejecting, &unmatched)),
        Part::new("certificates", expiring(&certificates)),
        Part::new("refused", refused(&health)),
    ];
    Ok(Screen { title: "Problems".to_owned(), area: Area::Problems, head: html! {}, parts })
}

/// The health, also of a server that is not ready.
async fn ready(ask: &Ask<'_>) -> Result<Value, Failure> {
    match ask.get("/readyz").await {
        Err(failure) if failure.status == http::StatusCode::SERVICE_UNAVAILABLE => {
            let problems: Vec<String> =
                if failure.faults.is_empty() { vec![failure.detail] } else { failure.faults };
            Ok(serde_json::json!({ "problems": problems }))
        }
        other => other,
    }
}

fn problems(health: &Value) -> Markup {
    html! {
        h2 { "The server" }
        @if list(health, "problems").is_empty() { p.empty { "Nothing needs attention." } }
        @for one in list(health, "problems") { p.said.failed { (one.as_str().unwrap_or_default()) } }
    }
}

fn held(files: &Value, tests: &Value) -> Markup {
    let reload = Act {
        what: "reload",
        name: "Publish it anyway",
        confirm: "Publish it",
        is_grave: true,
        fields: &[("confirm", "1")],
        to: "/problems",
    };
    let release = Act {
        what: "release",
        name: "Publish it anyway",
        confirm: "Publish it",
        is_grave: true,
        fields: &[],
        to: "/problems",
    };
    html! {
        @if let Some(why) = files["held"].as_str() {
            h2 { "A load of files is held back" }
            p.said.failed { (why) }
            (confirmed(&reload, &html! { p { "Clients lose what the files no longer have." } }))
        }
        @if tests["held"].is_object() {
            h2 { "RouteTests hold a change" }
            p.said.failed { (text(&tests["held"], "reason")) }
            (confirmed(&release, &html! { p { "Clients get the change although tests fail." } }))
        }
        @if number(tests, "failed") > 0 { p { (number(tests, "failed")) " of " (number(tests, "failed") + number(tests, "passed")) " RouteTests fail." } }
    }
}

fn errors(files: &Value) -> Markup {
    let broken: Vec<&Value> =
        list(files, "files").iter().filter(|file| !list(file, "diagnostics").is_empty()).collect();
    html! {
        h2 { "Files" }
        @if broken.is_empty() {
            p.empty { @if files["next"].is_null() { "No file has an error or a warning." } @else { "The first " (list(files, "files").len()) " files have no error and no warning." } }
        }
        @for file in broken.iter().take(SHOWN) {
            h3 { code { (text(file, "path")) } }
            @if file["lastGood"] == true { p.note { "What was good in it before is served." } }
            ul { @for one in list(file, "diagnostics") {
                li.(text(one, "severity")) { "line " (number(one, "line")) ", column " (number(one, "column")) ": " span.words { (text(one, "detail")) } }
            } }
        }
        @if broken.len() > SHOWN { p.note { (broken.len() - SHOWN) " more files." } }
    }
}

fn clients(rejecting: &Value, unmatched: &Value) -> Markup {
    html! {
        h2 { "Clients" }
        @if number(rejecting, "found") == 0 && number(unmatched, "found") == 0 { p.empty { "No client rejects anything, and all are matched." } }
        @if number(rejecting, "found") > 0 {
            h3 { (counted(number(rejecting, "found"), "rejects something", "reject something")) }
            ul { @for one in list(rejecting, "nodes").iter().take(SHOWN) {
                li { (node(text(one, "id"))) " " (time(text(one, "since"))) ": " span.words { (text(one, "rejection")) } }
            } }
        }
        @if number(unmatched, "found") > 0 {
            h3 { (counted(number(unmatched, "found"), "is matched by no group", "are matched by no group")) }
            ul { @for one in list(unmatched, "nodes").iter().take(SHOWN) { li { (node(text(one, "id"))) } } }
        }
    }
}

fn expiring(certificates: &Value) -> Markup {
    html! {
        @if !list(certificates, "certificates").is_empty() {
            h2 { "Certificates" }
            table {
                thead { tr { @for name in ["Port", "For", "Ends"] { th scope="col" { (name) } } } }
                tbody { @for one in list(certificates, "certificates") {
                    tr { th scope="row" { (text(one, "port")) } td { (text(one, "part")) } td { (time(text(one, "ends"))) " " (urgency(text(one, "ends"), SystemTime::now())) } }
                } }
            }
        }
    }
}

/// Says so if a certificate has ended, or ends within a week.
fn urgency(ends: &str, now: SystemTime) -> Markup {
    let left = parse_rfc3339(ends).map(|ends| ends.duration_since(now));
    html! {
        @match left {
            Some(Err(_)) => (badge(Tone::Bad, "ended")),
            Some(Ok(left)) if left < SOON => (badge(Tone::Warn, "soon")),
            _ => {}
        }
    }
}

fn refused(health: &Value) -> Markup {
    html! {
        @if !list(health, "refused").is_empty() {
            h2 { "Clients and requests that were refused in the last five minutes" }
            table {
                thead { tr { @for name in ["Limit", "Reason", "How often", "Last"] { th scope="col" { (name) } } } }
                tbody { @for one in list(health, "refused") {
                    tr { th scope="row" { code { (text(one, "limit")) } } td { (text(one, "reason")) } td { (number(one, "count")) } td { (time(text(one, "lastAt"))) } }
                } }
            }
        }
    }
}

/// When a certificate should have been replaced.
const SOON: Duration = Duration::from_secs(7 * 86_400);

/// How many of a kind are listed.
const SHOWN: usize = 50;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_that_tests_hold_can_be_released() {
        let tests = json!({"held": {"reason": "a test fails"}, "failed": 1, "passed": 2});
        let text = held(&json!({}), &tests).into_string();
        assert!(text.contains("a test fails") && text.contains("/ui/do/release"), "{text}");
        assert_eq!(held(&json!({"held": null}), &json!({"held": null})).into_string(), "");
    }

    #[test]
    fn certificates_that_end_soon_or_have_ended_are_marked() {
        let now = parse_rfc3339("2026-11-28T00:00:00Z").unwrap();
        for (ends, said) in [
            ("2026-11-27T00:00:00Z", "ended"),
            ("2026-12-04T00:00:00Z", "soon"),
            ("2026-12-06T00:00:00Z", ""),
            ("never", ""),
        ] {
            let text = urgency(ends, now).into_string();
            assert_eq!((text.contains(said), text.is_empty()), (true, said.is_empty()), "{ends}: {text}");
        }
    }

    #[test]
    fn loads_that_are_held_unmatched_nodes_certificates_and_refusals_are_seen() {
        let files = json!({"held": "27 of 30 resources would go"});
        assert!(held(&files, &Value::Null).into_string().contains("27 of 30 resources would go"));
        let unmatched = json!({"found": 2, "nodes": [{"id": "edge-1"}, {"id": "edge-2"}]});
        let text = clients(&json!({"found": 0}), &unmatched).into_string();
        assert!(text.contains("2 are matched by no group") && text.contains("edge-2"), "{text}");
        let list =
            json!({"certificates": [{"port": "xds", "part": "certificate", "ends": "2026-01-01T00:00:00Z"}]});
        let text = expiring(&list).into_string();
        assert!(text.contains("ended") && text.contains("xds"), "{text}");
        let health = json!({"refused": [{"limit": "--max-streams", "reason": "streams", "count": 3, "lastAt": "2026-01-01T00:00:00Z"}]});
        let text = refused(&health).into_string();
        assert!(text.contains("--max-streams") && text.contains("<td>3</td>"), "{text}");
    }
}
