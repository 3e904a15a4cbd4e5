//! What forms ask for, as calls of the API.

use http::header::{CONTENT_TYPE, IF_MATCH};
use http::{HeaderName, Method};
use serde_json::{Map, Value, json};

use crate::path::{Params, path};
use crate::rest::{Failure, Rest, Visitor};

/// What was done.
#[derive(Debug)]
pub(crate) struct Done {
    /// In one sentence.
    pub(crate) said: String,
    /// The screen that shows it, if another one than before.
    pub(crate) to: Option<String>,
}

/// Carries out what a form asks for.
///
/// # Errors
///
/// The problem that the API tells, or that the form is not one of this page.
pub(crate) async fn carry_out(
    rest: &Rest,
    visitor: &Visitor,
    what: &str,
    form: &Params,
) -> Result<Done, Failure> {
    let call = async |method, path: &str, body, headers: &[(HeaderName, String)]| {
        rest.call(visitor, method, path, body, headers).await
    };
    match what {
        "weights" => {
            let (path, tag) = rule(form)?;
            let patch = (CONTENT_TYPE, "application/merge-patch+json".to_owned());
            let body = json!({"percent": shares(form)?});
            Ok(changed(&call(Method::PATCH, &path, Some(body), &[tag, patch]).await?))
        }
        "reset-weights" => {
            let (path, tag) = rule(form)?;
            Ok(changed(&call(Method::DELETE, &path, None, &[tag]).await?))
        }
        "rollout" => {
            let (id, verb) = verb(form, &["pause", "resume", "promote", "abort", "retry"])?;
            let body = (verb == "promote").then(|| json!({"full": true}));
            call(Method::POST, &format!("{}:{verb}", path(["v1", "rollouts", id])), body, &[]).await?;
            Ok(Done { said: format!("{verb}: done"), to: None })
        }
        "wave" => {
            let (id, verb) = verb(form, &["pause", "resume", "promote", "abort"])?;
            call(Method::POST, &format!("{}:{verb}", path(["v1", "waves", id])), None, &[]).await?;
            Ok(Done { said: format!("{verb}: done"), to: None })
        }
        "rollback" => {
            let revision = form.text("revision").parse::<u64>();
            let revision = revision.map_err(|_| Failure::bad("A rollback needs a revision."))?;
            let tag = (IF_MATCH, form.text("tag").to_owned());
            let tag = Some(tag).filter(|(_, tag)| !tag.is_empty());
            let body = json!({"revision": revision});
            Ok(changed(&call(Method::POST, "/v1/rollback", Some(body), tag.as_slice()).await?))
        }
        "release" => Ok(changed(&call(Method::POST, "/v1/tests:release", None, &[]).await?)),
        "reload" => {
            let confirms = form.get("confirm").is_some();
            call(Method::POST, &format!("/v1/reload?confirm={confirms}"), None, &[]).await?;
            Ok(Done { said: "The files were read again.".to_owned(), to: None })
        }
        _ => Err(Failure::no_screen()),
    }
}

/// A write that is answered with its revision.
fn changed(answer: &Value) -> Done {
    match (answer["changed"].as_bool(), answer["revision"].as_u64()) {
        (Some(false), _) | (_, None) => Done { said: "That changes nothing.".to_owned(), to: None },
        (_, Some(revision)) => Done {
            said: format!("This is revision {revision}."),
            to: Some(path(["changes", &revision.to_string()])),
        },
    }
}

/// The address of the rule that a form is about, and the tag of the weights that it showed.
fn rule(form: &Params) -> Result<(String, (HeaderName, String)), Failure> {
    let names = ["kind", "namespace", "name", "rule"].map(|name| form.get(name));
    let [Some(kind), Some(namespace), Some(name), Some(rule)] = names else {
        return Err(Failure::bad("The form does not say whose weights it changes."));
    };
    let tag = (IF_MATCH, format!("\"{}\"", form.text("tag").trim_matches('"')));
    Ok((path(["v1", "weights", kind, namespace, name, rule]), tag))
}

/// The shares that a form gives to backends. One that is left empty gets what the others leave.
fn shares(form: &Params) -> Result<Value, Failure> {
    let mut shares = Map::new();
    for (backend, written) in form.behind("percent.").filter(|(_, written)| !written.is_empty()) {
        let share = written.trim_end_matches('%').trim_end().replace(',', ".").parse::<f64>();
        let share = share.ok().filter(|share| (0.0..=100.0).contains(share));
        let share = share.ok_or_else(|| {
            Failure::bad(format!("{backend}: {written:?} is not a share between 0 and 100 %"))
        })?;
        shares.insert(backend.to_owned(), json!(share));
    }
    Ok(Value::Object(shares))
}

fn verb<'a>(form: &'a Params, known: &[&'a str]) -> Result<(&'a str, &'a str), Failure> {
    let verb = known.iter().find(|verb| **verb == form.text("verb"));
    match (form.get("id"), verb) {
        (Some(id), Some(verb)) => Ok((id, verb)),
        _ => Err(Failure::bad("The form does not say what it wants of what.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_numbers_between_none_and_all() {
        let form = |text| shares(&Params::read(text));
        assert_eq!(form("percent.a=12,5&percent.b=&x=1").unwrap(), json!({"a": 12.5}));
        assert_eq!(form("percent.a=100+%25").unwrap(), json!({"a": 100.0}));
        for wrong in ["percent.a=-1", "percent.a=101", "percent.a=x", "percent.a=NaN"] {
            assert!(form(wrong).is_err(), "{wrong}");
        }
    }
}
