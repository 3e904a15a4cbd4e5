//! The names in a directory that matter.

/// Returns `true` if a file or directory of this name is never looked at: hidden ones, and what editors leave behind.
///
/// `..data` and the timestamped directories of a ConfigMap are hidden too; the visible links into them are followed.
#[must_use]
pub fn is_ignored(name: &str) -> bool {
    let is_auto_save = name.len() > 1 && name.starts_with('#') && name.ends_with('#');
    // Vim creates and removes a file of this name to see whether it may.
    let is_probe = name == "4913";
    let endings = ["~", ".swp", ".swx", ".tmp", ".bak", ".orig"];
    name.starts_with('.') || is_auto_save || is_probe || endings.iter().any(|ending| name.ends_with(ending))
}

/// Returns `true` if a file of this name is read; capitals in its ending make no difference.
#[must_use]
pub fn is_configuration(name: &str) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    !is_ignored(name) && ending.is_some_and(|ending| ["yaml", "yml", "json"].contains(&ending.as_str()))
}

/// Returns `true` if the name of a file or directory hides it on purpose. Names that programs hide have another character behind the
/// dot: directories of ConfigMaps, locks of Emacs, and companion files of macOS.
#[must_use]
pub fn is_hidden(name: &str) -> bool {
    name.strip_prefix('.').is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['.', '#', '_']))
}

/// Returns `true` if a name in a watched directory that was created, removed or renamed can change what is loaded.
///
/// The links of a ConfigMap (`..data`) do, although they are hidden.
#[must_use]
pub fn can_matter(name: &str) -> bool {
    !is_ignored(name) || name == CONFIG_MAP_LINK
}

/// The link that is swapped when a ConfigMap changes, so that all of its files change at once.
pub const CONFIG_MAP_LINK: &str = "..data";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitfall_72_what_editors_leave_behind_is_ignored() {
        let ignored = [
            ".hidden.yaml",
            "..data",
            "..2026_01_01",
            ".git",
            "a.yaml~",
            ".a.yaml.swp",
            "a.yaml.swp",
            "a.yaml.tmp",
            "a.yaml.bak",
            "a.yaml.orig",
            "#a.yaml#",
            "4913",
        ];
        for name in ignored {
            assert!(is_ignored(name), "{name}");
            assert!(!is_configuration(name), "{name}");
        }
        for name in
            ["a.yaml", "a.yml", "a.json", "a.b.yaml", "#a.yaml", "~a.yaml", "a.YAML", "a.Yml", "A.JSON"]
        {
            assert!(is_configuration(name), "{name}");
        }
        for name in ["a.txt", "yaml", "YAML", "README.md", "a.YAML~", "a.json5"] {
            assert!(!is_configuration(name), "{name}");
        }
        assert!(can_matter("..data") && !can_matter("..data_tmp") && !can_matter(".a.swp"));
    }
}
