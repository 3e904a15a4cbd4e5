//! Reads a policy from its file. All faults are found at once, each with its place and with what would be right.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use xds_cache::group::Glob;
use xds_cache::identity::{
    ClaimPattern, DnsPattern, Fingerprint, SpiffePattern, SubjectPattern, TokenPattern,
};
use xds_codec::document::{Node, Position};
use xds_codec::fields::{At, Faults};
use xds_codec::{Diagnostic, Limits, Syntax, echo, nearest, parse};
use xds_units::parse_rfc3339;

use crate::claims::scalar;
use crate::issuer::{DEFAULT_LEEWAY, Issuer};
use crate::keys::KeySet;
use crate::policy::{Denied, Policy, Whom};
use crate::principal::{KnownToken, Patterns, Placed, Principal, Role, Scope};
use crate::token::{TokenHash, read_sha256};

/// Reads a file that the policy names, such as a key set. The error says why it cannot.
type ReadFile<'a> = &'a mut dyn FnMut(&str) -> Result<Vec<u8>, String>;

impl Policy {
    /// Reads a policy. `file` is its path for messages, and `read_file` reads the files that it names, as they are named.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, at least one diagnostic. None holds a token or a key.
    pub fn read(file: &str, text: &[u8], read_file: ReadFile<'_>) -> Result<Self, Vec<Diagnostic>> {
        let limits = Limits { max_bytes: MAX_POLICY_BYTES, ..Limits::default() };
        let documents = parse(file, text, Syntax::of_file(file), &limits).map_err(|mut found| {
            found.iter_mut().filter(|one| one.code == "empty-file").for_each(|one| {
                one.message = format!("the file is empty; an access policy has {}", list_of(&SECTIONS));
            });
            found
        })?;
        let mut reader = Reader { faults: Faults::new(file), read_file, issuers: HashSet::new() };
        if let Some(second) = documents.get(1) {
            reader.faults.add(
                "too-many-documents",
                At::Root,
                second.root(),
                "an access policy is one document",
            );
        }
        let policy = documents.first().map(|tree| reader.policy(tree.root())).unwrap_or_default();
        if reader.faults.is_empty() { Ok(policy) } else { Err(reader.faults.sorted()) }
    }
}

struct Reader<'f> {
    faults: Faults,
    read_file: ReadFile<'f>,
    /// The names of the issuers that the file has.
    issuers: HashSet<String>,
}

impl Reader<'_> {
    fn policy(&mut self, root: Node<'_>) -> Policy {
        if !self.faults.is_object(root, At::Root, &SECTIONS, "the access policy") {
            return Policy::default();
        }
        let issuers = self.each(root, "issuers", MAX_ISSUERS, Self::issuer);
        let principals = self.each(root, "principals", MAX_ENTRIES, Self::principal);
        let denied = self.each(root, "denied", MAX_ENTRIES, Self::denied);
        self.find_twice(root);
        Policy::new(&self.faults.file(), issuers, principals, denied)
    }

    /// Reads the items of a section.
    fn each<T>(
        &mut self,
        root: Node<'_>,
        section: &'static str,
        most: usize,
        read: impl Fn(&mut Self, Node<'_>, At<'_>) -> Option<T>,
    ) -> Vec<T> {
        let at = At::Field(&At::Root, section);
        let Some(items) = self.faults.list(root, at, section, most) else { return Vec::new() };
        items
            .into_iter()
            .enumerate()
            .filter_map(|(index, item)| read(self, item, At::Item(&at, index)))
            .collect()
    }

    fn issuer(&mut self, node: Node<'_>, at: At<'_>) -> Option<Issuer> {
        if !self.faults.is_object(node, at, &ISSUER_FIELDS, "an issuer") {
            return None;
        }
        let name = self.name(node, at);
        let issuer = self.faults.need_text(node, at, "issuer");
        let audiences = self.faults.texts(node, at, "audiences");
        if node.get("audiences").is_none() {
            let text = "the issuer has no `audiences`; write the names under which its tokens mean this server, such as \
                        audiences: [xds-server]";
            self.faults.add("missing-field", at, node, text);
        }
        let max_lifetime = self.duration(node, at, "maxLifetime");
        let leeway = self.duration(node, at, "leeway").unwrap_or(DEFAULT_LEEWAY);
        if leeway > MAX_LEEWAY {
            let text = format!("a leeway is for clocks that differ: at most {}s", MAX_LEEWAY.as_secs());
            self.faults.add_below("bad-duration", at, node, "leeway", text);
        }
        let keys = self.keys(node, at);
        let issuer = Issuer {
            name: name?,
            issuer: issuer?.to_owned(),
            audiences: audiences?,
            max_lifetime,
            leeway,
            keys: keys?,
        };
        let is_new = self.issuers.insert(issuer.name.clone());
        if !is_new {
            self.faults.add_below("duplicate-name", at, node, "name", "another issuer has this name");
        }
        is_new.then_some(issuer)
    }

    fn keys(&mut self, node: Node<'_>, at: At<'_>) -> Option<KeySet> {
        let path = self.faults.need_text(node, at, "jwksFile")?;
        let read = (self.read_file)(path).and_then(|text| KeySet::read(&text).map_err(|bad| bad.to_string()));
        match read {
            Ok(keys) => Some(keys),
            Err(reason) => {
                let text = format!("the key set {} cannot be used: {reason}", echo(path));
                self.faults.add_below("bad-jwks", at, node, "jwksFile", text);
                None
            }
        }
    }

    fn principal(&mut self, node: Node<'_>, at: At<'_>) -> Option<Principal> {
        if !self.faults.is_object(node, at, &PRINCIPAL_FIELDS, "a principal") {
            return None;
        }
        let name = self.name(node, at);
        let role = self.role(node, at);
        let scope =
            Scope { groups: self.globs(node, at, "groups"), namespaces: self.globs(node, at, "namespaces") };
        let may_act_for = self.faults.truth(node, at, "mayActFor").unwrap_or(false);
        let writes_per_minute = self.faults.count(node, at, "writesPerMinute");
        let tokens = self.items(node, at, "tokens", Self::token);
        let certificates = self.items(node, at, "certificates", Self::certificate);
        let jwt = self.items(node, at, "jwt", |reader, node, at| {
            let is_object = reader.faults.is_object(node, at, &JWT_FIELDS, "a token's pattern");
            let pattern = is_object.then(|| reader.token_pattern(node, at)).flatten()?;
            Some(Placed { value: SubjectPattern::Token(pattern), at: node.position() })
        });
        if ["tokens", "certificates", "jwt"].iter().all(|credential| node.get(credential).is_none()) {
            let text = "nobody can be this principal; give it `tokens`, `certificates` or `jwt`";
            self.faults.add("missing-field", at, node, text);
        }
        let name = name?.into();
        Some(Principal {
            name,
            role: role?,
            scope,
            may_act_for,
            writes_per_minute,
            tokens,
            certificates,
            jwt,
            at: node.position(),
        })
    }

    /// Reads the items of a list in a principal.
    fn items<T>(
        &mut self,
        node: Node<'_>,
        at: At<'_>,
        field: &'static str,
        read: impl Fn(&mut Self, Node<'_>, At<'_>) -> Option<T>,
    ) -> Vec<T> {
        let at = At::Field(&at, field);
        let Some(items) = self.faults.list(node, at, field, MAX_ENTRIES) else { return Vec::new() };
        items
            .into_iter()
            .enumerate()
            .filter_map(|(index, item)| read(self, item, At::Item(&at, index)))
            .collect()
    }

    fn role(&mut self, node: Node<'_>, at: At<'_>) -> Option<Role> {
        let text = self.faults.need_text(node, at, "role")?;
        let role = Role::ALL.into_iter().find(|role| role.as_str() == text);
        if role.is_none() {
            let message = format!("{} is no role; it is viewer, operator or admin", echo(text));
            let suggestion = nearest(text, Role::ALL.into_iter().map(Role::as_str));
            self.faults.add_below("bad-role", at, node, "role", message).suggest(suggestion);
        }
        role
    }

    fn token(&mut self, node: Node<'_>, at: At<'_>) -> Option<Placed<KnownToken>> {
        if !self.faults.is_object(node, at, &TOKEN_FIELDS, "a token") {
            return None;
        }
        let expires = self.faults.text(node, at, "expires").and_then(|text| {
            let end = parse_rfc3339(text);
            if end.is_none() {
                let message = format!("{} is no time; write it as 2027-03-01T00:00:00Z", echo(text));
                self.faults.add_below("bad-time", at, node, "expires", message);
            }
            end
        });
        self.faults.text(node, at, "note");
        let hash = self.faults.need_text(node, at, "sha256")?;
        match TokenHash::read(hash) {
            Ok(hash) => Some(Placed { value: KnownToken { hash, expires }, at: node.position() }),
            Err(error) => {
                self.faults.add_below("bad-hash", at, node, "sha256", error.to_string());
                None
            }
        }
    }

    /// A pattern of certificates: `{spiffe}`, `{dns}` or `{cn}`.
    fn certificate(&mut self, node: Node<'_>, at: At<'_>) -> Option<Placed<SubjectPattern>> {
        if !self.faults.is_object(node, at, &CERTIFICATE_FIELDS, "a certificate") {
            return None;
        }
        let value = self.name_of_certificate(node, at, &CERTIFICATE_FIELDS)?;
        Some(Placed { value, at: node.position() })
    }

    /// The one field of `fields` that names a certificate.
    fn name_of_certificate(
        &mut self,
        node: Node<'_>,
        at: At<'_>,
        fields: &[&'static str],
    ) -> Option<SubjectPattern> {
        let mut given = CERTIFICATE_FIELDS.into_iter().filter(|field| node.get(field).is_some());
        let (Some(field), None) = (given.next(), given.next()) else {
            let text = format!("expected exactly one of {}", list_of(fields));
            self.faults.add("wrong-fields", at, node, text);
            return None;
        };
        let text = self.faults.need_text(node, at, field)?;
        let pattern = match field {
            "spiffe" => SpiffePattern::new(text).map(SubjectPattern::Spiffe),
            "dns" => DnsPattern::new(text).map(SubjectPattern::Dns),
            _ => Ok(SubjectPattern::CommonName(text.into())),
        };
        match pattern {
            Ok(pattern) => Some(pattern),
            Err(error) => {
                self.faults.add_below("bad-pattern", at, node, field, error.to_string());
                None
            }
        }
    }

    /// `{issuer, subject, claims}`, of which something besides the issuer.
    fn token_pattern(&mut self, node: Node<'_>, at: At<'_>) -> Option<TokenPattern> {
        let subject = self.faults.text(node, at, "subject").map(Into::into);
        let claims = self.claims(node, at);
        if subject.is_none() && claims.is_empty() {
            let text = "every token of the issuer would match; add `subject`, `claims` or both";
            self.faults.add("missing-field", at, node, text);
        }
        let issuer = self.known_issuer(node, at)?;
        Some(TokenPattern { issuer: issuer.into(), subject, claims })
    }

    fn claims(&mut self, node: Node<'_>, at: At<'_>) -> Vec<(Box<str>, ClaimPattern)> {
        let Some(claims) = node.get("claims") else { return Vec::new() };
        let at = At::Field(&at, "claims");
        if !claims.is_object() {
            self.faults.wrong("an object of claims by JSON pointer, such as {/groups: admins}", claims, at);
        }
        let mut patterns = Vec::new();
        for entry in claims.entries() {
            let at = At::Field(&at, entry.key);
            if !entry.key.starts_with('/') {
                let message = "a claim is named by a JSON pointer, which begins with a slash";
                let suggestion = format!("/{}", entry.key);
                self.faults.add("bad-pointer", at, entry.value, message).suggest(Some(suggestion));
            }
            match scalar(entry.value) {
                Some(value) => patterns.push((entry.key.into(), ClaimPattern::Exactly(value))),
                None => self.faults.wrong("a string, a number or a bool", entry.value, at),
            }
        }
        patterns
    }

    /// The issuer of a pattern, which must be one of the file.
    fn known_issuer<'t>(&mut self, node: Node<'t>, at: At<'_>) -> Option<&'t str> {
        let issuer = self.faults.need_text(node, at, "issuer")?;
        if !self.issuers.contains(issuer) {
            let message = format!("there is no usable issuer of the name {} in `issuers`", echo(issuer));
            let suggestion = nearest(issuer, self.issuers.iter().map(String::as_str)).map(str::to_owned);
            self.faults.add_below("unknown-issuer", at, node, "issuer", message).suggest(suggestion);
        }
        Some(issuer)
    }

    fn denied(&mut self, node: Node<'_>, at: At<'_>) -> Option<Denied> {
        if !self.faults.is_object(node, at, &DENIED_FIELDS, "a denied identity") {
            return None;
        }
        let reason = self.faults.text(node, at, "reason").map(str::to_owned);
        let whom = if node.get("issuer").is_some() {
            self.denied_token(node, at)?
        } else if node.get("certificateSha256").is_some() {
            Whom::Certificate(self.fingerprint(node, at)?)
        } else {
            Whom::Subject(self.name_of_certificate(
                node,
                at,
                &["spiffe", "dns", "cn", "certificateSha256", "issuer"],
            )?)
        };
        Some(Denied { whom, reason, at: node.position() })
    }

    fn denied_token(&mut self, node: Node<'_>, at: At<'_>) -> Option<Whom> {
        let issuer = self.known_issuer(node, at)?.to_owned();
        let (subject, id) = (self.faults.text(node, at, "subject"), self.faults.text(node, at, "jwtId"));
        match (subject, id) {
            (None, Some(id)) => Some(Whom::TokenId { issuer, id: id.to_owned() }),
            (Some(subject), None) => {
                let (issuer, subject) = (issuer.into(), Some(subject.into()));
                Some(Whom::Subject(SubjectPattern::Token(TokenPattern {
                    issuer,
                    subject,
                    claims: Vec::new(),
                })))
            }
            (Some(_), Some(_)) | (None, None) => {
                self.faults.add("wrong-fields", at, node, "expected either `subject` or `jwtId`");
                None
            }
        }
    }

    fn fingerprint(&mut self, node: Node<'_>, at: At<'_>) -> Option<Fingerprint> {
        let text = self.faults.need_text(node, at, "certificateSha256")?;
        // openssl writes it with colons.
        let fingerprint = read_sha256(&text.replace(':', ""));
        if fingerprint.is_none() {
            let message = "expected the SHA-256 of a certificate: 64 hexadecimal digits, as `openssl x509 -noout \
                           -fingerprint -sha256` prints them";
            self.faults.add_below("bad-hash", at, node, "certificateSha256", message);
        }
        fingerprint.map(Fingerprint)
    }

    fn name(&mut self, node: Node<'_>, at: At<'_>) -> Option<String> {
        let name = self.faults.need_text(node, at, "name")?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_plain) {
            let text = format!("a name has 1 to {MAX_NAME_BYTES} letters, digits, `.`, `_`, `@` and `-`");
            self.faults.add_below("bad-name", at, node, "name", text);
            return None;
        }
        if RESERVED_NAMES.contains(&name) {
            let text =
                format!("{} stands for the server itself in the history; choose another name", echo(name));
            self.faults.add_below("bad-name", at, node, "name", text);
            return None;
        }
        Some(name.to_owned())
    }

    fn globs(&mut self, node: Node<'_>, at: At<'_>, field: &'static str) -> Patterns {
        if self.faults.texts(node, at, field).is_none() {
            return Patterns::default();
        }
        let items = node.get(field).and_then(Node::as_list).into_iter().flatten();
        let glob = |item: Node<'_>| Some(Placed { value: Glob::new(item.as_str()?), at: item.position() });
        Patterns::of(items.filter_map(glob).collect())
    }

    fn duration(&mut self, node: Node<'_>, at: At<'_>, field: &'static str) -> Option<Duration> {
        let text = self.faults.text(node, at, field)?;
        let duration = xds_cache::time::duration(text);
        if let Err(error) = &duration {
            self.faults.add_below("bad-duration", at, node, field, error.to_string());
        }
        duration.ok()
    }

    /// Refuses names and tokens of two principals.
    fn find_twice(&mut self, root: Node<'_>) {
        let mut names: HashMap<&str, Position> = HashMap::new();
        let mut hashes: HashMap<String, Position> = HashMap::new();
        let entries = root.get("principals").and_then(Node::as_list).into_iter().flatten();
        for (index, entry) in entries.enumerate() {
            let list = At::Field(&At::Root, "principals");
            let at = At::Item(&list, index);
            if let Some(name) = entry.get("name").and_then(Node::as_str)
                && let Some(first) = names.insert(name, entry.position())
            {
                let message = "another principal has this name";
                self.faults.add_below("duplicate-name", at, entry, "name", message).see(first);
            }
            let tokens = At::Field(&at, "tokens");
            for (index, token) in
                entry.get("tokens").and_then(Node::as_list).into_iter().flatten().enumerate()
            {
                let Some(hash) = token.get("sha256").and_then(Node::as_str) else { continue };
                if let Some(first) = hashes.insert(hash.to_ascii_lowercase(), token.position()) {
                    let (at, message) = (At::Item(&tokens, index), "another token has this hash");
                    self.faults.add_below("duplicate-token", at, token, "sha256", message).see(first);
                }
            }
        }
    }
}

/// `a`, `b` and `c`, for messages.
fn list_of(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match names.split_last() {
        Some((last, first)) if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => names.concat(),
    }
}

const SECTIONS: [&str; 3] = ["issuers", "principals", "denied"];
const ISSUER_FIELDS: [&str; 6] = ["name", "issuer", "audiences", "jwksFile", "maxLifetime", "leeway"];
const PRINCIPAL_FIELDS: [&str; 9] =
    ["name", "role", "groups", "namespaces", "mayActFor", "writesPerMinute", "tokens", "certificates", "jwt"];
const TOKEN_FIELDS: [&str; 3] = ["sha256", "expires", "note"];
const CERTIFICATE_FIELDS: [&str; 3] = ["spiffe", "dns", "cn"];
const JWT_FIELDS: [&str; 3] = ["issuer", "subject", "claims"];
const DENIED_FIELDS: [&str; 8] =
    ["spiffe", "dns", "cn", "certificateSha256", "issuer", "subject", "jwtId", "reason"];

/// Actors of the history that are no principals.
const RESERVED_NAMES: [&str; 7] = ["api", "file", "files", "rollout", "waves", "expiry", "anonymous"];

/// The longest policy in bytes. A principal takes some 200.
const MAX_POLICY_BYTES: usize = 4 << 20;
/// More principals or denied identities than this belong to an issuer, which can take tokens back itself.
const MAX_ENTRIES: usize = 10_000;
const MAX_ISSUERS: usize = 100;
const MAX_NAME_BYTES: usize = 128;
/// Clocks that differ by more are wrong.
const MAX_LEEWAY: Duration = Duration::from_secs(300);
