//! Facts about each message from its descriptor, beyond its fields: PGV rules, secrets, deprecation.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use envoy_types::pb::validate::FieldRules;
use envoy_types::pb::validate::field_rules::Type;
use prost::Message;
use prost_reflect::{
    DescriptorPool, DynamicMessage, ExtensionDescriptor, FieldDescriptor, MessageDescriptor, OneofDescriptor,
};
use regex::Regex;

/// The facts of every message type that was used so far.
pub(crate) struct FactsTable {
    annotations: Annotations,
    cache: RwLock<HashMap<String, Arc<MessageFacts>>>,
}

/// The facts of one message type.
pub(crate) struct MessageFacts {
    /// The fields in the order of their declaration.
    pub(crate) fields: Vec<FieldFacts>,
    /// The oneofs that must have a member set.
    pub(crate) required_oneofs: Vec<OneofDescriptor>,
    /// True if `validate.disabled` or `validate.ignored` excludes the message from PGV.
    pub(crate) is_unchecked: bool,
    /// Index into `fields` by proto name and by JSON name.
    by_name: HashMap<String, usize>,
}

/// The facts of one field.
pub(crate) struct FieldFacts {
    pub(crate) descriptor: FieldDescriptor,
    pub(crate) rules: Option<FieldRules>,
    /// The compiled `string.pattern` of the rules.
    pub(crate) pattern: Option<Regex>,
    /// True if the value is secret.
    pub(crate) is_sensitive: bool,
    pub(crate) is_deprecated: bool,
}

/// The extensions that are read. Each may be missing from a user's pool.
struct Annotations {
    rules: Option<ExtensionDescriptor>,
    required: Option<ExtensionDescriptor>,
    disabled: Option<ExtensionDescriptor>,
    ignored: Option<ExtensionDescriptor>,
    sensitive: Option<ExtensionDescriptor>,
}

impl FactsTable {
    pub(crate) fn new(pool: &DescriptorPool) -> Self {
        let extension = |name| pool.get_extension_by_name(name);
        let annotations = Annotations {
            rules: extension("validate.rules"),
            required: extension("validate.required"),
            disabled: extension("validate.disabled"),
            ignored: extension("validate.ignored"),
            sensitive: extension("udpa.annotations.sensitive"),
        };
        Self { annotations, cache: RwLock::default() }
    }

    /// Returns `true` if a message of this type may hold a secret. Looks through all types that it may contain, so it is for faults only.
    pub(crate) fn hold_secret(&self, message: &MessageDescriptor) -> bool {
        let (mut seen, mut left) = (BTreeSet::new(), vec![message.clone()]);
        while let Some(message) = left.pop() {
            if !seen.insert(message.full_name().to_owned()) {
                continue;
            }
            if self.of(&message).fields.iter().any(|field| field.is_sensitive) {
                return true;
            }
            left.extend(message.fields().filter_map(|field| field.kind().as_message().cloned()));
        }
        false
    }

    /// The facts of a message type. They are read from its options on first use.
    pub(crate) fn of(&self, message: &MessageDescriptor) -> Arc<MessageFacts> {
        let name = message.full_name();
        if let Some(facts) = self.cache.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Arc::clone(facts);
        }
        let facts = Arc::new(self.annotations.read(message));
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(cache.entry(name.to_owned()).or_insert(facts))
    }
}

impl MessageFacts {
    /// The field with this proto or JSON name.
    pub(crate) fn field(&self, name: &str) -> Option<&FieldFacts> {
        self.fields.get(self.position(name)?)
    }

    /// The index of the field with this proto or JSON name.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }
}

impl Annotations {
    fn read(&self, message: &MessageDescriptor) -> MessageFacts {
        let options = message.options();
        let fields: Vec<_> = message.fields().map(|field| self.read_field(field)).collect();
        let mut by_name = HashMap::new();
        for (index, field) in fields.iter().enumerate() {
            by_name.insert(field.descriptor.name().to_owned(), index);
            by_name.entry(field.descriptor.json_name().to_owned()).or_insert(index);
        }
        MessageFacts {
            fields,
            required_oneofs: message
                .oneofs()
                .filter(|oneof| is_set(&oneof.options(), self.required.as_ref()))
                .collect(),
            is_unchecked: is_set(&options, self.disabled.as_ref()) || is_set(&options, self.ignored.as_ref()),
            by_name,
        }
    }

    fn read_field(&self, descriptor: FieldDescriptor) -> FieldFacts {
        let options = descriptor.options();
        let rules =
            self.rules.as_ref().filter(|extension| options.has_extension(extension)).and_then(|extension| {
                let rules = options.get_extension(extension);
                FieldRules::decode(&*rules.as_message()?.encode_to_vec()).ok()
            });
        let pattern = match rules.as_ref().and_then(|rules| rules.r#type.as_ref()) {
            Some(Type::String(rules)) => rules.pattern.as_ref().and_then(|pattern| Regex::new(pattern).ok()),
            Some(_) | None => None,
        };
        let full_name = descriptor.full_name();
        let is_sensitive = is_set(&options, self.sensitive.as_ref()) || ALSO_SENSITIVE.contains(&full_name);
        let is_deprecated =
            options.get_field_by_name("deprecated").is_some_and(|value| value.as_bool() == Some(true));
        FieldFacts { descriptor, rules, pattern, is_sensitive, is_deprecated }
    }
}

fn is_set(options: &DynamicMessage, extension: Option<&ExtensionDescriptor>) -> bool {
    extension.is_some_and(|extension| {
        options.has_extension(extension) && options.get_extension(extension).as_bool() == Some(true)
    })
}

/// Secret fields that Envoy does not mark.
const ALSO_SENSITIVE: [&str; 8] = [
    "envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials.access_token",
    "envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials.google_refresh_token",
    "envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials.ServiceAccountJWTAccessCredentials.json_key",
    "envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials.GoogleIAMCredentials.authorization_token",
    "envoy.extensions.grpc_service.call_credentials.access_token.v3.AccessTokenCredentials.token",
    "envoy.config.trace.v3.LightstepConfig.access_token",
    "envoy.config.trace.v3.LightstepConfig.access_token_file",
    "envoy.extensions.filters.http.credential_injector.v3.CredentialInjector.credential",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_the_own_list_exists() {
        let pool = crate::descriptors::load(&[]).unwrap();
        for name in ALSO_SENSITIVE {
            let (message, field) = name.rsplit_once('.').unwrap();
            let message = pool.get_message_by_name(message).unwrap_or_else(|| panic!("{message}"));
            assert!(message.get_field_by_name(field).is_some(), "{name}");
        }
    }

    #[test]
    fn every_pattern_of_envoy_compiles() {
        let pool = crate::descriptors::load(&[]).unwrap();
        let table = FactsTable::new(&pool);
        for message in pool.all_messages() {
            for field in &table.of(&message).fields {
                let Some(Type::String(rules)) = field.rules.as_ref().and_then(|rules| rules.r#type.as_ref())
                else {
                    continue;
                };
                assert_eq!(
                    rules.pattern.is_some(),
                    field.pattern.is_some(),
                    "{}",
                    field.descriptor.full_name()
                );
            }
        }
    }
}
