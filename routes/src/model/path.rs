//! The path of a field in its document.

use std::fmt;
use std::sync::Arc;

/// The way from the root of a document to a field, shown as `spec.rules[0].backendRefs[1].port`.
///
/// Empty for the document itself. It is stored as steps and spelled out when shown. A path of up to [`N_INLINE`] ordinary steps, which
/// are names in [`NAMES`] and low indices, needs no allocation.
#[derive(Clone)]
pub struct FieldPath(Steps);

/// Each step begins with one byte: [`TEXT`], followed by a length and a text; [`INDEX`], followed by an index; the number of a name in
/// [`NAMES`]; or [`FIRST_INDEX`] plus a low index.
#[derive(Clone)]
enum Steps {
    Inline(u8, [u8; N_INLINE]),
    Shared(Arc<Vec<u8>>),
}

impl FieldPath {
    /// The path of the field with this name.
    pub(crate) fn field(&self, name: &str) -> Self {
        if let Some(step) = NAMES.binary_search(&name).ok().and_then(|index| u8::try_from(index).ok()) {
            return self.then(&[FIRST_NAME + step]);
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'@');
        match (name.bytes().all(is_plain), self.steps().is_empty()) {
            (true, true) => self.text(name),
            (true, false) => self.text(&format!(".{name}")),
            (false, _) => self.entry(name),
        }
    }

    /// The path of the value for a key that the user chose.
    pub(crate) fn entry(&self, key: &str) -> Self {
        self.text(&format!("[{key:?}]"))
    }

    /// The path of an item of a list.
    pub(crate) fn item(&self, index: usize) -> Self {
        match u8::try_from(index).ok().and_then(|index| FIRST_INDEX.checked_add(index)) {
            Some(step) => self.then(&[step]),
            None => self.then(&[&[INDEX][..], &index.to_le_bytes()].concat()),
        }
    }

    fn text(&self, text: &str) -> Self {
        self.then(&[&[TEXT], &text.len().to_le_bytes()[..], text.as_bytes()].concat())
    }

    fn then(&self, added: &[u8]) -> Self {
        let steps = self.steps();
        let n = steps.len() + added.len();
        let mut inline = [0; N_INLINE];
        if let (Some(room), Ok(n)) = (inline.get_mut(..n), u8::try_from(n)) {
            let (start, end) = room.split_at_mut(steps.len());
            start.copy_from_slice(steps);
            end.copy_from_slice(added);
            return Self(Steps::Inline(n, inline));
        }
        Self(Steps::Shared(Arc::new([steps, added].concat())))
    }

    fn steps(&self) -> &[u8] {
        match &self.0 {
            Steps::Inline(n, steps) => steps.get(..usize::from(*n)).unwrap_or_default(),
            Steps::Shared(steps) => steps,
        }
    }
}

impl Default for FieldPath {
    fn default() -> Self {
        Self(Steps::Inline(0, [0; N_INLINE]))
    }
}

impl PartialEq for FieldPath {
    fn eq(&self, other: &Self) -> bool {
        self.steps() == other.steps()
    }
}

impl Eq for FieldPath {}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.steps();
        let mut is_first = true;
        while let Some((&step, after)) = rest.split_first() {
            rest = match step {
                TEXT => {
                    let (length, after) = number(after).ok_or(fmt::Error)?;
                    let (text, after) = after.split_at_checked(length).ok_or(fmt::Error)?;
                    f.write_str(std::str::from_utf8(text).map_err(|_| fmt::Error)?)?;
                    after
                }
                INDEX => {
                    let (index, after) = number(after).ok_or(fmt::Error)?;
                    write!(f, "[{index}]")?;
                    after
                }
                FIRST_NAME..FIRST_INDEX => {
                    let name = NAMES.get(usize::from(step - FIRST_NAME)).ok_or(fmt::Error)?;
                    write!(f, "{}{name}", if is_first { "" } else { "." })?;
                    after
                }
                FIRST_INDEX.. => {
                    write!(f, "[{}]", step - FIRST_INDEX)?;
                    after
                }
            };
            is_first = false;
        }
        Ok(())
    }
}

impl fmt::Debug for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
impl From<&str> for FieldPath {
    fn from(text: &str) -> Self {
        Self::default().text(text)
    }
}

fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, after) = bytes.split_first_chunk()?;
    Some((usize::from_le_bytes(*number), after))
}

const TEXT: u8 = 0;

const INDEX: u8 = 1;

const FIRST_NAME: u8 = 2;

const FIRST_INDEX: u8 = 128;

/// Together with the byte for the variant and the one for the length, as large as two pointers.
const N_INLINE: usize = 14;

/// The names in paths of fields whose spots are kept, sorted. Other names are spelled out in a path. There is room for as many as there are
/// steps from [`FIRST_NAME`] to [`FIRST_INDEX`].
const NAMES: [&str; 39] = [
    "allowedRoutes",
    "annotations",
    "backendRef",
    "backendRefs",
    "backends",
    "caCertificateRefs",
    "certificateRefs",
    "endpoints",
    "extensionRef",
    "fallback",
    "filters",
    "frontendValidation",
    "gatewayClassName",
    "headers",
    "hostnames",
    "infrastructure",
    "kinds",
    "labels",
    "listeners",
    "match",
    "matches",
    "metadata",
    "name",
    "namespace",
    "namespaces",
    "parametersRef",
    "parentRefs",
    "path",
    "ports",
    "requestMirror",
    "rules",
    "service",
    "sessionPersistence",
    "spec",
    "targetRef",
    "targetRefs",
    "tls",
    "to",
    "validation",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_shown_as_the_steps_that_it_was_made_of() {
        let root = FieldPath::default();
        let rule = root.field("spec").field("rules").item(127);
        let long =
            rule.field("matches").item(128).field("queryParams").item(70_000).field("a b").entry("é.\"");
        let table = [
            (root.clone(), ""),
            (root.field("spec"), "spec"),
            (root.field("unknown-field"), "unknown-field"),
            (root.field("a b"), "[\"a b\"]"),
            (root.entry("spec"), "[\"spec\"]"),
            (root.item(0), "[0]"),
            (rule.clone(), "spec.rules[127]"),
            (rule.field("name"), "spec.rules[127].name"),
            (rule.field("Name"), "spec.rules[127].Name"),
            (long, "spec.rules[127].matches[128].queryParams[70000][\"a b\"][\"é.\\\"\"]"),
        ];
        for (path, expected) in table {
            assert_eq!(path.to_string(), expected);
        }
    }

    #[test]
    fn paths_are_equal_if_their_steps_are() {
        let of = |name| FieldPath::default().field("spec").field(name);
        assert_eq!(of("rules").item(1), of("rules").item(1));
        assert_eq!(of("a-name-that-is-spelled-out"), of("a-name-that-is-spelled-out"));
        assert_ne!(of("rules").item(1), of("rules").item(2));
        assert_ne!(of("rules"), of("ports"));
        assert_ne!(of("a-name-that-is-spelled-out"), of("a-name-that-is-spelled-off"));
    }

    #[test]
    fn names_are_in_order_and_leave_room_for_indices() {
        assert!(NAMES.is_sorted());
        assert!(NAMES.len() <= usize::from(FIRST_INDEX - FIRST_NAME));
        assert_eq!(size_of::<FieldPath>(), 16);
        let filter = FieldPath::default().field("spec").field("rules").item(15).field("backendRefs").item(15);
        let mirrored = filter.field("filters").item(15).field("requestMirror").field("backendRef");
        assert!(matches!(mirrored.0, Steps::Inline(9, _)), "{mirrored}");
    }
}
