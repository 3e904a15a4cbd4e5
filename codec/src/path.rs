//! Field paths: the way to a value in a message.

use std::fmt;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A field by its proto name, or as it was written if there is no such field.
    Field(Box<str>),
    /// A list item, from 0.
    Index(usize),
    /// The key of a map or of a `Struct`.
    Key(Box<str>),
}

/// A path on the stack, built while a message is walked. Costs nothing until it is converted.
#[derive(Clone, Copy)]
pub(crate) enum Path<'a> {
    /// The resource itself.
    Root,
    /// A field of the value at the path.
    Field(&'a Self, &'a str),
    /// An item of the list at the path.
    Index(&'a Self, usize),
    /// The value for a key of the map at the path.
    Key(&'a Self, &'a str),
}

impl<'a> Path<'a> {
    pub(crate) fn field(&'a self, name: &'a str) -> Self {
        Path::Field(self, name)
    }

    pub(crate) fn index(&'a self, index: usize) -> Self {
        Path::Index(self, index)
    }

    pub(crate) fn key(&'a self, key: &'a str) -> Self {
        Path::Key(self, key)
    }

    /// The steps from the root.
    pub(crate) fn to_steps(self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut path = self;
        loop {
            let (parent, step) = match path {
                Path::Root => break,
                Path::Field(parent, name) => (parent, Step::Field(cut(name).into())),
                Path::Index(parent, index) => (parent, Step::Index(index)),
                Path::Key(parent, key) => (parent, Step::Key(cut(key).into())),
            };
            steps.push(step);
            path = *parent;
        }
        steps.reverse();
        steps
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_steps(&self.to_steps(), f)
    }
}

/// Shortens a key. Each finding keeps a path, and keys can have any length.
pub(crate) fn cut(key: &str) -> &str {
    key.char_indices().nth(MAX_KEY_CHARACTERS).and_then(|(end, _)| key.get(..end)).unwrap_or(key)
}

/// Longer than real keys, such as names of extensions and URLs.
const MAX_KEY_CHARACTERS: usize = 200;

/// Writes `a.b[0].c["key"]`.
pub(crate) fn format_steps(steps: &[Step]) -> String {
    struct Steps<'a>(&'a [Step]);
    impl fmt::Display for Steps<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write_steps(self.0, f)
        }
    }
    Steps(steps).to_string()
}

fn write_steps(steps: &[Step], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (position, step) in steps.iter().enumerate() {
        match step {
            Step::Field(name) if position == 0 => f.write_str(name)?,
            Step::Field(name) => write!(f, ".{name}")?,
            Step::Index(index) => write!(f, "[{index}]")?,
            Step::Key(key) => write!(f, "[{key:?}]")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_as_users_write_it() {
        let (a, root) = ("a", Path::Root);
        let a = root.field(a);
        let item = a.index(3);
        let b = item.field("b");
        assert_eq!(b.key("k\"").to_string(), r#"a[3].b["k\""]"#);
        assert_eq!(Path::Root.to_string(), "");
    }
}
