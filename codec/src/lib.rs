//! Envoy resources as JSON and YAML: descriptors, positions, validation, references, redaction.
