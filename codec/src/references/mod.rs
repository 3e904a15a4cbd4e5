//! References of resources: the cluster of a route, the secret of a listener (row A127).
//!
//! [`table::ROWS`] lists the fields that refer to resources, with the type of the target. Messages are found anywhere in a resource, also
//! inside `Any`s.

use xds_cache::{Name, Reference, References, ResourceKey, ResourceType};

use crate::inner::Inner;
use crate::message::{Message, child, enum_number, text, texts};
use crate::path::Path;
use crate::walk::walk;

mod table;

use table::{ROWS, Row, Served};

/// The references of a message, in the order of its fields.
///
/// # Errors
///
/// Returns the limit if there are more than [`MAX_REFERENCES`] plus one for every 16 bytes of the message.
pub(crate) fn find(inner: &Inner, key: &ResourceKey, message: &Message) -> Result<References, usize> {
    Ok(all(inner, message)?.into_iter().filter(|reference| *reference.to != *key).collect())
}

/// Like [`find`], but unsorted, and including references of the resource to itself.
///
/// # Errors
///
/// As [`find`].
pub(crate) fn all(inner: &Inner, message: &Message) -> Result<Vec<Reference>, usize> {
    let most = MAX_REFERENCES + message.bytes().len() / 16;
    let mut found = Found { list: Vec::new(), most };
    walk(inner, message, &mut |path, message| of_message(message, path, &mut found));
    if found.list.len() > most { Err(most) } else { Ok(found.list) }
}

/// Collects references.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) list: Vec<Reference>,
    /// The limit plus one; 0 by default.
    pub(crate) most: usize,
}

impl Found {
    fn push(&mut self, reference: Reference) {
        if self.list.len() <= self.most {
            self.list.push(reference);
        }
    }
}

/// The limit of references of a short resource. A reference takes some 150 bytes of memory, but only four in a list of clusters.
const MAX_REFERENCES: usize = 10_000;

/// The references of one message, without nested messages, but including references to the resource itself.
pub(crate) fn of_message(message: &Message, path: &Path<'_>, found: &mut Found) {
    for row in rows_of(message.name()) {
        follow(row, message, path, found);
    }
    match message.name() {
        "envoy.config.cluster.v3.Cluster" => {
            load_assignment(message, path).into_iter().for_each(|one| found.push(one));
        }
        "envoy.config.route.v3.RouteConfiguration" => {
            virtual_hosts(message, path).into_iter().for_each(|one| found.push(one));
        }
        _ => {}
    }
}

fn rows_of(message: &str) -> &'static [Row] {
    let start = ROWS.partition_point(|row| row.message < message);
    let rows = ROWS.get(start..).unwrap_or_default();
    let n_rows = rows.iter().take_while(|row| row.message == message).count();
    rows.get(..n_rows).unwrap_or_default()
}

fn follow(row: &Row, message: &Message, path: &Path<'_>, found: &mut Found) {
    let is_served = match row.served {
        Served::Always => true,
        Served::By(source) => child(message, source).is_some_and(|source| is_xds(&source)),
    };
    if !is_served {
        return;
    }
    let path = path.field(row.field);
    if row.field == table::ALL {
        found.push(reference(&row.to, "*", &path));
    }
    if let Some(name) = text(message, row.field) {
        found.push(reference(&row.to, &name, &path));
    }
    for (index, name) in texts(message, row.field).enumerate() {
        found.push(reference(&row.to, &name, &path.index(index)));
    }
}

/// The assignment of an EDS cluster: by its service name, or by its own name.
fn load_assignment(message: &Message, path: &Path<'_>) -> Option<Reference> {
    let eds = child(message, "eds_cluster_config")?;
    child(&eds, "eds_config").filter(is_xds)?;
    if enum_number(message, "type") != 3 {
        return None;
    }
    let eds_path = path.field("eds_cluster_config");
    match text(&eds, "service_name") {
        Some(name) => {
            Some(reference(&ResourceType::ClusterLoadAssignment, &name, &eds_path.field("service_name")))
        }
        None => {
            let name = text(message, "name")?;
            Some(reference(&ResourceType::ClusterLoadAssignment, &name, &path.field("name")))
        }
    }
}

/// The virtual hosts of a route configuration with VHDS, which clients request as `route configuration/host`.
fn virtual_hosts(message: &Message, path: &Path<'_>) -> Option<Reference> {
    child(&child(message, "vhds")?, "config_source").filter(is_xds)?;
    let name = text(message, "name")?;
    Some(reference(&ResourceType::VirtualHost, &format!("{name}/*"), &path.field("vhds")))
}

/// Returns `true` if a `ConfigSource` or `ExtensionConfigSource` is a management server, not a file.
fn is_xds(source: &Message) -> bool {
    if let Some(source) = child(source, "config_source") {
        return is_xds(&source);
    }
    ["ads", "self", "api_config_source"].iter().any(|field| child(source, field).is_some())
}

fn reference(to: &ResourceType, name: &str, path: &Path<'_>) -> Reference {
    let to = ResourceKey { resource_type: to.clone(), name: Name::from(name) };
    Reference { to: to.into(), path: path.to_string().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_names_fields_that_exist_and_the_rows_are_sorted() {
        let pool = crate::descriptors::load(&[]).unwrap();
        assert!(ROWS.is_sorted_by_key(|row| row.message));
        for row in ROWS {
            let message = pool.get_message_by_name(row.message).unwrap_or_else(|| panic!("{}", row.message));
            let has = |field: &str| message.get_field_by_name(field).is_some();
            assert!(row.field == table::ALL || has(row.field), "{}.{}", row.message, row.field);
            if let Served::By(source) = row.served {
                assert!(has(source), "{}.{source}", row.message);
            }
        }
    }

    #[test]
    fn no_field_that_names_a_cluster_is_forgotten() {
        let pool = crate::descriptors::load(&[]).unwrap();
        let mut missing = Vec::new();
        for message in pool.all_messages() {
            let name = message.full_name();
            if ["envoy.admin.", "envoy.service.", "envoy.data.", "envoy.config.bootstrap."]
                .iter()
                .any(|package| name.starts_with(package))
            {
                continue;
            }
            for field in message.fields() {
                let is_name = matches!(field.kind(), prost_reflect::Kind::String)
                    && ["cluster", "cluster_name", "clusters", "cluster_names"]
                        .iter()
                        .any(|end| field.name().ends_with(end));
                if is_name && !rows_of(name).iter().any(|row| row.field == field.name()) {
                    missing.push(field.full_name().to_owned());
                }
            }
        }
        missing.sort();
        assert_eq!(missing, table::NO_REFERENCES);
    }
}
