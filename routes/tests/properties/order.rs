//! Nothing depends on order, and what comes out is fit to be served.

use proptest::prelude::*;
use serde_json::Value as Json;
use xds_cache::Profile;
use xds_routes::{Options, Translation, translate};

use crate::support::{CODEC, Reading, conditions_text, copied};

use super::documents::worlds;
use super::{config, faults, outcome, reading, translated};

/// The same value with the keys of its objects in another order, which depends on `seed`.
fn shuffled_keys(value: &Json, seed: u64) -> Json {
    match value {
        Json::Object(fields) => {
            let mut fields: Vec<(String, Json)> =
                fields.iter().map(|(key, value)| (key.clone(), shuffled_keys(value, seed))).collect();
            fields.sort_by_key(|(key, _)| {
                key.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
                    >> 7
            });
            Json::Object(fields.into_iter().collect())
        }
        Json::Array(items) => items.iter().map(|item| shuffled_keys(item, seed)).collect(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => value.clone(),
    }
}

/// All that clients, and the publisher, could see of resources.
fn shown(translation: &Translation) -> Vec<String> {
    let profiles = translation.groups.values().flat_map(|group| group.profiles.values());
    let resources = profiles.flat_map(|resources| resources.values());
    resources.map(|resource| format!("{} {:?}", resource.version(), resource.to_draft())).collect()
}

proptest! {
    #![proptest_config(config(128))]

    /// Documents in any order, in one file or several, with the keys of their objects in any order.
    #[test]
    fn order_changes_nothing(
        (documents, permuted) in worlds().prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        seed in any::<u64>(),
        n_files in 1..4_usize,
    ) {
        let mut files = vec![String::new(); n_files];
        for (index, document) in permuted.iter().enumerate() {
            files[index % n_files].push_str(&format!("---\n{}\n", shuffled_keys(document, seed)));
        }
        let files: Vec<(String, String)> =
            files.into_iter().enumerate().map(|(index, text)| (format!("{index}.yaml"), text)).collect();
        let files: Vec<_> = files.into_iter().filter(|(_, text)| !text.is_empty()).collect();
        prop_assert_eq!(outcome(&reading(&documents)), outcome(&Reading::of_files(&files)));
    }

    /// Twice the same, by value and not by identity; and with the last translation at hand the very same resources.
    #[test]
    fn translation_is_deterministic_and_keeps_what_did_not_change(documents in worlds()) {
        let reading = reading(&documents);
        let first = reading.translate(&Options::default());
        let second = translate(&CODEC, &copied(&reading.documents), &Options::default(), Some(&first));
        prop_assert_eq!(shown(&first), shown(&second));
        prop_assert_eq!(conditions_text(&first), conditions_text(&second));
        prop_assert_eq!(&first.diagnostics, &second.diagnostics);
        for (name, group) in &first.groups {
            for (profile, resources) in &group.profiles {
                for (key, resource) in resources {
                    let again = &second.groups[name].profiles[profile][key];
                    prop_assert!(std::sync::Arc::ptr_eq(resource, again), "{} was made anew", key);
                }
            }
        }
    }

    /// A translation that begins with one of other documents is the same as one of these alone.
    #[test]
    fn what_was_translated_before_changes_nothing(before in worlds(), documents in worlds(), n_common in 0..8_usize) {
        // Some documents are in both, so that something is taken over.
        let common = before.iter().take(n_common).cloned();
        let after: Vec<Json> = common.chain(documents).collect();
        let (before, after) = (reading(&before), reading(&after));
        let options = Options::default();
        let previous = before.translate(&options);
        let alone = after.translate(&options);
        let following = translate(&CODEC, &after.documents, &options, Some(&previous));
        prop_assert_eq!(conditions_text(&alone), conditions_text(&following));
        prop_assert_eq!(&alone.diagnostics, &following.diagnostics);
        prop_assert_eq!(shown(&alone), shown(&following));
    }

    #[test]
    fn no_client_refuses_anything(documents in worlds()) {
        let translation = translated(&documents);
        prop_assert_eq!(faults(&translation), Vec::<String>::new());
        for (name, group) in &translation.groups {
            let profiles: Vec<Profile> = group.profiles.keys().copied().collect();
            prop_assert_eq!(profiles, [Profile::Envoy, Profile::Grpc], "{}", name);
        }
    }

    /// With the options that are off, too.
    #[test]
    fn no_client_refuses_anything_whatever_the_options(
        documents in worlds(),
        (merges_route_kinds, is_grpc_strict, matches_whole_paths) in any::<(bool, bool, bool)>(),
        implicit_port in prop::option::of(1..9000_u16),
    ) {
        let options =
            Options { merges_route_kinds, is_grpc_strict, matches_whole_paths, implicit_port, ..Options::default() };
        prop_assert_eq!(faults(&reading(&documents).translate(&options)), Vec::<String>::new());
    }
}
