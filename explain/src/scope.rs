//! The scope of a request, which chooses its route configuration (XH4).

use envoy_types::pb::envoy::config::route::v3::ScopedRouteConfiguration;
use envoy_types::pb::envoy::config::route::v3::scoped_route_configuration::key::fragment;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::ScopedRoutes;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::scoped_routes::scope_key_builder::fragment_builder::header_value_extractor::ExtractType;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::scoped_routes::scope_key_builder::fragment_builder::{HeaderValueExtractor, Type};

use crate::header::Seen;

/// The key of a request.
///
/// # Errors
///
/// The name of the header that gives no fragment.
pub(crate) fn key(scoped: &ScopedRoutes, seen: &Seen) -> Result<Vec<String>, String> {
    let fragments = scoped.scope_key_builder.iter().flat_map(|builder| &builder.fragments);
    let fragment =
        |extractor: &HeaderValueExtractor| fragment(extractor, seen).ok_or_else(|| extractor.name.clone());
    fragments
        .filter_map(|builder| builder.r#type.as_ref())
        .map(|Type::HeaderValueExtractor(extractor)| fragment(extractor))
        .collect()
}

/// Only the first value of a header counts.
fn fragment(extractor: &HeaderValueExtractor, seen: &Seen) -> Option<String> {
    let value = seen.get(&extractor.name.to_ascii_lowercase()).first()?;
    let mut elements: Vec<&str> = match &*extractor.element_separator {
        "" => vec![value],
        separator => value.split(separator).collect(),
    };
    match extractor.extract_type.as_ref()? {
        ExtractType::Index(index) => {
            let index = usize::try_from(*index).ok().filter(|index| *index < elements.len())?;
            Some(elements.swap_remove(index).to_owned())
        }
        ExtractType::Element(wanted) => {
            let mut pairs = elements
                .into_iter()
                .map(|element| element.split_once(&*wanted.separator).unwrap_or((element, "")));
            pairs.find(|(key, _)| *key == wanted.key).map(|(_, value)| value.to_owned())
        }
    }
}

/// Returns `true` if the scope has this key.
pub(crate) fn has_key(scope: &ScopedRouteConfiguration, key: &[String]) -> bool {
    let own = scope.key.iter().flat_map(|key| &key.fragments);
    own.filter_map(|fragment| fragment.r#type.as_ref())
        .map(|fragment::Type::StringKey(text)| text.as_str())
        .eq(key.iter().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::route::v3::scoped_route_configuration::Key;
    use envoy_types::pb::envoy::config::route::v3::scoped_route_configuration::key::Fragment;
    use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::scoped_routes::ScopeKeyBuilder;
    use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::scoped_routes::scope_key_builder::FragmentBuilder;
    use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::scoped_routes::scope_key_builder::fragment_builder::header_value_extractor::KvElement;

    use super::*;
    use crate::client::{Client, Language};
    use crate::request::Request;
    use crate::semantics::Semantics;

    fn scoped(extractors: Vec<HeaderValueExtractor>) -> ScopedRoutes {
        let fragments = extractors
            .into_iter()
            .map(|extractor| FragmentBuilder { r#type: Some(Type::HeaderValueExtractor(extractor)) });
        ScopedRoutes {
            scope_key_builder: Some(ScopeKeyBuilder { fragments: fragments.collect() }),
            ..ScopedRoutes::default()
        }
    }

    fn extractor(element_separator: &str, extract_type: ExtractType) -> HeaderValueExtractor {
        HeaderValueExtractor {
            name: "X-Tenant".to_owned(),
            element_separator: element_separator.to_owned(),
            extract_type: Some(extract_type),
        }
    }

    #[test]
    fn h4_fragments_are_elements_of_the_first_value() {
        let pair =
            |key: &str| ExtractType::Element(KvElement { separator: "=".to_owned(), key: key.to_owned() });
        let semantics = Semantics::of(Client::newest(Language::Envoy));
        let request = Request::get("a", "/").with("x-tenant", "a=b=c;d;a=e").with("x-tenant", "f");
        let seen = Seen::of(&request, semantics);
        for (separator, extract, expected) in [
            (";", ExtractType::Index(1), Some("d")),
            (";", ExtractType::Index(3), None),
            ("", ExtractType::Index(0), Some("a=b=c;d;a=e")),
            (";", pair("a"), Some("b=c")),
            (";", pair("d"), Some("")),
            (";", pair("e"), None),
        ] {
            let found = key(&scoped(vec![extractor(separator, extract)]), &seen);
            let expected = expected.map(|one| vec![one.to_owned()]).ok_or_else(|| "X-Tenant".to_owned());
            assert_eq!(found, expected);
        }
        let both = scoped(vec![extractor(";", ExtractType::Index(1)), extractor(";", pair("a"))]);
        let found = key(&both, &seen).unwrap();
        let scope = |texts: &[&str]| {
            let string =
                |text: &&str| Fragment { r#type: Some(fragment::Type::StringKey((*text).to_owned())) };
            let key = Some(Key { fragments: texts.iter().map(string).collect() });
            ScopedRouteConfiguration { key, ..ScopedRouteConfiguration::default() }
        };
        assert!(has_key(&scope(&["d", "b=c"]), &found));
        assert!(!has_key(&scope(&["b=c", "d"]), &found) && !has_key(&scope(&["d"]), &found));
    }
}
