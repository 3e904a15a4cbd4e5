//! The JSON of a poll, read straight into a request (rows A188, A191).
//!
//! Anyone can send a poll, and it is small. So reading one builds no tree of values and no message, but only what is needed. Unknown
//! fields are skipped. As in protobuf's JSON, fields have their names in protobuf or in lowerCamelCase, and `null` is an absent field.

mod values;

use std::sync::Arc;

use serde::Deserialize;
use xds_cache::Node;
use xds_session::{Nonce, SotwRequest};

use crate::grpc::convert::RequestError;
use crate::grpc::node::{Features, Metadata, NodeParts, check_text, semantic_version};

use values::{MAX_NAMES, Names, Number, Object};

/// A client's poll.
#[derive(Debug)]
pub(crate) struct Poll {
    pub(crate) request: SotwRequest,
    /// The number of metadata entries of the node that are left out, so that selectors cannot use them.
    pub(crate) n_left_out: usize,
}

/// Why a body is not a poll.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PollError {
    /// The body is not JSON, or a field has another type.
    #[error("the body is not a DiscoveryRequest in JSON: {0}")]
    Json(String),
    /// A part of the poll passes a limit.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// There are too many names.
    #[error("a poll may have at most {limit} resource names; use a gRPC stream for more")]
    TooManyNames {
        /// The limit of names.
        limit: usize,
    },
}

impl From<serde_json::Error> for PollError {
    fn from(error: serde_json::Error) -> Self {
        // The message can contain a whole text, with the place at its end.
        let place = format!("line {} column {}", error.line(), error.column());
        let mut reason = error.to_string();
        if reason.len() > MAX_REASON_BYTES {
            reason = format!("{}… at {place}", &reason[..reason.floor_char_boundary(MAX_REASON_BYTES)]);
        }
        Self::Json(reason)
    }
}

impl Poll {
    /// Reads an `envoy.service.discovery.v3.DiscoveryRequest`.
    ///
    /// # Errors
    ///
    /// [`PollError`].
    pub(crate) fn read(body: &[u8]) -> Result<Self, PollError> {
        let Object(fields) = serde_json::from_slice::<Object<RequestFields>>(body)?;
        let (names, locators) = (fields.resource_names, fields.resource_locators);
        let mut names = names.map(|names| names.kept).unwrap_or_default();
        names.extend(locators.into_iter().flat_map(|locators| locators.kept));
        if names.len() > MAX_NAMES {
            return Err(PollError::TooManyNames { limit: MAX_NAMES });
        }
        // The order of names has no meaning, and neither have duplicates.
        names.sort_unstable();
        names.dedup();
        let text = Option::unwrap_or_default;
        let type_url: String = text(fields.type_url);
        check_text("type_url", type_url.len()).map_err(RequestError::Node)?;
        let node = fields.node.map(|Object(node)| node.check()).transpose()?;
        let (node, n_left_out) = node.map_or((None, 0), |(node, n)| (Some(Arc::new(node)), n));
        let request = SotwRequest {
            node,
            type_url,
            version_info: text(fields.version_info),
            resource_names: names,
            response_nonce: Nonce::parse(&text(fields.response_nonce)),
            error_detail: fields.error_detail.map(|Object(detail)| text(detail.message)),
        };
        Ok(Self { request, n_left_out })
    }
}

/// The fields of a request.
#[derive(Deserialize)]
struct RequestFields {
    #[serde(default, alias = "versionInfo")]
    version_info: Option<String>,
    #[serde(default)]
    node: Option<Object<NodeFields>>,
    #[serde(default, alias = "resourceNames")]
    resource_names: Option<Names<String>>,
    #[serde(default, alias = "resourceLocators")]
    resource_locators: Option<Names<Object<Locator>>>,
    #[serde(default, alias = "typeUrl")]
    type_url: Option<String>,
    #[serde(default, alias = "responseNonce")]
    response_nonce: Option<String>,
    #[serde(default, alias = "errorDetail")]
    error_detail: Option<Object<ErrorDetail>>,
}

#[derive(Deserialize)]
struct ErrorDetail {
    #[serde(default)]
    message: Option<String>,
}

#[derive(Deserialize)]
struct Locator {
    #[serde(default)]
    name: Option<String>,
}

#[derive(Deserialize)]
struct NodeFields {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    cluster: Option<String>,
    #[serde(default)]
    metadata: Option<Metadata>,
    #[serde(default)]
    locality: Option<Object<LocalityFields>>,
    #[serde(default, alias = "userAgentName")]
    user_agent_name: Option<String>,
    #[serde(default, alias = "userAgentVersion")]
    user_agent_version: Option<String>,
    #[serde(default, alias = "userAgentBuildVersion")]
    user_agent_build_version: Option<Object<BuildVersion>>,
    #[serde(default, alias = "clientFeatures")]
    client_features: Option<Features>,
}

#[derive(Default, Deserialize)]
struct LocalityFields {
    #[serde(default)]
    region: Option<String>,
    #[serde(default)]
    zone: Option<String>,
    #[serde(default, alias = "subZone")]
    sub_zone: Option<String>,
}

#[derive(Deserialize)]
struct BuildVersion {
    #[serde(default)]
    version: Option<Object<SemanticVersion>>,
}

#[derive(Deserialize)]
struct SemanticVersion {
    #[serde(default, alias = "majorNumber")]
    major_number: Option<Number>,
    #[serde(default, alias = "minorNumber")]
    minor_number: Option<Number>,
    #[serde(default)]
    patch: Option<Number>,
}

impl NodeFields {
    fn check(self) -> Result<(Node, usize), RequestError> {
        let text = Option::unwrap_or_default;
        let locality = self.locality.map(|Object(locality)| locality).unwrap_or_default();
        let parts = NodeParts {
            id: text(self.id),
            cluster: text(self.cluster),
            region: text(locality.region),
            zone: text(locality.zone),
            sub_zone: text(locality.sub_zone),
            user_agent_name: text(self.user_agent_name),
            user_agent_version: match self.user_agent_build_version {
                Some(Object(build)) => build.text(),
                None => text(self.user_agent_version),
            },
            features: self.client_features.unwrap_or_default(),
            metadata: self.metadata.unwrap_or_default(),
        };
        Ok(parts.check()?)
    }
}

impl BuildVersion {
    fn text(self) -> String {
        let number = |number: Option<Number>| number.map_or(0, |Number(number)| number);
        let numbers = |Object(version): Object<SemanticVersion>| {
            [version.major_number, version.minor_number, version.patch].map(number)
        };
        self.version.map(numbers).map(semantic_version).unwrap_or_default()
    }
}

impl From<Object<Locator>> for String {
    fn from(Object(locator): Object<Locator>) -> Self {
        locator.name.unwrap_or_default()
    }
}

/// The most bytes of an error of the JSON in an answer.
const MAX_REASON_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value as Json, json};

    use super::*;

    fn read(body: &Json) -> Poll {
        Poll::read(body.to_string().as_bytes()).unwrap()
    }

    fn refused(body: &str) -> String {
        Poll::read(body.as_bytes()).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn every_field_is_read_by_both_of_its_names() {
        let proto = json!({
            "version_info": "v", "type_url": "t", "response_nonce": "2a",
            "resource_names": ["b", "a", "b"], "resource_locators": [{"name": "c", "dynamic_parameters": {}}],
            "error_detail": {"code": 3, "message": "bad", "details": [{"@type": "x"}]},
            "node": {
                "id": "n", "cluster": "c", "user_agent_name": "envoy",
                "user_agent_build_version": {"version": {"major_number": 1, "minor_number": "40", "patch": 0}},
                "locality": {"region": "r", "zone": "z", "sub_zone": "s"},
                "client_features": ["f"], "extensions": [{"name": "e"}],
                "metadata": {"a": {"b": 1, "t": true}, "s": "x", "n": -1, "f": 0.5, "l": [1, {}], "null": null},
            },
        });
        let camel = json!({
            "versionInfo": "v", "typeUrl": "t", "responseNonce": "2a",
            "resourceNames": ["b", "a", "b"], "resourceLocators": [{"name": "c"}],
            "errorDetail": {"message": "bad"},
            "node": {
                "id": "n", "cluster": "c", "userAgentName": "envoy", "userAgentVersion": "1.40.0",
                "locality": {"region": "r", "zone": "z", "subZone": "s"},
                "clientFeatures": ["f"],
                "metadata": {"a": {"b": 1, "t": true}, "s": "x", "n": -1, "f": 0.5},
            },
        });
        for body in [proto, camel] {
            let request = read(&body).request;
            assert_eq!((request.version_info.as_str(), request.type_url.as_str()), ("v", "t"));
            assert_eq!((request.response_nonce, request.error_detail), (Nonce::Ours(42), Some("bad".into())));
            assert_eq!(request.resource_names, ["a", "b", "c"]);
            let node = request.node.unwrap();
            assert_eq!((node.id.as_str(), node.cluster.as_str()), ("n", "c"));
            assert_eq!(
                (node.user_agent_name.as_str(), node.user_agent_version.as_str()),
                ("envoy", "1.40.0")
            );
            let locality = &node.locality;
            assert_eq!([&locality.region, &locality.zone, &locality.sub_zone], ["r", "z", "s"]);
            assert!(node.client_features.contains("f"));
            let text: Vec<_> = node.metadata.iter().map(|(path, value)| format!("{path}={value}")).collect();
            assert_eq!(text, ["a.b=1", "a.t=true", "f=0.5", "n=-1", "s=x"]);
        }
    }

    #[test]
    fn what_is_not_there_is_empty() {
        for body in
            [json!({}), json!({"node": null, "resource_names": null, "version_info": null, "other": [[{}]]})]
        {
            let request = read(&body).request;
            assert!(request.node.is_none() && request.resource_names.is_empty());
        }
        let request = read(&json!({"node": {"id": null, "metadata": null, "locality": null, "x": {"y": 1}}}));
        assert_eq!(request.request.node.unwrap().id, "");
    }

    #[test]
    fn another_type_is_told_with_its_place() {
        for (body, wrong) in [
            ("[]", "expected an object at line 1 column 0"),
            ("{\"node\": [\"x\"]}", "expected an object"),
            ("{\"node\": 5}", "invalid type: integer `5`, expected an object"),
            ("{\"node\": {\"id\": 5}}", "expected a string"),
            ("{\"node\": {\"metadata\": 5}}", "expected an object"),
            ("{\"resource_names\": \"a\"}", "expected a list"),
            ("{\"resource_names\": [], \"resourceNames\": []}", "duplicate field"),
            ("{} x", "trailing characters"),
            ("", "EOF"),
        ] {
            let told = refused(body);
            assert!(told.contains(wrong), "{body}: {told}");
        }
        assert!(refused(&"[".repeat(100_000)).contains("object"));
        let told = refused(&json!({"node": {"metadata": "ä".repeat(100_000)}}).to_string());
        assert!(told.len() < 400 && told.contains("line 1 column"), "{told}");
    }

    #[test]
    fn nothing_is_built_of_what_is_not_needed() {
        for metadata in ["[".repeat(400_000) + &"]".repeat(400_000), format!("[{}0]", "0,".repeat(400_000))] {
            let body = format!("{{\"node\": {{\"id\": \"n\", \"metadata\": {{\"a\": {metadata}}}}}}}");
            assert_eq!(Poll::read(body.as_bytes()).unwrap().request.node.unwrap().metadata.len(), 0);
        }
        let deep = "{\"a\":".repeat(100_000) + "1" + &"}".repeat(100_000);
        let poll = Poll::read(format!("{{\"node\": {{\"id\": \"n\", \"metadata\": {deep}}}}}").as_bytes());
        assert_eq!(poll.unwrap().n_left_out, 1);
    }

    proptest! {
        /// Nothing makes it panic, and JSON that is no object is refused.
        #[test]
        fn no_body_makes_it_panic(text in "[\\[\\]{}:,\"a-c0-9 .\\\\u-]{0,60}", key in "(node|resource_names|id|metadata)") {
            let _ = Poll::read(text.as_bytes());
            let _ = Poll::read(format!("{{\"{key}\": {text}}}").as_bytes());
            let body = format!("{{\"node\": {{\"{key}\": {text}}}}}");
            if Poll::read(body.as_bytes()).is_ok() {
                prop_assert!(serde_json::from_str::<Json>(&body).is_ok(), "{body}");
            }
        }
    }

    #[test]
    fn what_passes_a_limit_is_told() {
        let long = "x".repeat(4097);
        let told = refused(&json!({"node": {"id": long}}).to_string());
        assert_eq!(told, "`node.id` has 4097 bytes; at most 4096 are allowed");
        let told = refused(&json!({"type_url": long}).to_string());
        assert!(told.starts_with("`type_url` has 4097 bytes"), "{told}");
        let many = json!({"resource_names": vec!["a"; MAX_NAMES + 1]});
        assert!(refused(&many.to_string()).contains("at most 16384 resource names"));
        let both = json!({"resource_names": vec!["a"; MAX_NAMES], "resource_locators": [{"name": "b"}]});
        assert!(refused(&both.to_string()).contains("at most 16384 resource names"));
    }
}
