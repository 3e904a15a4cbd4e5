//! Path templates such as `/users/{id}/**` (row D119).

use std::collections::HashSet;

use super::super::any::type_of;
use super::super::rule::{Scope, has};
use super::shared::refuse;
use crate::diagnostic::echo;
use crate::encode::decode_any;
use crate::message::{Message, child, text};
use crate::path::Path;

const ROW: (&str, &str) = ("D119", "envoy-path-template");

/// Checks the template of a route's match, and the rewrite that goes with it.
pub(super) fn route(route: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let extension = |message: Option<Message>, field: &str, kind: &str, scope: &Scope<'_>| {
        let any = child(&child(&message?, field)?, "typed_config")?;
        if type_of(scope.inner, &any) != kind { None } else { decode_any(scope.inner, &any) }
    };
    let template = extension(child(route, "match"), "path_match_policy", MATCH, scope);
    let template = template.and_then(|it| text(&it, "path_template"));
    let mut known = None;
    if let Some(template) = &template {
        match variables(template) {
            Ok(variables) => known = Some(variables),
            Err(wrong) => {
                let text = format!("Envoy rejects the path template {}: {wrong}", echo(template));
                refuse(ROW, path, "match.path_match_policy.typed_config.path_template", text, scope);
            }
        }
    }
    let Some(action) = child(route, "route") else { return };
    let action_path = path.field("route");
    if template.is_some() && has(&action, "prefix_rewrite") {
        let text = "Envoy rejects `prefix_rewrite` for a path template; use `path_rewrite_policy`";
        refuse(ROW, &action_path, "prefix_rewrite", text, scope);
    }
    let Some(rewrite) = extension(Some(action), "path_rewrite_policy", REWRITE, scope) else { return };
    let Some(rewrite) = text(&rewrite, "path_template_rewrite") else { return };
    let field = "path_rewrite_policy.typed_config.path_template_rewrite";
    if template.is_none() {
        return refuse(
            ROW,
            &action_path,
            field,
            "Envoy rejects a rewrite by template of a path that is not matched by one",
            scope,
        );
    }
    match rewritten(&rewrite) {
        Err(wrong) => {
            let text = format!("Envoy rejects the rewrite {}: {wrong}", echo(&rewrite));
            refuse(ROW, &action_path, field, text, scope);
        }
        Ok(used) => {
            let unknown = known.and_then(|known| used.into_iter().find(|name| !known.contains(name)));
            if let Some(name) = unknown {
                let text = format!(
                    "Envoy rejects a rewrite with the variable {}, which the template does not have",
                    echo(&name)
                );
                refuse(ROW, &action_path, field, text, scope);
            }
        }
    }
}

/// The names of the variables of a template.
fn variables(template: &str) -> Result<HashSet<String>, String> {
    if let Some(wrong) = template.chars().find(|c| !is_path(*c) && !"{}".contains(*c)) {
        return Err(format!("{} is no character of a path", echo(&wrong.to_string())));
    }
    let Some(rest) = template.strip_prefix('/') else { return Err("it must begin with `/`".to_owned()) };
    let mut names = HashSet::new();
    if rest.is_empty() {
        return Ok(names);
    }
    let mut segments = split(rest)?;
    if segments.last().is_some_and(String::is_empty) {
        segments.pop();
    }
    for segment in segments {
        if segment.is_empty() {
            return Err("it has an empty segment".to_owned());
        }
        let mut rest = segment.as_str();
        while let Some((before, inside)) = rest.split_once('{') {
            literal(before)?;
            let Some((variable, after)) = inside.split_once('}') else {
                return Err("`{` is never closed".to_owned());
            };
            let (name, pattern) =
                variable.split_once('=').map_or((variable, None), |(name, it)| (name, Some(it)));
            variable_name(name)?;
            match pattern {
                Some("") => return Err(format!("the variable {} has an empty pattern", echo(name))),
                Some(pattern) => pattern.split('/').try_for_each(|one| {
                    if one.is_empty() {
                        Err("a pattern has an empty segment".to_owned())
                    } else {
                        literal(one)
                    }
                })?,
                None => {}
            }
            if !names.insert(name.to_owned()) {
                return Err(format!("the variable {} is there twice", echo(name)));
            }
            rest = after;
        }
        literal(rest)?;
    }
    if names.len() > MAX_VARIABLES {
        return Err(format!("it has {} variables; the limit is {MAX_VARIABLES}", names.len()));
    }
    Ok(names)
}

/// Splits at slashes outside of braces.
fn split(text: &str) -> Result<Vec<String>, String> {
    let mut segments = vec![String::new()];
    let mut is_inside = false;
    for character in text.chars() {
        match character {
            '{' if is_inside => return Err("`{` is in another one".to_owned()),
            '{' => is_inside = true,
            '}' => is_inside = false,
            '/' if !is_inside => {
                segments.push(String::new());
                continue;
            }
            _ => {}
        }
        segments.last_mut().into_iter().for_each(|last| last.push(character));
    }
    Ok(segments)
}

fn literal(text: &str) -> Result<(), String> {
    match text.chars().find(|c| "{}?#".contains(*c)) {
        Some(wrong) => Err(format!("`{wrong}` cannot be in a path")),
        None => Ok(()),
    }
}

fn variable_name(name: &str) -> Result<(), String> {
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    match is_name {
        true if name.len() <= MAX_NAME => Ok(()),
        true => Err(format!("the name {} has more than {MAX_NAME} characters", echo(name))),
        false => {
            Err(format!("{} is no name of a variable: letters, digits and `_` after a letter", echo(name)))
        }
    }
}

/// The names of the variables of a rewrite.
fn rewritten(rewrite: &str) -> Result<Vec<String>, String> {
    if let Some(wrong) = rewrite.chars().find(|c| !is_path(*c) && !"{}".contains(*c)) {
        return Err(format!("{} is no character of a path", echo(&wrong.to_string())));
    }
    if !rewrite.starts_with('/') || rewrite.contains("//") {
        return Err("it must begin with `/`, and have no `//`".to_owned());
    }
    let mut names = Vec::new();
    let mut rest = rewrite;
    while let Some((before, inside)) = rest.split_once('{') {
        literal(before)?;
        let Some((name, after)) = inside.split_once('}') else {
            return Err("`{` is never closed".to_owned());
        };
        variable_name(name)?;
        names.push(name.to_owned());
        rest = after;
    }
    literal(rest)?;
    Ok(names)
}

/// Returns `true` for the characters that a path of a URL may have, with those of templates.
fn is_path(character: char) -> bool {
    character.is_ascii_alphanumeric() || "/-._~!$&'()*+,;=:@%?#".contains(character)
}

const MATCH: &str = "envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig";
const REWRITE: &str = "envoy.extensions.path.rewrite.uri_template.v3.UriTemplateRewriteConfig";
const MAX_VARIABLES: usize = 5;
const MAX_NAME: usize = 16;
