//! `documents` and `delete`: lists the route documents of files and API, and deletes the API's.

use http::Method;
use serde_json::Value;

use super::connection::{AdminArgs, segment};
use super::writes::{Change, WriteFlags, split_object};
use crate::failure::Failure;
use crate::output::{Table, cell, items, print_in, print_list};

/// The flags of `documents`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DocumentsArgs {
    /// Only documents of this kind, such as HTTPRoute
    #[arg(value_name = "KIND")]
    kind: Option<String>,
    /// Only this document, in full
    #[arg(value_name = "[NAMESPACE/]NAME", requires = "kind")]
    object: Option<String>,
    /// Only documents of this namespace
    #[arg(long, value_name = "NAMESPACE", conflicts_with = "object")]
    namespace: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
}

/// The flags of `delete`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DeleteArgs {
    /// The kind of the document, such as HTTPRoute
    #[arg(value_name = "KIND")]
    kind: String,
    /// The document; without a namespace, the namespace default is used if the kind has namespaces
    #[arg(value_name = "[NAMESPACE/]NAME")]
    object: String,
    #[command(flatten)]
    write: WriteFlags,
}

pub(crate) fn documents(args: &DocumentsArgs) -> Result<(), Failure> {
    let admin = args.admin.connect()?;
    if let (Some(kind), Some(object)) = (&args.kind, &args.object) {
        let document = admin.get(&path_of(kind, object)?)?;
        return print_in(args.admin.output, &document, || in_full(&document));
    }
    let filters = [("kind", &args.kind), ("namespace", &args.namespace)];
    let filters: Vec<String> = filters
        .iter()
        .filter_map(|(key, value)| Some(format!("{key}={}", segment(value.as_ref()?))))
        .collect();
    let found = admin.get_pages(&format!("/v1/documents?{}", filters.join("&")), "documents")?;
    print_list(args.admin.output, &found, || list(&found))
}

pub(crate) fn delete(args: &DeleteArgs) -> Result<(), Failure> {
    let path = path_of(&args.kind, &args.object)?;
    args.write.send(Change { method: Method::DELETE, path: &path, headers: &[], body: None })
}

fn path_of(kind: &str, object: &str) -> Result<String, Failure> {
    let (namespace, name) = split_object(kind, object)?;
    Ok(format!("/v1/documents/{}/{}/{}", segment(kind), segment(namespace), segment(name)))
}

fn list(found: &Value) -> Table {
    let mut table = Table::new(&["DOCUMENT", "GROUP", "SOURCE", "GENERATION", "FILE"]);
    for document in items(&found["documents"]) {
        table.push(vec![
            name(document),
            cell(&document["group"]),
            source(document),
            cell(&document["generation"]),
            place(document),
        ]);
    }
    table
}

fn in_full(document: &Value) -> String {
    let mut table = Table::new(&["DOCUMENT", &name(document)]);
    for (label, text) in [
        ("GROUP", cell(&document["group"])),
        ("SOURCE", source(document)),
        ("GENERATION", cell(&document["generation"])),
        ("FILE", place(document)),
    ] {
        table.push(vec![label.to_owned(), text]);
    }
    let text = format!("{:#}", document["document"]);
    format!("{}\n{}\n", table.render(), xds_units::escape::clean_lines(&text))
}

fn name(document: &Value) -> String {
    let [kind, name] = ["kind", "name"].map(|key| cell(&document[key]));
    match document["namespace"].as_str() {
        None | Some("-") => format!("{kind} {name}"),
        Some(namespace) => format!("{kind} {namespace}/{name}"),
    }
}

fn source(document: &Value) -> String {
    let hides = if document["overridden"] == true { " (over a file's)" } else { "" };
    format!("{}{hides}", cell(&document["source"]))
}

fn place(document: &Value) -> String {
    let file = &document["file"];
    match file["path"].as_str() {
        Some(path) => format!("{path}:{}:{}", cell(&file["line"]), cell(&file["column"])),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_is_one_row_with_its_place() {
        let found = json!({"documents": [
            {"kind": "HTTPRoute", "namespace": "prod", "name": "shop", "group": "edge", "generation": 2, "source": "api",
                "overridden": true, "file": {"path": "a\u{1b}.yaml", "line": 3, "column": 1}},
            {"kind": "GatewayClass", "namespace": "-", "name": "c", "group": "default", "generation": 1, "source": "file",
                "overridden": false},
        ]});
        assert_eq!(
            list(&found).render(),
            "DOCUMENT             GROUP    SOURCE               GENERATION  FILE\n\
             HTTPRoute prod/shop  edge     api (over a file's)  2           a\\u{1b}.yaml:3:1\n\
             GatewayClass c       default  file                 1           -\n"
        );
    }

    #[test]
    fn a_name_alone_is_in_the_namespace_that_its_kind_has() {
        let path = |kind, object| path_of(kind, object).map_err(|failure| failure.to_string());
        assert_eq!(path("HTTPRoute", "a b"), Ok("/v1/documents/HTTPRoute/default/a%20b".to_owned()));
        assert_eq!(path("GatewayClass", "c"), Ok("/v1/documents/GatewayClass/-/c".to_owned()));
        assert_eq!(path("HTTPRoute", "p/a"), Ok("/v1/documents/HTTPRoute/p/a".to_owned()));
        assert!(path("HTTPRoute", "/a").unwrap_err().contains("NAMESPACE/NAME"));
    }
}
