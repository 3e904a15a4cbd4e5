//! Where does a request go, and why not elsewhere?

use maud::{Markup, html};
use serde_json::{Map, Value, json};

use crate::page::{Area, Screen, problem};
use crate::path::{Params, list, text};
use crate::rest::Failure;
use crate::screen::Ask;

/// The fields of a request that are texts.
const TEXTS: [&str; 4] = ["host", "path", "method", "call"];

pub(super) async fn screen(ask: &Ask<'_>) -> Result<Screen, Failure> {
    let params = &ask.params;
    let is_asked = TEXTS.iter().chain(&["target", "curl"]).any(|name| params.get(name).is_some());
    let answers = if is_asked { answers(ask).await } else { vec![] };
    let head = html! {
        (form(params))
        @if !answers.is_empty() {
            div.columns { @for (name, answer) in &answers { div.answer { h2 { (name) } (answer) } } }
        }
    };
    Ok(Screen { title: "Try a request".to_owned(), area: Area::Try, head, parts: vec![] })
}

fn form(params: &Params) -> Markup {
    let field = |name: &str, label: &str, example: &str| {
        html! {
            div.field {
                label for=(name) { (label) }
                input id=(name) name=(name) value=(params.text(name)) placeholder=(example);
            }
        }
    };
    html! {
        form.panel method="get" action="/try" {
            fieldset {
                legend { "The request" }
                (field("host", "Host", "shop.example.com"))
                (field("path", "Path", "/cart?x=1"))
                (field("method", "Method", "GET"))
                div.field {
                    label for="headers" { "Headers" }
                    textarea #headers name="headers" rows="3" placeholder="x-beta: on" { (params.text("headers")) }
                }
                (field("call", "or a gRPC call", "package.Service/Method"))
                (field("target", "of a gRPC client with the target", "xds:///greeter"))
                (field("curl", "or a curl command", "curl -H 'x-beta: on' http://…"))
            }
            fieldset {
                legend { "Who asks" }
                (field("node", "Node", "edge-1"))
                (field("group", "or group", "default"))
                (field("client", "Client", "envoy, grpc, grpc-go@1.80"))
            }
            fieldset {
                legend { "When" }
                (field("at", "Revision", "current"))
                (field("beside", "Beside revision", ""))
                label.check { input type="checkbox" name="all" value="1" checked[params.get("all").is_some()]; " also routes whose path does not fit" }
            }
            button type="submit" { "Explain" }
        }
    }
}

/// The answer of one state, or of two side by side.
async fn answers(ask: &Ask<'_>) -> Vec<(String, Markup)> {
    let mut answers = Vec::new();
    let wanted = [Some(ask.params.get("at").unwrap_or("current")), ask.params.get("beside")];
    for at in wanted.into_iter().flatten() {
        let answer = match explain(ask, at).await {
            Ok(answer) => html! {
                @if let Some(said) = answer["text"].as_str() { pre tabindex="0" { (said) } }
                @for gap in list(&answer, "gaps") { p.note { (gap.as_str().unwrap_or_else(|| text(gap, "detail"))) } }
            },
            Err(failure) => problem(&failure),
        };
        let name = if at == "current" { "Now".to_owned() } else { format!("Revision {at}") };
        answers.push((name, answer));
    }
    answers
}

async fn explain(ask: &Ask<'_>, at: &str) -> Result<Value, Failure> {
    let params = &ask.params;
    let mut question = Map::new();
    for name in ["node", "group"] {
        if let Some(value) = params.get(name) {
            question.insert(name.to_owned(), value.into());
        }
    }
    if let Some(clients) = params.get("client") {
        let clients: Vec<&str> = clients.split([',', ' ']).filter(|client| !client.is_empty()).collect();
        question.insert("clients".to_owned(), json!(clients));
    }
    if at != "current" {
        let revision = at.parse::<u64>().map_err(|_| Failure::bad(format!("{at:?} is not a revision")))?;
        question.insert("at".to_owned(), revision.into());
    }
    question.insert("request".to_owned(), request(params)?);
    let path = format!("/v1/explain?text=true&all={}", params.get("all").is_some());
    ask.rest.ask(ask.visitor, &path, Value::Object(question)).await
}

fn request(params: &Params) -> Result<Value, Failure> {
    let mut request = Map::new();
    for name in TEXTS.iter().chain(&["target", "curl"]) {
        if let Some(value) = params.get(name) {
            request.insert((*name).to_owned(), value.into());
        }
    }
    let mut headers: Map<String, Value> = Map::new();
    for line in params.text("headers").lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| Failure::bad(format!("{line:?} is not a header: write name: value")))?;
        let values = headers.entry(name.trim().to_owned()).or_insert_with(|| json!([]));
        if let Value::Array(values) = values {
            values.push(value.trim().into());
        }
    }
    if !headers.is_empty() {
        request.insert("headers".to_owned(), Value::Object(headers));
    }
    Ok(Value::Object(request))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_becomes_a_request() {
        let params = Params::read("host=a.test&path=&headers=x-a%3A+1%0D%0Ax-a%3A2%0D%0A%0D%0Ax-b%3A");
        let wanted = json!({"host": "a.test", "headers": {"x-a": ["1", "2"], "x-b": [""]}});
        assert_eq!(request(&params).unwrap(), wanted);
        assert!(request(&Params::read("headers=x")).is_err());
    }
}
